//! The cloud as a pure state machine: volumes, snapshots, actions and droplets, and the rules that
//! govern them.
//!
//! It does no I/O and reads no clock: every method that depends on time is told the time, and what
//! has to happen to disks comes out as a list of [`Effect`]s for someone else to carry out. So it
//! runs the same under a real clock, a stepped one and a virtual one. Identifiers follow from a
//! seed and a counter. The principal type is [`Cloud`].

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

mod action;
mod admission;
mod attachment;
mod droplet;
mod identifier;
mod rule;
mod snapshot;
mod volume;

pub use action::{Action, ActionKind, ActionRequest, ActionStatus, Ending, VolumeKey};
pub use droplet::{Droplet, DropletStatus};
pub use identifier::Identifiers;
pub use rule::REGIONS;
pub(crate) use snapshot::DROPLET_GIGABYTES;
pub use snapshot::{Snapshot, SnapshotRequest, SnapshotSource};
pub use volume::{Volume, VolumeRequest};

/// What tells the slot of a volume, such as `xvdf`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DeviceSlots {
    /// Its attachments and the volume itself.
    Everywhere,
    /// Its attachments only.
    Actions,
}

/// What this cloud is like. Not part of what is remembered over a restart.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The region that all droplets are in.
    pub region: String,
    /// How many droplets there are.
    pub droplets: u64,
    /// The number of the first droplet; the others follow without gaps.
    pub first_droplet: u64,
    /// How long an action takes. Zero: it is over when its request is answered.
    pub action_time: Duration,
    /// How much longer it takes at most; how much of that, each action draws by the seed.
    pub action_spread: Duration,
    /// How many volumes one droplet takes.
    pub volumes_per_droplet: usize,
    /// How many volumes the account may have; `None` for no limit.
    pub volume_limit: Option<u64>,
    /// Whether an account that is full says so before it looks at the name of a new volume.
    pub limit_before_name: bool,
    /// Whether a droplet refuses an attach or detach while another one runs on it.
    pub one_event_per_droplet: bool,
    /// By how much reads lag behind: see [`Cloud::volumes`] and [`Cloud::attached_as_read`].
    pub read_lag: Duration,
    /// How long a volume refuses its next snapshot after one was made.
    pub snapshot_pause: Duration,
    /// How long after it was made a snapshot cannot be restored yet.
    pub snapshot_ready_after: Duration,
    /// What tells the slot of a volume on its droplet, as before Xen hosts (`xvdf`).
    pub device_slots: Option<DeviceSlots>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            region: "ams1".to_owned(),
            droplets: 3,
            first_droplet: 101,
            action_time: Duration::ZERO,
            action_spread: Duration::ZERO,
            volumes_per_droplet: 7,
            volume_limit: None,
            limit_before_name: false,
            one_event_per_droplet: false,
            read_lag: Duration::ZERO,
            snapshot_pause: Duration::ZERO,
            snapshot_ready_after: Duration::ZERO,
            device_slots: None,
        }
    }
}

/// Something that has to happen to real disks because the state moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A volume's file comes to be, with the content of a snapshot or else without any.
    CreateVolume {
        /// The volume's id.
        volume: String,
        /// Its size.
        gigabytes: u64,
        /// The id of the snapshot that its content comes from.
        source: Option<String>,
    },
    /// A volume's file goes.
    RemoveVolume {
        /// The volume's id.
        volume: String,
    },
    /// A volume's present content is copied into a snapshot.
    CreateSnapshot {
        /// The snapshot's id.
        snapshot: String,
        /// The id of the volume.
        volume: String,
    },
    /// A snapshot's file goes.
    RemoveSnapshot {
        /// The snapshot's id.
        snapshot: String,
    },
    /// A volume appears on a droplet.
    Attach(Attachment),
    /// A volume is taken away from a droplet, whoever is using it.
    Detach(Attachment),
    /// A volume grows, and its device with it.
    Resize {
        /// The volume's id.
        volume: String,
        /// Its new size.
        gigabytes: u64,
    },
}

/// A volume that is, was or will be on a droplet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// The volume's id.
    pub volume: String,
    /// The volume's name, which its link on the droplet is made of.
    pub name: String,
    /// The droplet's number.
    pub droplet: u64,
}

/// Why the cloud does not do as asked. Texts are for people; nothing may match on them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such thing.
    #[error("{0}")]
    NotFound(String),
    /// It clashes with what is there.
    #[error("{0}")]
    Conflict(String),
    /// It breaks a rule.
    #[error("{0}")]
    Unprocessable(String),
    /// The account may not have more.
    #[error("{0}")]
    Forbidden(String),
    /// It comes too soon.
    #[error("{message}")]
    TooSoon {
        /// The text.
        message: String,
        /// After how long it may be tried again.
        retry_after: Duration,
    },
}

/// The whole cloud.
#[derive(Clone, Debug)]
pub struct Cloud {
    settings: Settings,
    records: Records,
    revision: u64,
}

/// All that is remembered over a restart.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Records {
    identifiers: Identifiers,
    next_action: u64,
    /// In the order of their creation, which is the order of lists.
    volumes: Vec<Volume>,
    snapshots: Vec<Snapshot>,
    actions: Vec<Action>,
    droplets_off: Vec<u64>,
}

impl Cloud {
    /// A cloud without volumes. The seed decides the ids that it will give out.
    #[must_use]
    pub fn new(settings: Settings, seed: u64) -> Self {
        let records = Records {
            identifiers: Identifiers::new(seed),
            next_action: 1001,
            volumes: Vec::new(),
            snapshots: Vec::new(),
            actions: Vec::new(),
            droplets_off: Vec::new(),
        };
        Self { settings, records, revision: 0 }
    }

    /// The cloud that these records describe, under perhaps other settings.
    ///
    /// Fails with a text for the operator when a volume is attached to a droplet that these
    /// settings do not have.
    pub fn from_records(settings: Settings, records: Records) -> Result<Self, String> {
        let cloud = Self { settings, records, revision: 0 };
        for volume in &cloud.records.volumes {
            let Some(droplet) = volume.attached() else { continue };
            if cloud.droplet(droplet).is_err() {
                return Err(format!(
                    "volume {} is attached to droplet {droplet}, which is not among the {} \
                     droplets from {} on; start with the droplets that this state was made with",
                    volume.id, cloud.settings.droplets, cloud.settings.first_droplet
                ));
            }
            if volume.region != cloud.settings.region {
                return Err(format!(
                    "volume {} in region {} is attached to droplet {droplet}, but the droplets \
                     are in region {} now; start with the region that this state was made with",
                    volume.id, volume.region, cloud.settings.region
                ));
            }
        }
        Ok(cloud)
    }

    /// What this cloud is like.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// All that has to be remembered over a restart.
    #[must_use]
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Changes whenever the records may have changed.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Goes back to what was before, but gives no identifier out twice.
    pub fn restore(&mut self, before: Self) {
        let now = std::mem::replace(self, before);
        self.records.identifiers = now.records.identifiers;
        self.records.next_action = now.records.next_action;
        self.revision = now.revision + 1;
    }

    /// Every volume that is on a droplet.
    #[must_use]
    pub fn attachments(&self) -> Vec<Attachment> {
        self.records.volumes.iter().filter_map(Volume::attachment).collect()
    }

    /// Removes all volumes, snapshots and actions, whatever is running. The droplets stay.
    pub fn remove_everything(&mut self) -> Vec<Effect> {
        let mut effects: Vec<_> = self.attachments().into_iter().map(Effect::Detach).collect();
        let volumes = self.records.volumes.drain(..);
        effects.extend(volumes.map(|volume| Effect::RemoveVolume { volume: volume.id }));
        let snapshots = self.records.snapshots.drain(..);
        effects.extend(snapshots.map(|snapshot| Effect::RemoveSnapshot { snapshot: snapshot.id }));
        self.records.actions.clear();
        self.revision += 1;
        effects
    }

    fn now_as_read(&self, now: Timestamp) -> Timestamp {
        now.checked_sub(self.settings.read_lag).unwrap_or(Timestamp::MIN)
    }
}
