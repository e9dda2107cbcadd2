//! What can be wrong with a volume or with the storage, each with a word for machines.
//!
//! A reason is part of the interface: it never changes its spelling or its meaning. It is there as
//! long as its cause is, and no longer.

use std::fmt;

use ghost_host::FilesystemKind;

use super::{Bytes, NodeId, VolumeId};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// It works, but not as it should.
    Degraded,
    /// It cannot be used.
    Inaccessible,
}

/// Something that is wrong with a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VolumeProblem {
    /// The storage cannot be asked.
    CloudUnreachable(String),
    /// It is on another node than the one it is wanted on.
    AttachedElsewhere {
        /// Where it was to be attached.
        wanted: NodeId,
        /// Where it is.
        found: NodeId,
    },
    /// It is on several nodes at once.
    AttachedTwice(Vec<NodeId>),
    /// It is mounted and its device has left the machine.
    DeviceGone,
    /// Its device cannot be read.
    DeviceFailing(String),
    /// Its device gives no answer.
    DeviceUnresponsive,
    /// What is on its device is not what was mounted of it.
    DeviceReplaced,
    /// Its filesystem stopped taking writes after an error.
    FilesystemReadOnly,
    /// Its filesystem shut down after an error.
    FilesystemShutDown,
    /// Its filesystem has written down errors.
    FilesystemErrors(u64),
    /// Little space is left.
    NearlyFull {
        /// What is left.
        available: Bytes,
        /// Of so much.
        total: Bytes,
    },
    /// Few inodes are left.
    NearlyOutOfInodes {
        /// How many are left.
        available: u64,
        /// Of so many.
        total: u64,
    },
}

impl VolumeProblem {
    /// How bad it is.
    #[must_use]
    pub fn severity(&self) -> Severity {
        match self {
            Self::CloudUnreachable(_)
            | Self::AttachedTwice(_)
            | Self::FilesystemReadOnly
            | Self::FilesystemErrors(_)
            | Self::NearlyFull { .. }
            | Self::NearlyOutOfInodes { .. } => Severity::Degraded,
            Self::AttachedElsewhere { .. }
            | Self::DeviceGone
            | Self::DeviceFailing(_)
            | Self::DeviceUnresponsive
            | Self::DeviceReplaced
            | Self::FilesystemShutDown => Severity::Inaccessible,
        }
    }

    /// The word for machines.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::CloudUnreachable(_) => "CloudUnreachable",
            Self::AttachedElsewhere { .. } => "AttachedElsewhere",
            Self::AttachedTwice(_) => "AttachedTwice",
            Self::DeviceGone => "DeviceGone",
            Self::DeviceFailing(_) => "DeviceFailing",
            Self::DeviceUnresponsive => "DeviceUnresponsive",
            Self::DeviceReplaced => "DeviceReplaced",
            Self::FilesystemReadOnly => "FilesystemReadOnly",
            Self::FilesystemShutDown => "FilesystemShutDown",
            Self::FilesystemErrors(_) => "FilesystemErrors",
            Self::NearlyFull { .. } => "NearlyFull",
            Self::NearlyOutOfInodes { .. } => "NearlyOutOfInodes",
        }
    }
}

impl fmt::Display for VolumeProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CloudUnreachable(why) => write!(
                formatter,
                "the cloud cannot be asked about the volume; where it is attached it may well work: \
                 {why}"
            ),
            Self::AttachedElsewhere { wanted, found } => write!(
                formatter,
                "the volume is to be on node {wanted}, but is attached to node {found}; detach it \
                 there when nothing uses it"
            ),
            Self::AttachedTwice(nodes) => {
                let nodes: Vec<&str> = nodes.iter().map(NodeId::as_str).collect();
                write!(
                    formatter,
                    "the volume is attached to several nodes ({}), which destroys its filesystem if \
                     two of them write; detach it from all but one",
                    nodes.join(", ")
                )
            }
            Self::DeviceGone => formatter.write_str(
                "the disk has left this machine while it was mounted; was it detached by hand? The \
                 pods that use it must end, so that it is attached and mounted again",
            ),
            Self::DeviceFailing(why) => write!(formatter, "the disk cannot be read: {why}"),
            Self::DeviceUnresponsive => {
                formatter.write_str("the disk has not answered a read within 10 s")
            }
            Self::DeviceReplaced => formatter.write_str(
                "what is on the disk is not the filesystem that was mounted of it; was it \
                 overwritten, or is another disk in its place?",
            ),
            Self::FilesystemReadOnly => formatter.write_str(
                "the filesystem stopped taking writes after an error; when the pods on this node \
                 that use it have ended, it is checked and mounted again",
            ),
            Self::FilesystemShutDown => formatter.write_str(
                "the filesystem shut down after an error, so that nothing in it can be read or \
                 written; when the pods on this node that use it have ended, it is mounted again",
            ),
            Self::FilesystemErrors(count) => write!(
                formatter,
                "the filesystem has written down {count} errors; it is checked when it is mounted \
                 next (ext3, ext4), or see \"btrfs device stats\""
            ),
            Self::NearlyFull { available, total } => write!(
                formatter,
                "{} MiB of {} MiB are left",
                available.get() >> 20,
                total.get() >> 20
            ),
            Self::NearlyOutOfInodes { available, total } => write!(
                formatter,
                "{available} of {total} inodes are left; new files cannot be made without"
            ),
        }
    }
}

/// What is wrong with one volume; nothing, if it is healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeHealth {
    /// The volume.
    pub id: VolumeId,
    /// All that is wrong, no reason twice.
    pub problems: Vec<VolumeProblem>,
}

/// Something that is wrong with what a node needs for any volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StorageProblem {
    /// Filesystems of this kind cannot be made or mended.
    ToolsMissing(FilesystemKind, Vec<&'static str>),
    /// The folder of the format notes cannot be written to.
    NotesNotWritable(String),
    /// It is not known yet which machine this is.
    NodeUnknown,
}

impl StorageProblem {
    /// Whether nothing works; otherwise some things do.
    #[must_use]
    pub fn is_total(&self) -> bool {
        matches!(self, Self::NodeUnknown)
    }

    /// The kind of filesystem that it concerns; all uses, without.
    #[must_use]
    pub fn concerns(&self) -> Option<FilesystemKind> {
        match self {
            Self::ToolsMissing(kind, _) => Some(*kind),
            Self::NotesNotWritable(_) | Self::NodeUnknown => None,
        }
    }

    /// The word for machines.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::ToolsMissing(..) => "ToolsMissing",
            Self::NotesNotWritable(_) => "NotesNotWritable",
            Self::NodeUnknown => "NodeUnknown",
        }
    }
}

impl fmt::Display for StorageProblem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ToolsMissing(kind, tools) => write!(
                formatter,
                "{kind} needs programs that this machine lacks: {}; install them in the image",
                tools.join(", ")
            ),
            Self::NotesNotWritable(why) => write!(
                formatter,
                "no new disk can be formatted, since the note of it cannot be written: {why}"
            ),
            Self::NodeUnknown => formatter.write_str(
                "the provider's metadata service has not yet said which node this is, so that \
                 nothing can be attached here",
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_texts_are_what_the_golden_file_says() {
        let node = |id: &str| NodeId::new(id).expect("an id");
        let volume = [
            VolumeProblem::CloudUnreachable("no answer to GET /v2/volumes/v-1".to_owned()),
            VolumeProblem::AttachedElsewhere { wanted: node("101"), found: node("102") },
            VolumeProblem::AttachedTwice(vec![node("101"), node("102")]),
            VolumeProblem::DeviceGone,
            VolumeProblem::DeviceFailing("cannot read /dev/sdb: I/O error".to_owned()),
            VolumeProblem::DeviceUnresponsive,
            VolumeProblem::DeviceReplaced,
            VolumeProblem::FilesystemReadOnly,
            VolumeProblem::FilesystemShutDown,
            VolumeProblem::FilesystemErrors(3),
            VolumeProblem::NearlyFull {
                available: Bytes::new(50 << 20),
                total: Bytes::from_gib(1),
            },
            VolumeProblem::NearlyOutOfInodes { available: 12, total: 65_536 },
        ];
        let storage = [
            StorageProblem::ToolsMissing(FilesystemKind::Xfs, vec!["mkfs.xfs", "xfs_growfs"]),
            StorageProblem::NotesNotWritable("read-only file system".to_owned()),
            StorageProblem::NodeUnknown,
        ];
        let volume = volume.iter().map(|problem| {
            format!("{} ({:?})\n    {problem}\n", problem.reason(), problem.severity())
        });
        let storage = storage.iter().map(|problem| {
            let word = if problem.is_total() { "Unreachable" } else { "Degraded" };
            format!("{} ({word})\n    {problem}\n", problem.reason())
        });
        let text: String = volume.chain(storage).collect();
        assert_eq!(text, include_str!("health.txt"), "the golden file differs from:\n{text}");
    }
}
