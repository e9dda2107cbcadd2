//! Marks: the places where a test may kill this process, before and after each change of the world.
//!
//! Only debug builds have this module. [`Marked`] wraps a backend or a host and calls [`Marks::pass`]
//! around every method that changes something; with `--kill-at NAME` the process ends there by
//! SIGKILL, as if the machine had lost power. A test compares [`NAMES`] with the methods of the
//! traits, so that no mark can be missing.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ghost_host::{
    Access, BlockDevice, Content, DeviceHealth, DeviceNumber, DiskAddress, FilesystemKind, Format,
    Host, Mount, MountTable, TargetKind, Usage,
};
use rustix::process::{Signal, getpid, kill_process};

use crate::backend::{Attach, Backend, Grow, SharedBackend, Snapshots};
use crate::error::{Error, Result};
use crate::volume::{
    Bytes, NodeId, Region, SizeRule, Snapshot, SnapshotId, SnapshotName, SnapshotSpec, Volume,
    VolumeId, VolumeName, VolumeSpec,
};

/// The methods that change the world; each has a mark `NAME:before` and a mark `NAME:after`.
pub const NAMES: [&str; 16] = [
    "create",
    "delete",
    "create_snapshot",
    "delete_snapshot",
    "attach",
    "detach",
    "grow_volume",
    "format",
    "erase",
    "check",
    "grow_filesystem",
    "mount",
    "bind",
    "unmount",
    "create_target",
    "remove_target",
];

/// Which mark ends the process, if any.
#[derive(Clone, Debug, Default)]
pub struct Marks(Option<Arc<str>>);

impl Marks {
    /// Ends at this mark, `NAME:before` or `NAME:after`.
    ///
    /// # Errors
    /// `Invalid` when there is no such mark.
    pub fn kill_at(mark: &str) -> Result<Self> {
        let known = mark.split_once(':').is_some_and(|(name, when)| {
            NAMES.contains(&name) && matches!(when, "before" | "after")
        });
        if known {
            Ok(Self(Some(mark.into())))
        } else {
            Err(Error::invalid(format!(
                "there is no mark {mark:?}; expected NAME:before or NAME:after with NAME one of {}",
                NAMES.join(", ")
            )))
        }
    }

    async fn around<T>(&self, name: &str, work: impl Future<Output = T>) -> T {
        self.pass(name, "before");
        let outcome = work.await;
        self.pass(name, "after");
        outcome
    }

    fn pass(&self, name: &str, when: &str) {
        let Some(mark) = self.0.as_deref() else { return };
        if mark.strip_suffix(when).and_then(|rest| rest.strip_suffix(':')) == Some(name) {
            kill_process(getpid(), Signal::KILL).expect("a process may always kill itself");
        }
    }
}

/// A backend or a host whose changes are marked.
pub struct Marked<T> {
    inner: T,
    marks: Marks,
}

impl<T> Marked<T> {
    /// The same with marks.
    pub fn new(inner: T, marks: Marks) -> Self {
        Self { inner, marks }
    }
}

#[async_trait]
impl Backend for Marked<SharedBackend> {
    async fn find(&self, name: &VolumeName) -> Result<Option<Volume>> {
        self.inner.find(name).await
    }

    async fn get(&self, id: &VolumeId) -> Result<Option<Volume>> {
        self.inner.get(id).await
    }

    async fn list(&self) -> Result<Vec<Volume>> {
        self.inner.list().await
    }

    async fn create(&self, spec: &VolumeSpec) -> Result<Volume> {
        self.marks.around("create", self.inner.create(spec)).await
    }

    async fn delete(&self, id: &VolumeId) -> Result<()> {
        self.marks.around("delete", self.inner.delete(id)).await
    }

    async fn capacity(&self, region: Option<&Region>) -> Result<Option<Bytes>> {
        self.inner.capacity(region).await
    }

    fn sizes(&self) -> SizeRule {
        self.inner.sizes()
    }

    fn attach(&self) -> Option<&dyn Attach> {
        self.inner.attach().map(|_| self as &dyn Attach)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        self.inner.snapshots().map(|_| self as &dyn Snapshots)
    }

    fn grow(&self) -> Option<&dyn Grow> {
        self.inner.grow().map(|_| self as &dyn Grow)
    }
}

fn power<T>(power: Option<T>) -> Result<T> {
    power.ok_or_else(|| Error::bug("a power that the backend does not have was used"))
}

#[async_trait]
impl Attach for Marked<SharedBackend> {
    async fn attach(&self, id: &VolumeId, node: &NodeId) -> Result<Volume> {
        let inner = power(self.inner.attach())?;
        self.marks.around("attach", inner.attach(id, node)).await
    }

    async fn detach(&self, id: &VolumeId, node: Option<&NodeId>) -> Result<()> {
        let inner = power(self.inner.attach())?;
        self.marks.around("detach", inner.detach(id, node)).await
    }
}

#[async_trait]
impl Snapshots for Marked<SharedBackend> {
    async fn find(&self, name: &SnapshotName) -> Result<Vec<Snapshot>> {
        power(self.inner.snapshots())?.find(name).await
    }

    async fn get(&self, id: &SnapshotId) -> Result<Option<Snapshot>> {
        power(self.inner.snapshots())?.get(id).await
    }

    async fn list(&self, source: Option<&VolumeId>) -> Result<Vec<Snapshot>> {
        power(self.inner.snapshots())?.list(source).await
    }

    async fn create(&self, spec: &SnapshotSpec) -> Result<Snapshot> {
        let inner = power(self.inner.snapshots())?;
        self.marks.around("create_snapshot", inner.create(spec)).await
    }

    async fn delete(&self, id: &SnapshotId) -> Result<()> {
        let inner = power(self.inner.snapshots())?;
        self.marks.around("delete_snapshot", inner.delete(id)).await
    }
}

#[async_trait]
impl Grow for Marked<SharedBackend> {
    async fn grow(&self, id: &VolumeId, size: Bytes) -> Result<Volume> {
        let inner = power(self.inner.grow())?;
        self.marks.around("grow_volume", inner.grow(id, size)).await
    }

    fn online(&self) -> bool {
        self.inner.grow().is_some_and(Grow::online)
    }
}

#[async_trait]
impl Host for Marked<Arc<dyn Host>> {
    async fn find_disk(
        &self,
        disk: &DiskAddress,
        patience: Duration,
    ) -> ghost_host::Result<BlockDevice> {
        self.inner.find_disk(disk, patience).await
    }

    async fn open_device(&self, number: DeviceNumber) -> ghost_host::Result<Option<BlockDevice>> {
        self.inner.open_device(number).await
    }

    async fn device_at(&self, path: &Path) -> ghost_host::Result<Option<DeviceNumber>> {
        self.inner.device_at(path).await
    }

    async fn linked_disks(&self, folder: &Path) -> ghost_host::Result<Vec<(String, DeviceNumber)>> {
        self.inner.linked_disks(folder).await
    }

    async fn device_size(&self, device: &BlockDevice) -> ghost_host::Result<u64> {
        self.inner.device_size(device).await
    }

    async fn device_health(
        &self,
        number: DeviceNumber,
        kind: Option<FilesystemKind>,
    ) -> ghost_host::Result<DeviceHealth> {
        self.inner.device_health(number, kind).await
    }

    async fn missing_tools(&self, kind: FilesystemKind) -> ghost_host::Result<Vec<&'static str>> {
        self.inner.missing_tools(kind).await
    }

    async fn probe(&self, device: &BlockDevice) -> ghost_host::Result<Content> {
        self.inner.probe(device).await
    }

    async fn format(&self, device: &BlockDevice, format: &Format) -> ghost_host::Result<()> {
        self.marks.around("format", self.inner.format(device, format)).await
    }

    async fn erase(&self, device: &BlockDevice) -> ghost_host::Result<()> {
        self.marks.around("erase", self.inner.erase(device)).await
    }

    async fn check(&self, device: &BlockDevice, kind: FilesystemKind) -> ghost_host::Result<()> {
        self.marks.around("check", self.inner.check(device, kind)).await
    }

    async fn grow(
        &self,
        device: &BlockDevice,
        target: &Path,
        kind: FilesystemKind,
    ) -> ghost_host::Result<()> {
        self.marks.around("grow_filesystem", self.inner.grow(device, target, kind)).await
    }

    async fn resolve(&self, path: &Path) -> ghost_host::Result<PathBuf> {
        self.inner.resolve(path).await
    }

    async fn mounts(&self) -> ghost_host::Result<MountTable> {
        self.inner.mounts().await
    }

    async fn mount(&self, device: &BlockDevice, mount: &Mount) -> ghost_host::Result<()> {
        self.marks.around("mount", self.inner.mount(device, mount)).await
    }

    async fn bind(&self, source: &Path, target: &Path, access: Access) -> ghost_host::Result<()> {
        self.marks.around("bind", self.inner.bind(source, target, access)).await
    }

    async fn unmount(&self, target: &Path) -> ghost_host::Result<()> {
        self.marks.around("unmount", self.inner.unmount(target)).await
    }

    async fn usage(&self, path: &Path) -> ghost_host::Result<Usage> {
        self.inner.usage(path).await
    }

    async fn has_shut_down(&self, target: &Path) -> ghost_host::Result<bool> {
        self.inner.has_shut_down(target).await
    }

    async fn create_target(&self, path: &Path, kind: TargetKind) -> ghost_host::Result<()> {
        self.marks.around("create_target", self.inner.create_target(path, kind)).await
    }

    async fn remove_target(&self, path: &Path) -> ghost_host::Result<()> {
        self.marks.around("remove_target", self.inner.remove_target(path)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Methods that only read, or only tell.
    const READS: [&str; 19] = [
        "has_shut_down",
        "linked_disks",
        "capacity",
        "device_health",
        "missing_tools",
        "snapshots",
        "find",
        "get",
        "list",
        "sizes",
        "online",
        "find_disk",
        "open_device",
        "device_at",
        "device_size",
        "probe",
        "resolve",
        "mounts",
        "usage",
    ];

    #[test]
    fn every_method_that_changes_the_world_has_its_marks() {
        let own = include_str!("mark.rs");
        let traits = [include_str!("backend.rs"), include_str!("../../ghost-host/src/lib.rs")];
        let mut methods = Vec::new();
        for source in traits {
            let mut in_trait = false;
            for line in source.lines() {
                in_trait = (in_trait || line.starts_with("pub trait ")) && line != "}";
                let name = line.trim().trim_start_matches("async ").strip_prefix("fn ");
                if let (true, Some(name)) = (in_trait, name) {
                    let name = name.split(['(', '<']).next().expect("split gives one part");
                    methods.push(name);
                }
            }
        }
        assert!(methods.len() > 20, "the traits were not read: {methods:?}");
        for method in methods.iter().filter(|method| !READS.contains(*method)) {
            // Some are verbs of two traits, and each has its own mark; the accessors of powers
            // have the names of their verbs.
            let marks: &[&str] = match *method {
                "grow" => &["grow_volume", "grow_filesystem"],
                "create" => &["create", "create_snapshot"],
                "delete" => &["delete", "delete_snapshot"],
                other => &[other][..],
            };
            for mark in marks {
                assert!(NAMES.contains(mark), "{method} has no mark");
                assert!(own.contains(&format!("around(\"{mark}\"")), "{mark} is never passed");
            }
        }
    }

    #[test]
    fn an_unknown_mark_is_refused() {
        assert!(Marks::kill_at("mount:before").is_ok());
        for bad in ["", "mount", "mount:", "mount:during", "sleep:before"] {
            assert!(Marks::kill_at(bad).is_err(), "{bad:?}");
        }
    }
}
