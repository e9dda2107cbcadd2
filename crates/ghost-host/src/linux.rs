//! This machine: each operation handed to the module that knows how.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::device::{self, BlockDevice, DeviceNumber, DiskAddress, Roots};
use crate::error::Result;
use crate::filesystem::{self, Content, FilesystemKind, Format};
use crate::health::{DeviceHealth, HealthReader};
use crate::mount::{self, Access, Mount, MountTable, RootReader, TargetKind, Usage, UsageReader};
use crate::{Host, blocking};

/// This machine. It remembers nothing but which calls hang.
#[derive(Debug, Clone)]
pub struct Linux {
    roots: Roots,
    usage: Arc<UsageReader>,
    roots_of_mounts: Arc<RootReader>,
    health: Arc<HealthReader>,
}

impl Linux {
    /// The machine whose device folder this is, usually `/dev`.
    #[must_use]
    pub fn new(device_folder: impl Into<PathBuf>) -> Self {
        let roots = Roots { devices: device_folder.into(), ..Roots::default() };
        Self {
            roots,
            usage: Arc::default(),
            roots_of_mounts: Arc::default(),
            health: Arc::default(),
        }
    }

    /// Reads the kernel's account of devices here instead of in `/sys`.
    #[must_use]
    pub fn with_sysfs(mut self, sysfs: impl Into<PathBuf>) -> Self {
        self.roots.sysfs = sysfs.into();
        self
    }

    /// Takes disks that say nothing of themselves, where there is no choice: see
    /// [`Host::find_disk`].
    #[must_use]
    pub fn allowing_unidentified(mut self) -> Self {
        self.roots.unidentified = Some(device::Taken::default());
        self
    }

    /// Runs blocking work with this machine's folders.
    async fn run<T, F>(&self, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Roots) -> Result<T> + Send + 'static,
    {
        let roots = self.roots.clone();
        blocking::run(move || work(&roots)).await
    }
}

impl Default for Linux {
    fn default() -> Self {
        Self::new("/dev")
    }
}

#[async_trait]
impl Host for Linux {
    async fn find_disk(&self, disk: &DiskAddress, patience: Duration) -> Result<BlockDevice> {
        device::find(&self.roots, disk, patience).await
    }

    async fn open_device(&self, number: DeviceNumber) -> Result<Option<BlockDevice>> {
        self.run(move |roots| device::open_number(roots, number)).await
    }

    async fn device_at(&self, path: &Path) -> Result<Option<DeviceNumber>> {
        let path = path.to_owned();
        self.run(move |_| device::device_at(&path)).await
    }

    async fn linked_disks(&self, folder: &Path) -> Result<Vec<(String, DeviceNumber)>> {
        let folder = folder.to_owned();
        self.run(move |roots| device::linked_disks(roots, &folder)).await
    }

    async fn device_size(&self, device: &BlockDevice) -> Result<u64> {
        let device = device.clone();
        self.run(move |_| device::current_size(&device)).await
    }

    async fn device_health(
        &self,
        number: DeviceNumber,
        kind: Option<FilesystemKind>,
    ) -> Result<DeviceHealth> {
        self.health.read(&self.roots, number, kind).await
    }

    async fn probe(&self, device: &BlockDevice) -> Result<Content> {
        filesystem::probe(device).await
    }

    async fn format(&self, device: &BlockDevice, format: &Format) -> Result<()> {
        filesystem::format(device, format).await
    }

    async fn erase(&self, device: &BlockDevice) -> Result<()> {
        filesystem::erase(device).await
    }

    async fn check(&self, device: &BlockDevice, kind: FilesystemKind) -> Result<()> {
        filesystem::check(&self.roots, device, kind).await
    }

    async fn missing_tools(&self, kind: FilesystemKind) -> Result<Vec<&'static str>> {
        filesystem::missing_tools(kind).await
    }

    async fn grow(&self, device: &BlockDevice, target: &Path, kind: FilesystemKind) -> Result<()> {
        filesystem::grow(&self.roots, device, target, kind).await
    }

    async fn resolve(&self, path: &Path) -> Result<PathBuf> {
        let path = path.to_owned();
        self.run(move |_| mount::resolve(&path)).await
    }

    async fn mounts(&self) -> Result<MountTable> {
        self.run(|_| mount::read_table()).await
    }

    async fn mount(&self, device: &BlockDevice, mount: &Mount) -> Result<()> {
        let (device, mount) = (device.clone(), mount.clone());
        self.run(move |roots| mount::attach(roots, &device, &mount)).await
    }

    async fn bind(&self, source: &Path, target: &Path, access: Access) -> Result<()> {
        let (source, target) = (source.to_owned(), target.to_owned());
        self.run(move |roots| mount::bind(roots, &source, &target, access)).await
    }

    async fn unmount(&self, target: &Path) -> Result<()> {
        let target = target.to_owned();
        self.run(move |_| mount::detach(&target)).await
    }

    async fn usage(&self, path: &Path) -> Result<Usage> {
        self.usage.read(path).await
    }

    async fn has_shut_down(&self, target: &Path) -> Result<bool> {
        self.roots_of_mounts.has_shut_down(target).await
    }

    async fn create_target(&self, path: &Path, kind: TargetKind) -> Result<()> {
        let path = path.to_owned();
        self.run(move |_| mount::create_target(&path, kind)).await
    }

    async fn remove_target(&self, path: &Path) -> Result<()> {
        let path = path.to_owned();
        self.run(move |_| mount::remove_target(&path)).await
    }
}
