//! Texts, maps and paths at the specification's limits and one past them; many volumes; many calls
//! at once.

use std::collections::{BTreeSet, HashMap};

use ghost_csi as pb;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tonic::{Code, Status};
use xtask::playground::connect;
use xtask::volume_life::{Controller, mounted};

use crate::far_end::{FarEnd, Reply, json as json_answer};
use crate::world::{World, is_root, within};

/// The specification's limits, in bytes: of a text, of a node's id, of a map all in all.
const TEXT: usize = 128;
const NODE_ID: usize = 256;
const MAP: usize = 4 << 10;

/// A text of exactly so many bytes.
fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// A map whose keys and values have exactly so many bytes.
fn map(bytes: usize) -> HashMap<String, String> {
    let mut map = HashMap::new();
    let mut left = bytes;
    for number in 0.. {
        let key = format!("key-{number:02}");
        let value = text((left - key.len()).min(TEXT - 20));
        left -= key.len() + value.len();
        map.insert(key, value);
        if left < 40 {
            map.get_mut("key-00").unwrap().push_str(&text(left));
            return map;
        }
    }
    unreachable!("it ends")
}

fn creation(name: String) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest {
        name,
        volume_capabilities: vec![mounted("ext4")],
        ..Default::default()
    }
}

fn refused<T>(what: &str, answer: Result<T, Status>, words: &[&str]) {
    let status = answer.map(|_| ()).expect_err(what);
    assert_eq!(status.code(), Code::InvalidArgument, "{what}: {status}");
    for word in words {
        assert!(status.message().contains(word), "{what}: {word}: {status}");
    }
}

fn unknown<T>(what: &str, answer: Result<T, Status>) {
    let status = answer.map(|_| ()).expect_err(what);
    assert_eq!(status.code(), Code::NotFound, "{what}: {status}");
}

#[tokio::test]
async fn texts_of_the_largest_size_are_taken_and_longer_ones_refused_by_name() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut cloud = world.controller().await.0;
    let made = cloud.create_volume(creation(text(TEXT))).await.unwrap().into_inner();
    refused("name", cloud.create_volume(creation(text(TEXT + 1))).await, &["129", "128"]);
    let volume_id = made.volume.unwrap().volume_id;

    let attach = |volume_id: String, node_id: String| pb::ControllerPublishVolumeRequest {
        volume_id,
        node_id,
        volume_capability: Some(mounted("ext4")),
        ..Default::default()
    };
    unknown("volume", cloud.controller_publish_volume(attach(text(TEXT), "101".into())).await);
    let longer = attach(text(TEXT + 1), "101".into());
    refused("volume", cloud.controller_publish_volume(longer).await, &["volume_id", "129"]);
    unknown(
        "node",
        cloud.controller_publish_volume(attach(volume_id.clone(), text(NODE_ID))).await,
    );
    let longer = attach(volume_id.clone(), text(NODE_ID + 1));
    refused("node", cloud.controller_publish_volume(longer).await, &["node_id", "257", "256"]);

    let snapshot = |name: String, source_volume_id: String| pb::CreateSnapshotRequest {
        name,
        source_volume_id,
        ..Default::default()
    };
    cloud.create_snapshot(snapshot(text(TEXT), volume_id.clone())).await.unwrap();
    let longer = snapshot(text(TEXT + 1), volume_id.clone());
    refused("snapshot", cloud.create_snapshot(longer).await, &["snapshot name", "129"]);
    unknown("source", cloud.create_snapshot(snapshot("s".into(), text(TEXT))).await);
    let longer = snapshot("s".into(), text(TEXT + 1));
    refused("source", cloud.create_snapshot(longer).await, &["source_volume_id", "129"]);

    // A deletion of what cannot be is done, and no id is cut to one that is there.
    let delete = |volume_id: String| pb::DeleteVolumeRequest { volume_id, ..Default::default() };
    cloud.delete_volume(delete(text(TEXT))).await.unwrap();
    refused("deletion", cloud.delete_volume(delete(text(TEXT + 1))).await, &["volume_id"]);

    let token = |bytes| pb::ListVolumesRequest { max_entries: 0, starting_token: text(bytes) };
    for bytes in [TEXT, TEXT + 1, 1 << 20] {
        let status = cloud.list_volumes(token(bytes)).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{bytes}");
    }
    let filesystem = pb::CreateVolumeRequest {
        volume_capabilities: vec![mounted(&text(1 << 20))],
        ..creation("pvc-fs".into())
    };
    refused("filesystem", cloud.create_volume(filesystem).await, &["fs_type", "ext4"]);
    // Larger than any message: the answer is an error, and the driver is there for the next call.
    let huge = cloud.create_volume(creation(text(8 << 20))).await;
    assert!(huge.is_err());
    assert_eq!(world.volumes().await, 1);
}

#[tokio::test]
async fn maps_of_the_largest_size_and_of_more_change_nothing_that_is_read() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let (mut controller, mut node) = (world.controller().await, world.node(101).await);
    for bytes in [MAP, MAP + 1] {
        let measured = map(bytes);
        assert_eq!(
            measured.iter().map(|(key, value)| key.len() + value.len()).sum::<usize>(),
            bytes
        );
        // Whoever sends more than it may is not made to suffer for it: secrets are not read, and
        // of the contexts, to which others add what they like, only what is known is.
        let name = format!("pvc-{bytes}");
        let create = pb::CreateVolumeRequest { secrets: map(bytes), ..creation(name.clone()) };
        controller.0.create_volume(create).await.unwrap();
        let mut volume = controller.create(&name, 10, mounted("ext4")).await.unwrap();
        controller.attach(&mut volume, 101).await.unwrap();
        volume.context.extend(map(bytes));
        volume.attachment.extend(map(bytes));
        node.stage(&volume, &world.path("staging")).await.unwrap();
        node.publish(&volume, &world.path("staging"), &world.path("target")).await.unwrap();
        assert_eq!((world.layers("staging"), world.layers("target")), (1, 1));
        world.take_away(&volume).await;
    }
    // A parameter that is not known is refused, however many there are of them.
    let create = pb::CreateVolumeRequest { parameters: map(MAP), ..creation("pvc-more".into()) };
    refused("parameters", controller.0.create_volume(create).await, &["key-", "known are"]);
    world.assert_clean().await;
}

#[tokio::test]
async fn a_path_that_is_too_long_for_the_kernel_is_an_error_and_makes_nothing() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let (mut controller, mut node) = (world.controller().await, world.node(101).await);
    let mut volume = controller.create("pvc-path", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let below = world.path("deep");
    std::fs::create_dir(&below).unwrap();
    // NAME_MAX, and one past it.
    let longest = below.join(text(255));
    node.stage(&volume, &longest).await.unwrap();
    node.unstage(&volume, &longest).await.unwrap();
    for path in [
        below.join(text(256)),
        below.join(text(255).as_str().repeat(20)),
        below.join("a/".repeat(3000)),
    ] {
        let status = node.stage(&volume, &path).await.unwrap_err();
        assert!(status.message().len() < 2100, "{}", status.message().len());
        assert_eq!(std::fs::read_dir(&below).unwrap().count(), 0, "something was made");
    }
    world.take_away(&volume).await;
    world.assert_clean().await;
}

/// A cloud of so many volumes, in pages as they are asked for.
async fn cloud_of(count: usize) -> FarEnd {
    let volume = |number: usize| {
        json!({
            "id": format!("v-{number}"), "name": format!("n-{number}"), "size_gigabytes": 1,
            "region": {"slug": "ams1"}, "droplet_ids": [101], "tags": ["ghost"],
            "created_at": "2025-12-31T00:00:00Z",
        })
    };
    FarEnd::start(move |asked| {
        let value = |key: &str| -> usize {
            let query = asked.line.split_once('?').unwrap().1;
            let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            pairs.find(|(name, _)| *name == key).unwrap().1.parse().unwrap()
        };
        let (page, size) = (value("page"), value("per_page"));
        let volumes: Vec<Value> =
            ((page - 1) * size..(page * size).min(count)).map(volume).collect();
        Reply::Bytes(json_answer(
            200,
            &json!({"volumes": volumes, "meta": {"total": count}}).to_string(),
        ))
    })
    .await
}

#[tokio::test]
async fn ten_thousand_volumes_are_listed_each_once_with_one_call_for_two_hundred() {
    const COUNT: usize = 10_000;
    let far_end = cloud_of(COUNT).await;
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_controller_at(&far_end.url, &[]).unwrap();
    let mut cloud = world.controller().await.0;
    let mut seen = BTreeSet::new();
    let mut token = String::new();
    let mut pages = 0;
    loop {
        let request = pb::ListVolumesRequest { max_entries: 500, starting_token: token };
        let page = cloud.list_volumes(within(60, request)).await.unwrap().into_inner();
        assert!(page.entries.len() <= 500);
        for entry in page.entries {
            assert_eq!(entry.status.unwrap().published_node_ids, ["101"]);
            let id = entry.volume.unwrap().volume_id;
            assert!(seen.insert(id.clone()), "{id} is there twice");
        }
        pages += 1;
        token = page.next_token;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!((seen.len(), pages), (COUNT, 20));
    assert_eq!(far_end.asked().len(), COUNT / 200);
}

#[tokio::test]
async fn a_hundred_and_twenty_eight_calls_at_once_are_all_answered() {
    const COUNT: usize = 128;
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&[]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let socket = world.parts.controller_socket();
    let client = async || {
        let channel = connect(&socket).await.unwrap();
        Controller(pb::controller_client::ControllerClient::new(channel))
    };
    // Each over a connection of its own.
    let creations = async {
        let mut calls = JoinSet::new();
        for number in 0..COUNT {
            let mut controller = client().await;
            calls.spawn(async move {
                controller.create(&format!("pvc-{number}"), 1, mounted("ext4")).await.unwrap()
            });
        }
        calls.join_all().await
    };
    let (requests, made) = world.requests_during(creations).await;
    let posts = requests.iter().filter(|request| **request == "POST /v2/volumes").count();
    assert_eq!(posts, COUNT);
    let ids: BTreeSet<&str> = made.iter().map(|volume| volume.id.as_str()).collect();
    assert_eq!((ids.len(), world.volumes().await), (COUNT, COUNT));
    // And all over one.
    let controller = client().await;
    let mut calls = JoinSet::new();
    for volume in made {
        let mut controller = controller.clone();
        calls.spawn(async move { controller.delete(&volume).await });
    }
    for deleted in calls.join_all().await {
        deleted.unwrap();
    }
    assert_eq!(world.volumes().await, 0);
}
