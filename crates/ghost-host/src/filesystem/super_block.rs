//! What a filesystem's superblock says, by one read from the disk itself, where a probe would start
//! a program.

use crate::device::BlockDevice;
use crate::error::Result;
use crate::filesystem::FilesystemKind;
use crate::filesystem::places::Place;
use crate::filesystem::read::{ALIGNMENT, DirectReader};

/// The block of a device with the superblock that a filesystem of this kind has.
#[derive(Debug)]
pub(crate) struct SuperBlock {
    kind: Option<FilesystemKind>,
    bytes: Vec<u8>,
}

/// Where the superblock of ext begins (the kernel's ext4.h).
const EXT: usize = 1024;

impl SuperBlock {
    /// Reads it from the disk; without a kind, the first block.
    pub(crate) fn read(device: &BlockDevice, kind: Option<FilesystemKind>) -> Result<Self> {
        let offset = if kind == Some(FilesystemKind::Btrfs) { 64 << 10 } else { 0 };
        let mut reader = DirectReader::open(device, ALIGNMENT)?;
        let bytes = reader.read(Place { offset, length: ALIGNMENT })?.to_vec();
        Ok(Self { kind, bytes })
    }

    /// Whether the magic number is there.
    pub(crate) fn is_of_its_kind(&self) -> bool {
        // Where each keeps it: the kernel's ext4.h, xfs_format.h and btrfs_tree.h.
        let (within, magic): (usize, &[u8]) = match self.kind {
            Some(FilesystemKind::Ext3 | FilesystemKind::Ext4) => (EXT + 0x38, &[0x53, 0xef]),
            Some(FilesystemKind::Xfs) => (0, b"XFSB"),
            Some(FilesystemKind::Btrfs) => (0x40, b"_BHRfS_M"),
            None => return false,
        };
        &self.bytes[within..within + magic.len()] == magic
    }

    /// How many errors it tells of. Of btrfs it tells only whether there were any (bit 2 of the
    /// flags, `BTRFS_SUPER_FLAG_ERROR`).
    pub(crate) fn recorded_errors(&self) -> u64 {
        match self.kind {
            // `s_error_count`, and the bit "errors were detected" of `s_state`.
            Some(FilesystemKind::Ext3 | FilesystemKind::Ext4) => {
                let count = self.little_u32(EXT + 0x194);
                let detected = self.bytes[EXT + 0x3a] & 0b10 != 0;
                u64::from(count).max(u64::from(detected))
            }
            Some(FilesystemKind::Btrfs) => u64::from(self.bytes[0x38] & 0b100 != 0),
            Some(FilesystemKind::Xfs) | None => 0,
        }
    }

    fn little_u32(&self, at: usize) -> u32 {
        let bytes = self.bytes[at..at + 4].try_into();
        u32::from_le_bytes(bytes.expect("four bytes are an array of four"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_read_where_each_kind_writes_them_down() {
        let block = |kind, at: usize, value: u8| {
            let mut bytes = vec![0; ALIGNMENT];
            bytes[at] = value;
            SuperBlock { kind: Some(kind), bytes }.recorded_errors()
        };
        assert_eq!(block(FilesystemKind::Ext4, EXT + 0x194, 7), 7);
        assert_eq!(block(FilesystemKind::Ext4, EXT + 0x3a, 0b10), 1);
        assert_eq!(block(FilesystemKind::Ext4, EXT + 0x3a, 0b01), 0, "cleanly unmounted");
        assert_eq!(block(FilesystemKind::Btrfs, 0x38, 0b100), 1);
        assert_eq!(block(FilesystemKind::Xfs, 0x38, 0xff), 0);
    }
}
