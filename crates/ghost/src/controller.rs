//! CSI's promises for volumes, kept over any backend.
//!
//! Each operation is a file that reads observe, decide, act: it reads the real state, decides with
//! a function that does no I/O, and acts. Nothing is remembered, so a repeated or interrupted call
//! observes what was done and goes on from there.

use crate::backend::SharedBackend;
use crate::volume::{Bytes, Region};

mod attach;
mod capacity;
mod create;
mod delete;
mod grow;
mod health;
mod list;
mod snapshot;

pub use attach::{attach, detach};
pub use capacity::{Capacity, capacity};
pub use create::{Clones, CreateRequest, create};
pub use delete::delete;
pub use grow::{GrowRequest, grow};
pub use health::{Refusals, volume_health};
pub use list::{ListRequest, Listing, Lists, list_snapshots, list_unhealthy, list_volumes};
pub use snapshot::{SnapshotFilter, SnapshotRequest, create_snapshot, delete_snapshot, snapshot};

/// What the operations of the controller half need.
#[derive(Clone)]
pub struct Controller {
    /// The storage.
    pub backend: SharedBackend,
    /// The size of a volume for which none was asked.
    pub default_size: Bytes,
    /// Where volumes are made when nothing says where.
    pub default_region: Option<Region>,
    /// The clones that are being made.
    pub clones: Clones,
    /// The attachments that another node stands in the way of.
    pub refusals: Refusals,
}
