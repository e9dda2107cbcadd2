//! Whether what is mounted at a path still has its device, told without touching the mount itself;
//! and whether it is still of use, if it has.

use ghost_host::{Access, BlockDevice, DeviceHealth, FilesystemKind, MountEntry};

use super::Node;
use super::error::domain;
use crate::error::Result;

/// What stands behind a mount.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// A device that is there and still has the filesystem that was mounted of it.
    Live(BlockDevice),
    /// Nothing any more: the device is gone, cannot be read, or is no longer what was mounted.
    Dead,
    /// No block device: a memory filesystem, a network, a part of another filesystem.
    NoDevice,
}

/// Finds out what stands behind a mount, by the device's number.
///
/// A filesystem answers from memory long after its device has gone, so that it is the device that
/// is asked, and really read, with a limit: one that hangs is an error that says so (`Timeout`).
pub(super) async fn condition(node: &Node, entry: &MountEntry) -> Result<Condition> {
    let kind = FilesystemKind::from_name(&entry.filesystem);
    let Some(number) = entry.device else {
        // The number of a btrfs is that of its source, which has one as long as it is there.
        let gone = kind == Some(FilesystemKind::Btrfs);
        return Ok(if gone { Condition::Dead } else { Condition::NoDevice });
    };
    // Of other kinds it is not known how they look, and they are never taken for dead.
    if kind.is_some() {
        match node.host.device_health(number, kind).await.map_err(domain)? {
            DeviceHealth::Live { .. } => {}
            DeviceHealth::Gone | DeviceHealth::Failing(_) | DeviceHealth::Replaced => {
                return Ok(Condition::Dead);
            }
        }
    }
    match node.host.open_device(number).await {
        Ok(Some(device)) => Ok(Condition::Live(device)),
        Ok(None) => Ok(Condition::Dead),
        Err(error) if error.is_of_the_device() => Ok(Condition::Dead),
        Err(error) => Err(domain(error)),
    }
}

/// Whether the filesystem that is mounted here has shut down, as an xfs does by itself when it meets
/// an error: then it is of no use to anybody, also for reading. Only for one whose device is live.
pub(super) async fn has_shut_down(node: &Node, entry: &MountEntry) -> Result<bool> {
    node.host.has_shut_down(&entry.target).await.map_err(domain)
}

/// Whether a filesystem that was mounted for writing stopped taking writes, which it does by itself
/// when it meets an error.
pub(super) fn stopped_writing(entry: &MountEntry) -> bool {
    let stopped = |option: &String| matches!(option.as_str(), "ro" | "emergency_ro" | "shutdown");
    entry.access == Access::ReadWrite && entry.super_options.iter().any(stopped)
}
