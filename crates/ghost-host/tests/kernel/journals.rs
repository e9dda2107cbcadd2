//! Filesystems whose log waits to be replayed, alone and beside the filesystem that they are copies
//! of. Copies of a btrfs are in `twins`.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;

use ghost_host::{Access, BlockDevice, FilesystemKind, Host};

use crate::support::{Lab, MIB, is_root, run};
use crate::{folder, formatted, plain, text, write_protected, writes};

const SIZE: u64 = 512 * MIB;

/// Makes `pvc-clone` a copy of a filesystem in use, so that its log has not been replayed; the file
/// `marker` was synced before. The original stays mounted at `origin`.
pub(crate) async fn cloned(lab: &Lab, kind: FilesystemKind) -> BlockDevice {
    let host = lab.host();
    let original = formatted(lab, "pvc-original", SIZE, kind).await;
    let target = folder(lab, "origin").await;
    host.mount(&original, &plain(&target, kind)).await.unwrap();
    let mut marker = File::create(target.join("marker")).unwrap();
    marker.write_all(b"marked").unwrap();
    marker.sync_all().unwrap();
    let (from, to) = (lab.image("pvc-original"), lab.image("pvc-clone"));
    run("cp", &["--sparse=always", text(&from), text(&to)]);
    lab.plug("pvc-clone").await;
    host.find_disk(&lab.address("pvc-clone", SIZE), crate::PATIENCE).await.unwrap()
}

/// Whether the log waits to be replayed.
pub(crate) fn is_dirty(device: &BlockDevice, kind: FilesystemKind) -> bool {
    let (offset, bit) = match kind {
        // The flag "needs recovery" of `s_feature_incompat`.
        FilesystemKind::Ext3 | FilesystemKind::Ext4 => (1024 + 0x60, 0x4),
        // `log_root`, of which any bit counts.
        FilesystemKind::Btrfs => ((64 << 10) + 0x60, u64::MAX),
        FilesystemKind::Xfs => {
            let said = run("xfs_logprint", &["-t", text(device.path())]);
            assert!(said.contains("state: <"), "{said}");
            return said.contains("<DIRTY>");
        }
    };
    // What is in the cache of the device is not what a filesystem last wrote to it.
    run("blockdev", &["--flushbufs", text(device.path())]);
    let mut field = [0; 8];
    File::open(device.path()).unwrap().read_exact_at(&mut field, offset).unwrap();
    u64::from_le_bytes(field) & bit != 0
}

pub(crate) fn uuid(device: &BlockDevice) -> String {
    run("blkid", &["-p", "-o", "value", "-s", "UUID", text(device.path())])
}

#[tokio::test]
async fn b15_b16_a_clone_with_a_dirty_log_is_mounted_beside_its_original_and_keeps_all() {
    if !is_root() {
        return;
    }
    for kind in [FilesystemKind::Ext4, FilesystemKind::Ext3, FilesystemKind::Xfs] {
        let lab = Lab::new();
        let host = lab.host();
        let clone = cloned(&lab, kind).await;
        let before = uuid(&clone);
        assert!(is_dirty(&clone, kind), "{kind}: there is nothing to replay");
        let origin = lab.target("origin");
        let target = folder(&lab, "clone").await;
        host.check(&clone, kind).await.unwrap();
        host.mount(&clone, &plain(&target, kind)).await.unwrap();
        assert_eq!(fs::read_to_string(target.join("marker")).unwrap(), "marked");
        fs::write(target.join("of-clone"), "1").unwrap();
        fs::write(origin.join("of-original"), "1").unwrap();
        assert!(!target.join("of-original").exists() && !origin.join("of-clone").exists());
        assert_eq!(uuid(&clone), before);
        let table = host.mounts().await.unwrap();
        assert_eq!(table.at(&target).next_back().unwrap().device, Some(clone.number()));
        host.unmount(&target).await.unwrap();
        host.unmount(&origin).await.unwrap();
    }
}

#[tokio::test]
async fn b33_a_read_only_mount_of_a_writable_disk_replays_the_log() {
    if !is_root() {
        return;
    }
    for kind in FilesystemKind::ALL {
        let lab = Lab::new();
        let host = lab.host();
        let clone = cloned(&lab, kind).await;
        // A btrfs refuses its twin on older kernels, and that is not what is tested here.
        host.unmount(&lab.target("origin")).await.unwrap();
        assert!(is_dirty(&clone, kind), "{kind}: there is nothing to replay");
        let before = uuid(&clone);
        let target = folder(&lab, "clone").await;
        let mount = ghost_host::Mount { access: Access::ReadOnly, ..plain(&target, kind) };
        host.mount(&clone, &mount).await.unwrap();
        assert_eq!(fs::read_to_string(target.join("marker")).unwrap(), "marked");
        let error = fs::write(target.join("more"), "1").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        host.unmount(&target).await.unwrap();
        assert!(!is_dirty(&clone, kind), "{kind}: it was not replayed");
        assert_eq!(uuid(&clone), before);
    }
}

#[tokio::test]
async fn b33_a_dirty_log_on_a_write_protected_disk_is_left_alone() {
    if !is_root() {
        return;
    }
    for kind in FilesystemKind::ALL {
        let lab = Lab::new();
        let host = lab.host();
        let clone = cloned(&lab, kind).await;
        // A btrfs refuses its twin on older kernels, and that is not what is tested here.
        host.unmount(&lab.target("origin")).await.unwrap();
        let clone = write_protected(&lab, "pvc-clone", clone).await;
        assert!(is_dirty(&clone, kind), "{kind}: there is nothing to replay");
        let before = writes(&clone);
        let target = folder(&lab, "clone").await;
        host.mount(&clone, &plain(&target, kind)).await.unwrap_err();
        host.check(&clone, kind).await.unwrap();
        let mount = ghost_host::Mount { access: Access::ReadOnly, ..plain(&target, kind) };
        host.mount(&clone, &mount).await.unwrap();
        assert!(fs::read_dir(&target).is_ok());
        host.grow(&clone, &target, kind).await.unwrap();
        host.unmount(&target).await.unwrap();
        assert_eq!(writes(&clone), before, "{kind}");
        assert!(is_dirty(&clone, kind), "{kind}: it was replayed");
    }
}
