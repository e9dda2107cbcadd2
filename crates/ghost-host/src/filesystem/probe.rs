//! What is on a device: first a look of our own, then blkid's opinion, then, if both found nothing,
//! a look at every place where something may be left.
//!
//! blkid's exit status 2 means "no signature" as well as "could not read", so that it is never
//! believed alone. The first look costs one read and comes first to tell the two apart; the many
//! reads come last, so that a disk with a filesystem is recognised within milliseconds.

use std::time::Duration;

use crate::blocking;
use crate::command::{Command, Ending, Outcome, STDIN};
use crate::device::{self, BlockDevice};
use crate::error::{Error, Result};
use crate::filesystem::places;
use crate::filesystem::read::DirectReader;
use crate::filesystem::{Content, FilesystemKind};

/// blkid only reads, so that it may be ended. A disk that needs longer for it is not well.
const BLKID_LIMIT: Duration = Duration::from_secs(60);

/// Looks what is on the device, as [`crate::Host::probe`] promises.
pub(crate) async fn probe(device: &BlockDevice) -> Result<Content> {
    let data_in_head = look(device, Part::Head).await?;
    if let Some(content) = ask_blkid(device).await? {
        return Ok(content);
    }
    let data = match data_in_head {
        Some(offset) => Some(offset),
        None => look(device, Part::Rest).await?,
    };
    Ok(match data {
        None => Content::Blank,
        Some(offset) => {
            Content::Foreign(format!("data without a known signature, first at byte {offset}"))
        }
    })
}

/// Which places are looked at.
#[derive(Debug, Clone, Copy)]
enum Part {
    Head,
    Rest,
}

/// The first byte found that is not zero. An error if any place cannot be read.
async fn look(device: &BlockDevice, part: Part) -> Result<Option<u64>> {
    let device = device.clone();
    blocking::run(move || {
        let size = device::current_size(&device)?;
        if size < device.size {
            let source = std::io::Error::other(format!(
                "it has shrunk from {} to {size} bytes",
                device.size
            ));
            return Err(Error::io("read", &device.path)(source));
        }
        let mut reader = DirectReader::open(&device, places::largest())?;
        let places = match part {
            Part::Head => vec![places::head(size)],
            Part::Rest => places::beyond_head(size),
        };
        for place in places {
            if let Some(offset) = reader.first_data(place)? {
                return Ok(Some(offset));
            }
        }
        Ok(None)
    })
    .await
}

/// Asks blkid; `None` when it finds nothing.
async fn ask_blkid(device: &BlockDevice) -> Result<Option<Content>> {
    let outcome = Command::new("blkid")
        .arguments(&["-p", "-o", "export"])
        .arguments(&["-s", "TYPE", "-s", "PTTYPE", "-s", "USAGE", "-s", "UUID"])
        .argument(STDIN)
        .stdin(device::duplicate(device)?)
        .limit(BLKID_LIMIT)
        .run()
        .await?;
    interpret(outcome)
}

/// The statuses are those of blkid(8): 2 for nothing, 8 for contradictory signatures.
fn interpret(outcome: Outcome) -> Result<Option<Content>> {
    match outcome.ending {
        Ending::Exited(0) => Ok(Some(describe(&outcome.stdout))),
        Ending::Exited(2) => Ok(None),
        Ending::Exited(8) => Ok(Some(Content::Foreign(
            "several contradictory signatures (blkid status 8)".to_owned(),
        ))),
        _ => Err(outcome.into_error()),
    }
}

/// Reads the export format: one `NAME=value` per line.
fn describe(export: &str) -> Content {
    let value =
        |name: &str| export.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let (kind, usage) = (value("TYPE"), value("USAGE"));
    match (kind.and_then(FilesystemKind::from_name), value("PTTYPE")) {
        (Some(kind), None) if usage == Some("filesystem") => Content::Filesystem(kind),
        (_, Some(table)) => {
            let beside = kind.map(|kind| format!(" beside {kind}")).unwrap_or_default();
            Content::Foreign(format!("a partition table ({table}){beside}"))
        }
        (_, None) => {
            let kind = kind.unwrap_or("something that blkid does not name");
            let usage = usage.map(|usage| format!(" (used as {usage})")).unwrap_or_default();
            let uuid = value("UUID").map(|uuid| format!(" with UUID {uuid}")).unwrap_or_default();
            Content::Foreign(format!("{kind}{usage}{uuid}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_status_for_nothing_found_counts_as_nothing_found() {
        let asked =
            |ending| interpret(Outcome::made_up("blkid", ending, "TYPE=xfs\nUSAGE=filesystem\n"));
        assert_eq!(asked(Ending::Exited(2)).unwrap(), None);
        let found = Content::Filesystem(FilesystemKind::Xfs);
        assert_eq!(asked(Ending::Exited(0)).unwrap(), Some(found));
        assert!(matches!(asked(Ending::Exited(8)).unwrap(), Some(Content::Foreign(_))));
        for ending in [
            Ending::Exited(1),
            Ending::Exited(4),
            Ending::Exited(127),
            Ending::Signalled(9),
            Ending::TimedOut(BLKID_LIMIT),
        ] {
            asked(ending).unwrap_err();
        }
    }

    #[test]
    fn only_a_whole_filesystem_of_an_offered_kind_counts_as_one() {
        let foreign = |export: &str| match describe(export) {
            Content::Foreign(what) => what,
            other => panic!("{other:?}"),
        };
        assert_eq!(
            describe("DEVNAME=/proc/self/fd/0\nUUID=1\nTYPE=ext4\nUSAGE=filesystem\n"),
            Content::Filesystem(FilesystemKind::Ext4)
        );
        assert_eq!(foreign("TYPE=ext2\nUSAGE=filesystem\n"), "ext2 (used as filesystem)");
        assert_eq!(
            foreign("TYPE=crypto_LUKS\nUSAGE=crypto\nUUID=7\n"),
            "crypto_LUKS (used as crypto) with UUID 7"
        );
        assert_eq!(foreign("PTTYPE=gpt\n"), "a partition table (gpt)");
        assert_eq!(
            foreign("TYPE=xfs\nUSAGE=filesystem\nPTTYPE=dos\n"),
            "a partition table (dos) beside xfs"
        );
        assert_eq!(foreign("TYPE=ext4\n"), "ext4", "a journal device has another usage");
        assert_eq!(foreign(""), "something that blkid does not name");
    }
}
