//! The whole life of a volume, with each filesystem and as a device; every call made twice.

use std::fs;

use tonic::Code;
use xtask::volume_life::{GIB, block, mounted};

use crate::world::{World, is_root};

async fn whole_life(filesystem: &str) {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let (mut one, mut two) = (world.node(101).await, world.node(102).await);
    let (staging, target) = (world.path("staging"), world.path("target"));

    let mut volume = controller.create("pvc-life", 1, mounted(filesystem)).await.unwrap();
    let again = controller.create("pvc-life", 1, mounted(filesystem)).await.unwrap();
    assert_eq!((&volume.id, &volume.context), (&again.id, &again.context));
    assert_eq!(world.volumes().await, 1);
    for _ in 0..2 {
        controller.attach(&mut volume, 101).await.unwrap();
    }
    for _ in 0..2 {
        one.stage(&volume, &staging).await.unwrap();
        assert_eq!(world.layers("staging"), 1);
    }
    for _ in 0..2 {
        one.publish(&volume, &staging, &target).await.unwrap();
        assert_eq!(world.layers("target"), 1);
    }
    fs::write(target.join("data"), b"kept").unwrap();
    let before = one.total(&volume, &target).await.unwrap();
    assert!(before > GIB / 2 && before <= GIB, "{before}");

    for _ in 0..2 {
        one.unpublish(&volume, &target).await.unwrap();
        assert!(!target.exists());
    }
    for _ in 0..2 {
        one.unstage(&volume, &staging).await.unwrap();
    }
    for _ in 0..2 {
        controller.detach(&volume, 101).await.unwrap();
    }
    controller.attach(&mut volume, 102).await.unwrap();
    two.stage(&volume, &staging).await.unwrap();
    two.publish(&volume, &staging, &target).await.unwrap();
    assert_eq!(fs::read(target.join("data")).unwrap(), b"kept");

    for _ in 0..2 {
        controller.grow(&volume, 2).await.unwrap();
    }
    let grown = two.grow(&volume, &target, 2).await;
    let is_ext = filesystem.starts_with("ext");
    if is_ext && !may_grow_mounted_ext4() {
        let status = grown.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("CAP_SYS_RESOURCE"), "{status}");
    } else {
        grown.unwrap();
        two.grow(&volume, &target, 2).await.unwrap();
        let after = two.total(&volume, &target).await.unwrap();
        assert!(after > GIB * 3 / 2, "{before} became {after}");
    }
    assert_eq!(fs::read(target.join("data")).unwrap(), b"kept");
    world.take_away(&volume).await;
    controller.delete(&volume).await.unwrap();
    world.assert_clean().await;
}

fn may_grow_mounted_ext4() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(hex.trim(), 16).unwrap() >> 24 & 1 == 1
}

#[tokio::test]
async fn an_ext4_volume_lives_its_whole_life() {
    whole_life("ext4").await;
}

#[tokio::test]
async fn an_ext3_volume_lives_its_whole_life() {
    whole_life("ext3").await;
}

#[tokio::test]
async fn an_xfs_volume_lives_its_whole_life() {
    whole_life("xfs").await;
}

#[tokio::test]
async fn a_btrfs_volume_lives_its_whole_life() {
    whole_life("btrfs").await;
}

#[tokio::test]
async fn b29_a_block_volume_keeps_its_bytes() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    let mut volume = controller.create("pvc-block", 1, block()).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let device = world.device(&volume, 101);
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251).to_le_bytes()[0]).collect();
    fs::write(&device, &bytes).unwrap();
    for _ in 0..2 {
        node.stage(&volume, &staging).await.unwrap();
        node.publish(&volume, &staging, &target).await.unwrap();
    }
    assert_eq!(world.layers("target"), 1);
    let mut seen = vec![0; bytes.len()];
    std::io::Read::read_exact(&mut fs::File::open(&target).unwrap(), &mut seen).unwrap();
    assert!(seen == bytes, "the pod sees the bytes");
    controller.grow(&volume, 2).await.unwrap();
    node.grow(&volume, &target, 2).await.unwrap();
    assert_eq!(node.total(&volume, &target).await.unwrap(), 2 * GIB);
    std::io::Read::read_exact(&mut fs::File::open(&device).unwrap(), &mut seen).unwrap();
    assert!(seen == bytes, "nothing was written to the device");
    world.take_away(&volume).await;
    world.assert_clean().await;
}
