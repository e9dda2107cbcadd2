//! Clones: each is made of a snapshot of its moment, which is shared where that is the same, and gone
//! as soon as nobody needs it.

use ghost_csi as pb;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{mounted, of_volume};

use crate::snapshots::{CREATE, DELETE, MAKE, snapshots, spoken_of};
use crate::world::World;

#[tokio::test]
async fn clones_asked_for_together_share_a_snapshot_and_a_later_one_has_its_own() {
    let (world, mut controller, source) = spoken_of(&["--latency", "30ms"]).await;
    let other = controller.clone();
    let clone = |number: usize| {
        let (mut controller, source) = (other.clone(), source.clone());
        async move {
            let name = format!("pvc-clone-{number}");
            controller.create_of(&name, 1, mounted("ext4"), of_volume(&source.id)).await
        }
    };
    let together = async { tokio::join!(clone(1), clone(2), clone(3), clone(4)) };
    let (requests, (first, second, third, fourth)) = world.requests_during(together).await;
    for made in [first, second, third, fourth] {
        made.unwrap();
    }
    let count = |wanted: &str| requests.iter().filter(|request| *request == wanted).count();
    assert_eq!((count(MAKE), count(CREATE), count(DELETE)), (1, 4, 1), "{requests:?}");
    assert_eq!(snapshots(&world).await, 0);
    let (requests, made) = world.requests_during(clone(5)).await;
    made.unwrap();
    assert!(requests.iter().any(|request| request == MAKE), "{requests:?}");

    // A snapshot that an earlier clone has left behind is not of this one's moment.
    world.fault("POST", "/v2/volumes", 1, &json!({"status": 500})).await;
    let status = clone(6).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(snapshots(&world).await, 1, "kept for the next try");
    let list = controller.0.list_snapshots(pb::ListSnapshotsRequest::default()).await.unwrap();
    assert!(list.into_inner().entries.is_empty(), "it is nobody's but the driver's");
    let (requests, made) = world.requests_during(clone(7)).await;
    made.unwrap();
    assert!(requests.iter().any(|request| request == MAKE), "{requests:?}");
    assert_eq!(snapshots(&world).await, 1, "the other one's is left to it");
    let (requests, made) = world.requests_during(clone(6)).await;
    made.unwrap();
    assert!(requests.iter().all(|request| request != MAKE), "{requests:?}");
    assert_eq!(snapshots(&world).await, 0);
}

/// While one grows, it no longer needs the snapshot.
#[tokio::test]
async fn clones_that_grow_together_leave_no_snapshot_behind() {
    let mut world = World::empty("500ms", false, "info");
    world.parts.start_parts().unwrap();
    let controller = world.controller().await;
    let source = controller.clone().create("pvc-source", 1, mounted("ext4")).await.unwrap();
    let clone = |number: usize| {
        let (mut controller, source) = (controller.clone(), source.clone());
        async move {
            let name = format!("pvc-clone-{number}");
            controller.create_of(&name, 2, mounted("ext4"), of_volume(&source.id)).await
        }
    };
    let (first, second, third) = tokio::join!(clone(1), clone(2), clone(3));
    for made in [first, second, third] {
        made.unwrap();
    }
    assert_eq!(snapshots(&world).await, 0);
}
