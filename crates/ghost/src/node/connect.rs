//! From a locator to a device that is held open, and the marks by which it is known.

use std::ffi::OsStr;

use ghost_host::{BlockDevice, DeviceNumber, DiskAddress, Identity, MountEntry, MountTable};

use super::Node;
use super::error::domain;
use crate::error::{Error, Result};
use crate::volume::{Disk, VolumeId};

/// Finds the disk, waiting for it, and makes sure that it is used whole.
///
/// # Errors
/// `Unavailable` when it is not there, or another disk is in its place; `Failed` when something is
/// built on it: a disk that we made and handed out as a filesystem has neither partitions nor
/// holders.
pub(super) async fn find(node: &Node, disk: &Disk) -> Result<BlockDevice> {
    let device = find_unheld(node, disk).await?;
    if device.partitions().is_empty() {
        return Ok(device);
    }
    let names = device.partitions().iter().map(|partition| format!("partition {}", partition.name));
    Err(built_upon(disk, &device, &names.collect::<Vec<_>>()))
}

/// The same, with partitions or without.
async fn find_unheld(node: &Node, disk: &Disk) -> Result<BlockDevice> {
    let address = DiskAddress {
        link: node.disk_link.path_of(disk)?,
        names: names(disk),
        minimum_size: disk.minimum_size.get(),
    };
    let device = node.host.find_disk(&address, node.patience).await.map_err(domain)?;
    if device.users().is_empty() {
        Ok(device)
    } else {
        Err(built_upon(disk, &device, device.users()))
    }
}

fn built_upon(disk: &Disk, device: &BlockDevice, users: &[String]) -> Error {
    Error::failed(format!(
        "{} is not used as the disk of volume {}, because others build on it: {}",
        device.path().display(),
        disk.id,
        users.join(", ")
    ))
}

/// The names by which the disk may introduce itself.
pub(super) fn names(disk: &Disk) -> Vec<String> {
    let slot = disk.slot.as_deref().map(Identity::name_of_slot);
    [disk.id.as_str().to_owned(), disk.name.clone()].into_iter().chain(slot).collect()
}

/// Whether what is mounted at a path of this volume's own counts as its disk without being looked
/// for: it says so in full; or it can say nothing, and the operator allows such disks. Then the path
/// is all that tells, and it is one that the kubelet gave for this volume.
pub(super) fn is_believed(node: &Node, disk: &Disk, mounted: &BlockDevice) -> bool {
    let says_nothing = match mounted.identity() {
        Identity::Unreadable => true,
        // Its slot is something, but there is nothing to compare it with.
        Identity::Xen(_) => disk.slot.is_none(),
        _ => false,
    };
    mounted.identity().is_one_of(&names(disk))
        || node.allow_unidentified && says_nothing && mounted.size() >= disk.minimum_size.get()
}

/// Whether anything proves that the device is this disk. Nothing does where a disk that says nothing
/// was taken because the operator allows it.
pub(super) fn is_proven(disk: &Disk, device: &BlockDevice) -> bool {
    match device.identity() {
        Identity::Unreadable => false,
        Identity::Xen(_) => disk.slot.is_some(),
        Identity::Scsi(_) | Identity::Virtio(_) | Identity::Nvme(_) | Identity::Loop(_) => true,
    }
}

/// Finds the disk of a block volume. Its bytes tell nothing of whose they are, and neither does
/// anything else once the call is over, so that it has to be proven. Partitions on it are its user's
/// affair, as those of a virtual machine are.
///
/// # Errors
/// As for [`find`]; `Precondition` when nothing proves whose the disk is.
pub(super) async fn find_proven(node: &Node, disk: &Disk) -> Result<BlockDevice> {
    let device = find_unheld(node, disk).await?;
    if is_proven(disk, &device) {
        return Ok(device);
    }
    Err(Error::precondition(format!(
        "{} does not say whose disk it is, and a block volume is not used on trust: use it as a \
         filesystem, or have the cloud tell the slot of its disks",
        device.path().display()
    )))
}

/// Whether the device is certainly that of another volume than this. Most disks say the name that
/// the cloud gave them, which a call with no more than the id cannot be held against; a loop device
/// says the file, which has the id for its name, and perhaps behind it that it was deleted.
pub(super) fn is_of_another(id: &VolumeId, device: &BlockDevice) -> bool {
    matches!(device.identity(), Identity::Loop(file)
        if file.file_name().and_then(OsStr::to_str).is_some_and(|name| !name.starts_with(id.as_str())))
}

/// Where the device is published as a device. `/dev` itself, and a node bound to where it is
/// anyway, as container runtimes do, are not among them.
pub(super) async fn block_targets<'a>(
    node: &Node,
    table: &'a MountTable,
    device: &BlockDevice,
) -> Result<Vec<&'a MountEntry>> {
    let mut found = Vec::new();
    for entry in table.entries() {
        let is_candidate = is_device_node(entry)
            && entry.root.file_name() == device.path().file_name()
            && entry.target != device.path();
        if is_candidate && node_at(node, entry).await? == Some(device.number()) {
            found.push(entry);
        }
    }
    Ok(found)
}

/// Whether a single node of a device folder may be mounted here, by the table's account.
pub(super) fn is_device_node(entry: &MountEntry) -> bool {
    matches!(entry.filesystem.as_str(), "devtmpfs" | "tmpfs" | "ramfs")
        && entry.device.is_none()
        && entry.root.parent().is_some()
}

/// The device whose node is bound here. Only for entries of a device folder: looking at the root
/// of another mount may hang.
pub(super) async fn node_at(node: &Node, entry: &MountEntry) -> Result<Option<DeviceNumber>> {
    node.host.device_at(&entry.target).await.map_err(domain)
}
