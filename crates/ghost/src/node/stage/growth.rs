//! The growth of a filesystem that is smaller than its disk: one restored from a snapshot of a smaller
//! volume, or whose disk was grown by hand.

use ghost_host::{Access, BlockDevice, Error as HostError, FilesystemKind, Mount};

use super::filesystem;
use crate::error::Result;
use crate::node::error::domain;
use crate::node::{Node, place};

/// Grows what is mounted to the size of its device. What is as large, which one read tells, and what
/// is mounted for reading only, is left alone.
///
/// A mounted ext3 or ext4 grows only for a process with `CAP_SYS_RESOURCE`. Without it the
/// filesystem is unmounted, grown, and mounted again, if nobody else uses it. Whenever that is cut
/// short, the next call finds the filesystem unmounted or not yet grown, and does the rest.
///
/// # Errors
/// The host's, when it is not as large afterwards. Then it may be mounted or not.
pub(super) async fn grow(node: &Node, device: &BlockDevice, mount: &Mount) -> Result<()> {
    if mount.access == Access::ReadOnly {
        return Ok(());
    }
    let Err(error) = node.host.grow(device, &mount.target, mount.kind).await else { return Ok(()) };
    let table = node.host.mounts().await.map_err(domain)?;
    let elsewhere = table.of_device(device.number()).any(|entry| entry.target != mount.target);
    match decide(&error, mount.kind, elsewhere) {
        Remedy::GrowUnmounted => {
            tracing::info!(device = %device.path().display(), %error, "growing it unmounted");
            place::clear(node, &mount.target).await?;
            let grown = node.host.grow(device, &mount.target, mount.kind).await;
            grown.map_err(refused)?;
            filesystem::attach(node, device, mount).await
        }
        Remedy::LeaveSmall => {
            tracing::warn!(device = %device.path().display(), %error,
                "the filesystem is smaller than its disk, and stays so while pods use it");
            Ok(())
        }
        Remedy::Refuse => Err(refused(error)),
    }
}

fn refused(error: HostError) -> crate::error::Error {
    domain(error).context("cannot grow the filesystem to the size of its disk")
}

/// What is done about a filesystem that did not grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Remedy {
    /// It is unmounted for it.
    GrowUnmounted,
    /// Pods that outlived an unstage, or a restart of the kubelet, go on with it as it is, and so
    /// may others: no data is at stake. `NodeExpandVolume` fails for the same reason and says so.
    LeaveSmall,
    /// It is not used.
    Refuse,
}

fn decide(error: &HostError, kind: FilesystemKind, elsewhere: bool) -> Remedy {
    let is_ext = matches!(kind, FilesystemKind::Ext3 | FilesystemKind::Ext4);
    match error {
        HostError::MissingCapability { .. } if is_ext && elsewhere => Remedy::LeaveSmall,
        HostError::MissingCapability { .. } if is_ext => Remedy::GrowUnmounted,
        _ => Remedy::Refuse,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn b18_only_ext_without_the_capability_is_unmounted_and_only_if_nobody_else_uses_it() {
        let lacking = HostError::MissingCapability {
            action: "growing".to_owned(),
            capability: "CAP_SYS_RESOURCE",
        };
        let others = [
            HostError::Busy { path: PathBuf::from("/t") },
            HostError::Damaged { path: PathBuf::from("/dev/sdb"), detail: "x".to_owned() },
            HostError::Command {
                program: "resize2fs".to_owned(),
                status: "exit status 1".to_owned(),
                output: "Permission denied".to_owned(),
            },
        ];
        for kind in FilesystemKind::ALL {
            let is_ext = kind.name().starts_with("ext");
            for (elsewhere, remedy) in [(false, Remedy::GrowUnmounted), (true, Remedy::LeaveSmall)]
            {
                let wanted = if is_ext { remedy } else { Remedy::Refuse };
                assert_eq!(decide(&lacking, kind, elsewhere), wanted, "{kind}");
                for other in &others {
                    assert_eq!(decide(other, kind, elsewhere), Remedy::Refuse, "{kind} {other}");
                }
            }
        }
    }
}
