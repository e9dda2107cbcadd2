//! Whether and how the filesystem of a volume may be made, as classes and volumes say it.
//!
//! The keys are those of a StorageClass, and travel to the node under the same names in the volume
//! context. A volume that a person brought along may have them in its `volumeAttributes`.

use std::fmt;
use std::str::FromStr;

use ghost_host::{FilesystemKind, FormatOptions};

use super::{Bytes, Context};
use crate::error::{Error, Result};

/// When a disk is formatted.
const FORMAT_POLICY: &str = "formatPolicy";
const BLOCK_SIZE: &str = "blockSize";
const INODE_SIZE: &str = "inodeSize";
const BYTES_PER_INODE: &str = "bytesPerInode";
const RESERVED: &str = "reservedBlocksPercent";
const REFLINK: &str = "reflink";
/// Only in a volume context: the volume was made to be used as a device.
const ACCESS_TYPE: &str = "accessType";
const DEVICE: &str = "block";

/// The keys, in the order in which documents name them.
pub(super) const KEYS: [&str; 6] =
    [FORMAT_POLICY, BLOCK_SIZE, INODE_SIZE, BYTES_PER_INODE, RESERVED, REFLINK];

/// Whether a disk may be formatted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FormatPolicy {
    /// When it is blank, and this driver made it.
    #[default]
    Blank,
    /// Not at all.
    Never,
}

/// Whether and how a filesystem may be made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Formatting {
    /// Whether.
    pub policy: FormatPolicy,
    /// How.
    pub options: FormatOptions,
    /// Whether the volume was made to be used as a device: then it never gets a filesystem, since its
    /// bytes are its user's from the beginning.
    pub is_device: bool,
}

impl Formatting {
    /// Reads the keys of a class or of a volume context; those of others are left alone.
    ///
    /// # Errors
    /// `Invalid` naming the key, its value and what is allowed.
    pub fn from_context(context: &Context) -> Result<Self> {
        let policy = match context.get(FORMAT_POLICY).map(String::as_str) {
            None | Some("blank") => FormatPolicy::Blank,
            Some("never") => FormatPolicy::Never,
            Some(other) => return Err(wrong(FORMAT_POLICY, other, "\"blank\" or \"never\"")),
        };
        let reflink = match context.get(REFLINK).map(String::as_str) {
            None => None,
            Some("true") => Some(true),
            Some("false") => Some(false),
            Some(other) => return Err(wrong(REFLINK, other, "\"true\" or \"false\"")),
        };
        let options = FormatOptions {
            block_size: number(context, BLOCK_SIZE, "a number of bytes")?,
            inode_size: number(context, INODE_SIZE, "a number of bytes")?,
            bytes_per_inode: number(context, BYTES_PER_INODE, "a number of bytes")?,
            reserved_percent: number(context, RESERVED, "whole percents, 0 to 50")?,
            reflink,
        };
        let is_device = context.get(ACCESS_TYPE).is_some_and(|access| access == DEVICE);
        Ok(Self { policy, options, is_device })
    }

    /// Checks that a filesystem of this kind can be made so.
    ///
    /// # Errors
    /// `Invalid` naming the key and why; `Conflict` for a volume that was made as a device.
    pub fn check(&self, kind: FilesystemKind) -> Result<()> {
        if self.is_device {
            return Err(Error::conflict(format!(
                "the volume was made to be used as a block device (accessType \"block\" in its \
                 context), but {kind} is asked for"
            )));
        }
        self.options.check(kind).map_err(|wrong| Error::invalid(in_words(kind, wrong)))
    }

    /// What travels to the node: what was said, and nothing else.
    #[must_use]
    pub fn context(&self) -> Context {
        let options = &self.options;
        let text = |value: Option<u32>| value.map(|value| value.to_string());
        let policy = (self.policy == FormatPolicy::Never).then(|| "never".to_owned());
        let values = [
            policy,
            text(options.block_size),
            text(options.inode_size),
            text(options.bytes_per_inode),
            text(options.reserved_percent),
            options.reflink.map(|reflink| reflink.to_string()),
        ];
        let said = KEYS.into_iter().zip(values);
        let said = said.filter_map(|(key, value)| Some((key.to_owned(), value?)));
        let device = self.is_device.then(|| (ACCESS_TYPE.to_owned(), DEVICE.to_owned()));
        said.chain(device).collect()
    }

    /// Whether anything is said of the filesystem itself.
    #[must_use]
    pub fn says_how(&self) -> bool {
        self.options != FormatOptions::default()
    }
}

/// The filesystem that a volume has or gets, as far as it limits the size of the volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filesystem {
    kind: FilesystemKind,
    options: FormatOptions,
}

impl Filesystem {
    /// One that is still to be made.
    #[must_use]
    pub fn to_be_made(kind: FilesystemKind, formatting: &Formatting) -> Self {
        Self { kind, options: formatting.options.clone() }
    }

    /// One that is there, or comes with a copy: how it was made is not known.
    #[must_use]
    pub fn present(kind: FilesystemKind) -> Self {
        Self { kind, options: FormatOptions::default() }
    }

    /// Checks that it can be on a volume of this size.
    ///
    /// # Errors
    /// `OutOfRange` naming the key that stands in the way.
    pub fn check_size(&self, size: Bytes) -> Result<()> {
        self.options.check_size(self.kind, size.get()).map_err(|wrong| {
            Error::out_of_range(format!("{size} cannot be had: {}", in_words(self.kind, wrong)))
        })
    }
}

/// An option that a filesystem cannot have, by the key of it.
fn in_words(kind: FilesystemKind, (option, why): (&str, String)) -> String {
    let key = match option {
        "block_size" => BLOCK_SIZE,
        "inode_size" => INODE_SIZE,
        "bytes_per_inode" => BYTES_PER_INODE,
        "reserved_percent" => RESERVED,
        other => other,
    };
    format!("{key}: {why} (the filesystem is {kind})")
}

fn number<T: FromStr>(context: &Context, key: &str, allowed: &str) -> Result<Option<T>>
where
    T::Err: fmt::Display,
{
    let Some(text) = context.get(key) else { return Ok(None) };
    // "+5" would parse too, and is no number that the tool is given.
    let plain = text.chars().all(|c| c.is_ascii_digit());
    text.parse().ok().filter(|_| plain).map(Some).ok_or_else(|| wrong(key, text, allowed))
}

fn wrong(key: &str, value: &str, allowed: &str) -> Error {
    Error::invalid(format!("{key} is {value:?}; expected {allowed}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn of(pairs: &[(&str, &str)]) -> Context {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_a_class_says_comes_to_the_node_as_it_was_said() {
        let said = of(&[
            ("formatPolicy", "never"),
            ("blockSize", "4096"),
            ("inodeSize", "512"),
            ("bytesPerInode", "8192"),
            ("reservedBlocksPercent", "0"),
            ("reflink", "false"),
            ("accessType", "block"),
        ]);
        assert_eq!(Formatting::from_context(&said).expect("sound").context(), said);
        let foreign = of(&[("volumeId", "v-1"), ("storage.kubernetes.io/x", "y")]);
        assert_eq!(Formatting::from_context(&foreign).expect("not ours"), Formatting::default());
        assert!(Formatting::default().context().is_empty());
    }

    #[test]
    fn a_wrong_value_is_told_with_its_key_and_what_is_allowed() {
        for (key, value) in [
            ("formatPolicy", "always"),
            ("formatPolicy", ""),
            ("blockSize", "4k"),
            ("blockSize", "-1"),
            ("inodeSize", "+256"),
            ("bytesPerInode", "99999999999"),
            ("reservedBlocksPercent", "5%"),
            ("reflink", "1"),
        ] {
            let error = Formatting::from_context(&of(&[(key, value)])).expect_err(value);
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let text = error.to_string();
            assert!(text.contains(key) && text.contains(&format!("{value:?}")), "{text}");
            assert!(text.contains("expected"), "{text}");
        }
    }
}
