//! Whether a device still carries a filesystem: one read of its superblock from the disk itself,
//! where a probe would start a program.

use crate::blocking;
use crate::device::BlockDevice;
use crate::error::Result;
use crate::filesystem::FilesystemKind;
use crate::filesystem::places::Place;
use crate::filesystem::read::{ALIGNMENT, DirectReader};

/// Reads the place of the superblock past the cache and compares its magic number.
pub(crate) async fn carries(device: &BlockDevice, kind: FilesystemKind) -> Result<bool> {
    let device = device.clone();
    blocking::run(move || {
        // Where each keeps its magic number: the kernel's ext4.h, xfs_format.h and btrfs_tree.h.
        let (block, within, magic): (u64, usize, &[u8]) = match kind {
            FilesystemKind::Ext3 | FilesystemKind::Ext4 => (0, 1024 + 0x38, &[0x53, 0xef]),
            FilesystemKind::Xfs => (0, 0, b"XFSB"),
            FilesystemKind::Btrfs => (64 << 10, 0x40, b"_BHRfS_M"),
        };
        let mut reader = DirectReader::open(&device, ALIGNMENT)?;
        let bytes = reader.read(Place { offset: block, length: ALIGNMENT })?;
        Ok(&bytes[within..within + magic.len()] == magic)
    })
    .await
}
