//! Disks that are taken away from whoever uses them.

use std::path::Path;

use ghost_qmp::disk::Bus;
use tonic::Code;

use crate::world::{DROPLET, TARGET, World, answered, is_not_final};

async fn is_taken_away_and_comes_back(bus: Bus, filesystem: &str) {
    let Some(mut world) = World::start(bus).await else { return };
    let mut volume = world.published("pvc-taken", filesystem).await;
    let (mut controller, mut node) = (world.controller().await, world.node().await);

    // As the control plane does when a node has not answered for a while.
    controller.detach(&volume, DROPLET).await.unwrap();
    world.assert_absent(&volume).await;
    let write = format!("echo more >{TARGET}/more && sync -f {TARGET}");
    assert_ne!(world.guest.run(&write).await.unwrap().code, 0, "there is no disk to write to");
    let status = answered(node.total(&volume, Path::new(TARGET))).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");

    controller.attach(&mut volume, DROPLET).await.unwrap();
    if filesystem == "btrfs" {
        // The kernel mounts no second disk of one UUID while the dead one is mounted anywhere.
        let status = world.stage_and_publish(&volume).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        world.unpublish_and_unstage(&volume).await.unwrap();
    }
    world.stage_and_publish(&volume).await.unwrap();
    assert_eq!(world.source_of(TARGET).await, world.device(&volume).await);
    assert_eq!(world.mounts().await.lines().count(), 2, "{}", world.mounts().await);
    world.assert_data().await;

    controller.detach(&volume, DROPLET).await.unwrap();
    world.assert_absent(&volume).await;
    answered(world.unpublish_and_unstage(&volume)).await.unwrap();
    assert_eq!(world.mounts().await, "");
    controller.attach(&mut volume, DROPLET).await.unwrap();
    world.stage_and_publish(&volume).await.unwrap();
    world.assert_data().await;
    world.take_away(&volume).await;
}

#[tokio::test]
async fn b07_a_scsi_disk_with_ext4_is_taken_away_while_mounted_and_comes_back() {
    is_taken_away_and_comes_back(Bus::Scsi, "ext4").await;
}

#[tokio::test]
async fn b07_a_virtio_disk_with_xfs_is_taken_away_while_mounted_and_comes_back() {
    is_taken_away_and_comes_back(Bus::Virtio, "xfs").await;
}

#[tokio::test]
async fn b07_a_scsi_disk_with_btrfs_is_taken_away_while_mounted_and_comes_back() {
    is_taken_away_and_comes_back(Bus::Scsi, "btrfs").await;
}

#[tokio::test]
async fn a_guest_that_hangs_keeps_its_virtio_disk_until_it_goes_on() {
    let Some(mut world) = World::start(Bus::Virtio).await else { return };
    let mut volume = world.published("pvc-hangs", "ext4").await;
    world.unpublish_and_unstage(&volume).await.unwrap();
    let mut controller = world.controller().await;
    world.guest.pause().await.unwrap();
    let answer = answered(controller.detach(&volume, DROPLET)).await;
    assert!(is_not_final(answer.as_ref().unwrap_err()), "{answer:?}");
    assert!(world.guest.plugged().await.unwrap().contains(&volume.id));

    // The guest now lets go of its disk, which the cloud still counts as attached.
    world.guest.resume().await.unwrap();
    world.guest.let_go(&volume.id).await.unwrap();
    controller.attach(&mut volume, DROPLET).await.unwrap();
    world.stage_and_publish(&volume).await.unwrap();
    world.assert_data().await;
    world.take_away(&volume).await;
}
