//! Publishing a device as itself.

use std::path::Path;

use ghost_host::{Access, BlockDevice, MountTable, TargetKind};

use super::{
    Layer, PublishRequest, Step, bind, decide_others, decide_target, effective_access, undo,
};
use crate::error::{Error, Result};
use crate::node::condition::{Condition, condition};
use crate::node::connect::{block_targets, find_proven, is_device_node, node_at};
use crate::node::error::domain;
use crate::node::stage::not_mounted;
use crate::node::{Node, place};
use crate::volume::Disk;

pub(super) async fn publish(node: &Node, disk: &Disk, request: &PublishRequest) -> Result<()> {
    if effective_access(request) == Access::ReadOnly {
        return Err(Error::invalid(
            "a block volume cannot be published for reading only: a read-only bind of a device \
             node does not keep its user from writing to the device",
        ));
    }
    place::check("staging path", &request.staging)?;
    let target = place::resolve(node, "target path", &request.target).await?;

    let device = find_proven(node, disk).await?;
    let table = node.host.mounts().await.map_err(domain)?;
    node.kubelet_dir.check(&table, &target)?;
    if table.at(&target).any(|entry| entry.device == Some(device.number())) {
        return Err(Error::conflict(
            "the volume is published there as a filesystem, but as a device is asked for; \
             unpublish it first",
        ));
    }
    not_mounted(&table, &device)?;
    let layers = observe_target(node, &table, &target, &device).await?;
    let step = decide_target(&layers, Access::ReadWrite)?;
    if step == Step::Done {
        return Ok(());
    }
    let mut others = block_targets(node, &table, &device).await?;
    others.retain(|entry| entry.target != target);
    decide_others(&request.capability, &others)?;

    if step == Step::ClearAndBind {
        tracing::warn!(path = %target.display(), ?layers, "taking off mounts that are of no use");
        place::clear(node, &target).await?;
    }
    let bound = match bind(node, device.path(), &target, TargetKind::File, Access::ReadWrite).await
    {
        Ok(()) => verify(node, &target, &device).await,
        failed => failed,
    };
    if bound.is_err() {
        undo(node, &target).await;
    }
    bound
}

/// What is mounted at the target, the topmost last. Only the topmost can be looked at: the ones
/// below count as what it is, or as dead, unless they are filesystems in order.
async fn observe_target(
    node: &Node,
    table: &MountTable,
    target: &Path,
    device: &BlockDevice,
) -> Result<Vec<Layer>> {
    let entries: Vec<_> = table.at(target).collect();
    let Some((top, below)) = entries.split_last() else { return Ok(Vec::new()) };
    let mut layers = Vec::new();
    for entry in below {
        let is_in_order =
            !is_device_node(entry) && !matches!(condition(node, entry).await?, Condition::Dead);
        layers.push(if is_in_order {
            Layer::Other(format!("a mount of kind {}", entry.filesystem))
        } else {
            Layer::Dead
        });
    }
    let node_number = if is_device_node(top) { node_at(node, top).await? } else { None };
    layers.push(match node_number {
        Some(number) if number == device.number() => Layer::Own(Access::ReadWrite),
        Some(number) => match node.host.open_device(number).await.map_err(domain)? {
            Some(other) => Layer::Other(format!("the device {}", other.path().display())),
            None => Layer::Dead,
        },
        // A node that was removed from the device folder.
        None if top.filesystem == "devtmpfs" && top.root != Path::new("/") => Layer::Dead,
        None => match condition(node, top).await? {
            Condition::Dead => Layer::Dead,
            _ => Layer::Other(format!("a mount of kind {}", top.filesystem)),
        },
    });
    Ok(layers)
}

/// Looks whether what is at the target now is the device that was verified, once.
async fn verify(node: &Node, target: &Path, device: &BlockDevice) -> Result<()> {
    let table = node.host.mounts().await.map_err(domain)?;
    let layers: Vec<_> = table.at(target).collect();
    let seen = match layers[..] {
        [entry] => node_at(node, entry).await?,
        _ => None,
    };
    if seen == Some(device.number()) {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "the target is not the device {} after {} was bound to it",
        device.number(),
        device.path().display()
    )))
}
