//! States of health that only a device of its own kernel can be in: gone, failing, silent.

use std::path::Path;

use ghost_csi as pb;
use ghost_qmp::disk::Bus;
use tonic::{Code, Status};
use xtask::volume_life::{Volume, mounted};

use crate::mapper::{Behaviour, Mapped, world_with_mapper};
use crate::world::{DROPLET, TARGET, World, answered};

/// What the node tells of the published volume, each as reason and severity; one poll.
async fn told(world: &World, volume: &Volume) -> Result<Vec<(String, String)>, Status> {
    let request = pb::NodeGetVolumeHealthRequest {
        volume_id: volume.id.clone(),
        volume_publish_path: TARGET.to_owned(),
        ..Default::default()
    };
    let mut node = world.node().await;
    let answer = answered(node.0.node_get_volume_health(request)).await?.into_inner();
    let entries = answer.volume_health.unwrap().health_statuses.into_iter();
    Ok(entries.map(|e| (e.reason.clone(), e.status().as_str_name().to_owned())).collect())
}

fn one(reason: &str, severity: &str) -> Vec<(String, String)> {
    vec![(reason.to_owned(), severity.to_owned())]
}

/// Checks that nothing is told of the disk any more. The filesystem may have met an error itself
/// meanwhile, as when it initialises its tables in the background, and have written that down: that
/// is told until it is staged again.
async fn sound_again(world: &World, volume: &Volume) {
    let reasons = told(world, volume).await.unwrap();
    assert!(reasons.iter().all(|(reason, _)| reason.starts_with("Filesystem")), "{reasons:?}");
    world.unpublish_and_unstage(volume).await.unwrap();
    world.stage_and_publish(volume).await.unwrap();
    assert_eq!(told(world, volume).await.unwrap(), []);
}

#[tokio::test]
async fn a_disk_that_fails_or_is_silent_is_told_and_one_that_is_sound_again_is_healthy() {
    let Some(mut world) = world_with_mapper().await else { return };
    let volume = world.attached("pvc-health", mounted("ext4")).await;
    let mapped = Mapped::over(&world, &volume).await;
    world.stage_and_publish(&volume).await.unwrap();
    assert_eq!(told(&world, &volume).await.unwrap(), []);

    mapped.behave(&world, Behaviour::Error).await;
    assert_eq!(told(&world, &volume).await.unwrap(), one("DeviceFailing", "INACCESSIBLE"));
    mapped.behave(&world, Behaviour::Sound).await;
    sound_again(&world, &volume).await;

    // Overwritten under it.
    let zero = "dd if=/dev/mapper/mapped of=/run/head bs=1M count=1 && \
                dd if=/dev/zero of=/dev/mapper/mapped bs=1M count=1 oflag=direct";
    world.guest.succeed(zero).await.unwrap();
    assert_eq!(told(&world, &volume).await.unwrap(), one("DeviceReplaced", "INACCESSIBLE"));
    let back = "dd if=/run/head of=/dev/mapper/mapped bs=1M count=1 oflag=direct";
    world.guest.succeed(back).await.unwrap();
    sound_again(&world, &volume).await;

    mapped.hang(&world).await;
    assert_eq!(told(&world, &volume).await.unwrap(), one("DeviceUnresponsive", "INACCESSIBLE"));
    let mut node = world.node().await;
    let status = answered(node.total(&volume, Path::new(TARGET))).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    mapped.behave(&world, Behaviour::Sound).await;
    assert_eq!(told(&world, &volume).await.unwrap(), []);
    mapped.take_away(&mut world, &volume).await;
}

#[tokio::test]
async fn a_btrfs_that_stopped_writing_is_told_until_it_is_mounted_again() {
    let Some(mut world) = world_with_mapper().await else { return };
    let volume = world.attached("pvc-health", mounted("btrfs")).await;
    let mapped = Mapped::over(&world, &volume).await;
    world.stage_and_publish(&volume).await.unwrap();
    mapped.behave(&world, Behaviour::MostFails).await;
    let write = format!("echo more >{TARGET}/more; sync -f {TARGET}; echo >{TARGET}/again");
    assert_ne!(world.guest.run(&write).await.unwrap().code, 0, "the disk takes no writes");
    let reasons: Vec<String> =
        told(&world, &volume).await.unwrap().into_iter().map(|(reason, _)| reason).collect();
    assert!(reasons.contains(&"FilesystemReadOnly".to_owned()), "{reasons:?}");
    assert!(reasons.contains(&"FilesystemErrors".to_owned()), "{reasons:?}");
    mapped.behave(&world, Behaviour::Sound).await;
    world.unpublish_and_unstage(&volume).await.unwrap();
    world.stage_and_publish(&volume).await.unwrap();
    assert_eq!(told(&world, &volume).await.unwrap(), [], "nothing of it was written down");
    mapped.take_away(&mut world, &volume).await;
}

#[tokio::test]
async fn an_xfs_that_shut_down_is_told_until_it_is_mounted_again() {
    let Some(mut world) = world_with_mapper().await else { return };
    let volume = world.attached("pvc-health", mounted("xfs")).await;
    let mapped = Mapped::over(&world, &volume).await;
    world.stage_and_publish(&volume).await.unwrap();
    mapped.behave(&world, Behaviour::MostFails).await;
    let write = format!("echo more >{TARGET}/more; sync -f {TARGET}; ls {TARGET}");
    assert_ne!(world.guest.run(&write).await.unwrap().code, 0, "the disk takes no writes");
    assert_eq!(told(&world, &volume).await.unwrap(), one("FilesystemShutDown", "INACCESSIBLE"));
    mapped.behave(&world, Behaviour::Sound).await;
    assert_eq!(told(&world, &volume).await.unwrap(), one("FilesystemShutDown", "INACCESSIBLE"));
    world.unpublish_and_unstage(&volume).await.unwrap();
    world.stage_and_publish(&volume).await.unwrap();
    assert_eq!(told(&world, &volume).await.unwrap(), []);
    mapped.take_away(&mut world, &volume).await;
}

#[tokio::test]
async fn a_disk_that_was_taken_away_is_told_until_it_is_back() {
    let Some(mut world) = World::start(Bus::Scsi).await else { return };
    let mut volume = world.published("pvc-health", "xfs").await;
    assert_eq!(told(&world, &volume).await.unwrap(), []);
    let mut controller = world.controller().await;
    controller.detach(&volume, DROPLET).await.unwrap();
    world.assert_absent(&volume).await;
    assert_eq!(told(&world, &volume).await.unwrap(), one("DeviceGone", "INACCESSIBLE"));
    controller.attach(&mut volume, DROPLET).await.unwrap();
    world.unpublish_and_unstage(&volume).await.unwrap();
    assert_eq!(told(&world, &volume).await.unwrap_err().code(), Code::NotFound);
    world.stage_and_publish(&volume).await.unwrap();
    assert_eq!(told(&world, &volume).await.unwrap(), []);
    world.take_away(&volume).await;
}

#[tokio::test]
async fn a_tool_that_the_node_lacks_is_told_until_it_is_there() {
    let Some(world) = World::start(Bus::Scsi).await else { return };
    let told = async || {
        let request = pb::NodeGetStorageHealthRequest::default();
        let mut node = world.node().await;
        let answer = answered(node.0.node_get_storage_health(request)).await.unwrap().into_inner();
        let entries = answer.backend_health.into_iter();
        entries.map(|entry| (entry.reason, entry.message)).collect::<Vec<_>>()
    };
    assert_eq!(told().await, []);
    let path = world.guest.succeed("command -v mkfs.xfs").await.unwrap();
    world.guest.succeed(&format!("mv {path} /run/away")).await.unwrap();
    let [(reason, message)] = &told().await[..] else { panic!("{:?}", told().await) };
    assert_eq!(reason, "ToolsMissing");
    assert!(message.contains("xfs needs") && message.contains("mkfs.xfs"), "{message}");
    world.guest.succeed(&format!("mv /run/away {path}")).await.unwrap();
    assert_eq!(told().await, []);
}
