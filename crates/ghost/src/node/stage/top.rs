//! What is on top of the staging path already, and what follows from it.

use std::path::Path;

use ghost_host::{Access, BlockDevice, MountEntry, MountTable};

use super::purpose;
use crate::error::{Error, Result};
use crate::node::Node;
use crate::node::condition::{Condition, condition, has_shut_down, stopped_writing};
use crate::node::connect::{find, is_believed};
use crate::node::content::Wanted;
use crate::volume::Disk;

/// What is on top of the staging path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Top {
    /// Nothing.
    Nothing,
    /// A mount without a device that would answer.
    Dead,
    /// A mount of this volume's device.
    Own {
        filesystem: String,
        access: Access,
        /// Whether it is not the whole filesystem.
        is_part: bool,
        /// Whether the filesystem gave up, all or writing only.
        stopped: bool,
        /// Whether the device is mounted at other places too.
        elsewhere: bool,
    },
    /// A live mount of something else; what it is, in words.
    Other(String),
}

/// What is done by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// What is asked for is mounted there.
    Done,
    /// It is to be mounted, in place of what is there.
    Anew,
}

/// The topmost mount, and the devices that were met on the way.
#[derive(Debug)]
pub(super) struct Observed {
    /// What it is.
    pub(super) top: Top,
    /// The device that is mounted there, if it is this volume's.
    pub(super) mounted: Option<BlockDevice>,
    /// The volume's device, if it had to be looked for.
    pub(super) found: Option<BlockDevice>,
}

/// Looks at the topmost mount of the staging path.
pub(super) async fn observe(
    node: &Node,
    disk: &Disk,
    top: Option<&MountEntry>,
    table: &MountTable,
) -> Result<Observed> {
    let only = |top| Observed { top, mounted: None, found: None };
    let Some(entry) = top else { return Ok(only(Top::Nothing)) };
    let mounted = match condition(node, entry).await? {
        Condition::Dead => return Ok(only(Top::Dead)),
        Condition::NoDevice => {
            return Ok(only(Top::Other(format!("a mount of kind {}", entry.filesystem))));
        }
        Condition::Live(device) => device,
    };
    // A device that says in full who it is needs no link. Otherwise finding the disk tells.
    let mut found = None;
    if !is_believed(node, disk, &mounted) {
        let device = found.insert(find(node, disk).await?);
        if device.number() != mounted.number() {
            let what = format!(
                "{} of {}, which says {:?} of itself",
                entry.filesystem,
                mounted.path().display(),
                mounted.identity()
            );
            return Ok(Observed { top: Top::Other(what), mounted: None, found });
        }
    }
    let own = Top::Own {
        filesystem: entry.filesystem.clone(),
        access: entry.access,
        is_part: entry.root != Path::new("/") && entry.filesystem != "btrfs",
        stopped: stopped_writing(entry) || has_shut_down(node, entry).await?,
        elsewhere: table.of_device(mounted.number()).any(|other| other.target != entry.target),
    };
    Ok(Observed { top: own, mounted: Some(mounted), found })
}

/// The refusal of a filesystem that gave up, and that others still have mounted.
pub(in crate::node) fn has_stopped() -> Error {
    Error::precondition(
        "the filesystem stopped working after an error; when all pods on this node that use the \
         volume have ended, it is checked and mounted again",
    )
}

/// Decides by what is on top of the staging path.
pub(super) fn decide(top: &Top, wanted: &Wanted) -> Result<Step> {
    match top {
        Top::Nothing | Top::Dead => Ok(Step::Anew),
        Top::Other(what) => Err(Error::precondition(format!(
            "the staging path is taken by something that is in order: {what}; unmount it, or use \
             another path"
        ))),
        Top::Own { is_part: true, .. } => Err(Error::precondition(
            "only a part of the volume is mounted at the staging path; unmount it",
        )),
        Top::Own { filesystem, access, .. }
            if filesystem != wanted.kind.name() || *access != wanted.access =>
        {
            Err(Error::conflict(format!(
                "the volume is staged there as {filesystem} for {}, but {} for {} is asked for; \
                 unstage it first",
                purpose(*access),
                wanted.kind,
                purpose(wanted.access)
            )))
        }
        // Mounted afresh, it is checked and repaired; but not while others use it.
        Top::Own { stopped: true, elsewhere: false, .. } => Ok(Step::Anew),
        Top::Own { stopped: true, .. } => Err(has_stopped()),
        Top::Own { .. } => Ok(Step::Done),
    }
}

#[cfg(test)]
mod tests {
    use ghost_host::FilesystemKind;

    use super::*;
    use crate::error::ErrorKind;
    use crate::volume::FormatPolicy;

    const WRITER: Wanted = Wanted {
        kind: FilesystemKind::Ext4,
        access: Access::ReadWrite,
        made_blank: true,
        policy: FormatPolicy::Blank,
    };

    fn own(filesystem: &str, access: Access, stopped: bool, elsewhere: bool) -> Top {
        let filesystem = filesystem.to_owned();
        Top::Own { filesystem, access, is_part: false, stopped, elsewhere }
    }

    #[test]
    fn b07_b24_what_is_on_top_of_the_staging_path_decides() {
        use Access::{ReadOnly, ReadWrite};
        let refused = |kind: ErrorKind| Err(kind);
        let part = Top::Own {
            filesystem: "ext4".to_owned(),
            access: ReadWrite,
            is_part: true,
            stopped: false,
            elsewhere: false,
        };
        let table = [
            (Top::Nothing, Ok(Step::Anew)),
            (Top::Dead, Ok(Step::Anew)),
            (Top::Other("tmpfs".to_owned()), refused(ErrorKind::Precondition)),
            (part, refused(ErrorKind::Precondition)),
            (own("ext4", ReadWrite, false, false), Ok(Step::Done)),
            (own("ext4", ReadWrite, false, true), Ok(Step::Done)),
            (own("ext4", ReadOnly, false, false), refused(ErrorKind::Conflict)),
            (own("xfs", ReadWrite, false, false), refused(ErrorKind::Conflict)),
            (own("ext4", ReadWrite, true, false), Ok(Step::Anew)),
            (own("ext4", ReadWrite, true, true), refused(ErrorKind::Precondition)),
        ];
        for (top, expected) in table {
            let step = decide(&top, &WRITER).map_err(|error| error.kind());
            assert_eq!(step, expected, "{top:?}");
        }
    }
}
