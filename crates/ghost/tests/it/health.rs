//! What is wrong with a volume is told with a stable reason, from when it is so until it is not.

use std::fs;
use std::path::Path;

use ghost_csi as pb;
use reqwest::Method;
use serde_json::json;
use tonic::{Code, Status};
use xtask::command::{output, program};
use xtask::volume_life::{Volume, block, mounted};

use crate::world::{World, is_root};

type Told = Result<Vec<String>, Status>;

fn reasons(health: Option<pb::VolumeHealth>) -> Vec<String> {
    health.unwrap().health_statuses.into_iter().map(|entry| entry.reason).collect()
}

/// What the controller tells of one volume.
async fn at_the_cloud(world: &World, volume: &Volume) -> Told {
    let volume_id = volume.id.clone();
    let request = pb::ControllerGetVolumeHealthRequest { volume_id, ..Default::default() };
    let answer = world.controller().await.0.controller_get_volume_health(request).await?;
    Ok(reasons(answer.into_inner().volume_health))
}

/// The volumes that the controller lists, with what it tells of them.
async fn listed(world: &World) -> Vec<(String, Vec<String>)> {
    let request = pb::ControllerListVolumeHealthRequest::default();
    let answer = world.controller().await.0.controller_list_volume_health(request).await.unwrap();
    let entries = answer.into_inner().entries.into_iter();
    entries.map(|entry| (entry.volume_id.clone(), reasons(Some(entry)))).collect()
}

/// What node 101 tells of a volume at this path.
async fn on_the_node(world: &World, volume: &Volume, path: &Path) -> Told {
    let request = pb::NodeGetVolumeHealthRequest {
        volume_id: volume.id.clone(),
        volume_publish_path: path.to_string_lossy().into_owned(),
        ..Default::default()
    };
    let answer = world.node(101).await.0.node_get_volume_health(request).await?;
    Ok(reasons(answer.into_inner().volume_health))
}

async fn of_the_storage(world: &World) -> Vec<String> {
    let request = pb::NodeGetStorageHealthRequest::default();
    let answer = world.node(101).await.0.node_get_storage_health(request).await.unwrap();
    let entries = answer.into_inner().backend_health.into_iter();
    entries.map(|entry| entry.reason).collect()
}

#[tokio::test]
async fn the_controller_tells_what_the_cloud_shows_and_takes_it_back() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-health", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    assert!(at_the_cloud(&world, &volume).await.unwrap().is_empty());
    assert!(listed(&world).await.is_empty());

    // The cloud does not answer.
    let route = "/v2/volumes/{volume_id}";
    world.fault("GET", route, 99, &json!({"status": 503})).await;
    assert_eq!(at_the_cloud(&world, &volume).await.unwrap(), ["CloudUnreachable"]);
    world.fault("GET", "/v2/volumes", 99, &json!({"status": 503})).await;
    let request = pb::ControllerListVolumeHealthRequest::default();
    let status = controller.0.controller_list_volume_health(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "a list is never partial: {status}");
    world.no_faults().await;
    assert!(at_the_cloud(&world, &volume).await.unwrap().is_empty());

    // Somebody moves the disk by hand.
    let action = |kind: &str, node: u64| json!({"type": kind, "droplet_id": node});
    let actions = format!("/v2/volumes/{}/actions", volume.id);
    world.by_hand(Method::POST, &actions, Some(action("detach", 101))).await;
    assert!(at_the_cloud(&world, &volume).await.unwrap().is_empty(), "it is on its way back");
    world.by_hand(Method::POST, &actions, Some(action("attach", 102))).await;
    // The attacher sees that it is not where it should be, and asks for it.
    let status = controller.attach(&mut volume, 101).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert_eq!(at_the_cloud(&world, &volume).await.unwrap(), ["AttachedElsewhere"]);
    let expected = vec![(volume.id.clone(), vec!["AttachedElsewhere".to_owned()])];
    assert_eq!(listed(&world).await, expected);
    // And back.
    world.by_hand(Method::POST, &actions, Some(action("detach", 102))).await;
    assert!(listed(&world).await.is_empty());
    controller.attach(&mut volume, 101).await.unwrap();
    assert!(listed(&world).await.is_empty());

    // The cloud is mistaken.
    let twice = json!({"replace": {"/volume/droplet_ids": [101, 102]}});
    world.fault("GET", route, 99, &twice).await;
    assert_eq!(at_the_cloud(&world, &volume).await.unwrap(), ["AttachedTwice"]);
    let twice = json!({"replace": {"/volumes/0/droplet_ids": [101, 102]}});
    world.fault("GET", "/v2/volumes", 99, &twice).await;
    assert_eq!(listed(&world).await, [(volume.id.clone(), vec!["AttachedTwice".to_owned()])]);
    world.no_faults().await;
    assert!(at_the_cloud(&world, &volume).await.unwrap().is_empty());
    assert!(listed(&world).await.is_empty());

    controller.detach(&volume, 101).await.unwrap();
    controller.delete(&volume).await.unwrap();
    let status = at_the_cloud(&world, &volume).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
}

#[tokio::test]
async fn the_node_tells_of_a_filesystem_that_fills_up() {
    if !is_root() {
        return;
    }
    let world = World::start();
    // 1 GiB with an inode for every 64 MiB.
    let parameters = [("bytesPerInode".to_owned(), (64 << 20).to_string())];
    let capability = mounted("ext4");
    let request = pb::CreateVolumeRequest {
        name: "pvc-full".to_owned(),
        volume_capabilities: vec![capability.clone()],
        capacity_range: Some(pb::CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        parameters: parameters.into(),
        ..Default::default()
    };
    let mut controller = world.controller().await;
    let made = controller.0.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let mut volume = Volume {
        id: made.volume_id,
        context: made.volume_context,
        attachment: std::collections::HashMap::new(),
        capability,
    };
    controller.attach(&mut volume, 101).await.unwrap();
    let mut node = world.node(101).await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    node.stage(&volume, &staging).await.unwrap();
    node.publish(&volume, &staging, &target).await.unwrap();
    let told = || on_the_node(&world, &volume, &target);
    for number in 0.. {
        if told().await.unwrap() == ["NearlyOutOfInodes"] {
            break;
        }
        assert!(number < 1000, "{:?}", told().await);
        fs::write(target.join(number.to_string()), "x").unwrap();
    }
    for entry in fs::read_dir(&target).unwrap().flatten() {
        if entry.file_type().unwrap().is_file() {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    assert!(told().await.unwrap().is_empty());
    let large = fs::File::create(target.join("large")).unwrap();
    rustix::fs::fallocate(&large, rustix::fs::FallocateFlags::empty(), 0, 940 << 20).unwrap();
    assert_eq!(told().await.unwrap(), ["NearlyFull"]);
    drop(large);
    fs::remove_file(target.join("large")).unwrap();
    assert!(told().await.unwrap().is_empty());
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b27_the_node_tells_of_errors_of_the_filesystem_and_of_a_disk_that_is_gone() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    let mut volume = world.published("pvc-errors", "ext4").await;
    assert!(on_the_node(&world, &volume, &target).await.unwrap().is_empty());
    assert!(on_the_node(&world, &volume, &staging).await.unwrap().is_empty());

    // The kernel's own way to have an error of a mounted ext4.
    let disk = volume.clone();
    let trigger = || {
        let device = world.device(&disk, 101);
        let name = device.file_name().unwrap().to_string_lossy().into_owned();
        fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "a test").unwrap();
    };
    trigger();
    let told = on_the_node(&world, &volume, &target).await.unwrap();
    assert_eq!(told, ["FilesystemErrors"]);
    // Staged anew it is checked, and the record is cleared.
    node.unpublish(&volume, &target).await.unwrap();
    node.unstage(&volume, &staging).await.unwrap();
    use pb::volume_capability::{AccessType, MountVolume};
    volume.capability.access_type = Some(AccessType::Mount(MountVolume {
        fs_type: "ext4".to_owned(),
        mount_flags: vec!["errors=remount-ro".to_owned()],
        ..Default::default()
    }));
    node.stage(&volume, &staging).await.unwrap();
    node.publish(&volume, &staging, &target).await.unwrap();
    assert!(on_the_node(&world, &volume, &target).await.unwrap().is_empty());
    trigger();
    let told = on_the_node(&world, &volume, &target).await.unwrap();
    assert_eq!(told, ["FilesystemErrors", "FilesystemReadOnly"]);
    node.unpublish(&volume, &target).await.unwrap();
    node.stage(&volume, &staging).await.unwrap();
    node.publish(&volume, &staging, &target).await.unwrap();
    assert!(on_the_node(&world, &volume, &target).await.unwrap().is_empty(), "it is mended");

    // Taken away by hand, while it is mounted.
    let actions = format!("/v2/volumes/{}/actions", volume.id);
    let detach = json!({"type": "detach", "droplet_id": 101});
    world.by_hand(Method::POST, &actions, Some(detach)).await;
    let told = on_the_node(&world, &volume, &target).await.unwrap();
    assert!(told == ["DeviceGone"] || told == ["DeviceFailing"], "{told:?}");
    let status = node.total(&volume, &target).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    node.unpublish(&volume, &target).await.unwrap();
    node.unstage(&volume, &staging).await.unwrap();
    let status = on_the_node(&world, &volume, &target).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    controller.attach(&mut volume, 101).await.unwrap();
    node.stage(&volume, &staging).await.unwrap();
    assert!(on_the_node(&world, &volume, &staging).await.unwrap().is_empty());
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn an_xfs_that_shut_down_is_told_and_used_by_nobody_until_it_is_staged_anew() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut node = world.node(101).await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    let volume = world.published("pvc-shut-down", "xfs").await;
    fs::write(target.join("data"), "kept").unwrap();
    fs::File::open(target.join("data")).unwrap().sync_all().unwrap();
    assert!(on_the_node(&world, &volume, &target).await.unwrap().is_empty());
    let shut_down = || {
        output(program("xfs_io").args(["-x", "-c", "shutdown -f"]).arg(&staging)).unwrap();
    };
    shut_down();
    for path in [&target, &staging] {
        let told = on_the_node(&world, &volume, path).await.unwrap();
        assert_eq!(told, ["FilesystemShutDown"]);
    }
    let second = world.path("second");
    let status = node.publish(&volume, &staging, &second).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let status = node.stage(&volume, &staging).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "a pod has it: {status}");
    assert_eq!((world.layers("staging"), world.layers("target")), (1, 1));
    // The pod outlives the staging.
    node.unstage(&volume, &staging).await.unwrap();
    let status = node.stage(&volume, &staging).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "a pod still has it: {status}");
    assert_eq!(world.layers("staging"), 0);
    node.unpublish(&volume, &target).await.unwrap();
    node.stage(&volume, &staging).await.unwrap();
    assert!(on_the_node(&world, &volume, &staging).await.unwrap().is_empty());
    // At the staging path alone it is mounted anew in place.
    shut_down();
    assert_eq!(on_the_node(&world, &volume, &staging).await.unwrap(), ["FilesystemShutDown"]);
    node.stage(&volume, &staging).await.unwrap();
    assert_eq!(world.layers("staging"), 1);
    node.publish(&volume, &staging, &target).await.unwrap();
    assert!(on_the_node(&world, &volume, &target).await.unwrap().is_empty());
    assert_eq!(fs::read_to_string(target.join("data")).unwrap(), "kept");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn a_block_volume_is_healthy_while_its_disk_is_there() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let (mut controller, mut node) = (world.controller().await, world.node(101).await);
    let (staging, target) = (world.path("staging"), world.path("target"));
    let mut volume = controller.create("pvc-block", 1, block()).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    node.stage(&volume, &staging).await.unwrap();
    node.publish(&volume, &staging, &target).await.unwrap();
    assert!(on_the_node(&world, &volume, &target).await.unwrap().is_empty());
    let actions = format!("/v2/volumes/{}/actions", volume.id);
    let detach = json!({"type": "detach", "droplet_id": 101});
    world.by_hand(Method::POST, &actions, Some(detach)).await;
    let told = on_the_node(&world, &volume, &target).await.unwrap();
    assert!(told == ["DeviceGone"] || told == ["DeviceFailing"], "{told:?}");
    node.unpublish(&volume, &target).await.unwrap();
    node.unstage(&volume, &staging).await.unwrap();
    controller.delete(&volume).await.unwrap();
    world.assert_clean().await;
}

#[tokio::test]
async fn what_any_volume_needs_here_is_told_too() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let known = async {
        while of_the_storage(&world).await.contains(&"NodeUnknown".to_owned()) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), known).await.unwrap();
    assert!(of_the_storage(&world).await.is_empty());
    let notes = world.path("notes-101");
    fs::remove_dir(&notes).unwrap();
    assert_eq!(of_the_storage(&world).await, ["NotesNotWritable"]);
    fs::create_dir(&notes).unwrap();
    assert!(of_the_storage(&world).await.is_empty());
}
