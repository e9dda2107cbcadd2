//! Block devices: where a disk is looked for, how it is recognised, and the proof that it is there.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

mod appear;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod identity;
mod links;
mod open;
mod unidentified;
mod watch;
mod xen;

pub(crate) use appear::find;
pub(crate) use identity::{Fit, compare};
pub(crate) use links::linked_disks;
pub(crate) use open::{
    Roots, block_number, claim, current_size, device_at, duplicate, is_write_protected,
    open_number, reopen, wait_until_unclaimed,
};
pub(crate) use unidentified::Taken;

/// The kernel's number of a block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeviceNumber {
    /// The driver's number.
    pub major: u32,
    /// The device's number within the driver.
    pub minor: u32,
}

impl DeviceNumber {
    /// Reads the kernel's text form, `major:minor`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (major, minor) = text.trim().split_once(':')?;
        Some(Self { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }

    /// Takes the kernel's packed form apart, as `stat` gives it.
    pub(crate) fn from_raw(raw: u64) -> Self {
        Self { major: rustix::fs::major(raw), minor: rustix::fs::minor(raw) }
    }
}

impl fmt::Display for DeviceNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.major, self.minor)
    }
}

/// Where a disk appears and how it is known to be the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskAddress {
    /// The link that leads to it, below the device folder (`disk/by-id/…`).
    pub link: PathBuf,
    /// The names under which the disk may introduce itself; one of them must match.
    pub names: Vec<String>,
    /// The least size in bytes. A disk may have grown since this was written down.
    pub minimum_size: u64,
}

/// What a device itself says of who it is, and where that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The designators of SCSI's vital product data (page 0x83) and the serial (page 0x80).
    Scsi(Vec<String>),
    /// The serial of a virtio block device; the hypervisor cuts it to 20 bytes.
    Virtio(String),
    /// The serial of an NVMe namespace's controller, a field of 20 bytes.
    Nvme(String),
    /// The slot of a Xen block front-end, such as `xvdf`; the name that means it is made by
    /// [`Identity::name_of_slot`].
    Xen(String),
    /// The backing file of a loop device; its file name is the disk's name.
    Loop(PathBuf),
    /// The device says nothing of itself.
    Unreadable,
}

impl Identity {
    /// The name, among those of a disk, that means the disk in this slot of a Xen host.
    #[must_use]
    pub fn name_of_slot(slot: &str) -> String {
        xen::name(slot)
    }

    /// Whether it is one of these names in full. A serial that was cut short never is: whose disk
    /// says it, only [`crate::Host::find_disk`] can tell.
    #[must_use]
    pub fn is_one_of(&self, names: &[String]) -> bool {
        compare(self, names) == Fit::Whole
    }
}

/// A block device that was there, was opened, and is held open.
///
/// Only the methods of a `Host` make one, so that a path that may not exist, or may lead somewhere
/// else a moment later, can be neither probed nor formatted. Clones share the handle.
#[derive(Clone, Debug)]
pub struct BlockDevice {
    pub(crate) handle: Arc<OwnedFd>,
    pub(crate) path: PathBuf,
    pub(crate) number: DeviceNumber,
    pub(crate) size: u64,
    pub(crate) identity: Identity,
    pub(crate) partitions: Vec<Partition>,
    pub(crate) users: Vec<String>,
}

/// A part of a disk that the kernel has found by the table on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Partition {
    /// The kernel's name of it, such as `sdb1`.
    pub name: String,
    /// Its number, to compare with a mount table.
    pub number: DeviceNumber,
}

impl BlockDevice {
    /// The device's own node, such as `/dev/sdb`: no link.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device's number, to compare with a mount table.
    #[must_use]
    pub fn number(&self) -> DeviceNumber {
        self.number
    }

    /// The size in bytes when it was opened.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// What the device says of who it is.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// The partitions that the kernel shows of it.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// Who else builds on this device or its partitions by the kernel's own account (device mapper,
    /// md). Empty for a disk that may be used whole.
    #[must_use]
    pub fn users(&self) -> &[String] {
        &self.users
    }
}
