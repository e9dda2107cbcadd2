//! A cloud that is broken or means ill: whatever it answers, the caller learns within its time that
//! the outcome is open, in words that name the call; nothing is done twice, and no secret leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};

use ghost_csi as pb;
use serde_json::{Value, json};
use tonic::{Code, Status};
use xtask::playground::TOKEN;
use xtask::volume_life::{GIB, mounted};

use crate::every_call::{ID, assert_no_token, every_call, told, volume, world_of};
use crate::far_end::{FarEnd, Reply, json as json_answer, ok};
use crate::world::{attach_request, is_not_final, within};

const OTHER_ID: &str = "7724db7c-e098-11e5-b522-000f53304e51";

fn listed(volumes: &[Value], total: u64) -> String {
    json_answer(200, &json!({"volumes": volumes, "meta": {"total": total}}).to_string())
}

#[tokio::test]
async fn answers_without_an_end_end_with_the_callers_time() {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
    let replies = [
        Reply::Stall(String::new()),
        Reply::Stall(format!("{head}content-length: 1000\r\n\r\n{{")),
        Reply::Endless(format!("{head}\r\n{{\"volumes\": [\""), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
        Reply::Drip(format!("{head}content-length: 100000\r\n\r\n")),
    ];
    for reply in replies {
        let shown = format!("{reply:?}");
        let far_end = FarEnd::start(move |_| reply.clone()).await;
        let mut world = world_of(&far_end).await;
        let mut cloud = world.controller().await.0;
        let create = pb::CreateVolumeRequest {
            name: "pvc-1".to_owned(),
            volume_capabilities: vec![mounted("ext4")],
            ..Default::default()
        };
        let attach = attach_request(&volume(), "101");
        let (made, attached) = {
            let mut other = cloud.clone();
            tokio::join!(
                cloud.create_volume(within(1, create)),
                other.controller_publish_volume(within(1, attach))
            )
        };
        for status in [made.map(drop).unwrap_err(), attached.map(drop).unwrap_err()] {
            assert!(is_not_final::<()>(&Err(status.clone())), "{shown}: {status}");
        }
        // The exchanges go on until their own limit, and nobody waits for that here.
        world.parts.kill_controller().unwrap();
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_and_its_target_learns_nothing() {
    let target = FarEnd::start(|_| Reply::Bytes(listed(&[], 0))).await;
    let (now, far_end) = FarEnd::changing().await;
    let world = world_of(&far_end).await;
    for status in [301, 302, 303, 307, 308] {
        let location = format!("{}/v2/volumes", target.url);
        *now.lock().unwrap() = format!(
            "HTTP/1.1 {status} Elsewhere\r\nlocation: {location}\r\ncontent-length: 0\r\n\
             connection: close\r\n\r\n"
        );
        let answers = every_call(&world).await;
        for (call, answer) in &answers {
            let status_told = answer.as_ref().unwrap_err();
            assert_eq!(status_told.code(), Code::Unavailable, "{status}: {call}: {status_told}");
            let words = status_told.message();
            assert!(words.contains(&status.to_string()), "{call}: {words}");
        }
        assert_no_token(&world, &answers);
    }
    assert_eq!(target.asked().len(), 0, "{:?}", target.asked());
}

#[tokio::test]
async fn b45_an_api_that_repeats_the_headers_gives_nothing_away() {
    let status = Arc::new(AtomicU16::new(0));
    let now = status.clone();
    let far_end = FarEnd::start(move |asked| {
        let body = json!({
            "id": format!("echo {}", asked.head),
            "message": format!("{}{}", asked.head, asked.head),
            "request_id": asked.head,
        });
        Reply::Bytes(json_answer(now.load(Ordering::SeqCst), &body.to_string()))
    })
    .await;
    let world = world_of(&far_end).await;
    for told in [400, 403, 404, 409, 422, 503] {
        status.store(told, Ordering::SeqCst);
        let answers = every_call(&world).await;
        let is_shown = |answer: &Result<(), Status>| {
            answer.as_ref().is_err_and(|status| status.message().contains("Bearer ***"))
        };
        assert!(answers.iter().any(|(_, answer)| is_shown(answer)), "{told}: {answers:?}");
        assert_no_token(&world, &answers);
    }
    assert!(far_end.asked()[0].head.contains(TOKEN), "it was told the token");
}

#[tokio::test]
async fn an_error_of_many_words_is_told_in_few() {
    let words = "x".repeat(1 << 20);
    let body = json!({"id": "unprocessable_entity", "message": words, "request_id": "r-1"});
    let far_end = FarEnd::start(move |_| Reply::Bytes(json_answer(503, &body.to_string()))).await;
    let world = world_of(&far_end).await;
    let status = world.controller().await.count().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().len() < 2100 && status.message().ends_with("(request id r-1)"));
}

#[tokio::test]
async fn b42_a_list_that_contradicts_itself_is_none_and_links_are_not_followed() {
    let elsewhere = FarEnd::start(|_| Reply::Bytes(listed(&[], 0))).await;
    let next = json!({"pages": {"next": format!("{}/v2/volumes?page=2", elsewhere.url)}});
    let twice = [told(ID, "a"), told(ID, "b")];
    let many: Vec<Value> =
        (0..200).map(|number| told(&format!("v-{number}"), &format!("n-{number}"))).collect();
    let tables: [(&str, Vec<Value>, u64); 5] = [
        ("a volume twice", twice.to_vec(), 2),
        ("more than is shown", vec![told(ID, "a")], 2),
        ("fewer than are shown", vec![told(ID, "a"), told(OTHER_ID, "b")], 1),
        ("the same page for ever", many.clone(), 100_000),
        ("more than there can be", many, u64::MAX),
    ];
    let (now, far_end) = FarEnd::changing().await;
    let world = world_of(&far_end).await;
    for (what, volumes, total) in tables {
        let body = json!({"volumes": volumes, "meta": {"total": total}, "links": next});
        *now.lock().unwrap() = ok(&body);
        let before = far_end.asked().len();
        let status = world.controller().await.count().await.unwrap_err();
        assert_eq!(status.code(), Code::Unavailable, "{what}: {status}");
        assert!(status.message().contains("/v2/volumes"), "{what}: {status}");
        let asked = far_end.asked().len() - before;
        assert!(asked < 50, "{what}: {asked} requests");
    }
    // In order but for a link that leads away, or to itself: only the numbers count.
    let body = json!({"volumes": [told(ID, "a")], "meta": {"total": 1}, "links": next});
    *now.lock().unwrap() = ok(&body);
    let before = far_end.asked().len();
    assert_eq!(world.controller().await.count().await.unwrap(), 1);
    assert_eq!(far_end.asked().len(), before + 1);
    assert_eq!(elsewhere.asked().len(), 0);
}

#[tokio::test]
async fn b52_two_volumes_of_one_name_are_named_and_neither_is_taken() {
    let far_end = FarEnd::start(|_| {
        Reply::Bytes(listed(&[told(ID, "pvc-two"), told(OTHER_ID, "pvc-two")], 2))
    })
    .await;
    let world = world_of(&far_end).await;
    let mut controller = world.controller().await;
    let status = controller.create("pvc-two", 1, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), Code::AlreadyExists, "{status}");
    assert!(status.message().contains(ID) && status.message().contains(OTHER_ID), "{status}");
    assert_eq!(far_end.count("GET"), far_end.asked().len(), "{:?}", far_end.asked());
}

#[tokio::test]
async fn b50_a_hung_exchange_holds_nothing_else_and_is_not_sent_again() {
    let (hangs, made) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicBool::new(false)));
    let (hung, there) = (hangs.clone(), made.clone());
    let far_end = FarEnd::start(move |asked| {
        let is_hung = hung.load(Ordering::SeqCst);
        let creates = asked.line.starts_with("POST");
        let name = ["pvc-look", "pvc-make", "pvc-free"]
            .into_iter()
            .find(|name| asked.line.contains(name) || asked.body.contains(name))
            .unwrap();
        match (name, creates) {
            ("pvc-look", false) if is_hung => Reply::Stall(String::new()),
            ("pvc-make", true) => {
                there.store(true, Ordering::SeqCst);
                Reply::Stall("HTTP/1.1 201 Created\r\ncontent-length: 500\r\n\r\n{".to_owned())
            }
            ("pvc-make", false) if there.load(Ordering::SeqCst) => {
                Reply::Bytes(listed(&[told(OTHER_ID, name)], 1))
            }
            (_, true) => {
                Reply::Bytes(json_answer(201, &json!({"volume": told(ID, name)}).to_string()))
            }
            _ => Reply::Bytes(listed(&[], 0)),
        }
    })
    .await;
    let world = world_of(&far_end).await;
    let controller = world.controller().await;
    let create = |name: &str, seconds| {
        let request = pb::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(pb::CapacityRange { required_bytes: GIB, limit_bytes: 0 }),
            volume_capabilities: vec![mounted("ext4")],
            ..Default::default()
        };
        let mut cloud = controller.clone().0;
        async move { cloud.create_volume(within(seconds, request)).await }
    };
    let (look, make, free) =
        tokio::join!(create("pvc-look", 1), create("pvc-make", 1), create("pvc-free", 10));
    for status in [look.unwrap_err(), make.unwrap_err()] {
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    free.unwrap();
    hangs.store(false, Ordering::SeqCst);
    far_end.let_go();
    // The names are free again, and what was sent once was not sent again.
    create("pvc-look", 20).await.unwrap();
    let found = async {
        loop {
            match create("pvc-make", 20).await {
                Ok(found) => return found.into_inner().volume.unwrap().volume_id,
                early => assert!(is_not_final(&early), "{early:?}"),
            }
        }
    };
    let found = tokio::time::timeout(std::time::Duration::from_secs(20), found).await.unwrap();
    assert_eq!(found, OTHER_ID);
    let posts = far_end.asked();
    let posts = posts.iter().filter(|asked| asked.body.contains("pvc-make")).count();
    assert_eq!(posts, 1);
}
