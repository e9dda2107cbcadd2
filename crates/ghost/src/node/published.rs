//! What a volume is published as at a path, for the calls that get little more than the path.

use std::path::Path;

use ghost_host::{BlockDevice, FilesystemKind, MountEntry, MountTable};

use super::connect::{is_device_node, is_of_another, node_at};
use super::error::domain;
use super::{Node, place};
use crate::error::{Error, Result};
use crate::volume::VolumeId;

/// A volume as it is found at a path.
#[derive(Clone, Debug)]
pub(super) enum Published {
    /// As a filesystem of this device, mounted by this entry of the table.
    Filesystem(MountEntry, BlockDevice),
    /// As this device.
    Block(BlockDevice),
}

impl Published {
    fn device(&self) -> &BlockDevice {
        let (Self::Filesystem(_, device) | Self::Block(device)) = self;
        device
    }
}

/// What is published at the path, of the volume that is staged at `staging` where that is known.
///
/// # Errors
/// `NotFound` when no volume is there, or another than is staged; `Failed` when its device is gone.
pub(super) async fn find(
    node: &Node,
    id: &VolumeId,
    path: &Path,
    staging: Option<&Path>,
) -> Result<(Published, MountTable)> {
    let absent = || Error::not_found(format!("volume {id} is not published at {}", path.display()));
    let place = place::looked_for(node, path).await?.ok_or_else(absent)?;
    let table = node.host.mounts().await.map_err(domain)?;
    let published = look(node, id, &table, &place).await?.ok_or_else(absent)?;
    if let Some(staging) = staging
        && let Some(staging) = place::looked_for(node, staging).await?
        && let Some(entry) = table.at(&staging).next_back()
        && entry.device.is_some_and(|staged| staged != published.device().number())
    {
        return Err(absent().context("another volume is staged at the staging path that was given"));
    }
    Ok((published, table))
}

async fn look(
    node: &Node,
    id: &VolumeId,
    table: &MountTable,
    place: &Path,
) -> Result<Option<Published>> {
    let Some(entry) = table.at(place).next_back() else { return Ok(None) };
    let gone = |what: &str| {
        Error::failed(format!(
            "the device{what} of volume {id} at {} is gone; the volume was detached while it was in \
             use",
            place.display()
        ))
    };
    let (number, is_block) = match entry.device {
        Some(number) => (number, false),
        None if is_device_node(entry) => match node_at(node, entry).await? {
            Some(number) => (number, true),
            None => return Ok(None),
        },
        // The number of a btrfs is that of its source, which has one as long as it is there.
        None if entry.filesystem == FilesystemKind::Btrfs.name() => return Err(gone("")),
        None => return Ok(None),
    };
    let device = node.host.open_device(number).await.map_err(domain)?;
    let device = device.ok_or_else(|| gone(&format!(" {number}")))?;
    if is_of_another(id, &device) {
        return Ok(None);
    }
    Ok(Some(if is_block {
        Published::Block(device)
    } else {
        Published::Filesystem(entry.clone(), device)
    }))
}
