//! Failures that users of such drivers really hit, each named after its id, on the real kernel.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::symlink;

use ghost_csi as pb;
use pb::identity_client::IdentityClient;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_bind, mount_change, unmount};
use serde_json::json;
use tonic::Code;
use xtask::leftover::mounts_below;
use xtask::playground::connect;
use xtask::volume_life::{Volume, block, mounted};

use crate::world::{World, is_root, stage_request, within};

const MIB: usize = 1 << 20;

fn head(device: &std::path::Path) -> Vec<u8> {
    let mut bytes = vec![0; MIB];
    fs::File::open(device).unwrap().read_exact(&mut bytes).unwrap();
    bytes
}

#[tokio::test]
async fn b05_a_volume_is_not_taken_from_a_node_that_is_off_until_it_is_detached() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-held", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let off = json!({"status": "off"});
    world.by_hand(reqwest::Method::PUT, "/sim/v1/droplets/101", Some(off)).await;
    let (requests, refused) = world.requests_during(controller.attach(&mut volume, 102)).await;
    let status = refused.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("101"), "{status}");
    // The attachment that was refused, and no detachment: only the caller knows that a node is off.
    assert_eq!(requests.iter().filter(|request| request.starts_with("POST")).count(), 1);
    let cloud = world.cloud().await;
    assert_eq!(cloud["volumes"][0]["droplet_ids"], json!([101]));
    let kinds = |cloud: &serde_json::Value| -> Vec<String> {
        let actions = cloud["actions"].as_array().unwrap().iter();
        let mut kinds: Vec<_> = actions.map(|a| a["type"].as_str().unwrap().to_owned()).collect();
        kinds.sort();
        kinds
    };
    assert_eq!(kinds(&cloud), ["attach_volume"]);
    controller.detach(&volume, 101).await.unwrap();
    controller.attach(&mut volume, 102).await.unwrap();
    let cloud = world.cloud().await;
    assert_eq!(cloud["volumes"][0]["droplet_ids"], json!([102]));
    assert_eq!(kinds(&cloud), ["attach_volume", "attach_volume", "detach_volume"]);
}

#[tokio::test]
async fn b04_what_is_gone_is_detached_but_a_foreign_404_is_not() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-gone", 1, mounted("ext4")).await.unwrap();
    controller.detach(&volume, 101).await.unwrap();
    controller.detach(&volume, 999_999).await.unwrap();
    let all = |volume: &Volume| pb::ControllerUnpublishVolumeRequest {
        volume_id: volume.id.clone(),
        ..Default::default()
    };
    controller.attach(&mut volume, 102).await.unwrap();
    controller.0.controller_unpublish_volume(all(&volume)).await.unwrap();
    let droplets = |cloud: &serde_json::Value| cloud["volumes"][0]["droplet_ids"].clone();
    assert_eq!(droplets(&world.cloud().await), json!([]));
    // "Not found" to the detachment itself: what is read afterwards decides.
    let not_found = json!({"status": 404});
    world.fault("POST", "/v2/volumes/{volume_id}/actions", 1, &not_found).await;
    controller.detach(&volume, 102).await.unwrap();
    controller.attach(&mut volume, 102).await.unwrap();
    assert_eq!(droplets(&world.cloud().await), json!([102]));
    world.fault("POST", "/v2/volumes/{volume_id}/actions", 1, &not_found).await;
    controller.detach(&volume, 102).await.unwrap();
    assert_eq!(droplets(&world.cloud().await), json!([]));
    controller.delete(&volume).await.unwrap();
    controller.detach(&volume, 101).await.unwrap();
    let status = controller.attach(&mut volume, 101).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);

    let held = controller.create("pvc-held", 1, mounted("ext4")).await.unwrap();
    let garbage = json!({"body": "garbage"});
    world.fault("GET", "/v2/volumes/{volume_id}", 9, &garbage).await;
    let status = controller.detach(&held, 101).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn b06_a_full_node_is_exhausted() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    for number in 0..7 {
        let name = format!("pvc-{number}");
        let mut volume = controller.create(&name, 1, mounted("ext4")).await.unwrap();
        controller.attach(&mut volume, 101).await.unwrap();
    }
    let mut one_more = controller.create("pvc-7", 1, mounted("ext4")).await.unwrap();
    let status = controller.attach(&mut one_more, 101).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let status = controller.attach(&mut one_more, 999_999).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    controller.attach(&mut one_more, 102).await.unwrap();
}

#[tokio::test]
async fn b07_a_disk_that_was_taken_away_while_mounted_is_staged_anew() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = world.published("pvc-torn", "ext4").await;
    fs::write(world.path("target").join("data"), b"kept").unwrap();
    rustix::fs::sync();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let mut volume = volume;
    // The control plane detaches by force, and the disk comes back to the same node.
    controller.detach(&volume, 101).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    node.stage(&volume, &world.path("staging")).await.unwrap();
    node.publish(&volume, &world.path("staging"), &world.path("target")).await.unwrap();
    assert_eq!((world.layers("staging"), world.layers("target")), (1, 1));
    assert_eq!(fs::read(world.path("target").join("data")).unwrap(), b"kept");
    fs::write(world.path("target").join("more"), b"written").unwrap();
    // And now for good: everything is taken off without its device.
    controller.detach(&volume, 101).await.unwrap();
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b08_a_stale_link_leads_to_another_volumes_disk() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let mut wanted = controller.create("pvc-wanted", 1, mounted("ext4")).await.unwrap();
    let mut other = controller.create("pvc-other", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut wanted, 101).await.unwrap();
    controller.attach(&mut other, 101).await.unwrap();
    let right = world.device(&wanted, 101);
    let link = world.parts.dev_root(101).join("disk/by-id/scsi-0DO_Volume_pvc-wanted");
    fs::remove_file(&link).unwrap();
    symlink(world.device(&other, 101), &link).unwrap();

    let request = within(1, stage_request(&wanted, &world.path("staging")));
    let status = node.0.node_stage_volume(request).await.unwrap_err();
    assert!(matches!(status.code(), Code::DeadlineExceeded | Code::Unavailable), "{status}");
    assert_eq!(world.layers("staging"), 0);
    for device in [&right, &world.device(&other, 101)] {
        assert!(head(device).iter().all(|byte| *byte == 0), "{device:?} was written to");
    }
    // The link is put right, and the waiting stage goes on by itself.
    fs::remove_file(&link).unwrap();
    symlink(&right, &link).unwrap();
    node.stage(&wanted, &world.path("staging")).await.unwrap();
    assert_eq!(world.layers("staging"), 1);
    world.take_away(&wanted).await;
    controller.detach(&other, 101).await.unwrap();
    controller.delete(&other).await.unwrap();
    world.assert_clean().await;
}

#[tokio::test]
async fn b13_content_that_is_not_ours_is_never_formatted() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let mut volume = controller.create("pvc-foreign", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let device = world.device(&volume, 101);
    let (size, mib) = (1_u64 << 30, u64::try_from(MIB).unwrap());
    let spots: [(u64, &[u8]); 5] = [
        (0, b"some bytes without a signature"),
        (510, &[0x55, 0xaa]),
        (512, b"LABELONE"),
        (size - 512, b"EFI PART"),
        (mib * 128 + 56, &[0x53, 0xef]),
    ];
    for (offset, bytes) in spots {
        let mut disk = fs::OpenOptions::new().write(true).open(&device).unwrap();
        disk.seek(SeekFrom::Start(offset)).unwrap();
        disk.write_all(bytes).unwrap();
        disk.sync_all().unwrap();
        let before = head(&device);
        let status = node.stage(&volume, &world.path("staging")).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{offset}: {status}");
        assert_eq!(world.layers("staging"), 0);
        assert!(head(&device) == before, "{offset}: the disk was written to");
        disk.seek(SeekFrom::Start(offset)).unwrap();
        disk.write_all(&vec![0; bytes.len()]).unwrap();
        disk.sync_all().unwrap();
    }
    // Blank again, but of another origin than this driver: still not formatted.
    let mut brought = volume.clone();
    brought.context.clear();
    let status = node.stage(&brought, &world.path("staging")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(head(&device).iter().all(|byte| *byte == 0));
    node.stage(&volume, &world.path("staging")).await.unwrap();
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b22_b26_taking_away_removes_what_is_empty_and_nothing_else() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = world.published("pvc-stray", "ext4").await;
    let mut node = world.node(101).await;
    let target = world.path("target");
    // In use: it stays, with its content.
    fs::write(target.join("keep"), b"kept").unwrap();
    let open = fs::File::open(target.join("keep")).unwrap();
    let status = node.unpublish(&volume, &target).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    assert_eq!(fs::read(target.join("keep")).unwrap(), b"kept");
    drop(open);
    for _ in 0..2 {
        node.unpublish(&volume, &target).await.unwrap();
        assert!(!target.exists());
    }
    // A folder that is not mounted but holds something.
    fs::create_dir(&target).unwrap();
    fs::write(target.join("stray"), b"stray").unwrap();
    let status = node.unpublish(&volume, &target).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal, "{status}");
    assert_eq!(fs::read(target.join("stray")).unwrap(), b"stray");
    fs::remove_file(target.join("stray")).unwrap();
    node.unpublish(&volume, &target).await.unwrap();
    // An empty file, and a path whose folder is not there.
    fs::write(&target, b"").unwrap();
    node.unpublish(&volume, &target).await.unwrap();
    assert!(!target.exists());
    node.unpublish(&volume, &world.path("no/such/target")).await.unwrap();
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b25_an_empty_staging_folder_is_not_published() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = world.published("pvc-unstaged", "ext4").await;
    let mut node = world.node(101).await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    node.unpublish(&volume, &target).await.unwrap();
    node.unstage(&volume, &staging).await.unwrap();
    for _ in 0..2 {
        let status = node.publish(&volume, &staging, &target).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(!target.exists(), "no target was made");
        fs::create_dir_all(&staging).unwrap();
    }
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b25_nothing_is_mounted_where_the_kubelet_would_not_see_it() {
    if !is_root() {
        return;
    }
    let mut world = World::start();
    let kubelet = world.path("kubelet");
    fs::create_dir(&kubelet).unwrap();
    mount_bind(&kubelet, &kubelet).unwrap();
    mount_change(&kubelet, MountPropagationFlags::PRIVATE).unwrap();
    world.parts.kill_node(101).unwrap();
    world.parts.start_node(101, &["--kubelet-dir", kubelet.to_str().unwrap()]).unwrap();
    let mut node = world.node(101).await;
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-unseen", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let (staging, target) = (kubelet.join("staging"), kubelet.join("target"));

    let probe = async || {
        let channel = connect(&world.parts.node_socket(101)).await.unwrap();
        IdentityClient::new(channel).probe(pb::ProbeRequest {}).await
    };
    let refused = |status: tonic::Status| {
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("mountPropagation Bidirectional"), "{status}");
        assert_eq!(mounts_below(&kubelet), [&*kubelet], "there is only the folder itself");
    };
    refused(probe().await.unwrap_err());
    refused(node.stage(&volume, &staging).await.unwrap_err());
    refused(node.publish(&volume, &staging, &target).await.unwrap_err());
    let mut device = volume.clone();
    device.capability = block();
    refused(node.stage(&device, &staging).await.unwrap_err());
    refused(node.publish(&device, &staging, &target).await.unwrap_err());

    mount_change(&kubelet, MountPropagationFlags::SHARED).unwrap();
    assert_eq!(probe().await.unwrap().into_inner().ready, Some(true));
    node.stage(&volume, &staging).await.unwrap();
    node.publish(&volume, &staging, &target).await.unwrap();
    node.unpublish(&volume, &target).await.unwrap();
    node.unstage(&volume, &staging).await.unwrap();
    unmount(&kubelet, UnmountFlags::empty()).unwrap();
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b28_b32_two_targets_do_not_touch_each_other() {
    use pb::volume_capability::access_mode::Mode;

    if !is_root() {
        return;
    }
    let world = World::start();
    let mut volume = world.published("pvc-two", "ext4").await;
    let mut node = world.node(101).await;
    volume.capability.access_mode.as_mut().unwrap().mode = Mode::SingleNodeMultiWriter.into();
    let (staging, target, second) =
        (world.path("staging"), world.path("target"), world.path("second"));
    let request = pb::NodePublishVolumeRequest {
        volume_id: volume.id.clone(),
        publish_context: volume.attachment.clone(),
        volume_context: volume.context.clone(),
        staging_target_path: staging.display().to_string(),
        target_path: second.display().to_string(),
        volume_capability: Some(volume.capability.clone()),
        readonly: true,
        ..Default::default()
    };
    node.0.node_publish_volume(request.clone()).await.unwrap();
    let refused = fs::write(second.join("data"), b"x").unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(rustix::io::Errno::ROFS.raw_os_error()));
    fs::write(target.join("data"), b"written").unwrap();
    assert_eq!(fs::read(second.join("data")).unwrap(), b"written");
    let status = node.publish(&volume, &staging, &second).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists, "{status}");

    node.unpublish(&volume, &second).await.unwrap();
    node.unstage(&volume, &staging).await.unwrap();
    fs::write(target.join("data"), b"still written").unwrap();
    assert!(world.device(&volume, 101).exists());

    // (d) A device for reading only cannot be kept to that, so it is refused.
    let mut device = volume.clone();
    device.capability = block();
    let read_only = pb::NodePublishVolumeRequest { volume_capability: Some(block()), ..request };
    let status = node.0.node_publish_volume(read_only).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b58_a_node_waits_for_the_metadata_service() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&[]).unwrap();
    let route = "/droplets/{droplet_id}/metadata/v1/{*item}";
    world.fault("*", "*", 3, &json!({"status": 500})).await;
    world.parts.start_node(101, &[]).unwrap();
    let mut node = world.node(101).await;
    let info = pb::NodeGetInfoRequest {};
    let status = node.0.node_get_info(info).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status} {route}");
    let known = async {
        loop {
            if let Ok(known) = node.0.node_get_info(info).await {
                return known.into_inner();
            }
            tokio::task::yield_now().await;
        }
    };
    let known = tokio::time::timeout(std::time::Duration::from_secs(20), known).await.unwrap();
    assert_eq!(known.node_id, "101");
    assert_eq!(known.max_volumes_per_node, 7);
    let topology = known.accessible_topology.unwrap().segments;
    assert_eq!(topology["topology.ghost.csi.greenhost.net/region"], "ams1");
}

#[tokio::test]
async fn b75_a_volume_is_made_where_it_is_wanted() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let key = "topology.ghost.csi.greenhost.net/region";
    let create = |name: &str, key: &str, region: &str| {
        let segments = [(key.to_owned(), region.to_owned())].into();
        let topology = pb::Topology { segments };
        pb::CreateVolumeRequest {
            name: name.to_owned(),
            volume_capabilities: vec![mounted("ext4")],
            accessibility_requirements: Some(pb::TopologyRequirement {
                requisite: vec![topology.clone()],
                preferred: vec![topology],
            }),
            ..Default::default()
        }
    };
    let status = controller.0.create_volume(create("pvc-r9", key, "zzz9")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let status = controller.0.create_volume(create("pvc-key", "zone", "ams1")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    // The controller's own region is ams1.
    let anywhere =
        pb::CreateVolumeRequest { accessibility_requirements: None, ..create("pvc-none", key, "") };
    for (request, region) in [
        (create("pvc-r1", key, "ams1"), "ams1"),
        (create("pvc-r2", key, "fra1"), "fra1"),
        (anywhere, "ams1"),
    ] {
        let name = request.name.clone();
        let volume = controller.0.create_volume(request).await.unwrap().into_inner();
        let topology = volume.volume.unwrap().accessible_topology;
        assert_eq!(topology.len(), 1);
        assert_eq!(topology[0].segments[key], region, "{name}");
        let cloud = world.cloud().await;
        let all = cloud["volumes"].as_array().unwrap();
        let own = all.iter().find(|volume| volume["name"] == name.as_str()).unwrap();
        assert!(own["region"].to_string().contains(region), "{own}");
    }
    assert_eq!(world.volumes().await, 3);
}
