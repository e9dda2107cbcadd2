//! The kernel's loop devices, as sysfs lists them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::cut_off;

/// A loop device that has a file.
#[derive(Debug)]
pub(super) struct LoopEntry {
    /// Its node.
    pub(super) device: PathBuf,
    /// The path that its file has or had.
    pub(super) file: PathBuf,
    /// Whether that file is gone from this path, perhaps with another in its place.
    pub(super) deleted: bool,
    /// Whether it was cut off from its file and only lingers because something holds it open.
    pub(super) cut_off: bool,
}

/// The loop devices over files in this folder, also over those that were removed meanwhile.
pub(super) fn below(folder: &Path) -> Result<Vec<LoopEntry>> {
    let devices = fs::read_dir("/sys/block").context("cannot list /sys/block")?;
    let mut entries = Vec::new();
    for device in devices {
        let name = device.context("cannot list /sys/block")?.file_name();
        let attributes = Path::new("/sys/block").join(&name).join("loop");
        // A device without a file has no such folder; one may lose its file at any moment.
        let Ok(file) = fs::read_to_string(attributes.join("backing_file")) else { continue };
        let Ok(limit) = fs::read_to_string(attributes.join("sizelimit")) else { continue };
        let file = file.trim_end_matches('\n');
        let present = file.strip_suffix(" (deleted)");
        let (deleted, file) = (present.is_some(), PathBuf::from(present.unwrap_or(file)));
        if file.parent() == Some(folder) {
            let cut_off = limit.trim() == cut_off::SIZE_LIMIT.to_string();
            entries.push(LoopEntry {
                device: Path::new("/dev").join(name),
                file,
                deleted,
                cut_off,
            });
        }
    }
    Ok(entries)
}
