//! How much can be made, and how many volumes a node takes.

use std::collections::HashMap;

use ghost_csi as pb;
use reqwest::Method;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{GIB, mounted};

use crate::world::{World, is_root};

#[tokio::test]
async fn b76_the_capacity_is_that_of_the_account_and_of_the_region() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&["--volume-limit", "2"]).unwrap();
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let key = "topology.ghost.csi.greenhost.net/region".to_owned();
    let within = |region: &str| pb::GetCapacityRequest {
        accessible_topology: Some(pb::Topology {
            segments: HashMap::from([(key.clone(), region.to_owned())]),
        }),
        ..Default::default()
    };
    let largest = 16_384 * GIB;
    for (made, available) in [(0, 2 * largest), (1, largest), (2, 0)] {
        if made > 0 {
            controller.create(&format!("pvc-{made}"), 1, mounted("ext4")).await.unwrap();
        }
        let told = controller.0.get_capacity(within("ams1")).await.unwrap().into_inner();
        assert_eq!(told.available_capacity, available, "{made}");
        assert_eq!(told.maximum_volume_size, Some(largest.min(available)));
        assert_eq!(told.minimum_volume_size, Some(GIB));
    }
    let told = controller.0.get_capacity(within("no-such-region")).await.unwrap().into_inner();
    assert_eq!(told.available_capacity, 0);
    let wrong = pb::GetCapacityRequest {
        volume_capabilities: vec![mounted("ext4")],
        parameters: HashMap::from([("iops".to_owned(), "1".to_owned())]),
        ..Default::default()
    };
    let status = controller.0.get_capacity(wrong).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    // Full is full.
    let status = controller.create("pvc-3", 1, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(world.volumes().await, 2, "nothing is left behind");
}

#[tokio::test]
async fn b06_disks_of_others_on_a_node_are_taken_off_its_limit() {
    if !is_root() {
        return;
    }
    let mut world = World::start();
    let (mut controller, mut node) = (world.controller().await, world.node(101).await);
    let mut volume = controller.create("pvc-own", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    assert_eq!(limit(&world).await, 7, "its own disk is not taken off");
    let act = async |world: &World, kind: &str, name: &str| {
        let action =
            json!({"type": kind, "volume_name": name, "droplet_id": 101, "region": "ams1"});
        world.by_hand(Method::POST, "/v2/volumes/actions", Some(action)).await;
    };
    for (name, left) in [("of-somebody", 6), ("of-another", 5)] {
        let foreign = json!({"name": name, "size_gigabytes": 1, "region": "ams1"});
        world.by_hand(Method::POST, "/v2/volumes", Some(foreign)).await;
        act(&world, "attach", name).await;
        assert_eq!(limit(&world).await, left);
    }
    node.stage(&volume, &world.path("staging")).await.unwrap();
    // A process that starts with all of them there counts the same.
    world.parts.kill_node(101).unwrap();
    world.parts.start_node(101, &[]).unwrap();
    assert_eq!(limit(&world).await, 5);
    // So many there is room for, and for no more.
    let mut others = Vec::new();
    for number in 2..=5 {
        let name = format!("pvc-own-{number}");
        let mut other = controller.create(&name, 1, mounted("ext4")).await.unwrap();
        controller.attach(&mut other, 101).await.unwrap();
        others.push(other);
    }
    let mut sixth = controller.create("pvc-own-6", 1, mounted("ext4")).await.unwrap();
    let status = controller.attach(&mut sixth, 101).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let cloud = world.cloud().await;
    let all = cloud["volumes"].as_array().unwrap().iter();
    let on_node = all.filter(|volume| volume["droplet_ids"] == json!([101])).count();
    assert_eq!(on_node, 7, "{cloud}");
    others.push(volume);
    for other in &others {
        world.take_away(other).await;
    }
    act(&world, "detach", "of-somebody").await;
    act(&world, "detach", "of-another").await;
    assert_eq!(limit(&world).await, 7);
}

/// How many volumes node 101 says that it takes, once it knows who it is.
async fn limit(world: &World) -> i64 {
    let mut node = world.node(101).await;
    let told = async {
        loop {
            match node.0.node_get_info(pb::NodeGetInfoRequest {}).await {
                Ok(told) => return told.into_inner().max_volumes_per_node,
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), told).await.unwrap()
}
