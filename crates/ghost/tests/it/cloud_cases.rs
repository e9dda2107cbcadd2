//! Failures that users of such drivers really hit at the cloud, each named after its id.

use std::fs;
use std::os::unix::fs::symlink;

use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use ghost_csi as pb;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{Controller, GIB, Volume, mounted};

use crate::world::{World, attach_request, is_not_final, within};

/// Where a volume is attached, by the cloud's own account.
async fn droplets(world: &World, volume: &Volume) -> serde_json::Value {
    let cloud = world.cloud().await;
    let volumes = cloud["volumes"].as_array().unwrap();
    let own = volumes.iter().find(|other| other["id"] == volume.id.as_str()).unwrap();
    own["droplet_ids"].clone()
}

#[tokio::test]
async fn b01_a_droplet_that_takes_one_action_at_a_time_gets_both_volumes() {
    let mut world = World::empty("1s", false, "info");
    world.parts.start_simulator(&["--one-event-per-droplet"]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let mut one = controller.create("pvc-one", 1, mounted("ext4")).await.unwrap();
    let mut two = controller.create("pvc-two", 1, mounted("ext4")).await.unwrap();
    let foreign = controller.create("pvc-foreign", 1, mounted("ext4")).await.unwrap();
    let mut other = controller.clone();
    let (requests, (first, second)) = world
        .requests_during(async {
            // Somebody else's event is under way on the droplet, of which only the cloud knows.
            let attach = json!({"type": "attach", "droplet_id": 101});
            let path = format!("/v2/volumes/{}/actions", foreign.id);
            world.by_hand(reqwest::Method::POST, &path, Some(attach)).await;
            tokio::join!(controller.attach(&mut one, 101), other.attach(&mut two, 101))
        })
        .await;
    // A refusal is no proof of an attachment: whoever was answered OK is attached.
    first.unwrap();
    second.unwrap();
    let posts = requests.iter().filter(|request| request.starts_with("POST")).count();
    assert!(posts >= 4, "nothing was refused: {requests:?}");
    assert_eq!(droplets(&world, &one).await, json!([101]));
    assert_eq!(droplets(&world, &two).await, json!([101]));

    let mut other = controller.clone();
    let (first, second) = tokio::join!(controller.detach(&one, 101), other.detach(&two, 101));
    first.unwrap();
    second.unwrap();
    assert_eq!(droplets(&world, &one).await, json!([]));
    assert_eq!(droplets(&world, &two).await, json!([]));
}

#[tokio::test]
async fn b03_a_detachment_is_over_when_the_disk_has_left() {
    let mut world = World::empty("1500ms", false, "info");
    world.parts.start_simulator(&["--read-lag", "300ms"]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-moving", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let shown = format!("/v2/volumes/{}", volume.id);
    assert_eq!(world.read_from_cloud(&shown).await["volume"]["droplet_ids"], json!([101]));

    // The time is over before the disk has left: no OK, and the next call goes on waiting.
    let request = pb::ControllerUnpublishVolumeRequest {
        volume_id: volume.id.clone(),
        node_id: "101".to_owned(),
        ..Default::default()
    };
    let status = controller.0.controller_unpublish_volume(within(1, request)).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert_eq!(droplets(&world, &volume).await, json!([101]));
    controller.detach(&volume, 101).await.unwrap();
    assert_eq!(world.read_from_cloud(&shown).await["volume"]["droplet_ids"], json!([]));
    // So the next node can have it at once, and after it nobody.
    let (requests, attached) = world.requests_during(controller.attach(&mut volume, 102)).await;
    attached.unwrap();
    let posts = requests.iter().filter(|request| request.starts_with("POST")).count();
    assert_eq!(posts, 1, "{requests:?}");
    controller.detach(&volume, 102).await.unwrap();
    controller.delete(&volume).await.unwrap();
}

/// Something at the cloud's address that is not its API: a page for people, as not found.
async fn foreign_answer() -> impl IntoResponse {
    let page = "<html><body><h1>404 Not Found</h1></body></html>";
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, "text/html")], page)
}

#[tokio::test]
async fn b04_a_page_for_people_is_no_answer_of_the_api() {
    let mut world = World::empty("0ms", false, "info");
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(foreign_answer);
    #[expect(clippy::disallowed_methods, reason = "the page ends with the test")]
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    world.parts.start_controller_at(&url, &[]).unwrap();
    let mut controller = world.controller().await;
    let mut volume = Volume {
        id: "506f78a4-e098-11e5-ad9f-000f53306ae1".to_owned(),
        context: [].into(),
        attachment: [].into(),
        capability: mounted("ext4"),
    };
    let every =
        pb::ControllerUnpublishVolumeRequest { volume_id: volume.id.clone(), ..Default::default() };
    for status in [
        controller.create("pvc-page", 1, mounted("ext4")).await.unwrap_err(),
        controller.delete(&volume).await.unwrap_err(),
        controller.attach(&mut volume, 101).await.unwrap_err(),
        controller.detach(&volume, 101).await.unwrap_err(),
        controller.0.controller_unpublish_volume(every).await.unwrap_err(),
        controller.grow(&volume, 2).await.unwrap_err(),
        controller.count().await.unwrap_err(),
    ] {
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert!(status.message().contains("is the URL right?"), "{status}");
    }
    server.abort();
}

#[tokio::test]
async fn b36_odd_names_make_volumes_and_too_long_ones_do_not() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let long = "x".repeat(128);
    let mut ids = std::collections::BTreeSet::new();
    let names = [long.as_str(), "two words", "a/b", "UPPER", "upper", "Grüße 日本", "9", "-"];
    for name in names {
        let made = controller.create(name, 1, mounted("ext4")).await.unwrap();
        let again = controller.create(name, 1, mounted("ext4")).await.unwrap();
        assert_eq!(made.id, again.id, "{name:?}");
        assert!(ids.insert(made.id), "{name:?} met another");
    }
    let longer = "x".repeat(129);
    for name in [longer.as_str(), ""] {
        let status = controller.create(name, 1, mounted("ext4")).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{name:?}: {status}");
    }
    assert_eq!(world.volumes().await, names.len());
}

async fn published_nodes(controller: &mut Controller, volume: &Volume) -> Vec<String> {
    let list = controller.0.list_volumes(pb::ListVolumesRequest::default()).await.unwrap();
    let mut entries = list.into_inner().entries.into_iter();
    let own = entries.find(|entry| entry.volume.as_ref().unwrap().volume_id == volume.id);
    own.expect("the volume is listed").status.expect("with its status").published_node_ids
}

#[tokio::test]
async fn b43_the_list_tells_the_nodes_as_they_call_themselves_and_never_a_part() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&[]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    world.parts.start_node(101, &["--node-id", "101", "--region", "ams1"]).unwrap();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let name = node.0.node_get_info(pb::NodeGetInfoRequest {}).await.unwrap().into_inner().node_id;
    let mut volume = controller.create("pvc-where", 1, mounted("ext4")).await.unwrap();
    for _ in 0..3 {
        assert_eq!(published_nodes(&mut controller, &volume).await, Vec::<String>::new());
        controller.attach(&mut volume, 101).await.unwrap();
        assert_eq!(published_nodes(&mut controller, &volume).await, std::slice::from_ref(&name));
        controller.detach(&volume, 101).await.unwrap();
    }
    // More than the cloud shows on one page, of which the second cannot be read.
    for number in 0..200 {
        controller.create(&format!("pvc-{number}"), 1, mounted("ext4")).await.unwrap();
    }
    for spared in [0, 1] {
        for effect in [json!({"status": 500}), json!({"body": "garbage"}), json!({"drop": "after"})]
        {
            world.fault_after("GET", "/v2/volumes", spared, &effect).await;
            let status = controller.count().await.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{spared}, {effect}: {status}");
        }
    }
    world.no_faults().await;
    assert_eq!(controller.count().await.unwrap(), 201);
}

#[tokio::test]
async fn b48_a_token_file_that_is_not_in_order_changes_nothing() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let token = world.path("token");
    let no_token: [(&str, Option<&[u8]>); 4] = [
        ("empty", Some(b"")),
        ("blank", Some(b"\n \n")),
        ("binary", Some(&[0xff, 0xfe, b'a'])),
        ("missing", None),
    ];
    for (number, (what, content)) in no_token.into_iter().enumerate() {
        match content {
            Some(content) => fs::write(&token, content).unwrap(),
            None => fs::remove_file(&token).unwrap(),
        }
        let made = controller.create(&format!("pvc-{number}"), 1, mounted("ext4")).await;
        made.unwrap_or_else(|status| panic!("{what}: {status}"));
    }
    // A mounted secret is swapped by its link; blanks around the token are no part of it.
    fs::write(world.path("new-token"), "  another-token \n\n").unwrap();
    symlink(world.path("new-token"), &token).unwrap();
    controller.create("pvc-swapped", 1, mounted("ext4")).await.unwrap();
    assert_eq!(world.volumes().await, 5);
    let log = fs::read_to_string(world.path("controller.log")).unwrap();
    assert!(log.contains("keeping the last good token"), "nothing was said of it:\n{log}");
}

#[tokio::test]
async fn b53_b20_a_volume_in_use_is_answered_for_its_name_and_never_made_anew() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&["--read-lag", "1s"]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-kept", 1, mounted("ext4")).await.unwrap();

    // It does not show yet and a new process knows nothing of it: the name is taken, which is
    // neither a reason to delete it nor a final answer.
    world.parts.kill_controller().unwrap();
    world.parts.start_controller(&[]).unwrap();
    controller = world.controller().await;
    let (requests, found) = world
        .requests_during(async {
            loop {
                match controller.create("pvc-kept", 1, mounted("ext4")).await {
                    Ok(found) => return found,
                    early => assert!(is_not_final(&early), "{early:?}"),
                }
            }
        })
        .await;
    assert_eq!(found.id, volume.id);
    assert!(!requests.iter().any(|request| request.starts_with("DELETE")), "{requests:?}");

    controller.attach(&mut volume, 101).await.unwrap();
    controller.grow(&volume, 2).await.unwrap();
    let seen = async {
        let shown = format!("/v2/volumes?name={}", volume.context["volumeName"]);
        while world.read_from_cloud(&shown).await["volumes"][0]["size_gigabytes"] != json!(2) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), seen).await.unwrap();
    let (requests, ()) = world
        .requests_during(async {
            // Grown since, it is more than what was asked for, unless there is a limit.
            let again = controller.create("pvc-kept", 1, mounted("ext4")).await.unwrap();
            assert_eq!(again.id, volume.id);
            let limited = pb::CreateVolumeRequest {
                name: "pvc-kept".to_owned(),
                capacity_range: Some(pb::CapacityRange { required_bytes: GIB, limit_bytes: GIB }),
                volume_capabilities: vec![mounted("ext4")],
                ..Default::default()
            };
            let status = controller.0.create_volume(limited).await.unwrap_err();
            assert_eq!(status.code(), Code::AlreadyExists, "{status}");
            let status = controller.create("pvc-kept", 3, mounted("ext4")).await.unwrap_err();
            assert_eq!(status.code(), Code::AlreadyExists, "{status}");
            // What is large enough is not made larger, and never smaller.
            controller.grow(&volume, 2).await.unwrap();
            controller.grow(&volume, 1).await.unwrap();
        })
        .await;
    assert!(requests.iter().all(|request| request.starts_with("GET")), "{requests:?}");
    assert_eq!(droplets(&world, &volume).await, json!([101]));
    let request = attach_request(&volume, "101");
    controller.0.controller_publish_volume(request).await.unwrap();
}

#[tokio::test]
async fn b47_a_token_that_was_changed_is_read_again() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let token = world.path("token");
    let good = fs::read(&token).unwrap();
    controller.create("pvc-1", 1, mounted("ext4")).await.unwrap();
    // The cloud takes the new token at once, and so does the driver.
    fs::write(&token, "another-token\n").unwrap();
    controller.create("pvc-2", 1, mounted("ext4")).await.unwrap();
    // A creation that is refused says that it may be asked for again.
    world.fault("*", "*", 9, &json!({"status": 401})).await;
    let status = controller.create("pvc-3", 1, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let status = controller.count().await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "{status}");
    world.no_faults().await;
    fs::write(&token, good).unwrap();
    controller.create("pvc-3", 1, mounted("ext4")).await.unwrap();
    assert_eq!(world.volumes().await, 3);
}

#[tokio::test]
async fn b52_ten_creations_of_one_name_at_once_make_one_volume() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let controller = world.controller().await;
    world.fault("POST", "/v2/volumes", 1, &json!({"delay_ms": 200})).await;
    let creations = async {
        let mut creations = tokio::task::JoinSet::new();
        for _ in 0..10 {
            let mut controller = controller.clone();
            creations.spawn(async move { controller.create("pvc-race", 1, mounted("ext4")).await });
        }
        creations.join_all().await
    };
    let (requests, made) = world.requests_during(creations).await;
    let ids: std::collections::BTreeSet<String> =
        made.into_iter().map(|volume| volume.unwrap().id).collect();
    assert_eq!(ids.len(), 1);
    let posts = requests.iter().filter(|request| **request == "POST /v2/volumes").count();
    assert_eq!(posts, 1, "{requests:?}");
    assert_eq!(world.volumes().await, 1);
}
