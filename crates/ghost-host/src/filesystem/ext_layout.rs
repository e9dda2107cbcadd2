//! What mke2fs lays out on a disk, as far as that decides whether there can be a filesystem at all.
//!
//! The rules are those of e2fsprogs (`ext2fs_initialize` in `lib/ext2fs/initialize.c`, and
//! `misc/mke2fs.c`). Where they depend on details they are a little stricter here: what is accepted
//! can be made.

use crate::filesystem::FilesystemKind;

/// Blocks of ext3 are counted with 32 bits; mke2fs.conf gives ext4 the feature `64bit`.
const EXT3_BLOCKS: u64 = 1 << 32;
/// `inode_ratio` of mke2fs.conf; on disks of 4 TiB and more it is larger still.
const USUAL_BYTES_PER_INODE: u64 = 16_384;
/// `inode_size` of mke2fs.conf.
pub(super) const USUAL_INODE: u32 = 256;
/// The super block, two bitmaps, and what a table of inodes is rounded up by.
const FEW_BLOCKS: u64 = 16;

/// The sizes that mke2fs is told, or takes by itself, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtLayout {
    pub(super) kind: FilesystemKind,
    pub(super) block: u32,
    pub(super) inode: Option<u32>,
    pub(super) bytes_per_inode: Option<u32>,
}

impl ExtLayout {
    /// The disk's size in bytes from which on the blocks cannot be counted any more.
    pub(super) fn limit(&self) -> Option<u64> {
        (self.kind == FilesystemKind::Ext3).then(|| EXT3_BLOCKS * u64::from(self.block))
    }

    /// Whether a group of blocks has room for its inodes beside the descriptors of all groups, of
    /// which some groups have a copy.
    pub(super) fn has_room(&self, size: u64) -> bool {
        let block = u64::from(self.block);
        let inode = u64::from(self.inode.unwrap_or(USUAL_INODE));
        let bytes_per_inode = self.bytes_per_inode.map_or(USUAL_BYTES_PER_INODE, u64::from);
        // One bit each in a bitmap of one block.
        let group = 8 * block;
        let groups = (size / block).div_ceil(group);
        let descriptor = if self.kind == FilesystemKind::Ext3 { 32 } else { 64 };
        let descriptors = groups.div_ceil(block / descriptor);
        // Beyond that they are spread over the groups (`meta_bg`).
        let copied = if descriptors > group / 4 * 3 { 0 } else { descriptors };
        // For descriptors of what the disk may grow by there is as much as one block can point to.
        let reserved = block / 4;
        let inodes = (group * inode).div_ceil(bytes_per_inode);
        inodes + copied + reserved + FEW_BLOCKS <= group
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FilesystemKind::{Ext3, Ext4};

    #[test]
    fn what_mke2fs_was_seen_to_refuse_is_refused() {
        // The size in GiB, and what mke2fs 1.47.0 made of it.
        let table = [
            (Ext4, 1024, 512, 1024, 440, true),
            (Ext4, 1024, 512, 1024, 512, false),
            (Ext4, 1024, 512, 1024, 1024, true),
            (Ext3, 1024, 512, 1024, 512, true),
            (Ext3, 1024, 512, 1024, 1024, false),
            (Ext3, 1024, 512, 1024, 4095, true),
            (Ext4, 2048, 2048, 4096, 8192, false),
            (Ext4, 2048, 2048, 4096, 16_384, true),
            (Ext4, 4096, 4096, 8192, 16_384, true),
            (Ext4, 4096, 4096, 4352, 16_383, false),
            (Ext3, 4096, 2048, 4096, 16_383, true),
        ];
        for (kind, block, inode, bytes_per_inode, gib, expected) in table {
            let layout = ExtLayout {
                kind,
                block,
                inode: Some(inode),
                bytes_per_inode: Some(bytes_per_inode),
            };
            assert_eq!(layout.has_room(gib << 30), expected, "{layout:?} on {gib} GiB");
        }
    }

    #[test]
    fn by_default_there_is_room_on_a_disk_of_any_size() {
        for kind in [Ext3, Ext4] {
            for (block, inode) in [(1024, 1024), (2048, 2048), (4096, 4096)] {
                for gib in 1..=16_384 {
                    let layout =
                        ExtLayout { kind, block, inode: Some(inode), bytes_per_inode: None };
                    assert!(layout.has_room(gib << 30), "{layout:?} on {gib} GiB");
                }
            }
        }
    }
}
