//! How a volume is to be used: as a filesystem or as a raw device, by whom, and how.

use std::fmt;

use ghost_host::FilesystemKind;

use crate::error::{Error, Result};

/// Who may use a volume at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessMode {
    /// One node reads and writes; how many workloads there do is not said.
    SingleNodeWriter,
    /// One node reads.
    SingleNodeReaderOnly,
    /// One workload on one node reads and writes.
    SingleNodeSingleWriter,
    /// Many workloads on one node read and write.
    SingleNodeMultiWriter,
    /// Many nodes read.
    MultiNodeReaderOnly,
    /// Many nodes read, one of them writes.
    MultiNodeSingleWriter,
    /// Many nodes read and write.
    MultiNodeMultiWriter,
}

impl AccessMode {
    /// The modes that a disk can be made for, in words.
    pub const OFFERED: &str =
        "SINGLE_NODE_WRITER, SINGLE_NODE_SINGLE_WRITER or SINGLE_NODE_MULTI_WRITER";

    /// Whether more than one node is to have it at once.
    #[must_use]
    pub fn is_multi_node(self) -> bool {
        matches!(
            self,
            Self::MultiNodeReaderOnly | Self::MultiNodeSingleWriter | Self::MultiNodeMultiWriter
        )
    }

    /// Whether nobody is to write.
    #[must_use]
    pub fn is_read_only(self) -> bool {
        matches!(self, Self::SingleNodeReaderOnly | Self::MultiNodeReaderOnly)
    }

    /// The name that the specification gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::SingleNodeWriter => "SINGLE_NODE_WRITER",
            Self::SingleNodeReaderOnly => "SINGLE_NODE_READER_ONLY",
            Self::SingleNodeSingleWriter => "SINGLE_NODE_SINGLE_WRITER",
            Self::SingleNodeMultiWriter => "SINGLE_NODE_MULTI_WRITER",
            Self::MultiNodeReaderOnly => "MULTI_NODE_READER_ONLY",
            Self::MultiNodeSingleWriter => "MULTI_NODE_SINGLE_WRITER",
            Self::MultiNodeMultiWriter => "MULTI_NODE_MULTI_WRITER",
        }
    }
}

impl fmt::Display for AccessMode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// In which form a volume is used.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum AccessType {
    /// As a mounted filesystem.
    Mount {
        /// Its kind; ext4 where the caller named none.
        filesystem: FilesystemKind,
        /// Mount options, one each. They may hold secrets and are never printed.
        options: Vec<String>,
    },
    /// As a block device.
    Block,
}

impl fmt::Debug for AccessType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mount { filesystem, options } => {
                write!(formatter, "Mount({filesystem}, {} options)", options.len())
            }
            Self::Block => formatter.write_str("Block"),
        }
    }
}

/// One way in which a volume is to be used.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Capability {
    /// Who may use it.
    pub mode: AccessMode,
    /// In which form.
    pub access: AccessType,
}

impl Capability {
    /// Checks that a disk can be made for this use: a disk has one node, and a fresh one that
    /// nobody may write is of no use.
    ///
    /// # Errors
    /// `Invalid`, saying which modes are offered.
    pub fn check_offered(&self) -> Result<()> {
        match self.mode {
            AccessMode::SingleNodeWriter
            | AccessMode::SingleNodeSingleWriter
            | AccessMode::SingleNodeMultiWriter => Ok(()),
            mode => Err(Error::invalid(format!(
                "access mode {mode} is not offered: a disk is attached to one node at a time; \
                 use {}",
                AccessMode::OFFERED
            ))),
        }
    }

    /// Checks that an existing disk can be handed to a node for this use. Reader-only modes pass
    /// here: a volume that a person brought along may be meant for reading.
    ///
    /// # Errors
    /// `Invalid` for modes in which several nodes write.
    pub fn check_usable(&self) -> Result<()> {
        match self.mode {
            AccessMode::MultiNodeSingleWriter | AccessMode::MultiNodeMultiWriter => {
                self.check_offered()
            }
            _ => Ok(()),
        }
    }
}
