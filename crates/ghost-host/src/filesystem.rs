//! What is on a device, and how a filesystem is made, checked and grown with its own tools.

use std::fmt;

mod alone;
mod btrfs;
mod check;
mod ext_layout;
mod grow;
mod make;
mod options;
mod places;
mod probe;
mod read;
mod super_block;
mod tools;

pub(crate) use btrfs::BtrfsIdentity;
pub(crate) use check::check;
pub(crate) use grow::grow;
pub(crate) use make::{erase, format};
pub use options::FormatOptions;
pub(crate) use probe::probe;
pub(crate) use super_block::SuperBlock;
pub(crate) use tools::missing_tools;

/// The filesystems that are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilesystemKind {
    /// ext4, the default of callers that name none.
    Ext4,
    /// ext3.
    Ext3,
    /// XFS.
    Xfs,
    /// Btrfs.
    Btrfs,
}

impl FilesystemKind {
    /// All kinds, in the order in which documents name them.
    pub const ALL: [Self; 4] = [Self::Ext4, Self::Ext3, Self::Xfs, Self::Btrfs];

    /// The kernel's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Ext3 => "ext3",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    /// The kind of that kernel name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for FilesystemKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// What was found on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Nothing: blkid finds no signature, *and* zeros were really read in the first and last MiB
    /// and wherever the known filesystems and partition tables keep their spare copies.
    Blank,
    /// A whole filesystem of a kind that is offered.
    Filesystem(FilesystemKind),
    /// Something else, described for a person. It is never formatted.
    Foreign(String),
}

impl fmt::Display for Content {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blank => formatter.write_str("nothing"),
            Self::Filesystem(kind) => write!(formatter, "a filesystem of kind {kind}"),
            Self::Foreign(what) => formatter.write_str(what),
        }
    }
}

/// How to make a filesystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    /// Its kind.
    pub kind: FilesystemKind,
    /// What else is said of it; checked for the kind.
    pub options: FormatOptions,
}

impl Format {
    /// A filesystem of which only the kind is said.
    #[must_use]
    pub fn of(kind: FilesystemKind) -> Self {
        Self { kind, options: FormatOptions::default() }
    }
}
