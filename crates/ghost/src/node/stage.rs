//! Staging: the disk found, and its filesystem mounted at the staging path. A block volume has
//! nothing mounted there; of it only the disk is looked for.

use std::path::{Path, PathBuf};

use ghost_host::{Access, BlockDevice, FilesystemKind, MountTable};

use super::Node;
use super::content::Wanted;
use crate::error::{Error, Result};
use crate::volume::{AccessType, Capability, Formatting, Locator};

mod block;
mod filesystem;
mod growth;
mod top;

pub(super) use block::not_mounted;
pub(super) use top::has_stopped;

/// What is to be staged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageRequest {
    /// Where the data is.
    pub locator: Locator,
    /// Where it is to be mounted.
    pub staging: PathBuf,
    /// How it is to be used.
    pub capability: Capability,
    /// Whether and how its filesystem may be made.
    pub formatting: Formatting,
}

/// Mounts the volume at the staging path, and what may be written to grows to the size of its disk;
/// of a block volume, makes sure that its disk is there.
///
/// Already done: this volume's device is mounted there with the same kind and access. Such a mount
/// counts even while the disk's link is missing. What is mounted there and dead is taken off first.
/// A crash at any point leaves something that the next call observes; one within a format leaves
/// its note, and one before the growth a filesystem that the next call still grows.
///
/// # Errors
/// `Unavailable` while the right disk is not there, `Conflict` when the volume is mounted there in
/// another way, `Precondition` for content that is not what is asked for (nothing is written then)
/// and for another live mount at the path, `Failed` when the machine says no.
pub async fn stage(node: &Node, request: &StageRequest) -> Result<()> {
    let Locator::Disk(disk) = &request.locator;
    let staged = match &request.capability.access {
        AccessType::Block => block::stage(node, disk, &request.staging).await,
        AccessType::Mount { filesystem, options } => {
            let wanted = Wanted {
                kind: *filesystem,
                access: access_of(&request.capability),
                made_blank: disk.made_blank,
                policy: request.formatting.policy,
            };
            filesystem::stage(node, disk, request, &wanted, options).await
        }
    };
    staged.map_err(|error| error.context(format_args!("cannot stage volume {}", disk.id)))
}

/// Whether what is asked for may be written to: the mode and the option `ro` both can say no.
pub(super) fn access_of(capability: &Capability) -> Access {
    let said_so = match &capability.access {
        AccessType::Block => false,
        AccessType::Mount { options, .. } => options.iter().any(|option| option == "ro"),
    };
    if said_so || capability.mode.is_read_only() { Access::ReadOnly } else { Access::ReadWrite }
}

pub(super) fn purpose(access: Access) -> &'static str {
    match access {
        Access::ReadWrite => "reading and writing",
        Access::ReadOnly => "reading only",
    }
}

/// Whether the device is mounted at other places, and whether that can be right.
///
/// Its identity proves that it is this volume's disk, which nobody but this driver mounts; so other
/// mounts are its own, at targets of pods that outlived an unstage. The machine's own root, or
/// a filesystem that is not the one asked for (none, for a block volume), is not.
fn decide_elsewhere(
    table: &MountTable,
    device: &BlockDevice,
    kind: Option<FilesystemKind>,
) -> Result<bool> {
    let mut in_use = false;
    for entry in table.of_device(device.number()) {
        let fits = kind.is_some_and(|kind| entry.filesystem == kind.name());
        if !fits || entry.target == Path::new("/") {
            return Err(Error::failed(format!(
                "{} is mounted at {} as {}, which does not go with what is asked for",
                device.path().display(),
                entry.target.display(),
                entry.filesystem
            )));
        }
        in_use = true;
    }
    Ok(in_use)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::AccessMode;

    #[test]
    fn b32_the_mode_and_the_option_both_can_forbid_writing() {
        let of = |mode, options: &[&str]| {
            let options = options.iter().map(|option| (*option).to_owned()).collect();
            let access = AccessType::Mount { filesystem: FilesystemKind::Ext4, options };
            access_of(&Capability { mode, access })
        };
        assert_eq!(of(AccessMode::SingleNodeWriter, &["noatime"]), Access::ReadWrite);
        assert_eq!(of(AccessMode::SingleNodeWriter, &["noatime", "ro"]), Access::ReadOnly);
        assert_eq!(of(AccessMode::MultiNodeReaderOnly, &[]), Access::ReadOnly);
        assert_eq!(of(AccessMode::SingleNodeReaderOnly, &["rw"]), Access::ReadOnly);
    }
}
