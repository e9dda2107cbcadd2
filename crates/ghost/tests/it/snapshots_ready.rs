//! Snapshots that the cloud still works on: told as not ready, and nothing is made of them till then.

use ghost_csi as pb;
use tonic::Code;
use xtask::volume_life::{Controller, GIB, Volume, mounted, of_snapshot, of_volume};

use crate::snapshots::{CREATE, MAKE, snapshots, spoken_of};

/// The snapshot as each of the calls that answer one tells it.
async fn told(controller: &mut Controller, source: &Volume) -> Vec<pb::Snapshot> {
    let made = controller.snapshot("snapshot-1", source).await.unwrap();
    let get =
        pb::GetSnapshotRequest { snapshot_id: made.snapshot_id.clone(), ..Default::default() };
    let got = controller.0.get_snapshot(get).await.unwrap().into_inner().snapshot.unwrap();
    let by_id =
        pb::ListSnapshotsRequest { snapshot_id: made.snapshot_id.clone(), ..Default::default() };
    let by_source =
        pb::ListSnapshotsRequest { source_volume_id: source.id.clone(), ..Default::default() };
    let mut all = vec![made, got];
    for filter in [by_id, by_source, pb::ListSnapshotsRequest::default()] {
        let page = controller.0.list_snapshots(filter).await.unwrap().into_inner();
        assert_eq!(page.entries.len(), 1);
        all.extend(page.entries.into_iter().filter_map(|entry| entry.snapshot));
    }
    all
}

#[tokio::test]
async fn b40_a_snapshot_is_told_as_not_ready_by_every_call_until_it_is() {
    let (world, mut controller, source) = spoken_of(&["--snapshot-ready-after", "1h"]).await;
    let first = told(&mut controller, &source).await;
    world.age_snapshots().await;
    let second = told(&mut controller, &source).await;
    for (told, ready, size) in [(&first, false, 0), (&second, true, GIB)] {
        for snapshot in told {
            assert_eq!((snapshot.ready_to_use, snapshot.size_bytes), (ready, size), "{told:?}");
            assert_eq!(snapshot.snapshot_id, first[0].snapshot_id);
        }
    }
    assert_eq!(snapshots(&world).await, 1);
}

#[tokio::test]
async fn b40_what_is_made_of_a_snapshot_waits_until_it_is_ready() {
    let (world, mut controller, source) = spoken_of(&["--snapshot-ready-after", "1h"]).await;
    let snapshot = controller.snapshot("snapshot-1", &source).await.unwrap();
    let table = [
        ("pvc-restored", of_snapshot(&snapshot.snapshot_id), 0),
        ("pvc-clone", of_volume(&source.id), 1),
    ];
    for (name, from, own) in &table {
        for number in 0..2 {
            let create = controller.create_of(name, 2, mounted("ext4"), from.clone());
            let (requests, made) = world.requests_during(create).await;
            let status = made.unwrap_err();
            assert_eq!(status.code(), Code::Unavailable, "{name}: {status}");
            assert!(status.message().contains("is not ready yet"), "{name}: {status}");
            assert!(!requests.iter().any(|request| request == CREATE), "{name}: {requests:?}");
            // The clone's own is made once, and found by the next try.
            let made = requests.iter().filter(|request| *request == MAKE).count();
            assert_eq!(made, if number == 0 { *own } else { 0 }, "{name}: {requests:?}");
        }
    }
    assert_eq!((world.volumes().await, snapshots(&world).await), (1, 2));
    world.age_snapshots().await;
    for (name, from, _) in table {
        let create = controller.create_of(name, 2, mounted("ext4"), from);
        let (requests, made) = world.requests_during(create).await;
        made.expect(name);
        assert!(!requests.iter().any(|request| request == MAKE), "{name}: {requests:?}");
    }
    assert_eq!((world.volumes().await, snapshots(&world).await), (3, 1), "the clone's is gone");
}
