//! Staging a block volume: nothing is mounted, and nothing may be.

use std::path::Path;

use ghost_host::{BlockDevice, MountTable};

use super::decide_elsewhere;
use crate::error::{Error, Result};
use crate::node::condition::{Condition, condition};
use crate::node::connect::find_proven;
use crate::node::error::domain;
use crate::node::{Node, place};
use crate::volume::Disk;

pub(super) async fn stage(node: &Node, disk: &Disk, staging: &Path) -> Result<()> {
    let staging = place::resolve(node, "staging path", staging).await?;
    let device = find_proven(node, disk).await?;
    let table = node.host.mounts().await.map_err(domain)?;
    node.kubelet_dir.check(&table, &staging)?;
    if let Some(entry) = table.at(&staging).next_back() {
        let what = format!(
            "{} is mounted at the staging path as {}, but a block volume is asked for; unstage it \
             first",
            entry.source.display(),
            entry.filesystem
        );
        match condition(node, entry).await? {
            Condition::Dead => place::clear(node, &staging).await?,
            _ if entry.device == Some(device.number()) => return Err(Error::conflict(what)),
            _ => return Err(Error::precondition(what)),
        }
    }
    let table = node.host.mounts().await.map_err(domain)?;
    not_mounted(&table, &device)?;
    // From now on the bytes are somebody's, whatever was begun before.
    node.notes.remove(&disk.id).await
}

/// Makes sure that nobody has a filesystem of the device or of a part of it mounted: writing to both
/// destroys it.
pub(in crate::node) fn not_mounted(table: &MountTable, device: &BlockDevice) -> Result<()> {
    for partition in device.partitions() {
        if let Some(entry) = table.of_device(partition.number).next() {
            return Err(Error::failed(format!(
                "{} of {} is mounted at {} as {}; a block volume has to be its user's alone",
                partition.name,
                device.path().display(),
                entry.target.display(),
                entry.filesystem
            )));
        }
    }
    decide_elsewhere(table, device, None).map(drop)
}
