//! Which tools of filesystems are there.

use crate::command::Command;
use crate::error::{Error, Result};
use crate::filesystem::FilesystemKind;

/// Looks as [`crate::Host::missing_tools`] promises: each is started, to tell its version.
pub(crate) async fn missing_tools(kind: FilesystemKind) -> Result<Vec<&'static str>> {
    let mut missing = Vec::new();
    for tool in tools(kind) {
        // Not every one knows that flag, but then it was started.
        if let Err(Error::NoCommand { .. }) = Command::new(tool).argument("-V").run().await {
            missing.push(*tool);
        }
    }
    Ok(missing)
}

/// The tools by which such filesystems are found, made, checked and grown.
fn tools(kind: FilesystemKind) -> &'static [&'static str] {
    match kind {
        FilesystemKind::Ext4 => &["blkid", "mkfs.ext4", "e2fsck", "resize2fs"],
        FilesystemKind::Ext3 => &["blkid", "mkfs.ext3", "e2fsck", "resize2fs"],
        FilesystemKind::Xfs => &["blkid", "mkfs.xfs", "xfs_growfs"],
        FilesystemKind::Btrfs => &["blkid", "mkfs.btrfs", "btrfs"],
    }
}
