//! The links under which a droplet finds its disks.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::state::Attachment;

/// What the names of disks begin with on a droplet.
const PREFIX: &str = "scsi-0DO_Volume_";

/// Makes the attachment's link lead to this device, in one step also if it led elsewhere.
pub(super) fn create(root: &Path, attachment: &Attachment, device: &Path) -> Result<()> {
    let link = path(root, attachment);
    let folder = link.parent().unwrap_or(root);
    let new = folder.join(format!(".new-{}", attachment.volume));
    let make = || -> io::Result<()> {
        fs::create_dir_all(folder)?;
        if fs::symlink_metadata(&new).is_ok() {
            fs::remove_file(&new)?;
        }
        symlink(device, &new)?;
        fs::rename(&new, &link)
    };
    make().with_context(|| format!("cannot make the link {}", link.display()))
}

/// Removes the attachment's link.
pub(super) fn remove(root: &Path, attachment: &Attachment) -> Result<()> {
    super::content::remove_file(&path(root, attachment))
}

/// Removes every link below the droplets' folders that belongs to none of these.
pub(super) fn remove_all_but<'a>(
    root: &Path,
    attachments: impl IntoIterator<Item = &'a Attachment>,
) -> Result<()> {
    let wanted: HashSet<PathBuf> =
        attachments.into_iter().map(|attachment| path(root, attachment)).collect();
    for droplet in entries(&root.join("droplets"))? {
        for link in entries(&droplet.join("dev/disk/by-id"))? {
            if !wanted.contains(&link) {
                super::content::remove_file(&link)?;
            }
        }
    }
    Ok(())
}

fn path(root: &Path, attachment: &Attachment) -> PathBuf {
    let folder = root.join("droplets").join(attachment.droplet.to_string());
    folder.join("dev/disk/by-id").join(format!("{PREFIX}{}", attachment.name))
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = || -> io::Result<Vec<PathBuf>> {
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
    };
    match list() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other.with_context(|| format!("cannot list {}", folder.display())),
    }
}
