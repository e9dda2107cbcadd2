//! Snapshots: a volume's content at one moment. They outlive their volume.
//!
//! The API has the snapshots of droplets (backups of machines) in the same place. Nothing here makes
//! one but by hand, so that it can be seen whether somebody takes one for a volume's.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Cloud, Effect, Refusal};

/// The disk of every droplet, as the API shows it.
pub(crate) const DROPLET_GIGABYTES: u64 = 25;

/// One snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// Its name, which others may have too.
    pub name: String,
    /// What it was made of, which may be gone.
    pub of: SnapshotSource,
    /// Its region's slug.
    pub region: String,
    /// The volume's size when it was made, in GiB.
    pub gigabytes: u64,
    /// Its tags.
    pub tags: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// What a snapshot was made of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SnapshotSource {
    /// The volume with this id.
    Volume(String),
    /// The droplet with this number.
    Droplet(u64),
}

/// A request for a new snapshot, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub struct SnapshotRequest {
    /// The name.
    pub name: Option<String>,
    /// The tags.
    pub tags: Option<Vec<String>>,
}

impl Snapshot {
    /// The id of the volume that it was made of; none for a droplet's.
    #[must_use]
    pub fn volume(&self) -> Option<&str> {
        match &self.of {
            SnapshotSource::Volume(id) => Some(id),
            SnapshotSource::Droplet(_) => None,
        }
    }
}

impl Cloud {
    /// All snapshots that a list at this time shows: those that were made longer ago than the lag.
    pub fn snapshots(&self, now: Timestamp) -> impl Iterator<Item = &Snapshot> {
        let seen = self.now_as_read(now);
        self.records.snapshots.iter().filter(move |snapshot| snapshot.created_at <= seen)
    }

    /// Every snapshot there is, without lag.
    #[must_use]
    pub fn all_snapshots(&self) -> &[Snapshot] {
        &self.records.snapshots
    }

    /// The snapshot with this id.
    pub fn snapshot(&self, id: &str) -> Result<&Snapshot, Refusal> {
        let found = self.records.snapshots.iter().find(|snapshot| snapshot.id == id);
        found.ok_or_else(|| Refusal::NotFound(format!("snapshot {id:?} does not exist")))
    }

    /// The snapshot with this id, if it is one of a volume.
    pub fn volume_snapshot(&self, id: &str) -> Result<&Snapshot, Refusal> {
        let snapshot = self.snapshot(id)?;
        let absent = || Refusal::NotFound(format!("snapshot {id:?} is not one of a volume"));
        snapshot.volume().map(|_| snapshot).ok_or_else(absent)
    }

    /// Makes a snapshot of a volume, attached or not.
    pub fn create_snapshot(
        &mut self,
        volume: &str,
        request: SnapshotRequest,
        now: Timestamp,
    ) -> Result<(Snapshot, Effect), Refusal> {
        let source = self.volume(volume)?;
        let name = named(request.name)?;
        self.check_snapshot_pause(source.last_snapshot_at, now)?;
        let (region, gigabytes) = (source.region.clone(), source.gigabytes);
        let snapshot = Snapshot {
            id: self.records.identifiers.take(),
            name,
            of: SnapshotSource::Volume(volume.to_owned()),
            region,
            gigabytes,
            tags: request.tags.unwrap_or_default(),
            created_at: now,
        };
        self.records.snapshots.push(snapshot.clone());
        if let Some(source) = self.volume_mut(volume) {
            source.last_snapshot_at = Some(now);
        }
        self.revision += 1;
        let effect =
            Effect::CreateSnapshot { snapshot: snapshot.id.clone(), volume: volume.to_owned() };
        Ok((snapshot, effect))
    }

    /// Makes a snapshot of a droplet, which has no content here.
    pub fn create_droplet_snapshot(
        &mut self,
        droplet: u64,
        request: SnapshotRequest,
        now: Timestamp,
    ) -> Result<Snapshot, Refusal> {
        let region = self.droplet(droplet)?.region;
        let snapshot = Snapshot {
            name: named(request.name)?,
            id: self.records.identifiers.take(),
            of: SnapshotSource::Droplet(droplet),
            region,
            gigabytes: DROPLET_GIGABYTES,
            tags: request.tags.unwrap_or_default(),
            created_at: now,
        };
        self.records.snapshots.push(snapshot.clone());
        self.revision += 1;
        Ok(snapshot)
    }

    /// Deletes a snapshot, of whatever it is. Volumes that were made of it stay.
    pub fn delete_snapshot(&mut self, id: &str) -> Result<Effect, Refusal> {
        self.snapshot(id)?;
        self.records.snapshots.retain(|snapshot| snapshot.id != id);
        self.revision += 1;
        Ok(Effect::RemoveSnapshot { snapshot: id.to_owned() })
    }

    /// Has a snapshot made at another time than it was, so that one can be old.
    pub fn set_snapshot_creation(&mut self, id: &str, at: Timestamp) -> Result<(), Refusal> {
        self.snapshot(id)?;
        let made = self.records.snapshots.iter_mut().filter(|snapshot| snapshot.id == id);
        made.for_each(|snapshot| snapshot.created_at = at);
        self.revision += 1;
        Ok(())
    }

    /// The size of a volume that is made of the snapshot, in GiB; zero while none can be made yet.
    #[must_use]
    pub fn restorable_gigabytes(&self, snapshot: &Snapshot, now: Timestamp) -> u64 {
        let ready_after = SignedDuration::try_from(self.settings.snapshot_ready_after);
        let ready_after = ready_after.unwrap_or(SignedDuration::MAX);
        let is_ready = now.duration_since(snapshot.created_at) >= ready_after;
        if is_ready { snapshot.gigabytes } else { 0 }
    }

    pub(super) fn restorable_snapshot(
        &self,
        id: &str,
        region: &str,
        now: Timestamp,
    ) -> Result<&Snapshot, Refusal> {
        let snapshot = self.volume_snapshot(id)?;
        if snapshot.region != region {
            return Err(Refusal::Unprocessable(format!(
                "snapshot {id} is in region {}, the volume was asked for in {region}",
                snapshot.region
            )));
        }
        if self.restorable_gigabytes(snapshot, now) == 0 {
            return Err(Refusal::Unprocessable(format!("snapshot {id} is not ready yet")));
        }
        Ok(snapshot)
    }

    fn check_snapshot_pause(&self, last: Option<Timestamp>, now: Timestamp) -> Result<(), Refusal> {
        let Some(last) = last else { return Ok(()) };
        let pause =
            SignedDuration::try_from(self.settings.snapshot_pause).unwrap_or(SignedDuration::MAX);
        let left = pause.saturating_sub(now.duration_since(last));
        match std::time::Duration::try_from(left) {
            Ok(left) if !left.is_zero() => Err(Refusal::TooSoon {
                message: "a snapshot of this volume was made a short while ago".to_owned(),
                retry_after: left,
            }),
            _ => Ok(()),
        }
    }
}

fn named(name: Option<String>) -> Result<String, Refusal> {
    let missing = || Refusal::Unprocessable("a snapshot needs a name".to_owned());
    name.filter(|name| !name.trim().is_empty()).ok_or_else(missing)
}
