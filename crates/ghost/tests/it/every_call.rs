//! Every call that asks the cloud, while the cloud answers nothing that makes sense, or refuses, or
//! fails: the outcome is open, and no secret leaves.

use std::fs;

use ghost_csi as pb;
use serde_json::{Value, json};
use tonic::{Code, Status};
use xtask::playground::TOKEN;
use xtask::volume_life::{GIB, Volume, mounted};

use crate::far_end::{FarEnd, answer, json as json_answer, ok};
use crate::world::{World, attach_request, is_not_final, within};

pub(crate) const ID: &str = "506f78a4-e098-11e5-ad9f-000f53306ae1";

/// A volume as the API tells it.
pub(crate) fn told(id: &str, name: &str) -> Value {
    json!({
        "id": id, "name": name, "size_gigabytes": 1, "region": {"slug": "ams1"},
        "droplet_ids": [], "tags": ["ghost", "ghost:blank"], "created_at": "2026-01-01T00:00:00Z",
    })
}

pub(crate) fn volume() -> Volume {
    Volume {
        id: ID.to_owned(),
        context: [].into(),
        attachment: [].into(),
        capability: mounted("ext4"),
    }
}

/// A controller whose cloud is the far end.
pub(crate) async fn world_of(far_end: &FarEnd) -> World {
    let mut world = World::empty("0ms", false, "trace");
    world.parts.start_controller_at(&far_end.url, &[]).unwrap();
    world
}

/// Every call that asks the cloud, all at once, each for a volume of its own.
pub(crate) async fn every_call(world: &World) -> Vec<(&'static str, Result<(), Status>)> {
    let cloud = world.controller().await.0;
    let range = Some(pb::CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 });
    let create = pb::CreateVolumeRequest {
        name: "pvc-1".to_owned(),
        capacity_range: range,
        volume_capabilities: vec![mounted("ext4")],
        ..Default::default()
    };
    let delete = pb::DeleteVolumeRequest { volume_id: "v-1".to_owned(), ..Default::default() };
    let attach = attach_request(&Volume { id: "v-2".to_owned(), ..volume() }, "101");
    let detach = pb::ControllerUnpublishVolumeRequest {
        volume_id: "v-3".to_owned(),
        node_id: "101".to_owned(),
        ..Default::default()
    };
    let grow = pb::ControllerExpandVolumeRequest {
        volume_id: "v-4".to_owned(),
        capacity_range: range,
        ..Default::default()
    };
    let snapshot = pb::CreateSnapshotRequest {
        name: "snapshot-1".to_owned(),
        source_volume_id: "v-5".to_owned(),
        ..Default::default()
    };
    let get = pb::ControllerGetVolumeRequest { volume_id: "v-6".to_owned() };
    let list = pb::ListVolumesRequest::default();
    let forget = pb::DeleteSnapshotRequest { snapshot_id: "s-1".to_owned(), ..Default::default() };
    let snapshots = pb::ListSnapshotsRequest::default();
    let capacity = pb::GetCapacityRequest::default();
    macro_rules! call {
        ($method:ident, $request:expr) => {
            async {
                let mut cloud = cloud.clone();
                cloud.$method(within(20, $request)).await.map(drop)
            }
        };
    }
    let (create, delete, attach, detach, grow, snapshot, get, list) = tokio::join!(
        call!(create_volume, create),
        call!(delete_volume, delete),
        call!(controller_publish_volume, attach),
        call!(controller_unpublish_volume, detach),
        call!(controller_expand_volume, grow),
        call!(create_snapshot, snapshot),
        call!(controller_get_volume, get),
        call!(list_volumes, list),
    );
    let (forget, snapshots, capacity) = tokio::join!(
        call!(delete_snapshot, forget),
        call!(list_snapshots, snapshots),
        call!(get_capacity, capacity),
    );
    vec![
        ("create", create),
        ("delete", delete),
        ("attach", attach),
        ("detach", detach),
        ("grow", grow),
        ("snapshot", snapshot),
        ("get", get),
        ("list", list),
        ("delete of a snapshot", forget),
        ("list of snapshots", snapshots),
        ("capacity", capacity),
    ]
}

/// Whether nothing of what was told or written down has the token in it.
pub(crate) fn assert_no_token(world: &World, answers: &[(&'static str, Result<(), Status>)]) {
    for (call, answer) in answers {
        let text = format!("{answer:?}");
        assert!(!text.contains(TOKEN), "{call}: the token is in the answer");
    }
    let log = fs::read_to_string(world.path("controller.log")).unwrap();
    assert!(log.contains("DEBUG"), "the log is not verbose");
    assert!(!log.contains(TOKEN), "the token is in the log");
}

#[tokio::test]
async fn b54_an_answer_that_makes_no_sense_leaves_the_outcome_open_and_names_the_call() {
    let page = "<html><body>the gateway is busy</body></html>";
    let bad_volume = |field: &str, value: Value| {
        let mut volume = told(ID, "pvc-1");
        volume[field] = value;
        let body = json!({
            "volume": volume.clone(), "volumes": [volume], "meta": {"total": 1},
            "snapshots": [{"id": null}],
            "snapshot": {"id": null}, "action": {"id": -1},
        });
        ok(&body)
    };
    let cut = json_answer(200, "{\"volumes\": [], \"meta\": {\"total\": 0}}");
    let bytes = [
        ("a page as a success", answer(200, "text/html", page)),
        ("a page that says JSON", answer(200, "application/json", page)),
        ("a page as not found", answer(404, "text/html", page)),
        ("a page of a gateway", answer(502, "text/html", page)),
        ("a page as a refusal", answer(422, "text/html", page)),
        ("an empty body", json_answer(200, "")),
        ("no body where one is due", "HTTP/1.1 204 Told\r\nconnection: close\r\n\r\n".to_owned()),
        ("another JSON", json_answer(200, "[1, 2, 3]")),
        ("nothing", json_answer(200, "null")),
        ("cut JSON", json_answer(200, "{\"volumes\": [{\"id\": \"x\"")),
        ("a cut body", cut[..cut.len() - 10].to_owned()),
        ("an error as a success", json_answer(200, r#"{"id": "not_found", "message": "none"}"#)),
        ("no HTTP", "SSH-2.0-OpenSSH_10.0\r\n".to_owned()),
        ("no headers", "HTTP/1.1 200 OK\r\n".to_owned()),
        ("bytes", "\u{0}\u{1}\u{2}".repeat(100)),
        ("a huge head", format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(1 << 20))),
        ("another API's status", json_answer(299, "{}")),
        ("a teapot", json_answer(418, r#"{"id": "teapot", "message": "short and stout"}"#)),
        ("a negative size", bad_volume("size_gigabytes", json!(-1))),
        ("a size that is none", bad_volume("size_gigabytes", json!(1.5))),
        ("a size beyond all", bad_volume("size_gigabytes", json!(1e300))),
        ("a size of nothing", bad_volume("size_gigabytes", json!(0))),
        ("a size that no number of bytes is", bad_volume("size_gigabytes", json!(u64::MAX))),
        ("no id", bad_volume("id", Value::Null)),
        ("an empty id", bad_volume("id", json!(""))),
        ("an endless id", bad_volume("id", json!("x".repeat(100_000)))),
        ("an id that is a number", bad_volume("id", json!(7))),
        ("no region", bad_volume("region", Value::Null)),
        ("no name", bad_volume("name", Value::Null)),
        ("a droplet that is none", bad_volume("droplet_ids", json!([-1]))),
        ("a droplet beyond all", bad_volume("droplet_ids", json!([1e30]))),
        ("odd tags", bad_volume("tags", json!(["ghost", 7]))),
    ];
    let (now, far_end) = FarEnd::changing().await;
    let world = world_of(&far_end).await;
    for (what, bytes) in bytes {
        let is_success = bytes.starts_with("HTTP/1.1 2") && !bytes.contains(&"y".repeat(1000));
        *now.lock().unwrap() = bytes;
        let posts = far_end.count("POST");
        let answers = every_call(&world).await;
        for (call, answer) in &answers {
            // To a deletion any whole success is the answer that is due: it has no body.
            if *call == "delete" && is_success && answer.is_ok() {
                continue;
            }
            let Err(status) = answer else { panic!("{what}: {call} is a success") };
            assert!(is_not_final::<()>(&Err(status.clone())), "{what}: {call}: {status}");
            let words = status.message();
            assert!(words.contains("/v2/") || words.contains("the cloud's"), "{what}: {words}");
            assert!(words.len() < 2100, "{what}: {call}: a long story");
        }
        // What changes something is sent at most once for each call: a volume, a snapshot, and
        // three actions.
        let posts = far_end.count("POST") - posts;
        assert!(posts <= 5, "{what}: {posts} requests that change something");
        assert_no_token(&world, &answers);
    }
}

#[tokio::test]
async fn b54_every_call_is_to_be_tried_again_while_the_cloud_refuses_or_fails() {
    let too_many = r#"{"id": "too_many_requests", "message": "API Rate limit exceeded."}"#;
    let refused = |retry_after: &str| {
        let head = "HTTP/1.1 429 Told\r\ncontent-type: application/json\r\nconnection: close";
        let length = too_many.len();
        format!(
            "{head}\r\nretry-after: {retry_after}\r\ncontent-length: {length}\r\n\r\n{too_many}"
        )
    };
    let page = "<html><body>502 Bad Gateway</body></html>";
    let answers = [
        refused("0"),
        refused("99999"),
        refused("Fri, 31 Dec 2100 23:59:59 GMT"),
        refused("Fri, 15 Jan 2021 08:00:00 GMT"),
        json_answer(500, r#"{"id": "server_error", "message": "Unexpected error"}"#),
        answer(502, "text/html", page),
        json_answer(503, r#"{"id": "service_unavailable", "message": "try again"}"#),
        // The connection is closed without a word.
        String::new(),
    ];
    for bytes in answers {
        let (now, far_end) = FarEnd::changing().await;
        now.lock().unwrap().clone_from(&bytes);
        let world = world_of(&far_end).await;
        let answers = every_call(&world).await;
        for (call, answer) in &answers {
            let status = answer.as_ref().expect_err("nothing was done");
            assert_eq!(status.code(), Code::Unavailable, "{bytes}: {call}: {status}");
        }
        // What was refused may be sent again, what may have been done is not.
        let posts = far_end.count("POST");
        let most = if bytes.starts_with("HTTP/1.1 429") { 20 } else { 5 };
        assert!(posts <= most, "{bytes}: {posts} requests that change something");
        assert_no_token(&world, &answers);
    }
}
