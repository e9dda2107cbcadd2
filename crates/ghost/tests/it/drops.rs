//! The cloud breaks off, before or after it acted: the answer is never final, and asking again
//! ends with one volume, attached where it should be.

use ghost_csi as pb;
use serde_json::{Value, json};
use tonic::Code;
use xtask::volume_life::{Answer, Controller, GIB, Volume, mounted};

use crate::world::{World, attach_request, is_not_final, within};

const ACTIONS: &str = "/v2/volumes/{volume_id}/actions";

fn faults() -> Vec<Value> {
    vec![
        json!({"drop": "before"}),
        json!({"drop": "after"}),
        json!({"status": 500}),
        json!({"status": 503}),
        json!({"status": 429, "retry_after_s": 1}),
        json!({"body": "garbage"}),
    ]
}

#[tokio::test]
async fn b49_b54_whatever_the_cloud_does_once_the_next_call_settles_it() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    for effect in faults() {
        world.fault("POST", "/v2/volumes", 1, &effect).await;
        let first = controller.create("pvc-drop", 1, mounted("ext4")).await;
        assert!(is_not_final(&first), "create, {effect}: {first:?}");
        let mut volume = controller.create("pvc-drop", 1, mounted("ext4")).await.unwrap();
        assert_eq!(world.volumes().await, 1, "create, {effect}");

        world.fault("POST", ACTIONS, 1, &effect).await;
        let first = controller.attach(&mut volume, 101).await;
        assert!(is_not_final(&first), "attach, {effect}: {first:?}");
        controller.attach(&mut volume, 101).await.unwrap();

        world.fault("POST", ACTIONS, 1, &effect).await;
        let first = controller.grow(&volume, 2).await;
        assert!(is_not_final(&first), "grow, {effect}: {first:?}");
        controller.grow(&volume, 2).await.unwrap();

        world.fault("POST", ACTIONS, 1, &effect).await;
        let first = controller.detach(&volume, 101).await;
        assert!(is_not_final(&first), "detach, {effect}: {first:?}");
        controller.detach(&volume, 101).await.unwrap();

        world.fault("DELETE", "/v2/volumes/{volume_id}", 1, &effect).await;
        let first = controller.delete(&volume).await;
        assert!(is_not_final(&first), "delete, {effect}: {first:?}");
        controller.delete(&volume).await.unwrap();
        assert_eq!(world.volumes().await, 0, "delete, {effect}");
        world.no_faults().await;
    }
}

#[tokio::test]
async fn b49_a_creation_without_an_answer_is_taken_up_and_can_be_found_by_its_tag() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    world.fault("POST", "/v2/volumes", 1, &json!({"drop": "after"})).await;
    let status = controller.create("pvc-lost", 2, mounted("ext4")).await.unwrap_err();
    assert!(is_not_final::<()>(&Err(status.clone())), "{status}");
    let left = world.cloud().await["volumes"].clone();
    assert_eq!(left.as_array().unwrap().len(), 1, "the cloud has made it: {left}");
    assert!(left[0]["tags"].as_array().unwrap().contains(&json!("ghost")), "{left}");
    let volume = controller.create("pvc-lost", 2, mounted("ext4")).await.unwrap();
    assert_eq!(left[0]["id"], volume.id.as_str());

    // What is there under the name and is something else is neither taken nor replaced.
    let request = |gib: i64, region: &str| pb::CreateVolumeRequest {
        name: "pvc-lost".to_owned(),
        capacity_range: Some(pb::CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![mounted("ext4")],
        accessibility_requirements: Some(pb::TopologyRequirement {
            requisite: vec![pb::Topology {
                segments: [("topology.ghost.csi.greenhost.net/region".into(), region.into())]
                    .into(),
            }],
            preferred: Vec::new(),
        }),
        ..Default::default()
    };
    for other in [request(3, "ams1"), request(2, "fra1")] {
        let status = controller.0.create_volume(other).await.unwrap_err();
        assert_eq!(status.code(), Code::AlreadyExists, "{status}");
    }
    assert_eq!(world.cloud().await["volumes"], left);
    controller.delete(&volume).await.unwrap();
    assert_eq!(world.volumes().await, 0);
}

#[tokio::test]
async fn b54_while_the_cloud_answers_nothing_of_use_no_answer_is_final() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-kept", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let before = world.cloud().await["volumes"].clone();
    let range = |gib: i64| Some(pb::CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 });
    let acted_on = [json!({"drop": "after"}), json!({"body": "garbage"})];
    let effects = faults().into_iter().chain([json!({"status": 429, "retry_after_s": 99_999})]);
    for effect in effects.filter(|effect| !acted_on.contains(effect)) {
        world.fault_after("*", "*", 0, &effect).await;
        let create = pb::CreateVolumeRequest {
            name: "pvc-new".to_owned(),
            capacity_range: range(1),
            volume_capabilities: vec![mounted("ext4")],
            ..Default::default()
        };
        let delete = pb::DeleteVolumeRequest { volume_id: volume.id.clone(), ..Default::default() };
        let detach = pb::ControllerUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: "101".to_owned(),
            ..Default::default()
        };
        let grow = pb::ControllerExpandVolumeRequest {
            volume_id: volume.id.clone(),
            capacity_range: range(2),
            ..Default::default()
        };
        let get = pb::ControllerGetVolumeRequest { volume_id: volume.id.clone() };
        let list = pb::ListVolumesRequest::default();
        let cloud = &mut controller.0;
        let answers = [
            ("create", cloud.create_volume(within(1, create)).await.map(drop)),
            ("delete", cloud.delete_volume(within(1, delete)).await.map(drop)),
            ("detach", cloud.controller_unpublish_volume(within(1, detach)).await.map(drop)),
            ("grow", cloud.controller_expand_volume(within(1, grow)).await.map(drop)),
            ("get", cloud.controller_get_volume(within(1, get)).await.map(drop)),
            ("list", cloud.list_volumes(within(1, list)).await.map(drop)),
        ];
        for (call, answer) in answers {
            // Of a read the transport itself may say first that its time is over.
            let is_read = matches!(call, "get" | "list");
            let is_over = answer.as_ref().is_err_and(|status| status.code() == Code::Cancelled);
            let is_open = is_not_final(&answer) || (is_read && is_over);
            assert!(answer.is_err() && is_open, "{call}, {effect}: {answer:?}");
        }
        assert_eq!(world.cloud().await["volumes"], before, "{effect}");
    }
    // Whatever still waits ends before the cloud is well again.
    world.parts.kill_controller().unwrap();
    world.no_faults().await;
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    controller.detach(&volume, 101).await.unwrap();
    controller.delete(&volume).await.unwrap();
    assert_eq!(world.volumes().await, 0);
}

#[tokio::test]
async fn b02_an_action_that_fails_is_an_error_and_the_next_call_asks_afresh() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-fail", 1, mounted("ext4")).await.unwrap();
    let fail = json!({"action": "fail"});
    for step in ["attach", "grow", "detach"] {
        let before = world.cloud().await["volumes"].clone();
        world.fault("POST", ACTIONS, 1, &fail).await;
        let status = take(step, &mut controller, &mut volume).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{step}: {status}");
        assert_eq!(world.cloud().await["volumes"], before, "{step}: the volume is as it was");
        let again = take(step, &mut controller, &mut volume);
        let (requests, done) = world.requests_during(again).await;
        done.unwrap();
        assert!(requests.contains(&format!("POST {ACTIONS}")), "{step}: {requests:?}");
        assert_ne!(world.cloud().await["volumes"], before, "{step}");
    }
}

async fn take(step: &str, controller: &mut Controller, volume: &mut Volume) -> Answer<()> {
    match step {
        "attach" => controller.attach(volume, 101).await,
        "grow" => controller.grow(volume, 2).await,
        _ => controller.detach(volume, 101).await,
    }
}

#[tokio::test]
async fn b02_an_action_that_never_ends_is_never_reported_as_done_nor_doubled() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-stuck", 1, mounted("ext4")).await.unwrap();
    world.fault("POST", ACTIONS, 1, &json!({"action": "stick"})).await;
    // Also by a process that does not know of the first one's action.
    for _ in 0..2 {
        for _ in 0..2 {
            let request = within(1, attach_request(&volume, "101"));
            let status = controller.0.controller_publish_volume(request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        }
        world.parts.kill_controller().unwrap();
        world.parts.start_controller(&[]).unwrap();
        controller = world.controller().await;
    }
    let cloud = world.cloud().await;
    assert_eq!(cloud["volumes"][0]["droplet_ids"], json!([]));
    assert_eq!(cloud["actions"].as_array().unwrap().len(), 1, "{cloud}");
}

#[tokio::test]
async fn b02_an_action_that_does_not_end_is_waited_for_and_not_asked_for_again() {
    let mut world = World::empty("3s", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-slow", 1, mounted("ext4")).await.unwrap();
    let (requests, attached) = world
        .requests_during(async {
            let request = within(1, attach_request(&volume, "101"));
            let status = controller.0.controller_publish_volume(request).await.unwrap_err();
            assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
            let other = within(1, attach_request(&volume, "102"));
            let status = controller.0.controller_publish_volume(other).await.unwrap_err();
            assert_eq!(status.code(), Code::Aborted, "{status}");
            controller.0.controller_publish_volume(attach_request(&volume, "101")).await
        })
        .await;
    attached.unwrap();
    let posts = requests.iter().filter(|request| request.starts_with("POST")).count();
    assert_eq!(posts, 1, "{requests:?}");
}
