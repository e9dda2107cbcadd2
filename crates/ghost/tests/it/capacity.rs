//! How much can be made, and how many volumes a node takes.

use std::collections::HashMap;

use ghost_csi as pb;
use reqwest::Method;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{GIB, mounted};

use crate::world::{World, is_root};

#[tokio::test]
async fn the_capacity_is_that_of_the_account_and_of_the_region() {
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
}

#[tokio::test]
async fn disks_of_others_on_a_node_are_taken_off_its_limit() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let (mut controller, mut node) = (world.controller().await, world.node(101).await);
    let mut volume = controller.create("pvc-own", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let limit = async || {
        let mut node = world.node(101).await;
        node.0.node_get_info(pb::NodeGetInfoRequest {}).await.unwrap().into_inner()
    };
    assert_eq!(limit().await.max_volumes_per_node, 7, "its own disk is not taken off");
    let foreign = json!({"name": "of-somebody", "size_gigabytes": 1, "region": "ams1"});
    world.by_hand(Method::POST, "/v2/volumes", Some(foreign)).await;
    let attach = json!({"type": "attach", "volume_name": "of-somebody", "droplet_id": 101, "region": "ams1"});
    world.by_hand(Method::POST, "/v2/volumes/actions", Some(attach)).await;
    assert_eq!(limit().await.max_volumes_per_node, 6);
    node.stage(&volume, &world.path("staging")).await.unwrap();
    assert_eq!(limit().await.max_volumes_per_node, 6);
    world.take_away(&volume).await;
    let detach = json!({"type": "detach", "volume_name": "of-somebody", "droplet_id": 101, "region": "ams1"});
    world.by_hand(Method::POST, "/v2/volumes/actions", Some(detach)).await;
    assert_eq!(limit().await.max_volumes_per_node, 7);
}
