//! The mount table, and what is asked of mounts.

use std::path::{Path, PathBuf};

use crate::device::DeviceNumber;
use crate::filesystem::FilesystemKind;

mod attach;
mod bind;
mod btrfs;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod options;
mod root;
mod table;
mod target;
mod usage;

pub(crate) use attach::{attach, detach};
pub(crate) use bind::bind;
pub(crate) use options::{Parameter, divide};
pub(crate) use root::RootReader;
pub(crate) use table::{read_table, resolve};
pub(crate) use target::{create_target, remove_target};
pub(crate) use usage::UsageReader;

/// Whether something may be written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reading and writing.
    ReadWrite,
    /// Reading only.
    ReadOnly,
}

/// What a target is made as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetKind {
    /// A directory, for a filesystem.
    Directory,
    /// An empty file, for a device node.
    File,
}

/// A mount of a device's filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// The existing directory.
    pub target: PathBuf,
    /// The filesystem on the device.
    pub kind: FilesystemKind,
    /// Whether it may be written to.
    pub access: Access,
    /// Further options as `mount -o` takes them, one each; commas inside one are kept.
    pub options: Vec<String>,
}

/// One line of the mount table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The device that carries the filesystem, where there is one. For a filesystem with an
    /// anonymous number (btrfs) it is the number of the device named as its source.
    pub device: Option<DeviceNumber>,
    /// The path within the filesystem that is mounted: `/` unless it is a bind of a part.
    pub root: PathBuf,
    /// Where it is mounted.
    pub target: PathBuf,
    /// The mount's own access; a bind may be read-only while the filesystem is not.
    pub access: Access,
    /// Whether mounts made here show in other namespaces.
    pub shared: bool,
    /// The filesystem's name.
    pub filesystem: String,
    /// What was mounted, as it was named then.
    pub source: PathBuf,
    /// The filesystem's own access and options, as the kernel prints them.
    pub super_options: Vec<String>,
}

/// The mounts of a namespace, oldest first, as they were at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MountTable {
    pub(crate) entries: Vec<MountEntry>,
}

impl MountTable {
    /// A table of these mounts, oldest first.
    #[must_use]
    pub fn new(entries: Vec<MountEntry>) -> Self {
        Self { entries }
    }

    /// All mounts, oldest first.
    #[must_use]
    pub fn entries(&self) -> &[MountEntry] {
        &self.entries
    }

    /// The mounts at exactly this path; the last one is the one that is seen.
    pub fn at<'a>(&'a self, target: &'a Path) -> impl DoubleEndedIterator<Item = &'a MountEntry> {
        self.entries.iter().filter(move |entry| entry.target == target)
    }

    /// The mount that this path is within: of the deepest, the one that is seen.
    #[must_use]
    pub fn covering(&self, path: &Path) -> Option<&MountEntry> {
        let within = self.entries.iter().filter(|entry| path.starts_with(&entry.target));
        within.max_by_key(|entry| entry.target.components().count())
    }

    /// The mounts of this device's filesystem, wherever they are.
    pub fn of_device(&self, number: DeviceNumber) -> impl DoubleEndedIterator<Item = &MountEntry> {
        self.entries.iter().filter(move |entry| entry.device == Some(number))
    }
}

/// Space and inodes of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in all.
    pub total_bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that an ordinary user may still write.
    pub available_bytes: u64,
    /// Inodes in all; 0 where the filesystem makes them as needed.
    pub total_inodes: u64,
    /// Inodes in use.
    pub used_inodes: u64,
    /// Inodes still free.
    pub available_inodes: u64,
}
