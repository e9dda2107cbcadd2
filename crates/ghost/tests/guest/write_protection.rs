//! Disks that refuse to be written to, with a journal that would have to be.

use ghost_csi as pb;
use ghost_qmp::disk::Bus;
use pb::volume_capability::access_mode::Mode;
use tonic::Code;

use crate::world::{TARGET, World};

async fn is_mounted_for_reading(filesystem: &str, option: &str) {
    let Some(mut world) = World::start(Bus::Scsi).await else { return };
    let mut volume = world.published("pvc-protected", filesystem).await;
    // Written back from the journal by this, so that it is there without the journal.
    world.unpublish_and_unstage(&volume).await.unwrap();
    world.stage_and_publish(&volume).await.unwrap();
    world.guest.write(&format!("{TARGET}/in-the-journal"), "perhaps").await.unwrap();
    world.guest.power_off().unwrap();
    world.parts.kill_all().unwrap();
    world.start_simulator(",read-only").await;
    world.parts.start_controller(&[]).unwrap();
    world.guest.power_on_again().await.unwrap();
    let device = world.device(&volume).await;
    assert_eq!(world.guest.succeed(&format!("blockdev --getro {device}")).await.unwrap(), "1");
    world.start_node().await;

    let status = world.stage_and_publish(&volume).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert_eq!(world.mounts().await, "");
    let mode = volume.capability.access_mode.as_mut().unwrap();
    mode.mode = Mode::SingleNodeReaderOnly.into();
    world.stage_and_publish(&volume).await.unwrap();
    world.assert_data().await;
    let mounts = world.mounts().await;
    for mount in mounts.lines() {
        let options: Vec<&str> = mount.split(' ').nth(3).unwrap().split(',').collect();
        assert!(options.contains(&"ro") && options.contains(&option), "{mount}");
    }
    assert_eq!(mounts.lines().count(), 2, "{mounts}");
    let log = world.guest.node_log();
    let since = &log[log.rfind("answering").unwrap()..];
    for tool in ["mkfs", "e2fsck", "xfs_repair", "resize2fs", "xfs_growfs"] {
        assert!(!since.contains(tool), "{tool} was run:\n{since}");
    }
    world.take_away(&volume).await;
}

#[tokio::test]
async fn b33_a_write_protected_ext4_with_a_dirty_journal_is_mounted_for_reading() {
    is_mounted_for_reading("ext4", "norecovery").await;
}

#[tokio::test]
async fn b33_a_write_protected_xfs_with_a_dirty_journal_is_mounted_for_reading() {
    is_mounted_for_reading("xfs", "norecovery").await;
}
