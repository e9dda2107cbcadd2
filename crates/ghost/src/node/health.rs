//! What is wrong with a volume in use on this node, or with what any volume needs here.

use std::path::PathBuf;

use ghost_host::{
    Access, DeviceHealth, DeviceNumber, FilesystemKind, MountEntry, MountTable, Usage,
};

use super::condition::{has_shut_down, stopped_writing};
use super::connect::{is_device_node, is_of_another, node_at};
use super::error::domain;
use super::{Node, place};
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{Bytes, StorageProblem, VolumeHealth, VolumeId, VolumeProblem};

/// A filesystem with less than this left, in percent, is nearly full.
const NEARLY_FULL_PERCENT: u64 = 10;

/// Of which volume it is wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthRequest {
    /// The volume.
    pub id: VolumeId,
    /// Where it may be in use: published, or staged. Without any, the volume is known by what its
    /// disk says of itself, which may be its id or not.
    pub paths: Vec<PathBuf>,
}

/// What is wrong with the volume as this node sees it.
///
/// It answers within seconds also when the device or the mount hangs: what may hang is asked by the
/// host with a limit, and the filesystem itself only when its device is in order.
///
/// # Errors
/// `NotFound` when no volume is at any of the paths; without a path, when no disk in use says that
/// it is this volume's.
pub async fn health(node: &Node, request: &HealthRequest) -> Result<VolumeHealth> {
    let table = node.host.mounts().await.map_err(domain)?;
    let found = if request.paths.is_empty() {
        find_by_id(node, &table, &request.id).await?
    } else {
        find(node, &table, &request.paths).await?
    };
    let used = found.ok_or_else(|| {
        let at =
            if request.paths.is_empty() { "on this node" } else { "at the path that was given" };
        Error::not_found(format!("volume {} is neither published nor staged {at}", request.id))
    })?;
    let kind = used.entry.filesystem();
    let Some(number) = used.number else {
        // Its number is that of its source, which has one as long as it is there.
        let problems = vec![VolumeProblem::DeviceGone];
        return Ok(VolumeHealth { id: request.id.clone(), problems });
    };
    let device = match node.host.device_health(number, kind).await {
        Ok(health) => Some(health),
        Err(error) => match domain(error) {
            error if error.kind() == ErrorKind::Timeout => None,
            error => return Err(error),
        },
    };
    let mut problems = judge_device(device.as_ref());
    let live = matches!(device, Some(DeviceHealth::Live { .. }));
    if live
        && let Some(opened) = node.host.open_device(number).await.map_err(domain)?
        && is_of_another(&request.id, &opened)
    {
        let what = "another volume is at the path that was given";
        return Err(Error::not_found(format!("{what}, not volume {}", request.id)));
    }
    if let (true, Use::Filesystem(entry)) = (live, &used.entry) {
        match of_filesystem(node, &table, entry, number).await {
            Ok(found) => problems.extend(found),
            Err(error) if error.kind() == ErrorKind::Timeout => {
                problems.push(VolumeProblem::DeviceUnresponsive);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(VolumeHealth { id: request.id.clone(), problems })
}

/// What is wrong with a mounted filesystem whose device is in order.
async fn of_filesystem(
    node: &Node,
    table: &MountTable,
    entry: &MountEntry,
    number: DeviceNumber,
) -> Result<Vec<VolumeProblem>> {
    if has_shut_down(node, entry).await? {
        return Ok(vec![VolumeProblem::FilesystemShutDown]);
    }
    if table.of_device(number).any(stopped_writing) {
        return Ok(vec![VolumeProblem::FilesystemReadOnly]);
    }
    if entry.access == Access::ReadOnly {
        return Ok(Vec::new());
    }
    let usage = node.host.usage(&entry.target).await.map_err(domain)?;
    Ok(judge_usage(&usage))
}

/// A volume in use.
struct Used<'a> {
    entry: Use<'a>,
    number: Option<DeviceNumber>,
}

enum Use<'a> {
    /// By this mount.
    Filesystem(&'a MountEntry),
    /// As a device.
    Block,
}

impl Use<'_> {
    fn filesystem(&self) -> Option<FilesystemKind> {
        match self {
            Self::Filesystem(entry) => FilesystemKind::from_name(&entry.filesystem),
            Self::Block => None,
        }
    }
}

/// The volume at the first of the paths that has one. What is mounted there is not looked into.
async fn find<'a>(
    node: &Node,
    table: &'a MountTable,
    paths: &[PathBuf],
) -> Result<Option<Used<'a>>> {
    for path in paths {
        let Some(place) = place::looked_for(node, path).await? else { continue };
        let on_top = table.entries().iter().rev().find(|entry| entry.target == place);
        let Some(entry) = on_top else { continue };
        if is_device_node(entry) {
            if let Some(number) = node_at(node, entry).await? {
                return Ok(Some(Used { entry: Use::Block, number: Some(number) }));
            }
        } else if FilesystemKind::from_name(&entry.filesystem).is_some() {
            let number = entry.device;
            return Ok(Some(Used { entry: Use::Filesystem(entry), number }));
        }
    }
    Ok(None)
}

/// The volume whose disk says that it has this id. One that says its name only is not found so.
async fn find_by_id<'a>(
    node: &Node,
    table: &'a MountTable,
    id: &VolumeId,
) -> Result<Option<Used<'a>>> {
    let names = [id.as_str().to_owned()];
    for entry in table.entries() {
        let number = match (entry.device, is_device_node(entry)) {
            (Some(number), _) if FilesystemKind::from_name(&entry.filesystem).is_some() => {
                Some(number)
            }
            (None, true) => node_at(node, entry).await?,
            _ => None,
        };
        let Some(number) = number else { continue };
        // Disks of others, which may not even be opened, are passed over.
        let Ok(Some(device)) = node.host.open_device(number).await else { continue };
        if device.identity().is_one_of(&names) {
            let entry = if entry.device.is_some() { Use::Filesystem(entry) } else { Use::Block };
            return Ok(Some(Used { entry, number: Some(number) }));
        }
    }
    Ok(None)
}

/// What a device's answer means; `None`: it gave none.
fn judge_device(health: Option<&DeviceHealth>) -> Vec<VolumeProblem> {
    let problem = match health {
        None => VolumeProblem::DeviceUnresponsive,
        Some(DeviceHealth::Gone) => VolumeProblem::DeviceGone,
        Some(DeviceHealth::Failing(why)) => VolumeProblem::DeviceFailing(why.clone()),
        Some(DeviceHealth::Replaced) => VolumeProblem::DeviceReplaced,
        Some(DeviceHealth::Live { recorded_errors: 0 }) => return Vec::new(),
        Some(DeviceHealth::Live { recorded_errors }) => {
            VolumeProblem::FilesystemErrors(*recorded_errors)
        }
    };
    vec![problem]
}

fn judge_usage(usage: &Usage) -> Vec<VolumeProblem> {
    let few = |available: u64, total: u64| {
        total > 0
            && u128::from(available) * 100 < u128::from(total) * u128::from(NEARLY_FULL_PERCENT)
    };
    let mut problems = Vec::new();
    if few(usage.available_bytes, usage.total_bytes) {
        problems.push(VolumeProblem::NearlyFull {
            available: Bytes::new(usage.available_bytes),
            total: Bytes::new(usage.total_bytes),
        });
    }
    if few(usage.available_inodes, usage.total_inodes) {
        problems.push(VolumeProblem::NearlyOutOfInodes {
            available: usage.available_inodes,
            total: usage.total_inodes,
        });
    }
    problems
}

/// What is wrong with what any volume needs on this node.
///
/// # Errors
/// `Failed` when it cannot be found out.
pub async fn storage_health(node: &Node) -> Result<Vec<StorageProblem>> {
    let mut problems = Vec::new();
    for kind in FilesystemKind::ALL {
        let missing = node.host.missing_tools(kind).await.map_err(domain)?;
        if !missing.is_empty() {
            problems.push(StorageProblem::ToolsMissing(kind, missing));
        }
    }
    if let Err(error) = node.notes.check().await {
        problems.push(StorageProblem::NotesNotWritable(error.chain()));
    }
    Ok(problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_full_is_told_of_bytes_and_of_inodes_each_by_itself() {
        let usage = |available_bytes, available_inodes, total_inodes| Usage {
            total_bytes: 1000,
            used_bytes: 1000 - available_bytes,
            available_bytes,
            total_inodes,
            used_inodes: total_inodes - available_inodes,
            available_inodes,
        };
        let reasons = |usage: Usage| -> Vec<&str> {
            judge_usage(&usage).iter().map(VolumeProblem::reason).collect()
        };
        assert!(reasons(usage(100, 100, 1000)).is_empty());
        assert_eq!(reasons(usage(99, 100, 1000)), ["NearlyFull"]);
        assert_eq!(reasons(usage(100, 99, 1000)), ["NearlyOutOfInodes"]);
        assert_eq!(reasons(usage(0, 0, 1000)), ["NearlyFull", "NearlyOutOfInodes"]);
        // A filesystem that makes inodes as needed has no number to tell.
        assert!(reasons(usage(500, 0, 0)).is_empty());
    }
}
