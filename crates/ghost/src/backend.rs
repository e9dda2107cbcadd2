//! What a storage system can do: primitive verbs with precise errors.
//!
//! A backend keeps no promise of CSI. It does not look before it acts, does not repeat whole
//! operations and takes no locks; `controller` builds the promises from these verbs, once for all
//! backends. Powers that not every storage has are traits of their own behind accessors, and what
//! the driver advertises is what the accessors answer.

use std::sync::Arc;

use async_trait::async_trait;

use crate::error::Result;
use crate::volume::{
    Bytes, NodeId, Region, SizeRule, Snapshot, SnapshotId, SnapshotName, SnapshotSpec, Volume,
    VolumeId, VolumeName, VolumeSpec,
};

pub mod cosmos;

/// A storage system.
#[async_trait]
pub trait Backend: Send + Sync + 'static {
    /// The volume that was made under the orchestrator's name.
    ///
    /// # Errors
    /// `Conflict` when two volumes have it: there is no right choice between them. `Unavailable` for
    /// every failed look-up, since that says nothing of what there is.
    async fn find(&self, name: &VolumeName) -> Result<Option<Volume>>;

    /// The volume of this id. Only the storage's own word means that there is none.
    async fn get(&self, id: &VolumeId) -> Result<Option<Volume>>;

    /// Every volume, each once: a list that may have missed one is an error.
    async fn list(&self) -> Result<Vec<Volume>>;

    /// Makes a volume, empty or of a snapshot.
    ///
    /// # Errors
    /// `Conflict` when the name is taken; it never looks first. `NotFound` without the snapshot.
    /// `Unavailable` when the outcome is unknown.
    async fn create(&self, spec: &VolumeSpec) -> Result<Volume>;

    /// Deletes a volume.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Precondition` when it is attached.
    async fn delete(&self, id: &VolumeId) -> Result<()>;

    /// How much more can be made in this region, or in any; `None` when the storage sets no limit
    /// that it tells.
    async fn capacity(&self, region: Option<&Region>) -> Result<Option<Bytes>>;

    /// The sizes that volumes can have.
    fn sizes(&self) -> SizeRule;

    /// Volumes that have to be attached to a node before it can use them.
    fn attach(&self) -> Option<&dyn Attach> {
        None
    }

    /// Volumes of which snapshots can be made.
    fn snapshots(&self) -> Option<&dyn Snapshots> {
        None
    }

    /// Volumes that can grow.
    fn grow(&self) -> Option<&dyn Grow> {
        None
    }
}

/// A storage system whose volumes are attached to nodes.
#[async_trait]
pub trait Attach: Send + Sync {
    /// Attaches and answers when the storage itself says that it is done.
    ///
    /// # Errors
    /// `NotFound` without the volume or the node, `Precondition` naming the node that has it,
    /// `Exhausted` when the node is full.
    async fn attach(&self, id: &VolumeId, node: &NodeId) -> Result<Volume>;

    /// Detaches from that node, or from every node when none is named, and answers when the storage
    /// itself says that the disk has left and is not on its way there. Not attached there, or no
    /// such volume or node, is done.
    async fn detach(&self, id: &VolumeId, node: Option<&NodeId>) -> Result<()>;
}

/// A storage system that makes snapshots of its volumes, and volumes of its snapshots.
#[async_trait]
pub trait Snapshots: Send + Sync {
    /// The snapshots that were made under the orchestrator's name, the oldest first. There may be
    /// more than one: not every storage keeps names unique.
    async fn find(&self, name: &SnapshotName) -> Result<Vec<Snapshot>>;

    /// The snapshot of this id. Only the storage's own word means that there is none.
    async fn get(&self, id: &SnapshotId) -> Result<Option<Snapshot>>;

    /// Every snapshot of this cluster's, or of one volume, each once.
    async fn list(&self, source: Option<&VolumeId>) -> Result<Vec<Snapshot>>;

    /// Makes a snapshot and answers when its content is fixed. It never looks first.
    ///
    /// # Errors
    /// `NotFound` without the volume, `Unavailable` when the outcome is unknown or the storage wants
    /// a pause between two snapshots of one volume.
    async fn create(&self, spec: &SnapshotSpec) -> Result<Snapshot>;

    /// Deletes a snapshot. Volumes that were made of it stay.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Precondition` when something depends on it.
    async fn delete(&self, id: &SnapshotId) -> Result<()>;
}

/// A storage system whose volumes can grow.
#[async_trait]
pub trait Grow: Send + Sync {
    /// Grows the volume to this size and answers when the storage itself says that it has it.
    async fn grow(&self, id: &VolumeId, size: Bytes) -> Result<Volume>;

    /// Whether it can grow while a node uses it.
    fn online(&self) -> bool;
}

/// A backend that many parts hold.
pub type SharedBackend = Arc<dyn Backend>;
