//! The words of the domain: volumes, names, sizes, capabilities, places. Plain data without I/O.
//!
//! A value of these types has been checked; what arrives as protobuf or JSON becomes one of them
//! at the edge, and is a raw string or number nowhere below it.

mod capability;
mod formatting;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod health;
mod id;
mod labels;
mod locator;
mod parameters;
mod size;
mod snapshot;
mod topology;

pub use capability::{AccessMode, AccessType, Capability};
pub use formatting::{Filesystem, FormatPolicy, Formatting};
pub use health::{Severity, StorageProblem, VolumeHealth, VolumeProblem};
pub use id::{NodeId, SnapshotId, SnapshotName, VolumeId, VolumeName};
pub use labels::Labels;
pub(crate) use labels::told_by_kubernetes;
pub use locator::{Context, Disk, Locator};
pub use parameters::Parameters;
pub use size::{Bytes, SizeRange, SizeRule};
pub use snapshot::{CloneKey, ContentSource, Purpose, Snapshot, SnapshotSpec};
pub use topology::{Region, Requirement, TopologyKey};

/// A volume as the storage describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// The storage's own id.
    pub id: VolumeId,
    /// The storage's name of it, which is not the name that the orchestrator gave.
    pub name: String,
    /// Its real size.
    pub size: Bytes,
    /// Where it can be reached.
    pub region: Region,
    /// The nodes that it is attached to.
    pub attached: Vec<NodeId>,
    /// Whether this driver made it, and made it empty: only then may it ever be formatted.
    pub made_blank: bool,
    /// The slot that the host of its node has put it in, where it tells: `xvdf`.
    pub slot: Option<String>,
    /// What its first content came from, where this driver made it of something.
    pub source: Option<ContentSource>,
}

impl Volume {
    /// Where a node finds the data.
    #[must_use]
    pub fn locator(&self) -> Locator {
        Locator::Disk(Disk {
            id: self.id.clone(),
            name: self.name.clone(),
            region: self.region.clone(),
            minimum_size: self.size,
            made_blank: self.made_blank,
            slot: self.slot.clone(),
        })
    }
}

/// What is asked of the storage when a volume is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeSpec {
    /// The orchestrator's name, which makes a repeated creation find the first.
    pub name: VolumeName,
    /// The exact size.
    pub size: Bytes,
    /// Where.
    pub region: Region,
    /// What its content comes from; empty without. The size is then the snapshot's at first.
    pub content: Option<VolumeContent>,
    /// What people see of it in the storage's own panel.
    pub labels: Labels,
}

/// What a new volume's content comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeContent {
    /// The snapshot that is restored.
    pub snapshot: SnapshotId,
    /// What was asked for: that snapshot, or the volume that it was made of for this purpose.
    pub source: ContentSource,
}
