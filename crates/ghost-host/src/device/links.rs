//! The disks that the links of one folder lead to.

use std::fs;
use std::io;
use std::path::Path;

use crate::device::{DeviceNumber, Roots, block_number};
use crate::error::{Error, Result};

/// Lists as [`crate::Host::linked_disks`] promises.
pub(crate) fn linked_disks(roots: &Roots, folder: &Path) -> Result<Vec<(String, DeviceNumber)>> {
    let folder = roots.devices.join(folder);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        // udev makes the folder with the first link in it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", &folder)(error)),
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", &folder))?;
        // A link may dangle at any moment, and then there is no disk.
        let Ok(stat) = rustix::fs::stat(entry.path()) else { continue };
        let (Ok(number), Ok(name)) = (block_number(stat), entry.file_name().into_string()) else {
            continue;
        };
        if !roots.folder(number).join("partition").exists() {
            found.push((name, number));
        }
    }
    found.sort();
    Ok(found)
}
