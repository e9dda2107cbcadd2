//! The links under which a droplet finds its disks, and the device nodes that they lead to where a
//! droplet has nodes of its own.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{CWD, FileType, Mode};

use crate::state::Attachment;

/// What the names of disks begin with on a droplet.
const PREFIX: &str = "scsi-0DO_Volume_";
/// The mode of a droplet's own device nodes, as the kernel makes them: for root alone.
const NODE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);

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

/// The same with a node of the droplet's own for the device: its device folder is then all that a
/// machine needs of this one's devices.
pub(super) fn create_with_node(root: &Path, attachment: &Attachment, device: &Path) -> Result<()> {
    let name = device.file_name().context("a device has a name")?;
    let node = device_folder(root, attachment.droplet).join(name);
    let make = || -> io::Result<()> {
        let number = rustix::fs::stat(device)?.st_rdev;
        // The number of a device that was here before may be another's by now.
        if fs::symlink_metadata(&node).is_ok() {
            fs::remove_file(&node)?;
        }
        Ok(rustix::fs::mknodat(CWD, &node, FileType::BlockDevice, NODE_MODE, number)?)
    };
    fs::create_dir_all(device_folder(root, attachment.droplet))
        .and_then(|()| make())
        .with_context(|| format!("cannot make the device node {}", node.display()))?;
    create(root, attachment, &Path::new("../..").join(name))
}

/// Removes the attachment's link, and the node that it leads to if that is the droplet's own.
pub(super) fn remove(root: &Path, attachment: &Attachment) -> Result<()> {
    remove_link(&path(root, attachment))
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
                remove_link(&link)?;
            }
        }
    }
    Ok(())
}

/// The device folder of a droplet.
pub(super) fn device_folder(root: &Path, droplet: u64) -> PathBuf {
    root.join(format!("droplets/{droplet}/dev"))
}

fn path(root: &Path, attachment: &Attachment) -> PathBuf {
    let folder = device_folder(root, attachment.droplet);
    folder.join("disk/by-id").join(format!("{PREFIX}{}", attachment.name))
}

/// The link goes first: whoever finds it finds a device.
fn remove_link(link: &Path) -> Result<()> {
    let target = fs::read_link(link).ok();
    super::content::remove_file(link)?;
    match (target, link.parent()) {
        // A link to a node of this machine is absolute, and that node is the kernel's.
        (Some(target), Some(folder)) if target.is_relative() => {
            super::content::remove_file(&folder.join(target))
        }
        _ => Ok(()),
    }
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
