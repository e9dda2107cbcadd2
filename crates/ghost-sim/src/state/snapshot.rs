//! Snapshots: a volume's content at one moment. They outlive their volume.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Cloud, Effect, Refusal};

/// One snapshot.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Snapshot {
    /// Its id.
    pub id: String,
    /// Its name, which others may have too.
    pub name: String,
    /// The id of the volume that it was made of, which may be gone.
    pub volume: String,
    /// Its region's slug.
    pub region: String,
    /// The volume's size when it was made, in GiB.
    pub gigabytes: u64,
    /// Its tags.
    pub tags: Vec<String>,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A request for a new snapshot, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub struct SnapshotRequest {
    /// The name.
    pub name: Option<String>,
    /// The tags.
    pub tags: Option<Vec<String>>,
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

    /// Makes a snapshot of a volume, attached or not.
    pub fn create_snapshot(
        &mut self,
        volume: &str,
        request: SnapshotRequest,
        now: Timestamp,
    ) -> Result<(Snapshot, Effect), Refusal> {
        let source = self.volume(volume)?;
        let Some(name) = request.name.filter(|name| !name.trim().is_empty()) else {
            return Err(Refusal::Unprocessable("a snapshot needs a name".to_owned()));
        };
        self.check_snapshot_pause(source.last_snapshot_at, now)?;
        let (region, gigabytes) = (source.region.clone(), source.gigabytes);
        let snapshot = Snapshot {
            id: self.records.identifiers.take(),
            name,
            volume: volume.to_owned(),
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

    /// Deletes a snapshot. Volumes that were made of it stay.
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

    pub(super) fn snapshot_in_region(&self, id: &str, region: &str) -> Result<&Snapshot, Refusal> {
        let snapshot = self.snapshot(id)?;
        if snapshot.region == region {
            return Ok(snapshot);
        }
        Err(Refusal::Unprocessable(format!(
            "snapshot {id} is in region {}, the volume was asked for in {region}",
            snapshot.region
        )))
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
