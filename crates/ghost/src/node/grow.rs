//! Growth: the filesystem of a volume made as large as its disk, which the cloud has grown before.

use std::path::{Path, PathBuf};

use ghost_host::{Access, BlockDevice, Error as HostError, FilesystemKind, MountEntry, MountTable};

use super::Node;
use super::condition::stopped_writing;
use super::error::domain;
use super::published::{self, Published};
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{Bytes, SizeRange, VolumeId};

/// What is to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowRequest {
    /// The volume.
    pub id: VolumeId,
    /// Where it is published, or staged.
    pub path: PathBuf,
    /// Where it is staged, if that is known.
    pub staging: Option<PathBuf>,
    /// Whether it is used as a block device, if that was said.
    pub block: bool,
    /// The sizes that will do.
    pub size: Option<SizeRange>,
}

/// Grows the volume's filesystem to the size of its device, and answers that size. Already done: it
/// is as large. A block volume, and one that cannot be written to, is left alone.
///
/// # Errors
/// `NotFound` when no volume is at the path; `OutOfRange` when the disk is larger than the limit;
/// `Unavailable` while the machine does not see the size that the disk was given.
pub async fn grow(node: &Node, request: &GrowRequest) -> Result<Bytes> {
    let (published, table) = find(node, request).await?;
    let (entry, device) = match published {
        Published::Block(device) => return size_of(node, &device).await,
        Published::Filesystem(_, device) if request.block => return size_of(node, &device).await,
        Published::Filesystem(entry, device) => (entry, device),
    };
    let size = size_of(node, &device).await?;
    let Some(writable) = writable_mount(&table, &device, &entry) else { return Ok(size) };
    let kind = decide(request, size, &entry)?;

    node.host.grow(&device, writable, kind).await.map_err(|error| {
        let until = match &error {
            HostError::MissingCapability { .. } => " now; it grows when it is next staged",
            _ => "",
        };
        let what = format_args!("cannot grow the filesystem of volume {}{until}", request.id);
        domain(error).context(what)
    })?;
    size_of(node, &device).await
}

/// What is at the path, or else at the staging path.
async fn find(node: &Node, request: &GrowRequest) -> Result<(Published, MountTable)> {
    let staging = request.staging.as_deref();
    match (published::find(node, &request.id, &request.path, staging).await, staging) {
        (Err(error), Some(staging)) if error.kind() == ErrorKind::NotFound => {
            published::find(node, &request.id, staging, None).await.map_err(|_| error)
        }
        (found, _) => found,
    }
}

/// A place where the filesystem can be written to; a bind that is for reading only cannot be grown
/// through. `None` when there is no such place: then it stays as large as it is.
fn writable_mount<'a>(
    table: &'a MountTable,
    device: &BlockDevice,
    entry: &'a MountEntry,
) -> Option<&'a Path> {
    [entry]
        .into_iter()
        .chain(table.of_device(device.number()))
        .find(|entry| entry.access == Access::ReadWrite && !stopped_writing(entry))
        .map(|entry| entry.target.as_path())
}

fn decide(request: &GrowRequest, size: Bytes, entry: &MountEntry) -> Result<FilesystemKind> {
    let id = &request.id;
    if let Some(limit) = request.size.and_then(|range| range.limit()).filter(|max| size > *max) {
        return Err(Error::out_of_range(format!(
            "the disk of volume {id} has {size}, more than the limit of {limit}; a volume never \
             shrinks"
        )));
    }
    if let Some(required) =
        request.size.and_then(|range| range.required()).filter(|min| size < *min)
    {
        return Err(Error::unavailable(format!(
            "this machine sees the disk of volume {id} with {size}, less than the {required} that \
             it is to have; the cloud grows it before the node does"
        )));
    }
    FilesystemKind::from_name(&entry.filesystem).ok_or_else(|| {
        Error::precondition(format!(
            "volume {id} has a filesystem of kind {}, which this driver does not know how to grow",
            entry.filesystem
        ))
    })
}

async fn size_of(node: &Node, device: &BlockDevice) -> Result<Bytes> {
    node.host.device_size(device).await.map(Bytes::new).map_err(domain)
}
