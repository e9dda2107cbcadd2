//! A snapshot, a restore and a clone that are cut off at any point, by a death of the driver or a
//! lost answer of the cloud: the next try ends as if nothing had happened, and nothing is left over.

use ghost_csi as pb;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{Answer, Controller, Volume, mounted, of_snapshot, of_volume};

use crate::snapshots::{ACTION, CREATE, DELETE, MAKE, snapshots, spoken_of};
use crate::world::World;

/// One thing that is made, told apart by its name.
#[derive(Clone, Copy, Debug)]
enum Made {
    Snapshot,
    Restored,
    Cloned,
}

/// Makes it of this source; of the snapshot where that is needed, to twice its size.
async fn make(
    controller: &mut Controller,
    made: Made,
    source: &Volume,
    snapshot: &pb::Snapshot,
) -> Answer<()> {
    match made {
        Made::Snapshot => controller.snapshot("snapshot-2", source).await.map(|_| ()),
        Made::Restored => {
            let restore = of_snapshot(&snapshot.snapshot_id);
            controller.create_of("pvc-made", 2, mounted("ext4"), restore).await.map(|_| ())
        }
        Made::Cloned => {
            let clone = of_volume(&source.id);
            controller.create_of("pvc-made", 2, mounted("ext4"), clone).await.map(|_| ())
        }
    }
}

/// Checks that what was made is there once, and nothing else.
async fn assert_made_once(world: &World, made: Made, context: &str) {
    let cloud = world.cloud().await;
    let volumes = cloud["volumes"].as_array().unwrap();
    let (volumes_wanted, snapshots_wanted) = match made {
        Made::Snapshot => (1, 2),
        Made::Restored | Made::Cloned => (2, 1),
    };
    assert_eq!(volumes.len(), volumes_wanted, "{context}: {cloud}");
    assert_eq!(snapshots(world).await, snapshots_wanted, "{context}: {cloud}");
    if let Some(volume) = volumes.iter().find(|volume| volume["name"] == "pvc-made") {
        assert_eq!(volume["size_gigabytes"], 2, "{context}");
    }
}

#[tokio::test]
async fn a_clone_that_cannot_grow_keeps_no_snapshot() {
    let (world, mut controller, source) = spoken_of(&[]).await;
    let snapshot = controller.snapshot("snapshot-1", &source).await.unwrap();
    let (method, path) = ACTION.split_once(' ').unwrap();
    world.fault_after(method, path, 0, &json!({"status": 422})).await;
    for _ in 0..2 {
        let status = make(&mut controller, Made::Cloned, &source, &snapshot).await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{status}");
        assert_eq!((world.volumes().await, snapshots(&world).await), (2, 1), "{status}");
    }
    world.no_faults().await;
    make(&mut controller, Made::Cloned, &source, &snapshot).await.unwrap();
    assert_made_once(&world, Made::Cloned, "grown in the end").await;
}

const EVERY: [Made; 3] = [Made::Snapshot, Made::Restored, Made::Cloned];

#[tokio::test]
async fn the_controller_killed_at_each_mark_of_a_restore_or_clone_converges() {
    const SIGKILL: i32 = 9;
    for made in EVERY {
        let marks = match made {
            Made::Snapshot => &["create_snapshot"][..],
            Made::Restored => &["create", "grow_volume"],
            Made::Cloned => &["create_snapshot", "create", "grow_volume", "delete_snapshot"],
        };
        for mark in marks {
            for when in ["before", "after"] {
                let context = format!("{made:?}, {mark}:{when}");
                let (mut world, mut controller, source) = spoken_of(&[]).await;
                let snapshot = controller.snapshot("snapshot-1", &source).await.unwrap();
                world.parts.kill_controller().unwrap();
                world.parts.start_controller(&[&format!("--kill-at={mark}:{when}")]).unwrap();
                let mut controller = world.controller().await;
                make(&mut controller, made, &source, &snapshot).await.expect_err(&context);
                assert_eq!(world.parts.controller_death().unwrap(), Some(SIGKILL), "{context}");
                world.parts.start_controller(&[]).unwrap();
                let mut controller = world.controller().await;
                for _ in 0..2 {
                    make(&mut controller, made, &source, &snapshot).await.expect(&context);
                    assert_made_once(&world, made, &context).await;
                }
            }
        }
    }
}

/// Makes it while the answers of this route go wrong in every way, once each.
async fn answers_lost(made: Made, route: &str) {
    for effect in [
        json!({"drop": "before"}),
        json!({"drop": "after"}),
        json!({"status": 500}),
        json!({"status": 503}),
        json!({"body": "garbage"}),
    ] {
        let context = format!("{made:?}, {route}, {effect}");
        let (world, mut controller, source) = spoken_of(&[]).await;
        let snapshot = controller.snapshot("snapshot-1", &source).await.unwrap();
        let (method, path) = route.split_once(' ').unwrap();
        world.fault(method, path, 1, &effect).await;
        let mut tries = 0;
        while let Err(status) = make(&mut controller, made, &source, &snapshot).await {
            tries += 1;
            let open = [Code::Unavailable, Code::DeadlineExceeded, Code::Aborted];
            assert!(open.contains(&status.code()), "{context}: {status}");
            assert!(tries < 4, "{context}: {status}");
        }
        assert_made_once(&world, made, &context).await;
    }
}

#[tokio::test]
async fn b40_an_answer_lost_on_each_route_doubles_nothing_and_leaves_nothing() {
    tokio::join!(
        answers_lost(Made::Snapshot, MAKE),
        answers_lost(Made::Restored, CREATE),
        answers_lost(Made::Restored, ACTION),
        answers_lost(Made::Cloned, MAKE),
        answers_lost(Made::Cloned, CREATE),
        answers_lost(Made::Cloned, ACTION),
        answers_lost(Made::Cloned, DELETE),
    );
}
