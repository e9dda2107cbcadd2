//! Volumes: created, listed and deleted.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attachment::AttachmentHistory;
use super::{Attachment, Cloud, Effect, Refusal, rule};

/// One volume.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Volume {
    /// Its id.
    pub id: String,
    /// Its name, unique in its region.
    pub name: String,
    /// Its region's slug.
    pub region: String,
    /// Its size in GiB.
    pub gigabytes: u64,
    /// What its creator wrote about it.
    pub description: String,
    /// Its tags.
    pub tags: Vec<String>,
    /// When it was created.
    pub created_at: Timestamp,
    /// The slot on its droplet, where slots are told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    pub(super) history: AttachmentHistory,
    pub(super) last_snapshot_at: Option<Timestamp>,
}

/// A request for a new volume, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub struct VolumeRequest {
    /// The name.
    pub name: Option<String>,
    /// The region's slug.
    pub region: Option<String>,
    /// The size in GiB; ignored when a snapshot is named.
    pub size_gigabytes: Option<i64>,
    /// The snapshot that the content comes from.
    pub snapshot_id: Option<String>,
    /// A text.
    pub description: Option<String>,
    /// The tags.
    pub tags: Option<Vec<String>>,
    /// A filesystem that the cloud should make, which this one does not.
    pub filesystem_type: Option<String>,
}

impl Volume {
    /// The droplet that it is on at this moment, whatever reads show.
    #[must_use]
    pub fn attached(&self) -> Option<u64> {
        self.history.current()
    }

    pub(super) fn attachment(&self) -> Option<Attachment> {
        let (volume, name) = (self.id.clone(), self.name.clone());
        self.attached().map(|droplet| Attachment { volume, name, droplet })
    }
}

impl Cloud {
    /// All volumes that a list at this time shows: those that were made longer ago than the lag.
    pub fn volumes(&self, now: Timestamp) -> impl Iterator<Item = &Volume> {
        let seen = self.now_as_read(now);
        self.records.volumes.iter().filter(move |volume| volume.created_at <= seen)
    }

    /// Every volume there is, without lag.
    #[must_use]
    pub fn all_volumes(&self) -> &[Volume] {
        &self.records.volumes
    }

    /// The volume with this id. An id is known at once, only its attachment is read with a lag.
    pub fn volume(&self, id: &str) -> Result<&Volume, Refusal> {
        let found = self.records.volumes.iter().find(|volume| volume.id == id);
        found.ok_or_else(|| Refusal::NotFound(format!("volume {id:?} does not exist")))
    }

    /// The droplet that a read at this time shows the volume on.
    #[must_use]
    pub fn attached_as_read(&self, volume: &Volume, now: Timestamp) -> Option<u64> {
        volume.history.at(self.now_as_read(now))
    }

    /// Makes a volume.
    pub fn create_volume(
        &mut self,
        request: VolumeRequest,
        now: Timestamp,
    ) -> Result<(Volume, Effect), Refusal> {
        let name = rule::volume_name(request.name.as_deref())?;
        let region = self.known_region(request.region.as_deref())?;
        if let Some(kind) = request.filesystem_type.filter(|kind| !kind.is_empty()) {
            return Err(Refusal::Unprocessable(format!(
                "filesystem_type {kind:?} is not supported: volumes are made unformatted"
            )));
        }
        let source = request.snapshot_id.filter(|id| !id.is_empty());
        let gigabytes = match &source {
            Some(id) => self.restorable_snapshot(id, &region, now)?.gigabytes,
            None => rule::gigabytes(request.size_gigabytes)?,
        };
        let taken = self.check_name(&name, &region);
        let full = self.check_limit();
        if self.settings.limit_before_name { full.and(taken) } else { taken.and(full) }?;
        let volume = Volume {
            id: self.records.identifiers.take(),
            name,
            region,
            gigabytes,
            description: request.description.unwrap_or_default(),
            tags: request.tags.unwrap_or_default(),
            created_at: now,
            slot: None,
            history: AttachmentHistory::default(),
            last_snapshot_at: None,
        };
        self.records.volumes.push(volume.clone());
        self.revision += 1;
        let effect = Effect::CreateVolume { volume: volume.id.clone(), gigabytes, source };
        Ok((volume, effect))
    }

    fn check_name(&self, name: &str, region: &str) -> Result<(), Refusal> {
        if self.named(name, region).is_none() {
            return Ok(());
        }
        let text = format!("a volume named {name:?} exists in region {region} already");
        Err(Refusal::Conflict(text))
    }

    fn check_limit(&self) -> Result<(), Refusal> {
        let limit = self.settings.volume_limit.unwrap_or(u64::MAX);
        if (self.records.volumes.len() as u64) < limit {
            return Ok(());
        }
        Err(Refusal::Forbidden(format!("the account's limit of {limit} volumes is reached")))
    }

    /// Deletes a volume that is not attached and on which nothing runs.
    pub fn delete_volume(&mut self, id: &str) -> Result<Effect, Refusal> {
        let volume = self.volume(id)?;
        if let Some(droplet) = volume.attached() {
            return Err(Refusal::Conflict(format!(
                "volume {id} is attached to droplet {droplet}; detach it first"
            )));
        }
        if let Some(action) = self.running_on(id) {
            let action = action.id;
            return Err(Refusal::Conflict(format!("action {action} is running on volume {id}")));
        }
        self.records.volumes.retain(|volume| volume.id != id);
        self.revision += 1;
        Ok(Effect::RemoveVolume { volume: id.to_owned() })
    }

    /// Deletes the volume of this name in this region.
    pub fn delete_volume_named(&mut self, name: &str, region: &str) -> Result<Effect, Refusal> {
        let found = self.named(name, region).map(|volume| volume.id.clone());
        let absent = || format!("no volume named {name:?} exists in region {region:?}");
        self.delete_volume(&found.ok_or_else(|| Refusal::NotFound(absent()))?)
    }

    pub(super) fn named(&self, name: &str, region: &str) -> Option<&Volume> {
        self.records.volumes.iter().find(|volume| volume.name == name && volume.region == region)
    }

    /// Has a volume made at another time than it was, so that one can be old.
    pub fn set_volume_creation(&mut self, id: &str, at: Timestamp) -> Result<(), Refusal> {
        self.volume(id)?;
        if let Some(volume) = self.volume_mut(id) {
            volume.created_at = at;
            self.revision += 1;
        }
        Ok(())
    }

    pub(super) fn volume_mut(&mut self, id: &str) -> Option<&mut Volume> {
        self.records.volumes.iter_mut().find(|volume| volume.id == id)
    }
}
