//! What the reference driver does to the kernel: bind mounts and loop devices.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::{MountFlags, UnmountFlags, mount_bind, mount_remount, unmount};

/// Binds one path to another.
pub(crate) fn bind(source: &Path, target: &Path, readonly: bool) -> io::Result<()> {
    mount_bind(source, target)?;
    if readonly {
        mount_remount(target, MountFlags::BIND | MountFlags::RDONLY, "")?;
    }
    Ok(())
}

/// Takes one mount away from a path, and answers whether there was one.
pub(crate) fn unbind(target: &Path) -> bool {
    unmount(target, UnmountFlags::DETACH).is_ok()
}

/// A loop device over a file.
pub(crate) fn attach(file: &Path) -> io::Result<PathBuf> {
    let output = Command::new("losetup").args(["--find", "--show"]).arg(file).output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    Ok(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Detaches a loop device.
pub(crate) fn detach(device: &Path) {
    let _ = Command::new("losetup").arg("--detach").arg(device).status();
}

/// Makes the disk of a volume.
pub(crate) fn make(disk: &Path, block: bool, size: i64) -> io::Result<()> {
    if block {
        File::create(disk)?.set_len(u64::try_from(size).unwrap_or(0))
    } else {
        fs::create_dir_all(disk)
    }
}

/// What is on a disk.
pub(crate) fn content(disk: &Path) -> Vec<u8> {
    let file = if disk.is_dir() { disk.join("conformance") } else { disk.to_owned() };
    fs::read(file).unwrap_or_default()
}

/// Puts on a disk what was on another.
pub(crate) fn fill(disk: &Path, content: &[u8]) -> io::Result<()> {
    use std::io::Write;
    if disk.is_dir() {
        fs::write(disk.join("conformance"), content)
    } else {
        fs::OpenOptions::new().write(true).open(disk)?.write_all(content)
    }
}

/// Takes away what is on a disk.
pub(crate) fn wipe(disk: &Path) {
    if disk.is_dir() {
        let _ = fs::remove_file(disk.join("conformance"));
    } else {
        let size = fs::metadata(disk).map_or(0, |found| found.len());
        let _ = File::create(disk).and_then(|file| file.set_len(size));
    }
}

/// Unmounts and detaches what is below a folder.
pub(crate) fn take_away_below(folder: &Path) {
    let folder = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = table.lines().filter_map(|line| line.split(' ').nth(4));
    let mut points: Vec<PathBuf> = points.map(|point| PathBuf::from(unescaped(point))).collect();
    points.retain(|point| point.starts_with(&folder));
    for point in points.into_iter().rev() {
        unbind(&point);
    }
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        if backing.is_ok_and(|file| Path::new(file.trim_end()).starts_with(&folder)) {
            detach(&Path::new("/dev").join(entry.file_name()));
        }
    }
}

fn unescaped(point: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(point.to_owned(), |text, (from, to)| text.replace(from, to))
}
