//! What is left on this machine of a world: its mounts and its loop devices, by the kernel's account.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};

use rustix::mount::{UnmountFlags, unmount};

use crate::command::{output, program};

/// The mount points at or below a folder, outermost first.
pub fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let targets = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    targets.filter(|target| target.starts_with(folder)).collect()
}

/// The loop devices whose files are below a folder.
pub fn loops_below(folder: &Path) -> Vec<String> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        if backing.is_ok_and(|file| Path::new(file.trim_end()).starts_with(folder)) {
            devices.push(format!("/dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    devices
}

/// Unmounts everything below a folder, innermost first, and answers the commands that would do
/// what could not be done.
pub fn unmount_below(folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for target in mounts_below(folder).into_iter().rev() {
        if unmount(&target, UnmountFlags::DETACH).is_err() {
            left.push(format!("umount --lazy {}", target.display()));
        }
    }
    left
}

/// Detaches every loop device whose file is below a folder, and answers the commands that would
/// do what could not be done.
pub fn detach_below(folder: &Path) -> Vec<String> {
    let mut left = Vec::new();
    for device in loops_below(folder) {
        // In a group of its own, so that a second Ctrl-C does not leave the device behind.
        let mut command = program("losetup");
        command.arg("--detach").arg(&device).process_group(0);
        // Another may have detached it meanwhile, such as the simulator that had it.
        if output(&mut command).is_err() && loops_below(folder).contains(&device) {
            left.push(format!("losetup --detach {device}"));
        }
    }
    left
}
