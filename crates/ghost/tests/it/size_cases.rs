//! Failures about sizes and growing that users of such drivers really hit, each named after its id.

use ghost_csi as pb;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{Controller, GIB, Volume, block, mounted};

use crate::world::{World, within};

const ACTIONS: &str = "POST /v2/volumes/{volume_id}/actions";

fn sized(name: &str, range: Option<(i64, i64)>) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: range
            .map(|(required_bytes, limit_bytes)| pb::CapacityRange { required_bytes, limit_bytes }),
        volume_capabilities: vec![mounted("ext4")],
        ..Default::default()
    }
}

fn growth(volume: &Volume, required: i64, limit: i64) -> pb::ControllerExpandVolumeRequest {
    pb::ControllerExpandVolumeRequest {
        volume_id: volume.id.clone(),
        capacity_range: Some(pb::CapacityRange {
            required_bytes: required * GIB,
            limit_bytes: limit * GIB,
        }),
        volume_capability: Some(volume.capability.clone()),
        ..Default::default()
    }
}

#[tokio::test]
async fn b37_b38_a_size_is_rounded_up_and_never_over_its_limit() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let made = [
        ("pvc-byte", Some((1, 0)), 1),
        ("pvc-over", Some((GIB + 1, 0)), 2),
        ("pvc-default", None, 10),
        ("pvc-limit", Some((0, 3 * GIB + GIB / 2)), 3),
        ("pvc-exact", Some((2 * GIB, 2 * GIB)), 2),
    ];
    for (name, range, gib) in made {
        let volume = controller.0.create_volume(sized(name, range)).await.unwrap().into_inner();
        assert_eq!(volume.volume.unwrap().capacity_bytes, gib * GIB, "{name}");
        let cloud = world.cloud().await;
        let all = cloud["volumes"].as_array().unwrap();
        let own = all.iter().find(|volume| volume["name"] == name).unwrap();
        assert_eq!(own["size_gigabytes"], json!(gib), "{name}");
    }
    let refused = async {
        for (required, limit, code) in [
            (GIB + 1, GIB + 1, Code::OutOfRange),
            (2 * GIB, GIB, Code::OutOfRange),
            (0, GIB / 2, Code::OutOfRange),
            (i64::MAX, 0, Code::OutOfRange),
            (i64::MAX, i64::MAX, Code::OutOfRange),
            (-1, 0, Code::InvalidArgument),
            (0, i64::MIN, Code::InvalidArgument),
            (0, 0, Code::InvalidArgument),
        ] {
            let request = sized("pvc-never", Some((required, limit)));
            let status = controller.0.create_volume(request).await.unwrap_err();
            assert_eq!(status.code(), code, "{required} {limit}: {status}");
        }
    };
    let (requests, ()) = world.requests_during(refused).await;
    assert_eq!(requests, Vec::<String>::new());
    assert_eq!(world.volumes().await, made.len());
}

/// How many volumes the account may have.
const LIMIT: usize = 3;

#[tokio::test]
async fn b21_an_impossible_growth_is_final_and_changes_nothing() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&[&format!("--volume-limit={LIMIT}")]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-grown", 15, mounted("ext4")).await.unwrap();
    let asked = async {
        for (required, limit) in [(16_385, 0), (20, 19)] {
            let request = growth(&volume, required, limit);
            let status = controller.0.controller_expand_volume(request).await.unwrap_err();
            assert_eq!(status.code(), Code::OutOfRange, "{required} {limit}: {status}");
        }
        // There is no way back: what is larger stays as it is, and that is no error.
        let told = controller.0.controller_expand_volume(growth(&volume, 10, 0)).await.unwrap();
        assert_eq!(told.into_inner().capacity_bytes, 15 * GIB);
    };
    let (requests, ()) = world.requests_during(asked).await;
    assert!(!requests.iter().any(|request| request == ACTIONS), "{requests:?}");

    // The token may not grow volumes; or the account is full, which its own numbers tell.
    let forbidden = json!({"status": 403});
    world.fault("POST", "/v2/volumes/{volume_id}/actions", 1, &forbidden).await;
    let request = growth(&volume, 20, 0);
    let status = controller.0.controller_expand_volume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    for number in 1..LIMIT {
        controller.create(&format!("pvc-{number}"), 1, mounted("ext4")).await.unwrap();
    }
    world.fault("POST", "/v2/volumes/{volume_id}/actions", 1, &forbidden).await;
    let request = growth(&volume, 20, 0);
    let status = controller.0.controller_expand_volume(request).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    let cloud = world.cloud().await;
    let own =
        cloud["volumes"].as_array().unwrap().iter().find(|own| own["id"] == volume.id.as_str());
    assert_eq!(own.unwrap()["size_gigabytes"], json!(15));
    assert_eq!(world.cloud().await["actions"], json!([]));
}

async fn grown(controller: &mut Controller, volume: &Volume, gib: i64) -> (i64, bool) {
    let answer = controller.0.controller_expand_volume(growth(volume, gib, 0)).await.unwrap();
    let answer = answer.into_inner();
    (answer.capacity_bytes, answer.node_expansion_required)
}

#[tokio::test]
async fn b19_b20_a_growth_that_is_under_way_or_done_is_not_asked_for_again() {
    let mut world = World::empty("1500ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-half", 15, mounted("ext4")).await.unwrap();
    let asked = async {
        // The first answer comes too late, and its process dies with what it knew.
        let late = within(1, growth(&volume, 20, 0));
        let status = controller.0.controller_expand_volume(late).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        world.parts.kill_controller().unwrap();
        world.parts.start_controller(&[]).unwrap();
        controller = world.controller().await;
        // The node's part may be what is missing, so it is asked for each time.
        for gib in [20, 20, 15] {
            let told = grown(&mut controller, &volume, gib).await;
            assert_eq!(told, (20 * GIB, true), "{gib}");
        }
    };
    asked.await;
    let cloud = world.cloud().await;
    assert_eq!(cloud["volumes"][0]["size_gigabytes"], json!(20));
    assert_eq!(cloud["actions"].as_array().unwrap().len(), 1, "{cloud}");
    // Nothing on a node grows with a volume that has no filesystem of ours.
    let device = controller.create("pvc-device", 1, block()).await.unwrap();
    assert_eq!(grown(&mut controller, &device, 2).await, (2 * GIB, false));
}
