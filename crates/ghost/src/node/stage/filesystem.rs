//! Staging a filesystem: the disk prepared, mounted, and looked at afterwards.

use ghost_host::{BlockDevice, Content, Format, Mount, MountTable, TargetKind};

use super::top::{self, Step};
use super::{StageRequest, decide_elsewhere, growth, purpose};
use crate::error::{Error, Result};
use crate::node::condition::has_shut_down;
use crate::node::connect::{block_targets, find, is_proven};
use crate::node::content::{self, Found, Plan, Wanted};
use crate::node::error::{domain, domain_of_mount};
use crate::node::format_note::identity_text;
use crate::node::{Node, place};
use crate::volume::Disk;

/// Mounts the filesystem at the staging path, making and growing it as far as it is needed.
pub(super) async fn stage(
    node: &Node,
    disk: &Disk,
    request: &StageRequest,
    wanted: &Wanted,
    options: &[String],
) -> Result<()> {
    let staging = place::resolve(node, "staging path", &request.staging).await?;
    let mount = Mount {
        target: staging.clone(),
        kind: wanted.kind,
        access: wanted.access,
        options: options.to_vec(),
    };

    let mut table = node.host.mounts().await.map_err(domain)?;
    node.kubelet_dir.check(&table, &staging)?;
    let top = table.at(&staging).next_back();
    let seen = top::observe(node, disk, top, &table).await?;
    if top::decide(&seen.top, wanted)? == Step::Done {
        node.notes.remove(&disk.id).await?;
        return match seen.mounted {
            // The call that mounted it may have ended before it grew.
            Some(device) => growth::grow(node, &device, &mount).await,
            None => Ok(()),
        };
    }
    // Before anything is taken off, so that it is known what to put in its place.
    let device = match seen.found {
        Some(device) => device,
        None => find(node, disk).await?,
    };
    if top.is_some() {
        tracing::warn!(path = %staging.display(), seen = ?seen.top,
            "taking off a mount that is of no use");
        place::clear(node, &staging).await?;
        table = node.host.mounts().await.map_err(domain)?;
    }
    let in_use = decide_elsewhere(&table, &device, Some(wanted.kind))?;
    refuse_shut_down(node, &table, &device).await?;
    if let Some(entry) = block_targets(node, &table, &device).await?.first() {
        return Err(Error::precondition(format!(
            "the volume is in use as a block device at {}; it is mounted after it is unpublished \
             there",
            entry.target.display()
        )));
    }
    let found = Found {
        content: node.host.probe(&device).await.map_err(domain)?,
        // A note says something of a disk that is proven to be the one it speaks of, and no other.
        cut_short: is_proven(disk, &device)
            && node.notes.is_for(&disk.id, &identity_text(&device)).await?,
        in_use,
    };
    let plan = content::decide(&found, wanted)?;

    node.host.create_target(&staging, TargetKind::Directory).await.map_err(domain)?;
    let format = Format { kind: wanted.kind, options: request.formatting.options.clone() };
    prepare(node, disk, &device, &format, plan).await?;
    attach(node, &device, &mount).await?;
    let grown = growth::grow(node, &device, &mount).await;
    if grown.is_err() {
        // What has not the size that was promised is not handed out.
        place::clear(node, &staging).await?;
    }
    grown
}

/// Refuses a device whose filesystem has shut down and is still mounted somewhere: one more mount of
/// it would be one more of the same dead filesystem.
async fn refuse_shut_down(node: &Node, table: &MountTable, device: &BlockDevice) -> Result<()> {
    for entry in table.of_device(device.number()) {
        if has_shut_down(node, entry).await? {
            return Err(top::has_stopped());
        }
    }
    Ok(())
}

/// Mounts the device, and looks whether what was asked for is what is mounted now.
pub(super) async fn attach(node: &Node, device: &BlockDevice, mount: &Mount) -> Result<()> {
    let refused = |error| domain_of_mount(error, &mount.options);
    node.host.mount(device, mount).await.map_err(refused)?;
    verify(node, device, mount).await
}

/// Brings the device into the state that it is mounted in.
async fn prepare(
    node: &Node,
    disk: &Disk,
    device: &BlockDevice,
    format: &Format,
    plan: Plan,
) -> Result<()> {
    match plan {
        Plan::Mount => {}
        Plan::Check => node.host.check(device, format.kind).await.map_err(domain)?,
        Plan::Format | Plan::EraseAndFormat => {
            tracing::info!(device = %device.path().display(), ?format, ?plan, "formatting");
            node.notes.write(&disk.id, &identity_text(device)).await?;
            if plan == Plan::EraseAndFormat {
                node.host.erase(device).await.map_err(domain)?;
            }
            if let Err(error) = node.host.format(device, format).await.map_err(domain) {
                // A format that has written nothing leaves nothing that a note is needed for.
                if matches!(node.host.probe(device).await, Ok(Content::Blank)) {
                    node.notes.remove(&disk.id).await?;
                }
                return Err(error);
            }
        }
    }
    // Never is something mounted while a note says that it is half-made.
    node.notes.remove(&disk.id).await
}

async fn verify(node: &Node, device: &BlockDevice, mount: &Mount) -> Result<()> {
    let table = node.host.mounts().await.map_err(domain)?;
    let wrong = match table.at(&mount.target).next_back() {
        Some(entry) if entry.device != Some(device.number()) => Error::unavailable(format!(
            "{} was to be mounted, but {} was; it was taken off again",
            device.path().display(),
            entry.source.display()
        )),
        Some(entry) if entry.access != mount.access => Error::failed(format!(
            "the kernel mounted it for {} instead of {}; it was taken off again",
            purpose(entry.access),
            purpose(mount.access)
        )),
        Some(_) => return Ok(()),
        None => Error::unavailable("the mount does not show in the mount table"),
    };
    place::clear(node, &mount.target).await?;
    Err(wrong)
}
