//! Snapshots: made once for each name, deleted, and chosen from the list.

use super::Controller;
use super::create::mends;
use crate::backend::Snapshots;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{
    Purpose, Requirement, Snapshot, SnapshotId, SnapshotName, SnapshotSpec, VolumeId,
};

/// What is to be made a snapshot of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotRequest {
    /// The orchestrator's name for it, the same on every try.
    pub name: SnapshotName,
    /// The volume.
    pub source: VolumeId,
    /// Where it has to be possible to restore it.
    pub requirement: Requirement,
    /// Tags, each of what the storage accepts.
    pub tags: Vec<String>,
}

/// Answers the snapshot of the request's name, making it when there is none.
///
/// Already done: a snapshot of that name of that volume, which is answered as it now is. Names may
/// not be unique at the storage, so it is looked for before one is made, also after a crash.
///
/// # Errors
/// `Conflict` when the name is that of a snapshot of another volume, `NotFound` without the volume,
/// `Exhausted` when the volume is in no region that will do.
pub async fn create_snapshot(
    controller: &Controller,
    request: SnapshotRequest,
) -> Result<Snapshot> {
    let snapshots = power(controller)?;
    if let Some(snapshot) = decide(&request, &snapshots.find(&request.name).await?)? {
        return Ok(snapshot);
    }
    if request.requirement != Requirement::default() {
        let absent = || Error::not_found(format!("there is no volume {}", request.source));
        let volume = controller.backend.get(&request.source).await.map_err(mends)?;
        let volume = volume.ok_or_else(absent)?;
        if !request.requirement.allows(&volume.region) {
            return Err(Error::exhausted(format!(
                "volume {} is in region {}, so that its snapshots are, and the request does not \
                 allow that",
                volume.id, volume.region
            )));
        }
    }
    let spec = SnapshotSpec {
        name: request.name,
        source: request.source,
        purpose: Purpose::Kept,
        tags: request.tags,
    };
    // An earlier try may have made it, and does not show yet.
    snapshots.create(&spec).await.map_err(mends)
}

/// Deletes the snapshot. Already done: there is none.
///
/// # Errors
/// `Precondition` when something depends on it.
pub async fn delete_snapshot(controller: &Controller, id: &SnapshotId) -> Result<()> {
    match power(controller)?.delete(id).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}

/// The snapshot of this id.
///
/// # Errors
/// `NotFound` when there is none; one that is there for clones only is nobody's.
pub async fn snapshot(controller: &Controller, id: &SnapshotId) -> Result<Snapshot> {
    let found = power(controller)?.get(id).await?;
    found
        .filter(|snapshot| snapshot.purpose == Purpose::Kept)
        .ok_or_else(|| Error::not_found(format!("there is no snapshot {id}")))
}

/// Which snapshots are wanted: all of both conditions, where they are set.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotFilter {
    /// This one.
    pub id: Option<SnapshotId>,
    /// Those of this volume.
    pub source: Option<VolumeId>,
}

/// Every snapshot that is wanted and is there to be kept. None is no error.
pub(super) async fn chosen(
    controller: &Controller,
    filter: &SnapshotFilter,
) -> Result<Vec<Snapshot>> {
    let snapshots = power(controller)?;
    let fits = |snapshot: &Snapshot| {
        snapshot.purpose == Purpose::Kept
            && filter.source.as_ref().is_none_or(|source| snapshot.source == *source)
    };
    let found = match &filter.id {
        Some(id) => snapshots.get(id).await?.into_iter().collect(),
        None => snapshots.list(filter.source.as_ref()).await?,
    };
    Ok(found.into_iter().filter(fits).collect())
}

pub(super) fn power(controller: &Controller) -> Result<&dyn Snapshots> {
    controller
        .backend
        .snapshots()
        .ok_or_else(|| Error::unsupported("this storage makes no snapshots and no clones"))
}

/// Which of the snapshots of that name is what is asked for; the oldest, should there be more.
fn decide(request: &SnapshotRequest, found: &[Snapshot]) -> Result<Option<Snapshot>> {
    let is_it = |snapshot: &&Snapshot| {
        snapshot.source == request.source && snapshot.purpose == Purpose::Kept
    };
    if let Some(own) = found.iter().find(is_it) {
        return Ok(Some(own.clone()));
    }
    match found.first() {
        None => Ok(None),
        Some(other) => Err(Error::conflict(format!(
            "snapshot {} was made under the name {:?} of volume {}, but one of volume {} is asked \
             for",
            other.id, request.name, other.source, request.source
        ))),
    }
}
