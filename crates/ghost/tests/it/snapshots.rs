//! Snapshots, volumes restored from them, and clones: with their data, and within their calls.

use std::fs;

use ghost_csi as pb;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{Controller, GIB, Volume, block, mounted, of_snapshot, of_volume};

use crate::world::{World, is_root};

const LIST: &str = "GET /v2/snapshots";
const OF_VOLUME: &str = "GET /v2/volumes/{volume_id}/snapshots";
pub(crate) const MAKE: &str = "POST /v2/volumes/{volume_id}/snapshots";
pub(crate) const DELETE: &str = "DELETE /v2/snapshots/{snapshot_id}";
const FIND: &str = "GET /v2/volumes";
pub(crate) const CREATE: &str = "POST /v2/volumes";
pub(crate) const ACTION: &str = "POST /v2/volumes/{volume_id}/actions";
const ONE: &str = "GET /v2/snapshots/{snapshot_id}";
const LOOK: &str = "GET /v2/volumes/{volume_id}";

/// A world without devices, and a volume in it.
pub(crate) async fn spoken_of(options: &[&str]) -> (World, Controller, Volume) {
    let mut world = World::empty("0ms", false, "debug");
    world.parts.start_simulator(options).unwrap();
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-source", 1, mounted("ext4")).await.unwrap();
    (world, controller, volume)
}

/// How many snapshots the cloud has, whatever they are for.
pub(crate) async fn snapshots(world: &World) -> usize {
    world.cloud().await["snapshots"].as_array().unwrap().len()
}

/// Writes the data of a volume that is made, or reads what it has.
async fn use_once(world: &World, volume: &mut Volume, write: Option<&str>) -> (String, i64) {
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    controller.attach(volume, 101).await.unwrap();
    node.stage(volume, &staging).await.unwrap();
    node.publish(volume, &staging, &target).await.unwrap();
    if let Some(text) = write {
        fs::write(target.join("data"), text).unwrap();
    }
    let data = fs::read_to_string(target.join("data")).unwrap();
    let total = node.total(volume, &target).await.unwrap();
    node.unpublish(volume, &target).await.unwrap();
    node.unstage(volume, &staging).await.unwrap();
    controller.detach(volume, 101).await.unwrap();
    (data, total)
}

#[tokio::test]
async fn a_restored_volume_and_a_clone_have_the_data_of_their_moment() {
    if !is_root() {
        return;
    }
    for filesystem in ["ext4", "xfs", "btrfs"] {
        let world = World::start();
        let mut controller = world.controller().await;
        let mut source = controller.create("pvc-source", 1, mounted(filesystem)).await.unwrap();
        use_once(&world, &mut source, Some("first")).await;
        let snapshot = controller.snapshot("snapshot-1", &source).await.unwrap();
        assert_eq!((snapshot.size_bytes, snapshot.ready_to_use), (GIB, true));
        assert_eq!(snapshot.source_volume_id, source.id);
        assert!(snapshot.creation_time.is_some());
        assert_eq!(snapshot.accessible_topology.len(), 1);
        use_once(&world, &mut source, Some("second")).await;

        let restore = of_snapshot(&snapshot.snapshot_id);
        let restored = controller.create_of("pvc-restored", 1, mounted(filesystem), restore).await;
        let mut restored = restored.unwrap();
        assert_eq!(use_once(&world, &mut restored, None).await.0, "first");
        let clone = of_volume(&source.id);
        let cloned = controller.create_of("pvc-clone", 1, mounted(filesystem), clone).await;
        let mut cloned = cloned.unwrap();
        assert_eq!(use_once(&world, &mut cloned, None).await.0, "second");
        assert_eq!(snapshots(&world).await, 1, "the clone's own is gone");

        // The source may go before them.
        for volume in [&source, &restored, &cloned] {
            controller.delete(volume).await.unwrap();
        }
        controller.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        controller.delete_snapshot(&snapshot.snapshot_id).await.unwrap();
        assert_eq!(snapshots(&world).await, 0);
        world.assert_clean().await;
    }
}

#[tokio::test]
async fn snapshots_and_what_is_made_of_them_stay_within_their_calls() {
    let (mut world, mut controller, source) = spoken_of(&[]).await;
    let (requests, snapshot) =
        world.requests_during(controller.snapshot("snapshot-1", &source)).await;
    let snapshot = snapshot.unwrap();
    assert_eq!(requests, [LIST, MAKE]);
    let (requests, again) = world.requests_during(controller.snapshot("snapshot-1", &source)).await;
    assert_eq!(again.unwrap().snapshot_id, snapshot.snapshot_id);
    assert_eq!(requests, [LIST]);

    let restore = || of_snapshot(&snapshot.snapshot_id);
    let table = [
        ("pvc-same", 1, vec![FIND, ONE, CREATE]),
        ("pvc-larger", 2, vec![FIND, ONE, CREATE, ACTION, LOOK]),
        ("pvc-larger", 2, vec![FIND]),
    ];
    for (name, gib, expected) in table {
        let create = controller.create_of(name, gib, mounted("ext4"), restore());
        let (requests, made) = world.requests_during(create).await;
        made.unwrap();
        assert_eq!(requests, expected, "{name}");
    }
    let clone = || of_volume(&source.id);
    let table = [
        ("pvc-clone", 1, vec![FIND, LOOK, OF_VOLUME, MAKE, CREATE, DELETE]),
        // Nothing shows that the snapshot is gone but a look.
        ("pvc-clone", 1, vec![FIND, OF_VOLUME]),
        // The snapshot goes before the clone grows.
        ("pvc-grown", 2, vec![FIND, LOOK, OF_VOLUME, MAKE, CREATE, DELETE, ACTION, LOOK]),
    ];
    for (name, gib, expected) in table {
        let create = controller.create_of(name, gib, block(), clone());
        let (requests, made) = world.requests_during(create).await;
        made.unwrap();
        assert_eq!(requests, expected, "{name}");
    }
    // Before a snapshot is deleted it is read, since the id may be that of a machine's; but not one
    // that this very process has made.
    world.parts.kill_controller().unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    for expected in [&[ONE, DELETE][..], &[ONE]] {
        let delete = controller.delete_snapshot(&snapshot.snapshot_id);
        let (requests, deleted) = world.requests_during(delete).await;
        deleted.unwrap();
        assert_eq!(requests, expected);
    }
}

#[tokio::test]
async fn a_snapshot_of_a_machine_is_as_if_absent_and_is_never_deleted() {
    let (world, mut controller, source) = spoken_of(&[]).await;
    let own = controller.snapshot("snapshot-1", &source).await.unwrap();
    let id = world.machine_snapshot("backup", &["ghost"]).await;
    assert_eq!(snapshots(&world).await, 2);
    let get = pb::GetSnapshotRequest { snapshot_id: id.clone(), ..Default::default() };
    let status = controller.0.get_snapshot(get).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    for (snapshot_id, wanted) in [("", vec![own.snapshot_id.as_str()]), (&id, vec![])] {
        let request =
            pb::ListSnapshotsRequest { snapshot_id: snapshot_id.to_owned(), ..Default::default() };
        let page = controller.0.list_snapshots(request).await.unwrap().into_inner();
        let listed: Vec<String> =
            page.entries.into_iter().map(|entry| entry.snapshot.unwrap().snapshot_id).collect();
        assert_eq!(listed, wanted);
    }
    let restored = controller.create_of("pvc-made", 1, mounted("ext4"), of_snapshot(&id)).await;
    assert_eq!(restored.unwrap_err().code(), Code::NotFound);
    let (requests, deleted) = world.requests_during(controller.delete_snapshot(&id)).await;
    deleted.expect("as one that is gone already");
    assert_eq!(requests, [ONE]);
    assert_eq!(snapshots(&world).await, 2, "it is there yet");
}

#[tokio::test]
async fn b39_the_pause_between_two_snapshots_is_told_and_stops_nothing_else() {
    let (world, mut controller, source) = spoken_of(&["--snapshot-pause", "600s"]).await;
    let other = controller.create("pvc-other", 1, mounted("ext4")).await.unwrap();
    controller.snapshot("snapshot-1", &source).await.unwrap();
    let status = controller.snapshot("snapshot-2", &source).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains("600 s") || status.message().contains("599 s"), "{status}");
    // Other volumes and other calls do not wait for it.
    controller.snapshot("snapshot-3", &other).await.unwrap();
    controller.create("pvc-another", 1, mounted("ext4")).await.unwrap();
    assert_eq!(snapshots(&world).await, 2);
}

#[tokio::test]
async fn b39_a_snapshot_that_had_to_pause_is_made_once_by_a_later_call() {
    let (world, mut controller, source) = spoken_of(&[]).await;
    controller.snapshot("snapshot-1", &source).await.unwrap();
    let pause = json!({"status": 429, "retry_after_s": 600});
    world.fault("POST", "/v2/volumes/{volume_id}/snapshots", 1, &pause).await;
    let status = controller.snapshot("snapshot-2", &source).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert_eq!(snapshots(&world).await, 1);
    let made = controller.snapshot("snapshot-2", &source).await.unwrap();
    let again = controller.snapshot("snapshot-2", &source).await.unwrap();
    assert_eq!(made.snapshot_id, again.snapshot_id);
    assert_eq!(snapshots(&world).await, 2);
}

#[tokio::test]
async fn b40_a_name_belongs_to_the_first_volume_that_has_it() {
    let (world, mut controller, source) = spoken_of(&[]).await;
    let other = controller.create("pvc-other", 1, mounted("ext4")).await.unwrap();
    let absent = Volume { id: "no-such-volume".to_owned(), ..other.clone() };
    controller.snapshot("snapshot-1", &source).await.unwrap();
    let status = controller.snapshot("snapshot-1", &other).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists, "{status}");
    let status = controller.snapshot("snapshot-2", &absent).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
    assert_eq!(snapshots(&world).await, 1);
}

#[tokio::test]
async fn b41_a_source_that_does_not_fit_is_refused_and_nothing_is_made() {
    let (world, mut controller, _) = spoken_of(&[]).await;
    let source = controller.create("pvc-large", 10, mounted("ext4")).await.unwrap();
    let snapshot = controller.snapshot("snapshot-1", &source).await.unwrap();
    assert_eq!(snapshot.size_bytes, 10 * GIB);
    let restore = of_snapshot(&snapshot.snapshot_id);
    let table = [
        (5, restore.clone(), Code::OutOfRange),
        (5, of_volume(&source.id), Code::OutOfRange),
        (20_000, restore, Code::OutOfRange),
        (1, of_snapshot("no-such-snapshot"), Code::NotFound),
        (1, of_snapshot(".."), Code::NotFound),
        (1, of_volume("no-such-volume"), Code::NotFound),
        (1, of_volume(".."), Code::NotFound),
        (1, of_snapshot(""), Code::InvalidArgument),
    ];
    for (gib, from, code) in table {
        let made = controller.create_of("pvc-made", gib, mounted("ext4"), from.clone()).await;
        assert_eq!(made.unwrap_err().code(), code, "{gib} {from:?}");
    }
    assert_eq!((world.volumes().await, snapshots(&world).await), (2, 1));
    // A name that is taken by something else stays what it is.
    let clone = of_volume(&source.id);
    controller.create_of("pvc-made", 10, mounted("ext4"), clone).await.unwrap();
    let status = controller.create("pvc-made", 10, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists, "{status}");
}

#[tokio::test]
async fn b44_the_list_of_snapshots_is_filtered_before_it_is_cut() {
    let (_world, mut controller, first) = spoken_of(&[]).await;
    let second = controller.create("pvc-2", 1, mounted("ext4")).await.unwrap();
    let third = controller.create("pvc-3", 1, mounted("ext4")).await.unwrap();
    let mut made = Vec::new();
    for number in 0..30 {
        let source = [&first, &second, &third][number % 3];
        let name = format!("snapshot-{number}");
        made.push(controller.snapshot(&name, source).await.unwrap());
    }
    // What outlives its volume is still its snapshot.
    controller.delete(&third).await.unwrap();
    for source in [&first, &second, &third] {
        let mut wanted: Vec<&str> = made
            .iter()
            .filter(|snapshot| snapshot.source_volume_id == source.id)
            .map(|snapshot| snapshot.snapshot_id.as_str())
            .collect();
        wanted.sort_unstable();
        let mut seen = Vec::new();
        let mut token = String::new();
        loop {
            let request = pb::ListSnapshotsRequest {
                max_entries: 2,
                starting_token: token,
                source_volume_id: source.id.clone(),
                ..Default::default()
            };
            let page = controller.0.list_snapshots(request).await.unwrap().into_inner();
            assert!(page.entries.len() <= 2);
            seen.extend(page.entries.into_iter().map(|e| e.snapshot.unwrap().snapshot_id));
            token = page.next_token;
            if token.is_empty() {
                break;
            }
        }
        assert_eq!(seen, wanted);
    }
    let own = &made[0];
    let table = [
        (own.snapshot_id.as_str(), "", 1),
        ("", first.id.as_str(), 10),
        (&own.snapshot_id, &first.id, 1),
        (&own.snapshot_id, &second.id, 0),
        ("no-such-snapshot", "", 0),
        ("", "no-such-volume", 0),
        ("..", "", 0),
        ("", "..", 0),
        (&"x".repeat(300), "", 0),
        ("", "", 30),
    ];
    for (snapshot_id, source, wanted) in table {
        let request = pb::ListSnapshotsRequest {
            snapshot_id: snapshot_id.to_owned(),
            source_volume_id: source.to_owned(),
            ..Default::default()
        };
        let page = controller.0.list_snapshots(request).await.unwrap().into_inner();
        assert_eq!(page.entries.len(), wanted, "{snapshot_id:?} {source:?}");
    }
    let get =
        |id: &str| pb::GetSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
    let read = controller.0.get_snapshot(get(&own.snapshot_id)).await.unwrap().into_inner();
    assert_eq!(read.snapshot.as_ref(), Some(own));
    for (id, code) in [("no-such-snapshot", Code::NotFound), ("", Code::InvalidArgument)] {
        assert_eq!(controller.0.get_snapshot(get(id)).await.unwrap_err().code(), code, "{id:?}");
    }
}

#[tokio::test]
async fn what_is_made_of_a_snapshot_is_where_the_snapshot_is() {
    let (world, mut controller, source) = spoken_of(&[]).await;
    let at = |region: &str| {
        let key = "topology.ghost.csi.greenhost.net/region".to_owned();
        pb::Topology { segments: [(key, region.to_owned())].into() }
    };
    let within = |region: &str| {
        let requisite = vec![at(region)];
        Some(pb::TopologyRequirement { requisite: requisite.clone(), preferred: requisite })
    };
    let snapshot = |region: &str| pb::CreateSnapshotRequest {
        name: format!("snapshot-{region}"),
        source_volume_id: source.id.clone(),
        accessibility_requirements: within(region),
        ..Default::default()
    };
    let made = controller.0.create_snapshot(snapshot("ams1")).await.unwrap().into_inner();
    let made = made.snapshot.unwrap();
    assert_eq!(made.accessible_topology, [at("ams1")]);
    let status = controller.0.create_snapshot(snapshot("fra1")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    for from in [of_snapshot(&made.snapshot_id), of_volume(&source.id)] {
        let request = pb::CreateVolumeRequest {
            name: "pvc-elsewhere".to_owned(),
            volume_capabilities: vec![mounted("ext4")],
            accessibility_requirements: within("fra1"),
            volume_content_source: Some(pb::VolumeContentSource { r#type: Some(from) }),
            ..Default::default()
        };
        let status = controller.0.create_volume(request).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    }
    assert_eq!((world.volumes().await, snapshots(&world).await), (1, 1));
}
