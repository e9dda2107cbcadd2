//! Machines and clouds that end and begin again while disks are attached.

use ghost_qmp::disk::Bus;

use crate::world::{TARGET, World};

#[tokio::test]
async fn a_guest_that_boots_again_finds_its_disk_and_the_data() {
    let Some(mut world) = World::start(Bus::Scsi).await else { return };
    let volume = world.published("pvc-reboot", "ext4").await;
    world.guest.reboot().await.unwrap();
    world.device(&volume).await;
    world.start_node().await;
    world.unpublish_and_unstage(&volume).await.unwrap();
    world.stage_and_publish(&volume).await.unwrap();
    world.assert_data().await;
    world.take_away(&volume).await;
}

#[tokio::test]
async fn a_guest_whose_power_was_cut_gets_its_disk_again_and_the_data() {
    let Some(mut world) = World::start(Bus::Virtio).await else { return };
    let volume = world.published("pvc-power", "xfs").await;
    world.guest.power_off().unwrap();
    world.guest.power_on_again().await.unwrap();
    world.device(&volume).await;
    world.start_node().await;
    world.stage_and_publish(&volume).await.unwrap();
    world.assert_data().await;
    world.take_away(&volume).await;
}

#[tokio::test]
async fn a_cloud_that_is_started_again_leaves_disks_in_use_alone() {
    let Some(mut world) = World::start(Bus::Scsi).await else { return };
    let volume = world.published("pvc-cloud", "ext4").await;
    let device = world.device(&volume).await;
    world.parts.kill_all().unwrap();
    world.guest.write(&format!("{TARGET}/meanwhile"), "kept too").await.unwrap();
    world.start_simulator("").await;
    world.parts.start_controller(&[]).unwrap();
    world.assert_data().await;
    assert_eq!(world.guest.read(&format!("{TARGET}/meanwhile")).await.unwrap(), b"kept too");
    assert_eq!(world.source_of(TARGET).await, device);
    world.take_away(&volume).await;
}
