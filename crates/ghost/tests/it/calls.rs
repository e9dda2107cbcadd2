//! How many calls at the cloud each RPC makes, counted by the cloud; and lists that page strictly.

use std::collections::BTreeSet;

use ghost_csi as pb;
use pb::identity_client::IdentityClient;
use tonic::Code;
use xtask::playground::{connect, probe};
use xtask::volume_life::{Controller, mounted};

use crate::world::World;

#[tokio::test]
async fn each_rpc_stays_within_its_calls() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;

    let create = controller.create("pvc-calls", 1, mounted("ext4"));
    let (requests, volume) = world.requests_during(create).await;
    let mut volume = volume.unwrap();
    assert_eq!(requests, ["GET /v2/volumes", "POST /v2/volumes"]);

    let (requests, again) = {
        let create = controller.create("pvc-calls", 1, mounted("ext4"));
        world.requests_during(create).await
    };
    again.unwrap();
    assert_eq!(requests, ["GET /v2/volumes"]);

    let action = "POST /v2/volumes/{volume_id}/actions";
    let look = "GET /v2/volumes/{volume_id}";
    // Asked for again, it is refused, and then what is running is read before the state.
    let running = "GET /v2/volumes/{volume_id}/actions";
    for expected in [&[action, look][..], &[action, running, look]] {
        let (requests, done) = world.requests_during(controller.attach(&mut volume, 101)).await;
        done.unwrap();
        assert_eq!(requests, expected);
    }
    let (requests, done) = world.requests_during(controller.grow(&volume, 2)).await;
    done.unwrap();
    assert_eq!(requests, [look, action, look]);
    for expected in [&[action, look][..], &[action, running, look]] {
        let (requests, done) = world.requests_during(controller.detach(&volume, 101)).await;
        done.unwrap();
        assert_eq!(requests, expected);
    }
    for _ in 0..2 {
        let (requests, done) = world.requests_during(controller.delete(&volume)).await;
        done.unwrap();
        assert_eq!(requests, ["DELETE /v2/volumes/{volume_id}"]);
    }
}

#[tokio::test]
async fn b55_what_the_orchestrator_asks_all_the_time_costs_no_call() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    // The node has learnt who it is, for which it asks the metadata service and nobody else.
    let ready = async {
        while !probe(&world.parts.node_socket(101)).await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), ready).await.unwrap();
    let ask = async {
        for socket in [world.parts.controller_socket(), world.parts.node_socket(101)] {
            assert!(probe(&socket).await.unwrap());
            let mut identity = IdentityClient::new(connect(&socket).await.unwrap());
            let info = identity.get_plugin_info(pb::GetPluginInfoRequest {}).await.unwrap();
            assert_eq!(info.into_inner().name, "ghost.csi.greenhost.net");
            let offered = pb::GetPluginCapabilitiesRequest {};
            let offered = identity.get_plugin_capabilities(offered).await.unwrap().into_inner();
            assert!(!offered.capabilities.is_empty());
        }
        let offered = pb::ControllerGetCapabilitiesRequest {};
        let offered = controller.0.controller_get_capabilities(offered).await.unwrap();
        assert!(!offered.into_inner().capabilities.is_empty());
        let offered = pb::NodeGetCapabilitiesRequest {};
        let offered = node.0.node_get_capabilities(offered).await.unwrap();
        assert!(!offered.into_inner().capabilities.is_empty());
        let known = node.0.node_get_info(pb::NodeGetInfoRequest {}).await.unwrap();
        assert_eq!(known.into_inner().node_id, "101");
        // And what cannot be is refused before anything is asked.
        let status = controller.create("", 1, mounted("ext4")).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        let status = controller.create("pvc-huge", 16_385, mounted("ext4")).await.unwrap_err();
        assert_eq!(status.code(), Code::OutOfRange, "{status}");
    };
    let (requests, ()) = world.requests_during(ask).await;
    assert_eq!(requests, Vec::<String>::new());
}

#[tokio::test]
async fn b42_a_list_of_a_thousand_takes_five_calls_and_pages_strictly() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let mut ids = BTreeSet::new();
    for number in 0..1000 {
        let name = format!("pvc-{number}");
        ids.insert(controller.create(&name, 1, mounted("ext4")).await.unwrap().id);
    }
    let (requests, count) = world.requests_during(controller.count()).await;
    assert_eq!(count.unwrap(), 1000);
    assert_eq!(requests, vec!["GET /v2/volumes"; 5]);

    for limit in [0, 1, 100, 300] {
        let mut walk = Walk { controller: controller.clone(), limit, token: String::new() };
        let (mut seen, mut pages) = (BTreeSet::new(), 0);
        loop {
            let page = walk.next().await;
            let most = if limit == 0 { 1000 } else { usize::try_from(limit).unwrap() };
            assert!(page.len() <= most, "{} of at most {most}", page.len());
            for id in page {
                assert!(seen.insert(id), "a volume was seen twice");
            }
            pages += 1;
            // Volumes come and go meanwhile, and shift nothing.
            if limit == 300 && pages < 4 {
                let name = format!("pvc-meanwhile-{pages}");
                let made = controller.create(&name, 1, mounted("ext4")).await.unwrap();
                if pages == 2 {
                    controller.delete(&made).await.unwrap();
                }
            }
            if walk.token.is_empty() {
                break;
            }
        }
        assert!(seen == ids, "with {limit} at a time, {} of 1000 were seen", seen.len());
    }
    let request = |max_entries, token: &str| pb::ListVolumesRequest {
        max_entries,
        starting_token: token.to_owned(),
    };
    for token in ["x", "0.1.100", "1", "1.2.3.4"] {
        let status = controller.0.list_volumes(request(10, token)).await.unwrap_err();
        assert_eq!(status.code(), Code::Aborted, "{token}");
    }
    let status = controller.0.list_volumes(request(-1, "")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
}

struct Walk {
    controller: Controller,
    limit: i32,
    token: String,
}

impl Walk {
    async fn next(&mut self) -> Vec<String> {
        let request = pb::ListVolumesRequest {
            max_entries: self.limit,
            starting_token: std::mem::take(&mut self.token),
        };
        let page = self.controller.0.list_volumes(request).await.unwrap().into_inner();
        self.token = page.next_token;
        page.entries.into_iter().map(|entry| entry.volume.unwrap().volume_id).collect()
    }
}
