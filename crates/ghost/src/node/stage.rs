//! Staging: the disk found, and its filesystem mounted at the staging path. A block volume has
//! nothing mounted there; of it only the disk is looked for.

use std::path::{Path, PathBuf};

use ghost_host::{
    Access, BlockDevice, Content, FilesystemKind, Format, Mount, MountEntry, MountTable, TargetKind,
};

use super::condition::{Condition, condition, stopped_writing};
use super::connect::{block_targets, find, names};
use super::content::{self, Found, Plan, Wanted};
use super::error::{domain, domain_of_mount};
use super::format_note::identity_text;
use super::{Node, place};
use crate::error::{Error, Result};
use crate::volume::{AccessType, Capability, Disk, Formatting, Locator};

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

/// Mounts the volume at the staging path; of a block volume, makes sure that its disk is there.
///
/// Already done: this volume's device is mounted there with the same kind and access. Such a mount
/// counts even while the disk's link is missing. What is mounted there and dead is taken off first.
/// A crash at any point leaves something that the next call observes; one within a format leaves
/// its note.
///
/// # Errors
/// `Unavailable` while the right disk is not there, `Conflict` when the volume is mounted there in
/// another way, `Precondition` for content that is not what is asked for (nothing is written then)
/// and for another live mount at the path, `Failed` when the machine says no.
pub async fn stage(node: &Node, request: &StageRequest) -> Result<()> {
    let Locator::Disk(disk) = &request.locator;
    let staged = match &request.capability.access {
        AccessType::Block => stage_block(node, disk, &request.staging).await,
        AccessType::Mount { filesystem, options } => {
            let wanted = Wanted {
                kind: *filesystem,
                access: access_of(&request.capability),
                made_blank: disk.made_blank,
                policy: request.formatting.policy,
            };
            stage_filesystem(node, disk, request, &wanted, options).await
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

async fn stage_filesystem(
    node: &Node,
    disk: &Disk,
    request: &StageRequest,
    wanted: &Wanted,
    options: &[String],
) -> Result<()> {
    let staging = place::resolve(node, "staging path", &request.staging).await?;

    let mut table = node.host.mounts().await.map_err(domain)?;
    let top = table.at(&staging).next_back();
    let (seen, device) = observe_top(node, disk, top, &table).await?;
    match decide_top(&seen, wanted)? {
        Step::Done => return node.notes.remove(&disk.id).await,
        Step::Anew => {}
    }
    // Before anything is taken off, so that it is known what to put in its place.
    let device = match device {
        Some(device) => device,
        None => find(node, disk).await?,
    };
    if top.is_some() {
        tracing::warn!(path = %staging.display(), ?seen, "taking off a mount that is of no use");
        place::clear(node, &staging).await?;
        table = node.host.mounts().await.map_err(domain)?;
    }
    let in_use = decide_elsewhere(&table, &device, Some(wanted.kind))?;
    if let Some(entry) = block_targets(node, &table, &device).await?.first() {
        return Err(Error::precondition(format!(
            "the volume is in use as a block device at {}; it is mounted after it is unpublished \
             there",
            entry.target.display()
        )));
    }
    let found = Found {
        content: node.host.probe(&device).await.map_err(domain)?,
        cut_short: node.notes.is_for(&disk.id, &identity_text(&device)).await?,
        in_use,
    };
    let plan = content::decide(&found, wanted)?;

    node.host.create_target(&staging, TargetKind::Directory).await.map_err(domain)?;
    let format = Format { kind: wanted.kind, options: request.formatting.options.clone() };
    prepare(node, disk, &device, &format, plan).await?;
    let mount = Mount {
        target: staging.clone(),
        kind: wanted.kind,
        access: wanted.access,
        options: options.to_vec(),
    };
    node.host.mount(&device, &mount).await.map_err(|error| domain_of_mount(error, options))?;
    verify(node, &staging, &device, wanted).await
}

/// What is on top of the staging path.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Top {
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
        /// Whether the filesystem gave up writing.
        stopped_writing: bool,
        /// Whether the device is mounted at other places too.
        elsewhere: bool,
    },
    /// A live mount of something else; what it is, in words.
    Other(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    Anew,
}

/// Looks at the topmost mount. The volume's device comes along where it had to be looked for.
async fn observe_top(
    node: &Node,
    disk: &Disk,
    top: Option<&MountEntry>,
    table: &MountTable,
) -> Result<(Top, Option<BlockDevice>)> {
    let Some(entry) = top else { return Ok((Top::Nothing, None)) };
    let mounted = match condition(node, entry).await? {
        Condition::Dead => return Ok((Top::Dead, None)),
        Condition::NoDevice => {
            return Ok((Top::Other(format!("a mount of kind {}", entry.filesystem)), None));
        }
        Condition::Live(device) => device,
    };
    // A device that says in full who it is needs no link. Otherwise finding the disk tells.
    let mut found = None;
    if !mounted.identity().is_one_of(&names(disk)) {
        let device = found.insert(find(node, disk).await?);
        if device.number() != mounted.number() {
            let what = format!(
                "{} of {}, which says {:?} of itself",
                entry.filesystem,
                mounted.path().display(),
                mounted.identity()
            );
            return Ok((Top::Other(what), found));
        }
    }
    let own = Top::Own {
        filesystem: entry.filesystem.clone(),
        access: entry.access,
        is_part: entry.root != Path::new("/") && entry.filesystem != "btrfs",
        stopped_writing: stopped_writing(entry),
        elsewhere: table.of_device(mounted.number()).any(|other| other.target != entry.target),
    };
    Ok((own, found))
}

/// Decides by what is on top of the staging path.
fn decide_top(top: &Top, wanted: &Wanted) -> Result<Step> {
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
        Top::Own { stopped_writing: true, elsewhere: false, .. } => Ok(Step::Anew),
        Top::Own { stopped_writing: true, .. } => Err(Error::precondition(
            "the filesystem stopped taking writes after an error; when all pods on this node that \
             use the volume have ended, it is checked and mounted again",
        )),
        Top::Own { .. } => Ok(Step::Done),
    }
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

/// Brings the device into the state that it is mounted in.
async fn prepare(
    node: &Node,
    disk: &Disk,
    device: &BlockDevice,
    format: &Format,
    plan: Plan,
) -> Result<()> {
    match plan {
        Plan::Mount => {}
        Plan::Check => node.host.check(device, format.kind).await.map_err(domain)?,
        Plan::Format | Plan::EraseAndFormat => {
            tracing::info!(device = %device.path().display(), ?format, ?plan, "formatting");
            node.notes.write(&disk.id, &identity_text(device)).await?;
            if plan == Plan::EraseAndFormat {
                node.host.erase(device).await.map_err(domain)?;
            }
            if let Err(error) = node.host.format(device, format).await.map_err(domain) {
                // A format that has written nothing leaves nothing that a note is needed for.
                if matches!(node.host.probe(device).await, Ok(Content::Blank)) {
                    node.notes.remove(&disk.id).await?;
                }
                return Err(error);
            }
        }
    }
    // Never is something mounted while a note says that it is half-made.
    node.notes.remove(&disk.id).await
}

/// Looks whether what was asked for is what is mounted now.
async fn verify(node: &Node, staging: &Path, device: &BlockDevice, wanted: &Wanted) -> Result<()> {
    let table = node.host.mounts().await.map_err(domain)?;
    let wrong = match table.at(staging).next_back() {
        Some(entry) if entry.device != Some(device.number()) => Error::unavailable(format!(
            "{} was to be mounted, but {} was; it was taken off again",
            device.path().display(),
            entry.source.display()
        )),
        Some(entry) if entry.access != wanted.access => Error::failed(format!(
            "the kernel mounted it for {} instead of {}; it was taken off again",
            purpose(entry.access),
            purpose(wanted.access)
        )),
        Some(_) => return Ok(()),
        None => Error::unavailable("the mount does not show in the mount table"),
    };
    place::clear(node, staging).await?;
    Err(wrong)
}

async fn stage_block(node: &Node, disk: &Disk, staging: &Path) -> Result<()> {
    let staging = place::resolve(node, "staging path", staging).await?;
    let device = find(node, disk).await?;
    let table = node.host.mounts().await.map_err(domain)?;
    if let Some(entry) = table.at(&staging).next_back() {
        let what = format!(
            "{} is mounted at the staging path as {}, but a block volume is asked for; unstage it \
             first",
            entry.source.display(),
            entry.filesystem
        );
        match condition(node, entry).await? {
            Condition::Dead => place::clear(node, &staging).await?,
            _ if entry.device == Some(device.number()) => return Err(Error::conflict(what)),
            _ => return Err(Error::precondition(what)),
        }
    }
    let table = node.host.mounts().await.map_err(domain)?;
    not_mounted(&table, &device)?;
    // From now on the bytes are somebody's, whatever was begun before.
    node.notes.remove(&disk.id).await
}

/// Makes sure that nobody has a filesystem of the device mounted: writing to both destroys it.
pub(super) fn not_mounted(table: &MountTable, device: &BlockDevice) -> Result<()> {
    decide_elsewhere(table, device, None).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::volume::AccessMode;
    use crate::volume::FormatPolicy;

    const WRITER: Wanted = Wanted {
        kind: FilesystemKind::Ext4,
        access: Access::ReadWrite,
        made_blank: true,
        policy: FormatPolicy::Blank,
    };

    fn own(filesystem: &str, access: Access, stopped_writing: bool, elsewhere: bool) -> Top {
        let filesystem = filesystem.to_owned();
        Top::Own { filesystem, access, is_part: false, stopped_writing, elsewhere }
    }

    #[test]
    fn b07_b24_what_is_on_top_of_the_staging_path_decides() {
        use Access::{ReadOnly, ReadWrite};
        let refused = |kind: ErrorKind| Err(kind);
        let part = Top::Own {
            filesystem: "ext4".to_owned(),
            access: ReadWrite,
            is_part: true,
            stopped_writing: false,
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
            let step = decide_top(&top, &WRITER).map_err(|error| error.kind());
            assert_eq!(step, expected, "{top:?}");
        }
    }

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
