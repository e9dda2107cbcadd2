//! A disk that comes, grows and goes as the cloud says.

use std::cell::Cell;
use std::path::Path;

use ghost_qmp::disk::Bus;
use xtask::volume_life::{GIB, block, mounted};

use crate::world::{DROPLET, STAGING, TARGET, World};

async fn comes_after_the_call(bus: Bus) {
    let Some(mut world) = World::start(bus).await else { return };
    let mut volume = world.attached("pvc-late", mounted("ext4")).await;
    let mut controller = world.controller().await;
    controller.detach(&volume, DROPLET).await.unwrap();
    world.assert_absent(&volume).await;

    let mut node = world.node().await;
    let is_staged = Cell::new(false);
    let staged = volume.clone();
    let stage = async {
        node.stage(&staged, Path::new(STAGING)).await.unwrap();
        is_staged.set(true);
    };
    let plug = async {
        world.node_says(0, "nothing is there").await;
        assert!(!is_staged.get(), "there is no disk yet");
        controller.attach(&mut volume, DROPLET).await.unwrap();
    };
    tokio::join!(stage, plug);
    assert_eq!(world.source_of(STAGING).await, world.device(&volume).await);
    world.take_away(&volume).await;
}

#[tokio::test]
async fn a_stage_that_came_before_its_scsi_disk_ends_when_that_is_plugged_in() {
    comes_after_the_call(Bus::Scsi).await;
}

#[tokio::test]
async fn a_stage_that_came_before_its_virtio_disk_ends_when_that_is_plugged_in() {
    comes_after_the_call(Bus::Virtio).await;
}

async fn grows_while_mounted(bus: Bus, filesystem: &str) {
    let Some(mut world) = World::start(bus).await else { return };
    let volume = world.published("pvc-grow", filesystem).await;
    let (mut controller, mut node) = (world.controller().await, world.node().await);
    let before = node.total(&volume, Path::new(TARGET)).await.unwrap();
    assert!(before > GIB / 2 && before <= GIB, "{before}");
    for _ in 0..2 {
        controller.grow(&volume, 2).await.unwrap();
        node.grow(&volume, Path::new(TARGET), 2).await.unwrap();
    }
    let after = node.total(&volume, Path::new(TARGET)).await.unwrap();
    assert!(after > GIB * 3 / 2 && after <= 2 * GIB, "{before} became {after}");
    world.assert_data().await;
    world.take_away(&volume).await;
}

#[tokio::test]
async fn an_ext4_grows_while_it_is_mounted() {
    grows_while_mounted(Bus::Scsi, "ext4").await;
}

#[tokio::test]
async fn an_xfs_grows_while_it_is_mounted() {
    grows_while_mounted(Bus::Virtio, "xfs").await;
}

#[tokio::test]
async fn a_published_block_device_grows_while_it_is_open() {
    let Some(mut world) = World::start(Bus::Scsi).await else { return };
    let volume = world.attached("pvc-block", block()).await;
    world.stage_and_publish(&volume).await.unwrap();
    let (mut controller, mut node) = (world.controller().await, world.node().await);
    world.guest.succeed(&format!("exec 3<{TARGET}; printf kept >{TARGET}; sync")).await.unwrap();
    controller.grow(&volume, 2).await.unwrap();
    node.grow(&volume, Path::new(TARGET), 2).await.unwrap();
    assert_eq!(node.total(&volume, Path::new(TARGET)).await.unwrap(), 2 * GIB);
    let head = world.guest.succeed(&format!("head -c 4 {TARGET}")).await.unwrap();
    assert_eq!(head, "kept");
    world.take_away(&volume).await;
}
