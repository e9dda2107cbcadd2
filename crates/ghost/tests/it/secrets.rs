//! No secret shows anywhere: not in a log at the most verbose level, not on a command line, not in
//! an error.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ghost_csi as pb;
use serde_json::json;
use xtask::playground::TOKEN;
use xtask::volume_life::{GIB, Volume, mounted};

use crate::process::{free_address, get};
use crate::world::{World, attach_request, is_root};

const SECRET: &str = "CANARY-of-a-request";
const OPTION: &str = "CANARY-of-a-mount-option";

fn secrets() -> HashMap<String, String> {
    HashMap::from([("userKey".to_owned(), SECRET.to_owned())])
}

/// Looks again and again at the command lines of whatever these processes start.
struct Watch {
    stop: Arc<AtomicBool>,
    seen: thread::JoinHandle<BTreeSet<String>>,
}

impl Watch {
    fn start(parents: Vec<u32>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let seen = thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while !told.load(Ordering::Relaxed) {
                seen.extend(parents.iter().flat_map(|parent| children_of(*parent)));
            }
            seen
        });
        Self { stop, seen }
    }

    fn stop(self) -> BTreeSet<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.seen.join().unwrap()
    }
}

/// The command lines and the environments of a process's children at this moment.
fn children_of(parent: u32) -> Vec<String> {
    let mut found = Vec::new();
    for thread in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
        let children = fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            // It may have ended meanwhile.
            for item in ["cmdline", "environ"] {
                let text = fs::read(format!("/proc/{child}/{item}")).unwrap_or_default();
                found.push(String::from_utf8_lossy(&text).replace('\0', " "));
            }
        }
    }
    found
}

/// Every call that can carry secrets, with them, where each of them succeeds.
async fn life_with_secrets(world: &World, name: &str, filesystem: &str) -> Volume {
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let capability = mounted(filesystem);
    let text = |name: &str| world.path(name).display().to_string();
    let create = pb::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(pb::CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability.clone()],
        secrets: secrets(),
        ..Default::default()
    };
    let made = controller.0.create_volume(create).await.unwrap().into_inner().volume.unwrap();
    let mut volume = Volume {
        id: made.volume_id,
        context: made.volume_context,
        attachment: HashMap::new(),
        capability: capability.clone(),
    };
    let validate = pb::ValidateVolumeCapabilitiesRequest {
        volume_id: volume.id.clone(),
        volume_context: volume.context.clone(),
        volume_capabilities: vec![capability.clone()],
        secrets: secrets(),
        ..Default::default()
    };
    controller.0.validate_volume_capabilities(validate).await.unwrap();
    let attach =
        pb::ControllerPublishVolumeRequest { secrets: secrets(), ..attach_request(&volume, "101") };
    let attached = controller.0.controller_publish_volume(attach).await.unwrap();
    volume.attachment = attached.into_inner().publish_context;
    let stage = pb::NodeStageVolumeRequest {
        volume_id: volume.id.clone(),
        publish_context: volume.attachment.clone(),
        volume_context: volume.context.clone(),
        staging_target_path: text("staging"),
        volume_capability: Some(capability.clone()),
        secrets: secrets(),
    };
    node.0.node_stage_volume(stage).await.unwrap();
    let publish = pb::NodePublishVolumeRequest {
        volume_id: volume.id.clone(),
        publish_context: volume.attachment.clone(),
        volume_context: volume.context.clone(),
        staging_target_path: text("staging"),
        target_path: text("target"),
        volume_capability: Some(capability.clone()),
        secrets: secrets(),
        ..Default::default()
    };
    node.0.node_publish_volume(publish).await.unwrap();
    let range = Some(pb::CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 });
    let grow = pb::ControllerExpandVolumeRequest {
        volume_id: volume.id.clone(),
        capacity_range: range,
        volume_capability: Some(capability.clone()),
        secrets: secrets(),
    };
    controller.0.controller_expand_volume(grow).await.unwrap();
    let grow = pb::NodeExpandVolumeRequest {
        volume_id: volume.id.clone(),
        volume_path: text("target"),
        staging_target_path: text("staging"),
        capacity_range: range,
        volume_capability: Some(capability),
        secrets: secrets(),
    };
    node.0.node_expand_volume(grow).await.unwrap();
    node.unpublish(&volume, &world.path("target")).await.unwrap();
    node.unstage(&volume, &world.path("staging")).await.unwrap();
    volume
}

async fn end_with_secrets(world: &World, volume: &Volume) {
    let mut controller = world.controller().await;
    let detach = pb::ControllerUnpublishVolumeRequest {
        volume_id: volume.id.clone(),
        node_id: "101".to_owned(),
        secrets: secrets(),
    };
    controller.0.controller_unpublish_volume(detach).await.unwrap();
    let delete = pb::DeleteVolumeRequest { volume_id: volume.id.clone(), secrets: secrets() };
    controller.0.delete_volume(delete).await.unwrap();
}

#[tokio::test]
async fn b45_b46_no_secret_is_in_a_log_a_command_line_or_an_error() {
    if !is_root() {
        return;
    }
    let mut world = World::empty("0ms", true, "trace");
    let admin = [free_address(), free_address()];
    world.parts.start_simulator(&[]).unwrap();
    world.parts.start_controller(&["--admin-addr", &admin[0]]).unwrap();
    world.parts.start_node(101, &["--admin-addr", &admin[1]]).unwrap();
    world.parts.start_parts().unwrap();
    let watch = Watch::start(world.parts.pids());
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let mut told: Vec<String> = Vec::new();

    // xfs and btrfs alone are grown while mounted wherever the tests run.
    let btrfs = life_with_secrets(&world, "pvc-btrfs", "btrfs").await;
    end_with_secrets(&world, &btrfs).await;
    let mut volume = life_with_secrets(&world, "pvc-secret", "xfs").await;

    let create = pb::CreateVolumeRequest {
        name: "pvc-secret".to_owned(),
        secrets: secrets(),
        ..Default::default()
    };
    told.push(controller.0.create_volume(create).await.unwrap_err().to_string());
    let attach =
        pb::ControllerPublishVolumeRequest { secrets: secrets(), ..attach_request(&volume, "102") };
    told.push(controller.0.controller_publish_volume(attach).await.unwrap_err().to_string());
    let delete = pb::DeleteVolumeRequest { volume_id: volume.id.clone(), secrets: secrets() };
    told.push(controller.0.delete_volume(delete).await.unwrap_err().to_string());
    for effect in [json!({"status": 401}), json!({"status": 500}), json!({"drop": "after"})] {
        world.fault("*", "*", 9, &effect).await;
        told.push(controller.attach(&mut volume, 101).await.unwrap_err().to_string());
        told.push(controller.count().await.unwrap_err().to_string());
    }
    world.no_faults().await;

    let mut capability = mounted("xfs");
    if let Some(pb::volume_capability::AccessType::Mount(mount)) = &mut capability.access_type {
        mount.mount_flags = vec![format!("password={OPTION}")];
    }
    let stage = pb::NodeStageVolumeRequest {
        volume_id: volume.id.clone(),
        publish_context: volume.attachment.clone(),
        volume_context: volume.context.clone(),
        staging_target_path: world.path("staging").display().to_string(),
        volume_capability: Some(capability),
        secrets: secrets(),
    };
    told.push(node.0.node_stage_volume(stage).await.unwrap_err().to_string());
    assert!(!told.iter().any(String::is_empty));

    let started = watch.stop();
    assert!(started.iter().any(|line| line.contains("mkfs")), "no tool was seen: {started:?}");
    told.extend(started);
    for pid in world.parts.pids() {
        for item in ["cmdline", "environ"] {
            let text = fs::read(format!("/proc/{pid}/{item}")).unwrap();
            told.push(String::from_utf8_lossy(&text).into_owned());
        }
    }
    for log in ["controller.log", "node-101.log", "simulator.log"] {
        let text = fs::read_to_string(world.path(log)).unwrap();
        assert!(log == "simulator.log" || text.contains("DEBUG"), "{log} is not verbose");
        told.push(text);
    }
    told.push(fs::read_to_string("/proc/self/mountinfo").unwrap());
    for address in admin {
        let (status, text) = get(format!("http://{address}/metrics")).await;
        assert!(status == 200 && !text.is_empty());
        told.push(text);
    }
    for secret in [SECRET, TOKEN, OPTION] {
        for text in &told {
            let line = text.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "a secret shows: {line:?}");
        }
    }
    end_with_secrets(&world, &volume).await;
    world.assert_clean().await;
}
