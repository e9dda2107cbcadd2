//! No secret shows anywhere: not in a log at the most verbose level, not on a command line, not in
//! an error.

use std::collections::HashMap;
use std::fs;

use ghost_csi as pb;
use serde_json::json;
use xtask::playground::TOKEN;
use xtask::volume_life::mounted;

use crate::world::{World, attach_request, is_root};

const SECRET: &str = "CANARY-of-a-request";
const OPTION: &str = "CANARY-of-a-mount-option";

fn secrets() -> HashMap<String, String> {
    HashMap::from([("userKey".to_owned(), SECRET.to_owned())])
}

#[tokio::test]
async fn b45_no_secret_is_in_a_log_a_command_line_or_an_error() {
    if !is_root() {
        return;
    }
    let mut world = World::empty("0ms", true, "trace");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let mut told: Vec<String> = Vec::new();

    let mut volume = controller.create("pvc-secret", 1, mounted("ext4")).await.unwrap();
    let create = pb::CreateVolumeRequest {
        name: "pvc-secret".to_owned(),
        secrets: secrets(),
        ..Default::default()
    };
    told.push(controller.0.create_volume(create).await.unwrap_err().to_string());
    controller.attach(&mut volume, 101).await.unwrap();
    let attach =
        pb::ControllerPublishVolumeRequest { secrets: secrets(), ..attach_request(&volume, "102") };
    told.push(controller.0.controller_publish_volume(attach).await.unwrap_err().to_string());
    world.fault("*", "*", 1, &json!({"status": 401})).await;
    told.push(format!("{:?}", controller.attach(&mut volume, 101).await));
    world.no_faults().await;

    let mut capability = mounted("ext4");
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
    for secret in [SECRET, TOKEN, OPTION] {
        for text in &told {
            let line = text.lines().find(|line| line.contains(secret));
            assert!(line.is_none(), "a secret shows: {line:?}");
        }
    }
    world.take_away(&volume).await;
}
