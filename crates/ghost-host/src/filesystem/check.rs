//! Checking an unmounted filesystem with its own tool, without ever answering a question for it.

use crate::command::{Command, Ending, STDIN};
use crate::device::{self, BlockDevice, Roots};
use crate::error::{Error, Result};
use crate::filesystem::{FilesystemKind, alone};

/// Checks as [`crate::Host::check`] promises.
///
/// A write-protected device is left alone: nothing could be repaired on it, and a journal that
/// waits to be replayed is no damage.
pub(crate) async fn check(roots: &Roots, device: &BlockDevice, kind: FilesystemKind) -> Result<()> {
    match kind {
        FilesystemKind::Xfs | FilesystemKind::Btrfs => return Ok(()),
        FilesystemKind::Ext3 | FilesystemKind::Ext4 => {}
    }
    if device::is_write_protected(roots, device.number) {
        return Ok(());
    }
    preen(device, &[]).await
}

/// Runs e2fsck so that it repairs only what cannot lose data (`-p`).
///
/// Its exit status is a sum, see e2fsck(8): 1 for repaired; 2 for "restart the machine", which it
/// says only of a filesystem that is mounted, whose mounted form then no longer is what is on the
/// disk; 4 for damage that it left. From 8 on it could not do its work.
pub(crate) async fn preen(device: &BlockDevice, flags: &[&str]) -> Result<()> {
    let tool =
        |disk| Command::new("e2fsck").argument("-p").arguments(flags).argument(STDIN).stdin(disk);
    let outcome = alone::run(device, tool).await?;
    match outcome.ending {
        Ending::Exited(0) => Ok(()),
        Ending::Exited(1) => {
            tracing::warn!(device = %device.path.display(), said = outcome.last_words(),
                "the filesystem was repaired");
            Ok(())
        }
        Ending::Exited(status @ 2..8) => Err(Error::Damaged {
            path: device.path.clone(),
            detail: format!("e2fsck -p ended with status {status}: {}", outcome.last_words()),
        }),
        _ => Err(outcome.into_error()),
    }
}
