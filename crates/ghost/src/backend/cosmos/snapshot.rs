//! Snapshots at the cloud.
//!
//! Two snapshots may have the same name there, and a list may lag behind. So whoever makes one looks
//! first, in lists that show all that this process did and, soon after its start, all that the one
//! before it did; and when the answer to the creation is lost, looks again until it shows.
//!
//! The API keeps the snapshots of machines in the same place, and deletes them by the same route.
//! Here there are none of those: what is of no volume is neither got, listed nor deleted.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use tokio::time::Instant;

use super::client::{Call, encoded};
use super::error::ApiError;
use super::exchange::Exchange;
use super::list::{self, Which};
use super::look::volume_path;
use super::{Cosmos, SETTLE, is_sendable, name, no_volume, ownership, wire};
use crate::backend::Snapshots;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{
    Bytes, CloneKey, Purpose, Region, Snapshot, SnapshotId, SnapshotName, SnapshotSpec, VolumeId,
};

/// Before the keys of the clones that a snapshot is there for.
const TAG_CLONE: &str = "ghost:clone:";
/// The wait between two such looks.
const SETTLE_WAIT: Duration = Duration::from_millis(500);

#[async_trait]
impl<E: Exchange> Snapshots for Cosmos<E> {
    async fn find(&self, name: &SnapshotName) -> Result<Vec<Snapshot>> {
        let cloud_name = name::cloud_name(self.options.cluster_id.as_ref(), name.as_str());
        // Whatever the answer is, a look-up that failed says nothing of what there is.
        let all = self.read_all(None).await.map_err(|error| {
            error
                .into_kind(ErrorKind::Unavailable)
                .context(format_args!("cannot look for the snapshot {cloud_name:?}"))
        })?;
        let found = all.into_iter().filter(|snapshot| snapshot.name == cloud_name);
        let mut found: Vec<Snapshot> =
            found.map(|snapshot| domain(&snapshot)).collect::<Result<_>>()?;
        found.sort_by(|a, b| (a.created, &a.id).cmp(&(b.created, &b.id)));
        Ok(found)
    }

    async fn get(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        self.read_snapshot(id).await?.as_ref().map(domain).transpose()
    }

    async fn list(&self, source: Option<&VolumeId>) -> Result<Vec<Snapshot>> {
        let own = |snapshot: &wire::Snapshot| {
            let mut clusters = ownership::clusters(tags(snapshot));
            let wanted = self.options.cluster_id.as_ref().map(name::ClusterId::as_str);
            clusters.next().is_none_or(|cluster| Some(cluster) == wanted)
        };
        let all = self.read_all(source).await?;
        all.iter().filter(|snapshot| own(snapshot)).map(domain).collect()
    }

    async fn create(&self, spec: &SnapshotSpec) -> Result<Snapshot> {
        if !is_sendable(&spec.source) {
            return Err(no_volume(&spec.source));
        }
        let cluster = self.options.cluster_id.as_ref();
        let name = name::cloud_name(cluster, spec.name.as_str());
        let mut tags: Vec<String> = ownership::tags(cluster).collect();
        if let Purpose::Clones(keys) = &spec.purpose {
            tags.extend(keys.iter().map(|key| format!("{TAG_CLONE}{}", key.as_str())));
        }
        tags.extend(spec.tags.iter().cloned());
        let body = wire::CreateSnapshot { name: &name, tags: &tags };
        let path = volume_path(&spec.source, "/snapshots");
        // The cloud wants a pause between two snapshots of one volume, and says so with the status
        // of a spent budget; that must not stop all other calls.
        let call = Call::post("/v2/volumes/{id}/snapshots", path, &body).with_own_pause();
        match self.client.json::<wire::SnapshotBody>(call).await {
            Ok(body) => {
                self.recent.made(&body.snapshot.id);
                self.fresh.made(&body.snapshot);
                domain(&body.snapshot)
            }
            // It was not made by this call, and nothing final is said.
            Err(
                error @ (ApiError::Pause { .. }
                | ApiError::Budget { .. }
                | ApiError::Unwanted { .. }
                | ApiError::NotSent { .. }),
            ) => Err(error.into()),
            // It may have been made by this call, or by an earlier one whose answer was lost and
            // which a refusal comes from: the account may be full of that very snapshot.
            Err(error) => match self.settle(spec).await {
                Some(snapshot) => Ok(snapshot),
                None => Err(self.explain_snapshot(spec, error)),
            },
        }
    }

    async fn delete(&self, id: &SnapshotId) -> Result<()> {
        let absent = || Error::not_found(format!("there is no snapshot {id} at the cloud"));
        let path = path(id).ok_or_else(absent)?;
        // The id does not tell what it is of, and the route would delete a machine's backup as well.
        // That never changes, so nothing can come between this look and the deletion.
        if !self.fresh.has_made(id.as_str()) && self.read_snapshot(id).await?.is_none() {
            return Err(absent());
        }
        match self.client.call(Call::delete(ROUTE, path)).await {
            Ok(_) => {
                self.fresh.deleted(id.as_str());
                Ok(())
            }
            Err(error) if error.is_not_found() => Err(absent()),
            Err(error) if error.is_refusal() => Err(error.meaning(
                ErrorKind::Precondition,
                format!("snapshot {id} cannot be deleted: the cloud says that it is in use"),
            )),
            Err(error) => Err(error.into()),
        }
    }
}

const ROUTE: &str = "/v2/snapshots/{id}";

impl<E: Exchange> Cosmos<E> {
    /// The snapshot of this id, if there is one of a volume.
    pub(super) async fn read_snapshot(&self, id: &SnapshotId) -> Result<Option<wire::Snapshot>> {
        let Some(path) = path(id) else { return Ok(None) };
        match self.client.json::<wire::SnapshotBody>(Call::get(ROUTE, path)).await {
            Ok(body) => Ok(Some(body.snapshot).filter(is_of_volume)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Every snapshot of a volume, or those of this one.
    pub(super) async fn read_all(&self, source: Option<&VolumeId>) -> Result<Vec<wire::Snapshot>> {
        self.fresh.settled().await;
        let mut all = self.fresh.applied_to(self.list_all(source).await?);
        all.retain(|one| source.is_none_or(|source| one.resource_id == source.as_str()));
        Ok(all)
    }

    /// Those that the cloud lists now, and perhaps some of other volumes.
    pub(super) async fn list_all(&self, source: Option<&VolumeId>) -> Result<Vec<wire::Snapshot>> {
        let mut all = self.read_pages(source).await?;
        // A filter that is not understood answers everything.
        all.retain(is_of_volume);
        Ok(all)
    }

    /// A volume that is gone may have left some.
    async fn read_pages(&self, source: Option<&VolumeId>) -> Result<Vec<wire::Snapshot>> {
        if let Some(source) = source.filter(|source| is_sendable(source)) {
            let which = Which {
                route: "/v2/volumes/{id}/snapshots",
                path: volume_path(source, "/snapshots?"),
            };
            match list::all(&self.client, &self.recent, &which).await {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                answer => return answer,
            }
        }
        let which =
            Which { route: "/v2/snapshots", path: "/v2/snapshots?resource_type=volume".to_owned() };
        list::all(&self.client, &self.recent, &which).await
    }

    /// Looks for the snapshot that may have been made, until it shows or patience ends.
    async fn settle(&self, spec: &SnapshotSpec) -> Option<Snapshot> {
        let give_up = Instant::now() + SETTLE;
        loop {
            let fits =
                |found: &Snapshot| found.source == spec.source && found.purpose == spec.purpose;
            // One look begins when lists must show it. One that fails shows nothing, and no more.
            let began = Instant::now();
            let found = Snapshots::find(self, &spec.name).await.unwrap_or_default();
            let found = found.into_iter().find(fits);
            let left = give_up.saturating_duration_since(began);
            if found.is_some() || left.is_zero() {
                return found;
            }
            tokio::time::sleep(self.client.jitter(SETTLE_WAIT).min(left)).await;
        }
    }

    /// What a failed creation means when no snapshot shows.
    fn explain_snapshot(&self, spec: &SnapshotSpec, error: ApiError) -> Error {
        let source = &spec.source;
        match error.status() {
            Some(404) => no_volume(source),
            Some(403) => error.meaning(
                ErrorKind::Exhausted,
                "the account may not have more snapshots, or the token may not make them",
            ),
            // It was well-formed, so it is the volume's state of the moment.
            Some(409 | 422) => error.meaning(
                ErrorKind::Unavailable,
                format!("the cloud makes no snapshot of volume {source} now"),
            ),
            Some(status) if status < 500 => error.into(),
            _ => error.meaning(
                ErrorKind::Unavailable,
                format!(
                    "it is not known whether the snapshot of volume {source} was made; the next \
                     call looks for it"
                ),
            ),
        }
    }
}

/// The path of a snapshot, if its id can stand in one.
fn path(id: &SnapshotId) -> Option<String> {
    let sendable = !matches!(id.as_str(), "." | "..");
    sendable.then(|| format!("/v2/snapshots/{}", encoded(id.as_str())))
}

fn is_of_volume(snapshot: &wire::Snapshot) -> bool {
    snapshot.resource_type == wire::ResourceType::Volume
}

fn tags(snapshot: &wire::Snapshot) -> impl Iterator<Item = &str> {
    snapshot.tags.iter().flatten().map(String::as_str)
}

/// The keys of the clones that the snapshot was made for.
fn clones(snapshot: &wire::Snapshot) -> impl Iterator<Item = CloneKey> {
    tags(snapshot).filter_map(|tag| tag.strip_prefix(TAG_CLONE)).filter_map(CloneKey::parse)
}

/// Whether the snapshot was made for clones, which delete it.
pub(super) fn is_for_clones(snapshot: &wire::Snapshot) -> bool {
    clones(snapshot).next().is_some()
}

pub(super) fn domain(snapshot: &wire::Snapshot) -> Result<Snapshot> {
    let odd = |what: &str| format!("the cloud's snapshot {:?} has {what}", snapshot.id);
    let unexpected = |error: Error| error.into_kind(ErrorKind::Unavailable);
    let clones: BTreeSet<CloneKey> = clones(snapshot).collect();
    let region = snapshot.regions.first().cloned().unwrap_or_default();
    let created = snapshot.created_at.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    Ok(Snapshot {
        region: Region::new(region)
            .map_err(|error| unexpected(error).context(odd("no usable region")))?,
        source: VolumeId::new(snapshot.resource_id.clone())
            .map_err(|error| unexpected(error).context(odd("no usable volume")))?,
        size: match snapshot.min_disk_size {
            // The cloud is not done with it, and says later what it takes to restore it.
            0 => Bytes::default(),
            gib => wire::size(gib).ok_or_else(|| {
                Error::unavailable(odd(&format!("a size that none has: {gib} GiB")))
            })?,
        },
        created: created.ok_or_else(|| Error::unavailable(odd("no usable time")))?,
        purpose: if clones.is_empty() { Purpose::Kept } else { Purpose::Clones(clones) },
        id: SnapshotId::new(snapshot.id.clone())
            .map_err(|error| unexpected(error).context(odd("no usable id")))?,
    })
}
