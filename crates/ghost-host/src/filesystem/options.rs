//! How a filesystem is made: typed options, and the arguments of its own tool that they become.

use crate::filesystem::ext_layout::{ExtLayout, USUAL_INODE};
use crate::filesystem::{FilesystemKind, Format};

/// What may be said of a filesystem that is to be made. What is not said, its own tool decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FormatOptions {
    /// The size of a block, in bytes.
    pub block_size: Option<u32>,
    /// The size of an inode, in bytes.
    pub inode_size: Option<u32>,
    /// For every so many bytes of the disk there is an inode.
    pub bytes_per_inode: Option<u32>,
    /// How much of the disk only root may fill, in percent.
    pub reserved_percent: Option<u32>,
    /// Whether files can share blocks.
    pub reflink: Option<bool>,
}

/// The sizes of a block that every kernel can mount: not above its page, 4 KiB on x86-64.
const BLOCK_SIZES: [u32; 3] = [1024, 2048, 4096];
/// The block size of a filesystem for which none is given, on disks of 512 MiB and more.
const USUAL_BLOCK: u32 = 4096;
/// Inode sizes of ext: at least what timestamps beyond 2038 need (mke2fs(8)).
const EXT_INODE_SIZES: [u32; 5] = [256, 512, 1024, 2048, 4096];
/// Inode sizes of xfs with checksums (mkfs.xfs(8)).
const XFS_INODE_SIZES: [u32; 3] = [512, 1024, 2048];
/// The largest distance of inodes, `EXT2_MAX_BLOCK_SIZE * 1024` of mke2fs.
const MOST_BYTES_PER_INODE: u32 = 65_536 * 1024;
/// The largest part that mke2fs keeps back for root, in percent.
const MOST_RESERVED: u32 = 50;

impl FormatOptions {
    /// Checks that a filesystem of this kind can be made so.
    ///
    /// # Errors
    /// For the first option that it cannot have: which one, as its field is called here, and why.
    pub fn check(&self, kind: FilesystemKind) -> Result<(), (&'static str, String)> {
        let block = self.block_size.unwrap_or(USUAL_BLOCK);
        match kind {
            FilesystemKind::Ext3 | FilesystemKind::Ext4 => {
                one_of("block_size", self.block_size, &BLOCK_SIZES)?;
                one_of("inode_size", self.inode_size, &EXT_INODE_SIZES)?;
                within("inode_size", self.inode_size, 0, block)?;
                // At most half of the disk for inodes: mke2fs refuses them when they fill it, and
                // fails when they leave no room for the rest.
                let least = block.max(2 * self.inode_size.unwrap_or(USUAL_INODE));
                within("bytes_per_inode", self.bytes_per_inode, least, MOST_BYTES_PER_INODE)?;
                within("reserved_percent", self.reserved_percent, 0, MOST_RESERVED)?;
                absent("reflink", self.reflink.as_ref(), kind)
            }
            FilesystemKind::Xfs => {
                one_of("block_size", self.block_size, &BLOCK_SIZES)?;
                one_of("inode_size", self.inode_size, &XFS_INODE_SIZES)?;
                within("inode_size", self.inode_size, 0, block / 2)?;
                absent("bytes_per_inode", self.bytes_per_inode.as_ref(), kind)?;
                absent("reserved_percent", self.reserved_percent.as_ref(), kind)
            }
            FilesystemKind::Btrfs => {
                absent("block_size", self.block_size.as_ref(), kind)?;
                absent("inode_size", self.inode_size.as_ref(), kind)?;
                absent("bytes_per_inode", self.bytes_per_inode.as_ref(), kind)?;
                absent("reserved_percent", self.reserved_percent.as_ref(), kind)?;
                absent("reflink", self.reflink.as_ref(), kind)
            }
        }
    }

    /// Checks that a filesystem of this kind can be made so on a disk of this many bytes; the
    /// options themselves are sound. Xfs and btrfs fit on all disks from 1 GiB to 16 TiB.
    ///
    /// # Errors
    /// As for [`FormatOptions::check`].
    pub fn check_size(
        &self,
        kind: FilesystemKind,
        size: u64,
    ) -> Result<(), (&'static str, String)> {
        if !matches!(kind, FilesystemKind::Ext3 | FilesystemKind::Ext4) {
            return Ok(());
        }
        let layout = ExtLayout {
            kind,
            block: self.block_size.unwrap_or(USUAL_BLOCK),
            inode: self.inode_size,
            bytes_per_inode: self.bytes_per_inode,
        };
        if let Some(limit) = layout.limit().filter(|limit| size >= *limit) {
            let (block, limit) = (layout.block, limit >> 30);
            return Err((
                "block_size",
                format!("with blocks of {block} bytes the disk must be smaller than {limit} GiB"),
            ));
        }
        if !layout.has_room(size) {
            let gib = size >> 30;
            return Err((
                "bytes_per_inode",
                format!(
                    "a disk of {gib} GiB has no room for so many inodes; give it larger blocks too"
                ),
            ));
        }
        Ok(())
    }
}

fn one_of(
    option: &'static str,
    value: Option<u32>,
    known: &[u32],
) -> Result<(), (&'static str, String)> {
    match value {
        Some(value) if !known.contains(&value) => {
            let known: Vec<String> = known.iter().map(u32::to_string).collect();
            Err((option, format!("{value} is none of {}", known.join(", "))))
        }
        _ => Ok(()),
    }
}

fn within(
    option: &'static str,
    value: Option<u32>,
    least: u32,
    most: u32,
) -> Result<(), (&'static str, String)> {
    match value {
        Some(value) if value < least || value > most => {
            Err((option, format!("{value} is not within {least} to {most}")))
        }
        _ => Ok(()),
    }
}

fn absent<T>(
    option: &'static str,
    value: Option<&T>,
    kind: FilesystemKind,
) -> Result<(), (&'static str, String)> {
    if value.is_none() { Ok(()) } else { Err((option, format!("{kind} has no such option"))) }
}

/// The tool and its arguments before the device: quiet, no force flag, no label. Blocks are not
/// discarded first: the device has just been seen to be blank, and on a large disk of a network
/// storage it takes minutes.
pub(super) fn tool(format: &Format) -> (&'static str, Vec<String>) {
    let options = &format.options;
    let mut arguments = vec!["-q".to_owned()];
    let mut add = |flag: &str, value: String| arguments.extend([flag.to_owned(), value]);
    let program = match format.kind {
        FilesystemKind::Ext3 | FilesystemKind::Ext4 => {
            // Blocks kept back for root are of no use on a disk that holds a workload's data.
            add("-m", options.reserved_percent.unwrap_or(0).to_string());
            add("-E", "nodiscard".to_owned());
            let sizes = [
                ("-b", options.block_size),
                ("-I", options.inode_size),
                ("-i", options.bytes_per_inode),
            ];
            for (flag, size) in sizes {
                if let Some(size) = size {
                    add(flag, size.to_string());
                }
            }
            if format.kind == FilesystemKind::Ext3 { "mkfs.ext3" } else { "mkfs.ext4" }
        }
        FilesystemKind::Xfs => {
            for (flag, size) in [("-b", options.block_size), ("-i", options.inode_size)] {
                if let Some(size) = size {
                    add(flag, format!("size={size}"));
                }
            }
            if let Some(reflink) = options.reflink {
                add("-m", format!("reflink={}", u8::from(reflink)));
            }
            arguments.push("-K".to_owned());
            "mkfs.xfs"
        }
        FilesystemKind::Btrfs => {
            arguments.push("-K".to_owned());
            "mkfs.btrfs"
        }
    };
    (program, arguments)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_that_the_filesystem_cannot_have_is_named() {
        use FilesystemKind::{Btrfs, Ext4, Xfs};
        let none = FormatOptions::default;
        let table = [
            (Ext4, FormatOptions { block_size: Some(512), ..none() }, "block_size"),
            (Ext4, FormatOptions { block_size: Some(65_536), ..none() }, "block_size"),
            (Ext4, FormatOptions { inode_size: Some(128), ..none() }, "inode_size"),
            (
                Ext4,
                FormatOptions { block_size: Some(1024), inode_size: Some(2048), ..none() },
                "inode_size",
            ),
            (Ext4, FormatOptions { bytes_per_inode: Some(1024), ..none() }, "bytes_per_inode"),
            (
                Ext4,
                FormatOptions { inode_size: Some(4096), bytes_per_inode: Some(8191), ..none() },
                "bytes_per_inode",
            ),
            (Ext4, FormatOptions { reserved_percent: Some(51), ..none() }, "reserved_percent"),
            (Ext4, FormatOptions { reflink: Some(true), ..none() }, "reflink"),
            (Xfs, FormatOptions { inode_size: Some(256), ..none() }, "inode_size"),
            (
                Xfs,
                FormatOptions { block_size: Some(1024), inode_size: Some(1024), ..none() },
                "inode_size",
            ),
            (Xfs, FormatOptions { reserved_percent: Some(0), ..none() }, "reserved_percent"),
            (Btrfs, FormatOptions { block_size: Some(4096), ..none() }, "block_size"),
            (Btrfs, FormatOptions { reflink: Some(true), ..none() }, "reflink"),
        ];
        for (kind, options, option) in table {
            let (named, why) = options.check(kind).unwrap_err();
            assert_eq!(named, option, "{kind}: {why}");
        }
        for kind in FilesystemKind::ALL {
            none().check(kind).unwrap();
        }
    }

    #[test]
    fn a_disk_on_which_the_filesystem_cannot_be_is_named_with_the_option() {
        use FilesystemKind::{Ext3, Ext4, Xfs};
        const TIB: u64 = 1 << 40;
        let of = |block_size, bytes_per_inode| FormatOptions {
            block_size,
            bytes_per_inode,
            ..FormatOptions::default()
        };
        let table = [
            (Ext3, of(Some(1024), None), 4 * TIB, "block_size"),
            (Ext3, of(Some(2048), None), 8 * TIB, "block_size"),
            (Ext3, of(Some(4096), None), 16 * TIB, "block_size"),
            (Ext3, of(None, None), 16 * TIB, "block_size"),
            (Ext4, of(Some(1024), Some(1024)), 750 << 30, "bytes_per_inode"),
        ];
        for (kind, options, size, option) in table {
            let (named, why) = options.check_size(kind, size).unwrap_err();
            assert_eq!(named, option, "{kind}: {why}");
            let less = size - (64 << 30);
            options.check_size(kind, less).unwrap();
        }
        for kind in [Ext4, Xfs] {
            of(Some(1024), None).check_size(kind, 16 * TIB).unwrap();
        }
    }

    #[test]
    fn options_become_the_tools_own_arguments() {
        let format = |kind, options| tool(&Format { kind, options });
        let options = FormatOptions {
            block_size: Some(2048),
            inode_size: Some(512),
            bytes_per_inode: Some(8192),
            reserved_percent: Some(3),
            reflink: None,
        };
        let (program, arguments) = format(FilesystemKind::Ext4, options);
        assert_eq!(program, "mkfs.ext4");
        assert_eq!(arguments.join(" "), "-q -m 3 -E nodiscard -b 2048 -I 512 -i 8192");
        let options = FormatOptions { reflink: Some(false), ..FormatOptions::default() };
        let (program, arguments) = format(FilesystemKind::Xfs, options);
        assert_eq!((program, arguments.join(" ").as_str()), ("mkfs.xfs", "-q -m reflink=0 -K"));
    }
}
