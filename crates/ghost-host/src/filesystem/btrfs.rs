//! What the superblock of a btrfs says of its identity, by one read from the disk itself.

use crate::device::BlockDevice;
use crate::error::Result;
use crate::filesystem::places::Place;
use crate::filesystem::read::{ALIGNMENT, DirectReader};

/// Where the superblock is.
const PLACE: Place = Place { offset: 64 << 10, length: ALIGNMENT };

/// The part of `struct btrfs_super_block` (the kernel's btrfs_tree.h) by which the kernel tells
/// filesystems apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BtrfsIdentity {
    /// Its UUID, as sysfs writes it.
    pub(crate) fsid: String,
    /// The number that the device has within it.
    pub(crate) device_id: u64,
    /// Of how many devices it consists.
    pub(crate) devices: u64,
    /// Whether it is a seed, from which others may be grown and which is never written to.
    pub(crate) is_seed: bool,
}

impl BtrfsIdentity {
    /// Reads it from the disk; `None` when there is no btrfs.
    pub(crate) fn read(device: &BlockDevice) -> Result<Option<Self>> {
        let mut reader = DirectReader::open(device, ALIGNMENT)?;
        Ok(Self::parse(reader.read(PLACE)?))
    }

    fn parse(block: &[u8]) -> Option<Self> {
        /// `BTRFS_SUPER_FLAG_SEEDING`.
        const SEEDING: u64 = 1 << 32;
        if &block[0x40..0x48] != b"_BHRfS_M" {
            return None;
        }
        Some(Self {
            fsid: uuid(&block[0x20..0x30]),
            device_id: little_u64(block, 0xc9),
            devices: little_u64(block, 0x88),
            is_seed: little_u64(block, 0x38) & SEEDING != 0,
        })
    }
}

fn little_u64(block: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(block[at..at + 8].try_into().expect("8 bytes were taken"))
}

/// Sixteen bytes in groups of 4, 2, 2, 2 and 6, in hexadecimal digits with dashes between.
fn uuid(bytes: &[u8]) -> String {
    let digit = |(index, byte): (usize, &u8)| {
        let dash = if matches!(index, 4 | 6 | 8 | 10) { "-" } else { "" };
        format!("{dash}{byte:02x}")
    };
    bytes.iter().enumerate().map(digit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identity_is_read_where_the_kernel_keeps_it() {
        let mut block = vec![0; ALIGNMENT];
        assert_eq!(BtrfsIdentity::parse(&block), None);
        block[0x40..0x48].copy_from_slice(b"_BHRfS_M");
        for (index, byte) in block[0x20..0x30].iter_mut().enumerate() {
            *byte = u8::try_from(index).unwrap() * 0x11;
        }
        block[0xc9] = 3;
        block[0x88] = 2;
        block[0x38 + 4] = 1;
        let wanted = BtrfsIdentity {
            fsid: "00112233-4455-6677-8899-aabbccddeeff".to_owned(),
            device_id: 3,
            devices: 2,
            is_seed: true,
        };
        assert_eq!(BtrfsIdentity::parse(&block), Some(wanted));
    }
}
