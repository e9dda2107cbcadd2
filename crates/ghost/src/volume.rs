//! The words of the domain: volumes, names, sizes, capabilities, places. Plain data without I/O.
//!
//! A value of these types has been checked; what arrives as protobuf or JSON becomes one of them
//! at the edge, and is a raw string or number nowhere below it.

mod capability;
mod id;
mod locator;
mod parameters;
mod size;
mod topology;

pub use capability::{AccessMode, AccessType, Capability};
pub use id::{NodeId, VolumeId, VolumeName};
pub use locator::{Context, Disk, Locator};
pub use parameters::Parameters;
pub use size::{Bytes, SizeRange, SizeRule};
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
}
