//! The operations of a machine in memory: each is written down, struck by its fault, and done.

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use tokio::time::Instant;

use crate::Host;
use crate::device::{BlockDevice, DeviceNumber, DiskAddress};
use crate::error::{Error, Result};
use crate::fake::devices::{NotFound, link_path};
use crate::fake::state::State;
use crate::fake::{FakeHost, Moment};
use crate::filesystem::{Content, FilesystemKind, Format};
use crate::health::DeviceHealth;
use crate::mount::{Access, Mount, MountTable, TargetKind, Usage};

impl FakeHost {
    /// Makes one call: its text for the log, what is done of it when it is cut short, and all of it.
    async fn call<T>(
        &self,
        text: String,
        half: impl FnOnce(&mut State),
        whole: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        let fault = self.lock().begin(text);
        let Some(fault) = fault else { return self.change(whole) };
        match fault.moment {
            Moment::Before => {}
            Moment::Midway => self.change(half),
            // The answer is lost, be it good or bad.
            Moment::After => drop(self.change(whole)),
        }
        match fault.error {
            Some(error) => Err(error),
            None => std::future::pending().await,
        }
    }

    /// A call that has no middle.
    async fn step<T>(
        &self,
        text: String,
        whole: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.call(text, |_| (), whole).await
    }

    async fn wait_for(&self, disk: &DiskAddress, patience: Duration) -> Result<BlockDevice> {
        let started = Instant::now();
        loop {
            let changed = self.changed.notified();
            let waited = started.elapsed();
            let looked = self.lock().look(disk);
            match looked {
                Ok(device) => return Ok(device),
                Err(NotFound::Absent(seen)) if waited >= patience => {
                    return Err(Error::DiskAbsent { link: link_path(disk), waited, seen });
                }
                Err(NotFound::Refused(error)) if waited >= patience => return Err(error),
                Err(_) => {}
            }
            drop(tokio::time::timeout(patience.saturating_sub(waited), changed).await);
        }
    }
}

#[async_trait]
impl Host for FakeHost {
    async fn find_disk(&self, disk: &DiskAddress, patience: Duration) -> Result<BlockDevice> {
        self.step(format!("find_disk {}", disk.link.display()), |_| Ok(())).await?;
        self.wait_for(disk, patience).await
    }

    async fn open_device(&self, number: DeviceNumber) -> Result<Option<BlockDevice>> {
        self.step(format!("open_device {number}"), |state| Ok(state.open(number))).await
    }

    async fn device_at(&self, path: &Path) -> Result<Option<DeviceNumber>> {
        self.step(format!("device_at {}", path.display()), |state| Ok(state.device_at(path))).await
    }

    async fn linked_disks(&self, folder: &Path) -> Result<Vec<(String, DeviceNumber)>> {
        let text = format!("linked_disks {}", folder.display());
        self.step(text, |state| Ok(state.linked_disks(folder))).await
    }

    async fn device_size(&self, device: &BlockDevice) -> Result<u64> {
        self.step(format!("device_size {}", device.number), |state| Ok(state.size(device))).await
    }

    async fn device_health(
        &self,
        number: DeviceNumber,
        kind: Option<FilesystemKind>,
    ) -> Result<DeviceHealth> {
        self.step(format!("device_health {number}"), |state| Ok(state.health(number, kind))).await
    }

    async fn missing_tools(&self, kind: FilesystemKind) -> Result<Vec<&'static str>> {
        self.step(format!("missing_tools {kind}"), |state| Ok(state.missing_tools.clone())).await
    }

    async fn probe(&self, device: &BlockDevice) -> Result<Content> {
        self.step(format!("probe {}", device.number), |state| state.probe(device)).await
    }

    async fn format(&self, device: &BlockDevice, format: &Format) -> Result<()> {
        let text = format!("format {} {}", device.number, format.kind);
        let half = |state: &mut State| drop(state.begin_format(device));
        self.call(text, half, |state| state.format(device, format)).await
    }

    async fn erase(&self, device: &BlockDevice) -> Result<()> {
        self.step(format!("erase {}", device.number), |state| state.erase(device)).await
    }

    async fn check(&self, device: &BlockDevice, kind: FilesystemKind) -> Result<()> {
        self.step(format!("check {} {kind}", device.number), |state| state.check(device, kind))
            .await
    }

    async fn grow(&self, device: &BlockDevice, target: &Path, kind: FilesystemKind) -> Result<()> {
        let text = format!("grow {} {}", device.number, target.display());
        self.step(text, |state| state.grow(device, kind)).await
    }

    async fn resolve(&self, path: &Path) -> Result<PathBuf> {
        self.step(format!("resolve {}", path.display()), |state| state.resolve(path)).await
    }

    async fn mounts(&self) -> Result<MountTable> {
        self.step("mounts".to_owned(), |state| Ok(MountTable::new(state.mounts.clone()))).await
    }

    async fn mount(&self, device: &BlockDevice, mount: &Mount) -> Result<()> {
        let text = format!("mount {} {}", device.number, mount.target.display());
        self.step(text, |state| state.mount(device, mount)).await
    }

    async fn bind(&self, source: &Path, target: &Path, access: Access) -> Result<()> {
        let text = format!("bind {} {}", source.display(), target.display());
        self.step(text, |state| state.bind(source, target, access)).await
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        self.step(format!("unmount {}", target.display()), |state| state.unmount(target)).await
    }

    async fn usage(&self, path: &Path) -> Result<Usage> {
        self.step(format!("usage {}", path.display()), |state| state.usage(path)).await
    }

    async fn has_shut_down(&self, target: &Path) -> Result<bool> {
        let text = format!("has_shut_down {}", target.display());
        self.step(text, |state| Ok(state.has_shut_down(target))).await
    }

    async fn create_target(&self, path: &Path, kind: TargetKind) -> Result<()> {
        let text = format!("create_target {}", path.display());
        self.step(text, |state| state.create_target(path, kind)).await
    }

    async fn remove_target(&self, path: &Path) -> Result<()> {
        let text = format!("remove_target {}", path.display());
        self.step(text, |state| state.remove_target(path)).await
    }
}
