//! How full a published volume is.

use std::path::PathBuf;

use ghost_host::{BlockDevice, DeviceHealth, FilesystemKind, Usage};

use super::Node;
use super::error::domain;
use super::published::{self, Published};
use crate::error::{Error, Result};
use crate::volume::{Bytes, VolumeId};

/// Of which volume the statistics are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsRequest {
    /// The volume.
    pub id: VolumeId,
    /// Where it is published, or staged.
    pub path: PathBuf,
    /// Where it is staged, if that is known.
    pub staging: Option<PathBuf>,
}

/// What is known of a volume in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stats {
    /// The space of its filesystem.
    Filesystem(Usage),
    /// The size of its device.
    Block {
        /// The whole size; how much of it is in use only its user knows.
        total: Bytes,
    },
}

/// Answers how full the volume is.
///
/// # Errors
/// `NotFound` when no volume is at the path, `Failed` when its device is gone or gives errors,
/// `Timeout` when it gives no answer.
pub async fn stats(node: &Node, request: &StatsRequest) -> Result<Stats> {
    let (published, _) =
        published::find(node, &request.id, &request.path, request.staging.as_deref()).await?;
    match published {
        Published::Filesystem(entry, device) => {
            // Before the filesystem, which answers from memory long after its device was taken
            // away, and may hang when it does not.
            let kind = FilesystemKind::from_name(&entry.filesystem);
            alive(node, request, &device, kind).await?;
            let usage = node.host.usage(&entry.target).await.map_err(domain)?;
            let size = node.host.device_size(&device).await.map_err(domain)?;
            if size < usage.total_bytes {
                return Err(Error::failed(format!(
                    "{} of volume {} has {size} bytes left, less than its filesystem",
                    device.path().display(),
                    request.id
                )));
            }
            Ok(Stats::Filesystem(usage))
        }
        Published::Block(device) => {
            alive(node, request, &device, None).await?;
            let size = node.host.device_size(&device).await.map_err(domain)?;
            Ok(Stats::Block { total: Bytes::new(size) })
        }
    }
}

/// Fails when the device has no answer, or not the one that it should have.
async fn alive(
    node: &Node,
    request: &StatsRequest,
    device: &BlockDevice,
    kind: Option<FilesystemKind>,
) -> Result<()> {
    let what = match node.host.device_health(device.number(), kind).await.map_err(domain)? {
        DeviceHealth::Live { .. } => return Ok(()),
        DeviceHealth::Gone => "is gone; the volume was detached while it was in use".to_owned(),
        DeviceHealth::Failing(why) => format!("cannot be read: {why}"),
        DeviceHealth::Replaced => "no longer has the filesystem that is mounted of it".to_owned(),
    };
    let path = device.path().display();
    Err(Error::failed(format!("{path} of volume {} {what}", request.id)))
}
