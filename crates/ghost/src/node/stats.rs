//! How full a published volume is.

use std::path::PathBuf;

use ghost_host::{BlockDevice, Usage};

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
            let usage = node.host.usage(&entry.target).await.map_err(domain)?;
            // A filesystem answers from memory long after its device was taken away.
            let size = node.host.device_size(&device).await.map_err(domain)?;
            if size < usage.total_bytes {
                return Err(gone(request, &device, size));
            }
            Ok(Stats::Filesystem(usage))
        }
        Published::Block(device) => {
            let size = node.host.device_size(&device).await.map_err(domain)?;
            if size == 0 {
                return Err(gone(request, &device, size));
            }
            Ok(Stats::Block { total: Bytes::new(size) })
        }
    }
}

fn gone(request: &StatsRequest, device: &BlockDevice, size: u64) -> Error {
    Error::failed(format!(
        "{} of volume {} has {size} bytes left; the volume was detached while it was in use",
        device.path().display(),
        request.id
    ))
}
