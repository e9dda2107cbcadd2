//! Checks of filesystems that were not left in order.

use ghost_host::{Error, FilesystemKind, Host};

use crate::support::{Lab, MIB, is_root, run, try_run};
use crate::{folder, formatted, plain, text, write_protected, writes};

#[tokio::test]
async fn b14_a_wrong_count_is_repaired_without_asking() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    for kind in [FilesystemKind::Ext4, FilesystemKind::Ext3] {
        let device = formatted(&lab, &format!("pvc-{kind}"), 64 * MIB, kind).await;
        let node = text(device.path());
        // Blocks that are marked as used and belong to nothing.
        run("debugfs", &["-w", "-R", "setb 5000 3", node]);
        run("debugfs", &["-w", "-R", "ssv state 0", node]);
        let before = try_run("e2fsck", &["-n", "-f", node]);
        assert!(!before.status.success(), "the damage is real");
        lab.host().check(&device, kind).await.unwrap();
        run("e2fsck", &["-n", "-f", node]);
    }
}

#[tokio::test]
async fn b14_damage_that_could_cost_data_is_left_to_a_person() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = formatted(&lab, "pvc-1", 64 * MIB, FilesystemKind::Ext4).await;
    let node = text(device.path());
    let target = folder(&lab, "stage").await;
    host.mount(&device, &plain(&target, FilesystemKind::Ext4)).await.unwrap();
    std::fs::write(target.join("keep"), "data").unwrap();
    host.unmount(&target).await.unwrap();
    // The root directory's inode becomes a plain file's.
    run("debugfs", &["-w", "-R", "sif <2> mode 0100644", node]);
    run("debugfs", &["-w", "-R", "ssv state 2", node]);
    let error = host.check(&device, FilesystemKind::Ext4).await.unwrap_err();
    assert!(
        matches!(&error, Error::Damaged { path, detail }
            if path == device.path() && detail.contains("status 4")),
        "{error:?}"
    );
    // The damage is still there, for the person to see.
    let after = try_run("e2fsck", &["-n", "-f", node]);
    let status = after.status.code().unwrap();
    assert!(status & 4 != 0, "status {status}");
    let kept = run("debugfs", &["-R", "cat <12>", node]);
    assert_eq!(kept, "data");
}

#[tokio::test]
async fn b14_what_cannot_be_checked_is_a_failure_and_no_damage() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = formatted(&lab, "pvc-1", 64 * MIB, FilesystemKind::Ext4).await;
    let target = folder(&lab, "stage").await;
    host.mount(&device, &plain(&target, FilesystemKind::Ext4)).await.unwrap();
    let error = host.check(&device, FilesystemKind::Ext4).await.unwrap_err();
    assert!(
        matches!(&error, Error::Command { program, status, .. }
            if program == "e2fsck" && status == "exit status 8"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_write_protected_disk_is_neither_checked_nor_grown() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let device = formatted(&lab, "pvc-1", 64 * MIB, FilesystemKind::Ext4).await;
    run("debugfs", &["-w", "-R", "ssv state 0", text(device.path())]);
    run("sync", &[text(device.path())]);
    let device = write_protected(&lab, "pvc-1", device).await;
    let before = writes(&device);
    lab.host().check(&device, FilesystemKind::Ext4).await.unwrap();
    let target = lab.target("none");
    lab.host().grow(&device, &target, FilesystemKind::Ext4).await.unwrap();
    assert_eq!(writes(&device), before);
}
