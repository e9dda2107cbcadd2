//! What is left on this machine of a world: its mounts and its loop devices, by the kernel's account.

use std::fs;
use std::path::{Path, PathBuf};

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
