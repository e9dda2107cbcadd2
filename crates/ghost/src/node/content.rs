//! What is done with a disk by what is on it. The one place where formatting is decided; no I/O.

use ghost_host::{Access, Content, FilesystemKind};

use crate::error::{Error, Result};
use crate::volume::FormatPolicy;

/// What a filesystem volume is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// The kind of the filesystem.
    pub(super) kind: FilesystemKind,
    /// Whether it is to be written to.
    pub(super) access: Access,
    /// Whether this driver made the disk, and made it empty.
    pub(super) made_blank: bool,
    /// Whether it may be formatted at all.
    pub(super) policy: FormatPolicy,
}

/// What is known of the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// What is on it.
    pub(super) content: Content,
    /// Whether a note says that a format of this very disk for this volume was not finished.
    pub(super) cut_short: bool,
    /// Whether it is mounted at another place, such as the targets of pods that still run.
    pub(super) in_use: bool,
}

/// What is done before the disk is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Nothing: nobody may write to it, or it is in use and cannot be looked into.
    Mount,
    /// The filesystem is checked.
    Check,
    /// A filesystem is made.
    Format,
    /// What a format that was cut short left behind is erased, and a filesystem is made.
    EraseAndFormat,
}

/// Decides by what is on the disk.
///
/// A disk is formatted only when it is blank, and when the volume says that this driver made it so.
/// A half-made filesystem counts as blank with the note of it. A *whole* filesystem never does,
/// note or not: it may be finished, and since then have been in use on another node.
///
/// # Errors
/// `Precondition` saying what was found, and that nothing was written.
pub(super) fn decide(found: &Found, wanted: &Wanted) -> Result<Plan> {
    let may_format = wanted.policy == FormatPolicy::Blank
        && wanted.made_blank
        && wanted.access == Access::ReadWrite
        && !found.in_use;
    let refuse =
        |what: String| Err(Error::precondition(format!("{what}; nothing was written to the disk")));
    match &found.content {
        Content::Filesystem(kind) if *kind == wanted.kind => {
            let check = wanted.access == Access::ReadWrite && !found.in_use;
            Ok(if check { Plan::Check } else { Plan::Mount })
        }
        Content::Filesystem(kind) => refuse(format!(
            "a {} filesystem is asked for, but the disk has a {kind} filesystem: ask for {kind} \
             instead, or copy the data to a new volume",
            wanted.kind
        )),
        Content::Blank if may_format => Ok(Plan::Format),
        Content::Blank if found.in_use => {
            refuse("the disk is blank although it is mounted at another place".to_owned())
        }
        Content::Blank if wanted.policy == FormatPolicy::Never => refuse(format!(
            "the disk is blank, and formatPolicy \"never\" of its class or volume forbids to format \
             it: make a {} filesystem on it by hand",
            wanted.kind
        )),
        Content::Blank if !wanted.made_blank => refuse(format!(
            "the disk is blank, but it is not known that this driver made it, so that it is not \
             formatted: make a {} filesystem on it by hand, or have a volume made by a claim",
            wanted.kind
        )),
        Content::Blank => refuse(
            "the disk is blank and to be used for reading only: use it once for writing, which \
             makes its filesystem"
                .to_owned(),
        ),
        Content::Foreign(_) if found.cut_short && may_format => Ok(Plan::EraseAndFormat),
        Content::Foreign(what) => refuse(format!(
            "the disk has something on it that is no {} filesystem: {what}. If it is not needed, \
             erase the disk by hand or delete the volume",
            wanted.kind
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    const EXT4: FilesystemKind = FilesystemKind::Ext4;
    const WRITER: Wanted = Wanted {
        kind: EXT4,
        access: Access::ReadWrite,
        made_blank: true,
        policy: FormatPolicy::Blank,
    };
    const READER: Wanted = Wanted { access: Access::ReadOnly, ..WRITER };
    const BROUGHT: Wanted = Wanted { made_blank: false, ..WRITER };

    fn found(content: Content) -> Found {
        Found { content, cut_short: false, in_use: false }
    }

    fn foreign() -> Content {
        Content::Foreign("a partition table (gpt)".to_owned())
    }

    fn refused(found: &Found, wanted: &Wanted) -> String {
        let error = decide(found, wanted).expect_err("must be refused");
        assert_eq!(error.kind(), ErrorKind::Precondition);
        error.to_string()
    }

    #[test]
    fn b11_only_a_blank_disk_that_we_made_is_formatted_and_only_for_a_writer() {
        assert_eq!(decide(&found(Content::Blank), &WRITER).expect("ours"), Plan::Format);
        assert!(refused(&found(Content::Blank), &BROUGHT).contains("by hand"));
        assert!(refused(&found(Content::Blank), &READER).contains("reading only"));
        let never = Wanted { policy: FormatPolicy::Never, ..WRITER };
        assert!(refused(&found(Content::Blank), &never).contains("never"));
        let in_use = Found { in_use: true, ..found(Content::Blank) };
        assert!(refused(&in_use, &WRITER).contains("mounted at another place"));
    }

    #[test]
    fn b13_what_is_foreign_is_named_and_left_alone() {
        for wanted in [WRITER, READER, BROUGHT] {
            assert!(refused(&found(foreign()), &wanted).contains("a partition table (gpt)"));
            let other = found(Content::Filesystem(FilesystemKind::Xfs));
            let text = refused(&other, &wanted);
            assert!(text.contains("ext4") && text.contains("xfs"), "{text}");
        }
    }

    #[test]
    fn b14_a_filesystem_is_checked_unless_it_is_read_only_or_in_use() {
        let whole = found(Content::Filesystem(EXT4));
        assert_eq!(decide(&whole, &WRITER).expect("ours"), Plan::Check);
        assert_eq!(decide(&whole, &BROUGHT).expect("brought along"), Plan::Check);
        assert_eq!(decide(&whole, &READER).expect("for reading"), Plan::Mount);
        let in_use = Found { in_use: true, ..whole };
        assert_eq!(decide(&in_use, &WRITER).expect("in use"), Plan::Mount);
    }

    #[test]
    fn only_a_half_made_filesystem_with_its_note_is_made_again() {
        let half = Found { cut_short: true, ..found(foreign()) };
        assert_eq!(decide(&half, &WRITER).expect("noted"), Plan::EraseAndFormat);
        refused(&half, &READER);
        refused(&half, &BROUGHT);
        refused(&Found { in_use: true, ..half.clone() }, &WRITER);
        // It may be finished, and have been in use on another node.
        let whole = Found { content: Content::Filesystem(EXT4), ..half.clone() };
        assert_eq!(decide(&whole, &WRITER).expect("whole"), Plan::Check);
        let other = Found { content: Content::Filesystem(FilesystemKind::Btrfs), ..half };
        refused(&other, &WRITER);
    }

    #[test]
    fn no_combination_formats_what_is_not_blank_or_noted_or_not_ours_or_not_to_be_written() {
        let contents = [Content::Blank, Content::Filesystem(EXT4), foreign()]
            .into_iter()
            .chain(FilesystemKind::ALL.map(Content::Filesystem));
        for content in contents {
            for bits in 0..32 {
                let bit = |n: u32| bits >> n & 1 == 1;
                let found = Found { content: content.clone(), cut_short: bit(0), in_use: bit(1) };
                let access = if bit(2) { Access::ReadOnly } else { Access::ReadWrite };
                let policy = if bit(4) { FormatPolicy::Never } else { FormatPolicy::Blank };
                let wanted = Wanted { kind: EXT4, access, made_blank: bit(3), policy };
                let plan = decide(&found, &wanted);
                if matches!(plan, Ok(Plan::Format | Plan::EraseAndFormat)) {
                    assert!(policy == FormatPolicy::Blank);
                    assert!(wanted.made_blank && access == Access::ReadWrite && !found.in_use);
                    let noted = found.cut_short && matches!(content, Content::Foreign(_));
                    assert!(content == Content::Blank || noted, "{found:?} {wanted:?}");
                }
                if let Ok(Plan::Check) = plan {
                    assert!(access == Access::ReadWrite && !found.in_use);
                }
            }
        }
    }
}
