//! The places of a disk where known filesystems and partition tables keep what names them, and
//! their spare copies.
//!
//! A disk that lost its head only (a stray `dd`, a half-done wipe) is zero where tools look first;
//! these places tell that it holds data all the same.

use crate::filesystem::read::ALIGNMENT;

/// How much is looked at at either end: room for every primary signature that blkid knows, and for
/// the second partition table, MD and ZFS labels at the tail.
const END_BYTES: u64 = 1 << 20;

/// The size of a look at a spare copy.
const SPARE_BYTES: u64 = ALIGNMENT as u64;

/// A grid of at most this many looks over the whole disk: for data without any structure, and for
/// filesystems that were made when the disk was smaller, so that their spare copies are elsewhere.
/// A disk is sold in whole GiB and XFS divides it by four, so the grid is made of such quarters.
const GRID_POINTS: u64 = 256;
const GRID_UNIT: u64 = 256 << 20;

/// A piece of a device, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    /// Where it begins; a multiple of the sector.
    pub(crate) offset: u64,
    /// How long it is; a multiple of the sector.
    pub(crate) length: usize,
}

/// The first MiB of a device of this size, or all of it.
pub(crate) fn head(size: u64) -> Place {
    Place { offset: 0, length: length(size.min(END_BYTES)) }
}

/// All other places, in order and without repetition.
pub(crate) fn beyond_head(size: u64) -> Vec<Place> {
    let mut offsets: Vec<u64> = Vec::new();
    offsets.extend(ext_backups(size));
    offsets.extend([64 << 20, 256 << 30, 1 << 50]); // btrfs: the mirrors of its superblock
    offsets.extend(xfs_groups(size));
    let step = (size / GRID_POINTS).next_multiple_of(GRID_UNIT);
    offsets.extend((1..=GRID_POINTS).map(|point| point * step));

    let tail = size.saturating_sub(END_BYTES).max(head(size).length as u64);
    let mut places: Vec<Place> = offsets
        .into_iter()
        .map(|offset| offset / SPARE_BYTES * SPARE_BYTES)
        .filter(|offset| *offset >= END_BYTES && *offset < tail)
        .map(|offset| Place { offset, length: length(SPARE_BYTES.min(size - offset)) })
        .collect();
    if tail < size {
        places.push(Place { offset: tail, length: length(size - tail) });
    }
    places.sort();
    places.dedup();
    places
}

/// The size of the largest place.
pub(crate) fn largest() -> usize {
    length(END_BYTES)
}

/// ext2, ext3, ext4: copies of the superblock at the start of group 1 and of those whose number is
/// a power of 3, 5 or 7 (`sparse_super`), or of group 1 and the last one (`sparse_super2`).
/// A group has as many blocks as one block has bits.
fn ext_backups(size: u64) -> Vec<u64> {
    let mut offsets = Vec::new();
    for block in [1024_u64, 2048, 4096, 65536] {
        // With the smallest block the first one is left to the boot loader and not counted.
        let first = if block == 1024 { block } else { 0 };
        let group = 8 * block * block;
        let groups = size.saturating_sub(first).div_ceil(group);
        offsets.extend([1, groups.saturating_sub(1)].map(|number| first + number * group));
        for base in [3_u64, 5, 7] {
            let powers = std::iter::successors(Some(base), |power| power.checked_mul(base));
            offsets.extend(
                powers.take_while(|number| *number < groups).map(|number| first + number * group),
            );
        }
    }
    offsets
}

/// XFS: each allocation group begins with a copy of the superblock. `mkfs.xfs` makes 4 groups of a
/// plain disk, 8, 16 or 32 of one that tells of stripes, and none is larger than 1 TiB less a block.
fn xfs_groups(size: u64) -> Vec<u64> {
    const BLOCK: u64 = 4096;
    const LARGEST_GROUP: u64 = (1 << 40) - BLOCK;
    let mut offsets = Vec::new();
    for count in [4, 8, 16, 32] {
        let group = (size / BLOCK).div_ceil(count) * BLOCK;
        if group <= LARGEST_GROUP {
            offsets.extend((1..count).map(|number| number * group));
        }
    }
    offsets.extend((1..=64).map(|number| number * LARGEST_GROUP));
    offsets
}

fn length(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a place is at most one MiB")
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn offsets(size: u64) -> Vec<u64> {
        beyond_head(size).iter().map(|place| place.offset).collect()
    }

    #[test]
    fn places_are_aligned_inside_the_disk_and_do_not_overlap() {
        for size in
            [512, 4096, 1 << 20, (1 << 20) + 512, 3 << 20, 10 * GIB, 10 * GIB + 512, 16 << 40]
        {
            let mut places = vec![head(size)];
            places.extend(beyond_head(size));
            for pair in places.windows(2) {
                assert!(
                    pair[0].offset + pair[0].length as u64 <= pair[1].offset,
                    "{size} {pair:?}"
                );
            }
            for place in &places {
                assert!(place.offset % 512 == 0 && place.length % 512 == 0, "{size} {place:?}");
                assert!(place.length > 0 && place.length <= largest(), "{size} {place:?}");
            }
            let last = places.last().unwrap();
            assert_eq!(last.offset + last.length as u64, size, "the last byte is looked at");
        }
    }

    #[test]
    fn the_known_spare_copies_of_a_ten_gib_disk_are_among_them() {
        let offsets = offsets(10 * GIB);
        let ext4 = [1, 3, 5, 7, 9, 25, 27, 49].map(|group| group * 32768 * 4096);
        let btrfs = [64 << 20];
        let xfs = [1, 2, 3].map(|group| group * 10 * GIB / 4);
        for offset in ext4.iter().chain(&btrfs).chain(&xfs) {
            assert!(offsets.contains(offset), "{offset}");
        }
    }

    #[test]
    fn a_small_block_ext_filesystem_has_its_first_copy_looked_at() {
        // Block 8193 of 1 KiB is not a multiple of the alignment; the look begins just before it.
        assert!(offsets(GIB).contains(&(8193 * 1024 / 4096 * 4096)));
    }

    #[test]
    fn the_number_of_looks_stays_small_on_the_largest_disks() {
        assert!(beyond_head(16 << 40).len() < 600, "{}", beyond_head(16 << 40).len());
    }
}
