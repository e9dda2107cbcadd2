//! The data of a volume made reachable at a path of this machine, and taken away again.
//!
//! Each operation is a file that reads observe, decide, act: it reads the mount table and the
//! device, decides with a function that does no I/O, and acts through the [`Host`] alone. Nothing
//! is remembered but the [`FormatNotes`], so a repeated or interrupted call observes what was done
//! and goes on from there. There is no cloud here: where a disk is, the `Locator` of a request says.

use std::sync::Arc;
use std::time::Duration;

use ghost_host::Host;

mod condition;
mod connect;
mod content;
mod disk_link;
mod error;
mod format_note;
mod grow;
mod health;
mod kubelet_dir;
mod limit;
mod place;
mod publish;
mod published;
mod release;
mod stage;
mod stats;

#[cfg(test)]
mod cases;
#[cfg(test)]
mod convergence;
#[cfg(test)]
mod fixture;

pub use disk_link::DiskLink;
pub use format_note::FormatNotes;
pub use grow::{GrowRequest, grow};
pub use health::{HealthRequest, health, storage_health};
pub use kubelet_dir::{KubeletDir, check_kubelet_dir};
pub use limit::{OwnDisks, attach_limit};
pub use publish::{PublishRequest, publish};
pub use release::{UnpublishRequest, UnstageRequest, unpublish, unstage};
pub use stage::{StageRequest, stage};
pub use stats::{Stats, StatsRequest, stats};

/// What the operations of the node half need.
#[derive(Clone)]
pub struct Node {
    /// The machine.
    pub host: Arc<dyn Host>,
    /// The notes of formats that are under way.
    pub notes: FormatNotes,
    /// Where the kubelet keeps its volumes.
    pub kubelet_dir: KubeletDir,
    /// Where a disk appears.
    pub disk_link: DiskLink,
    /// How long is waited for a disk to appear.
    pub patience: Duration,
    /// How this driver's disks are told from others.
    pub own: OwnDisks,
    /// Whether disks are used that do not say who they are.
    pub allow_unidentified: bool,
}
