//! Publishing a staged filesystem.

use std::path::Path;

use ghost_host::{Access, DeviceNumber, FilesystemKind, MountEntry, MountTable, TargetKind};

use super::{
    Layer, PublishRequest, Step, bind, decide_others, decide_target, effective_access, undo,
};
use crate::error::{Error, Result};
use crate::node::condition::{Condition, condition, has_shut_down, stopped_writing};
use crate::node::connect::{find, is_believed, is_device_node};
use crate::node::error::domain;
use crate::node::stage::has_stopped;
use crate::node::{Node, place};
use crate::volume::Disk;

pub(super) async fn publish(
    node: &Node,
    disk: &Disk,
    request: &PublishRequest,
    kind: FilesystemKind,
) -> Result<()> {
    // Reads that do not depend on each other: what takes time is the way to a thread and back.
    let (staging, target, table) = tokio::join!(
        biased;
        place::resolve(node, "staging path", &request.staging),
        place::resolve(node, "target path", &request.target),
        node.host.mounts(),
    );
    let staging = staging.map_err(not_staged)?;
    let target = target?;
    if staging == target {
        return Err(Error::invalid("the target path is the staging path"));
    }
    let access = effective_access(request);

    let table = table.map_err(domain)?;
    node.kubelet_dir.check(&table, &target)?;
    if table.at(&target).any(is_device_node) {
        return Err(Error::conflict(
            "a device is published there, but a filesystem is asked for; unpublish it first",
        ));
    }
    let (staged, number) = observe_staged(node, disk, &table, &staging).await?;
    decide_staged(staged, kind, access)?;
    if has_shut_down(node, staged).await? {
        return Err(has_stopped());
    }
    let layers = observe_target(node, &table, &target, staged).await?;
    let step = decide_target(&layers, access)?;
    if step == Step::Done {
        return Ok(());
    }
    let others: Vec<_> = table
        .of_device(number)
        // A part of it that is bound elsewhere belongs to a pod, which has its own target too.
        .filter(|entry| entry.root == staged.root)
        .filter(|entry| entry.target != staging && entry.target != target)
        .collect();
    decide_others(&request.capability, &others)?;

    if step == Step::ClearAndBind {
        tracing::warn!(path = %target.display(), ?layers, "taking off mounts that are of no use");
        place::clear(node, &target).await?;
    }
    let bound = match bind(node, &staging, &target, TargetKind::Directory, access).await {
        Ok(()) => verify(node, staged, &target, access).await,
        failed => failed,
    };
    if bound.is_err() {
        undo(node, &target).await;
    }
    bound
}

/// A staging path whose very folder is missing is one where nothing is staged.
fn not_staged(error: Error) -> Error {
    use crate::error::ErrorKind::{Failed, Precondition};
    if error.kind() == Failed { error.into_kind(Precondition) } else { error }
}

/// The mount at the staging path, if it is a live one of this very disk.
async fn observe_staged<'a>(
    node: &Node,
    disk: &Disk,
    table: &'a MountTable,
    staging: &'a Path,
) -> Result<(&'a MountEntry, DeviceNumber)> {
    let refuse = |why: &str| {
        Err(Error::precondition(format!(
            "the volume is not staged at {}: {why}; it is staged before it is published",
            staging.display()
        )))
    };
    let Some(entry) = table.at(staging).next_back() else {
        return refuse("nothing is mounted there");
    };
    let device = match condition(node, entry).await? {
        Condition::Live(device) => device,
        Condition::Dead => return refuse("the device of what is mounted there is gone"),
        Condition::NoDevice => return refuse("what is mounted there is no disk"),
    };
    if !is_believed(node, disk, &device) && find(node, disk).await?.number() != device.number() {
        return refuse("another disk is mounted there");
    }
    Ok((entry, device.number()))
}

fn decide_staged(staged: &MountEntry, kind: FilesystemKind, access: Access) -> Result<()> {
    if staged.filesystem != kind.name() {
        return Err(Error::precondition(format!(
            "the volume is staged as {}, but {kind} is asked for",
            staged.filesystem
        )));
    }
    if access == Access::ReadWrite && staged.access == Access::ReadOnly {
        return Err(Error::precondition(
            "the volume is staged for reading only, but is to be published for writing",
        ));
    }
    if access == Access::ReadWrite && stopped_writing(staged) {
        return Err(has_stopped());
    }
    Ok(())
}

async fn observe_target(
    node: &Node,
    table: &MountTable,
    target: &Path,
    staged: &MountEntry,
) -> Result<Vec<Layer>> {
    let mut layers = Vec::new();
    for entry in table.at(target) {
        layers.push(if entry.device == staged.device && entry.root == staged.root {
            Layer::Own(entry.access)
        } else if let Condition::Dead = condition(node, entry).await? {
            Layer::Dead
        } else {
            Layer::Other(format!("{} of kind {}", entry.source.display(), entry.filesystem))
        });
    }
    Ok(layers)
}

/// Looks whether what is at the target now is what was staged, once, and with the right access.
async fn verify(node: &Node, staged: &MountEntry, target: &Path, access: Access) -> Result<()> {
    let table = node.host.mounts().await.map_err(domain)?;
    let layers: Vec<_> = table.at(target).collect();
    match layers[..] {
        [entry] if entry.device != staged.device || entry.root != staged.root => {
            Err(Error::unavailable("the staged mount changed while it was being bound"))
        }
        [entry] if entry.access != access => {
            Err(Error::failed("the bind did not get the access that was asked for"))
        }
        [_] => Ok(()),
        _ => Err(Error::unavailable(format!(
            "{} mounts are at the target after the bind instead of one",
            layers.len()
        ))),
    }
}
