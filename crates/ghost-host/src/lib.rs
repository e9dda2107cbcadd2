//! What a Linux host can do with disks, filesystems and mounts.
//!
//! The principal item is the trait [`Host`]: the operations a storage driver needs from the
//! machine it runs on, each idempotent as far as the kernel allows. [`Linux`] does them for real;
//! [`FakeHost`] does them in memory and can be told to fail, or to stop answering, at its n-th call.
//! Both pass one contract suite (`tests/contract.rs`).
//!
//! This crate knows nothing of CSI, of any cloud, or of Kubernetes, and it remembers nothing: what
//! it answers is read from the kernel in that moment.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;

mod blocking;
mod command;
mod device;
mod error;
mod fake;
mod filesystem;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod health;
mod linux;
pub mod loop_device;
mod mount;
mod patient;

pub use device::{BlockDevice, DeviceNumber, DiskAddress, Identity, Partition};
pub use error::{Error, Result};
pub use fake::{FakeDisk, FakeHost, Moment};
pub use filesystem::{Content, FilesystemKind, Format, FormatOptions};
pub use health::DeviceHealth;
pub use linux::Linux;
pub use mount::{Access, Mount, MountEntry, MountTable, TargetKind, Usage};

/// The operations of one machine that storage needs.
///
/// Every method may block on the kernel for long; each runs the blocking part away from the
/// runtime's own threads. None of them is undone when its caller goes away.
#[async_trait]
pub trait Host: Send + Sync + 'static {
    // --- Devices -------------------------------------------------------------------------------

    /// Waits until the disk is there, for at most `patience`, opens it and checks that it is the
    /// disk that was meant.
    ///
    /// The wait is driven by events of the kernel. The answer holds the device open, so that all
    /// later steps act on this very device even if its link or its name moves on.
    /// Fails with [`Error::DiskAbsent`] when nothing usable appeared in time, and with
    /// [`Error::WrongDisk`] when what appeared stayed another disk until then.
    async fn find_disk(&self, disk: &DiskAddress, patience: Duration) -> Result<BlockDevice>;

    /// Opens the device with this number, as a mount table names it; `None` when it is gone.
    async fn open_device(&self, number: DeviceNumber) -> Result<Option<BlockDevice>>;

    /// The number of the block device whose node is seen at this path, such as the target of a bind
    /// of a device; `None` when something else is there, or nothing.
    async fn device_at(&self, path: &Path) -> Result<Option<DeviceNumber>>;

    /// The whole disks that links in this folder below the device folder lead to, each with the
    /// link's name. No folder is no disk.
    async fn linked_disks(&self, folder: &Path) -> Result<Vec<(String, DeviceNumber)>>;

    /// The present size of the device in bytes, which may have grown since it was opened.
    async fn device_size(&self, device: &BlockDevice) -> Result<u64>;

    /// How a device that is in use is doing, by its number: whether it is there and is read, with a
    /// filesystem of this kind on it if one is mounted of it, and what errors that has written down.
    ///
    /// It answers or fails with [`Error::NoAnswer`] within 10 s, however the device hangs, and any
    /// number of callers hold one thread.
    async fn device_health(
        &self,
        number: DeviceNumber,
        kind: Option<FilesystemKind>,
    ) -> Result<DeviceHealth>;

    // --- Filesystems ---------------------------------------------------------------------------

    /// What is on the device. [`Content::Blank`] needs two witnesses: see [`Content`].
    async fn probe(&self, device: &BlockDevice) -> Result<Content>;
    /// Makes a filesystem on a blank device. Never forces the tool: it refuses what it finds.
    async fn format(&self, device: &BlockDevice, format: &Format) -> Result<()>;

    /// Zeroes every place that [`Host::probe`] reads, which makes a half-made filesystem blank.
    /// Only for a device on which this very program was cut short while formatting it.
    async fn erase(&self, device: &BlockDevice) -> Result<()>;

    /// Checks an unmounted filesystem and repairs what is safe to repair (ext3 and ext4: preen;
    /// xfs and btrfs: nothing, since the kernel replays their logs when mounting).
    /// Fails with [`Error::Damaged`] when a person has to look at it.
    async fn check(&self, device: &BlockDevice, kind: FilesystemKind) -> Result<()>;

    /// The tools that filesystems of this kind need and this machine does not have.
    async fn missing_tools(&self, kind: FilesystemKind) -> Result<Vec<&'static str>>;

    /// Grows the mounted filesystem to the size of its device; does nothing when it is as large.
    async fn grow(&self, device: &BlockDevice, target: &Path, kind: FilesystemKind) -> Result<()>;

    // --- Mounts --------------------------------------------------------------------------------

    /// The path with its parent made absolute and free of links, as the mount table would show it.
    /// The last component is not looked at, since what is mounted there may be dead.
    async fn resolve(&self, path: &Path) -> Result<PathBuf>;

    /// The mount table of this process's namespace.
    async fn mounts(&self) -> Result<MountTable>;

    /// Mounts the device's filesystem at an existing directory. Copies of one filesystem can be
    /// mounted side by side; fails with [`Error::Indistinct`] for a btrfs with which the kernel
    /// cannot do that.
    async fn mount(&self, device: &BlockDevice, mount: &Mount) -> Result<()>;

    /// Binds `source` (a directory, or a device node) to an existing target of the same kind.
    /// A read-only bind that cannot be made read-only is taken off again.
    async fn bind(&self, source: &Path, target: &Path, access: Access) -> Result<()>;

    /// Takes the topmost mount off the target. Not mounted is success; [`Error::Busy`] when in use.
    async fn unmount(&self, target: &Path) -> Result<()>;

    /// Space and inodes of the filesystem at the path.
    async fn usage(&self, path: &Path) -> Result<Usage>;

    /// Whether the filesystem mounted at the target has shut down, so that nothing in it can be
    /// reached any more until it is mounted anew. An xfs does that by itself after an error of its
    /// disk; neither the mount table nor [`Host::usage`] nor the disk tells of it. What cannot be
    /// entered for another reason, or is not there, has not.
    ///
    /// It answers or fails with [`Error::NoAnswer`] within 10 s, however the filesystem hangs, and
    /// any number of callers hold one thread.
    async fn has_shut_down(&self, target: &Path) -> Result<bool>;

    // --- Targets -------------------------------------------------------------------------------

    /// Makes an empty directory or file to mount on. Already there and of that kind is success.
    async fn create_target(&self, path: &Path, kind: TargetKind) -> Result<()>;

    /// Removes one empty directory or one empty file. Already gone is success. Anything else
    /// ([`Error::NotEmpty`]) is left as it is: nothing here ever removes recursively.
    async fn remove_target(&self, path: &Path) -> Result<()>;
}
