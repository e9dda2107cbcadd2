//! What an earlier call has begun at the cloud, and nobody remembers, still counts.

use std::time::Duration;

use ghost_csi as pb;
use pb::volume_content_source::Type as Source;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{Controller, Volume, mounted, of_snapshot, of_volume};

use crate::world::World;

/// Kills the controller once it has begun to attach the volume to node 101, and starts another.
async fn dies_while_attaching(world: &mut World, volume: &Volume) -> Controller {
    let (mut controller, mut attached) = (world.controller().await, volume.clone());
    tokio::select! {
        done = controller.attach(&mut attached, 101) => panic!("it was over too soon: {done:?}"),
        () = world.action_begun() => {}
    }
    world.parts.kill_controller().unwrap();
    world.parts.start_controller(&[]).unwrap();
    world.controller().await
}

#[tokio::test]
async fn a_detach_waits_for_the_attachment_that_a_dead_controller_began() {
    let mut world = World::empty("2s", false, "info");
    world.parts.start_parts().unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-late", 1, mounted("ext4")).await.unwrap();
    let mut controller = dies_while_attaching(&mut world, &volume).await;
    controller.detach(&volume, 101).await.unwrap();
    // It has left for good: a volume that is attached, or about to be, cannot be deleted.
    controller.delete(&volume).await.unwrap();
    assert_eq!(world.volumes().await, 0);
}

#[tokio::test]
async fn a_creation_is_not_given_up_while_an_earlier_one_may_not_show_yet() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&["--read-lag", "2s"]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    world.fault("POST", "/v2/volumes", 1, &json!({"drop": "after"})).await;
    let status = controller.create("pvc-lag", 1, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    world.fault("POST", "/v2/volumes", 1, &json!({"status": 403})).await;
    let status = controller.create("pvc-lag", 1, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let found = async {
        loop {
            if let Ok(volume) = controller.create("pvc-lag", 1, mounted("ext4")).await {
                return volume;
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), found).await.unwrap();
    assert_eq!(world.volumes().await, 1);
}

/// Creates until the volume is there; whatever is said before that must leave the outcome open.
async fn created_in_the_end(world: &World, name: &str, from: Option<&Source>) {
    let mut controller = world.controller().await;
    let created = async {
        loop {
            let made = match from {
                None => controller.create(name, 1, mounted("ext4")).await,
                Some(from) => controller.create_of(name, 1, mounted("ext4"), from.clone()).await,
            };
            match made {
                Ok(_) => return,
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{name}: {status}"),
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(30), created).await.expect(name);
    let cloud = world.cloud().await;
    let made = cloud["volumes"].as_array().unwrap().iter().filter(|one| one["name"] == name);
    assert_eq!(made.count(), 1, "{cloud}");
}

#[tokio::test]
async fn b49_no_refusal_is_final_while_the_volume_of_an_earlier_try_may_not_show_yet() {
    let each = [400, 401, 403, 404, 409, 422].map(async |status| {
        let mut world = World::empty("0ms", false, "info");
        world.parts.start_simulator(&["--read-lag", "2s"]).unwrap();
        world.parts.start_controller(&[]).unwrap();
        let mut controller = world.controller().await;
        world.fault("POST", "/v2/volumes", 1, &json!({"drop": "after"})).await;
        controller.create("pvc-lag", 1, mounted("ext4")).await.unwrap_err();
        world.fault("POST", "/v2/volumes", 2, &json!({"status": status})).await;
        created_in_the_end(&world, "pvc-lag", None).await;
    });
    futures_util::future::join_all(each).await;
}

#[tokio::test]
async fn b49_b76_a_full_account_is_no_end_whether_it_looks_at_the_name_before_or_after() {
    for order in [&[][..], &["--limit-before-name"]] {
        let mut world = World::empty("0ms", false, "info");
        let options = ["--read-lag", "2s", "--volume-limit", "1"];
        world.parts.start_simulator(&[&options, order].concat()).unwrap();
        world.parts.start_controller(&[]).unwrap();
        let mut controller = world.controller().await;
        world.fault("POST", "/v2/volumes", 1, &json!({"drop": "after"})).await;
        controller.create("pvc-lag", 1, mounted("ext4")).await.unwrap_err();
        created_in_the_end(&world, "pvc-lag", None).await;
        // Of another name there is nothing, and that is known.
        let status = controller.create("pvc-more", 1, mounted("ext4")).await.unwrap_err();
        assert_eq!(status.code(), Code::ResourceExhausted, "{order:?}: {status}");
    }
}

#[tokio::test]
async fn b49_a_source_that_may_not_be_read_is_no_end_of_what_was_made_of_it() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&["--read-lag", "2s"]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let source = controller.create("pvc-source", 1, mounted("ext4")).await.unwrap();
    let snapshot = controller.snapshot("snapshot-1", &source).await.unwrap();
    for (what, from, read) in [
        ("restored", of_snapshot(&snapshot.snapshot_id), "/v2/snapshots/{snapshot_id}"),
        ("clone", of_volume(&source.id), "/v2/volumes/{volume_id}"),
        ("second-clone", of_volume(&source.id), "/v2/volumes/{volume_id}/snapshots"),
    ] {
        for status in [401, 403] {
            let name = format!("pvc-{what}-{status}");
            world.fault("POST", "/v2/volumes", 1, &json!({"drop": "after"})).await;
            let create = controller.create_of(&name, 1, mounted("ext4"), from.clone());
            create.await.map(|_| ()).unwrap_err();
            world.fault("GET", read, 2, &json!({"status": status})).await;
            created_in_the_end(&world, &name, Some(&from)).await;
        }
    }
    let cloud = world.cloud().await;
    assert_eq!(
        cloud["snapshots"].as_array().unwrap().len(),
        1,
        "those of clones are gone: {cloud}"
    );
}

#[tokio::test]
async fn b76_a_creation_that_the_cloud_refuses_is_looked_for_before_that_is_final() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&["--volume-limit", "1"]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-only", 1, mounted("ext4")).await.unwrap();
    // The account is full, and of the new name there is nothing for certain.
    let status = controller.create("pvc-more", 1, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    // A look-up that is refused says nothing of what there is.
    for status in [400, 403, 404, 409, 422] {
        world.fault("GET", "/v2/volumes", 1, &json!({"status": status})).await;
        let answer = controller.create("pvc-only", 1, mounted("ext4")).await.unwrap_err();
        assert_eq!(answer.code(), Code::Unavailable, "{status}: {answer}");
    }
    world.no_faults().await;
    controller.delete(&volume).await.unwrap();
}

/// A read just after an attachment may still show the state before it, which looks like the end of
/// the detachment that has only begun.
#[tokio::test]
async fn b03_a_detachment_that_an_old_read_seems_to_show_is_waited_for() {
    let mut world = World::empty("3s", false, "info");
    world.parts.start_simulator(&["--read-lag", "2s"]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-old-read", 1, mounted("ext4")).await.unwrap();
    let mut controller = dies_while_attaching(&mut world, &volume).await;
    controller.detach(&volume, 101).await.unwrap();
    let cloud = world.cloud().await;
    assert_eq!(cloud["volumes"][0]["droplet_ids"], json!([]), "{cloud}");
    assert!(!cloud.to_string().contains("\"in-progress\""), "{cloud}");
    controller.delete(&volume).await.unwrap();
}

/// The same where the cloud refuses the detachment, for what is done to another volume there.
#[tokio::test]
async fn b03_a_detachment_that_is_refused_is_not_done_because_an_old_read_seems_to_show_it() {
    let mut world = World::empty("2s", false, "info");
    world.parts.start_simulator(&["--read-lag", "2s", "--one-event-per-droplet"]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-old-read", 1, mounted("ext4")).await.unwrap();
    let other = controller.create("pvc-other", 1, mounted("ext4")).await.unwrap();
    let mut controller = dies_while_attaching(&mut world, &volume).await;
    while world.cloud().await.to_string().contains("\"in-progress\"") {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let attach = json!({"type": "attach", "droplet_id": 101});
    let actions = format!("/v2/volumes/{}/actions", other.id);
    world.by_hand(reqwest::Method::POST, &actions, Some(attach)).await;
    controller.detach(&volume, 101).await.unwrap();
    let cloud = world.cloud().await;
    let volumes = cloud["volumes"].as_array().unwrap();
    let own = volumes.iter().find(|own| own["id"] == volume.id.as_str()).unwrap();
    assert_eq!(own["droplet_ids"], json!([]), "{cloud}");
}

/// What was in the way of a growth may have ended before it is looked for. That the cloud refuses it
/// for good is believed when it does so again while nothing is under way.
#[tokio::test]
async fn a_growth_that_is_refused_once_for_no_reason_that_shows_is_asked_for_again() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&[]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-grows", 1, mounted("ext4")).await.unwrap();
    let actions = "/v2/volumes/{volume_id}/actions";
    world.fault("POST", actions, 1, &json!({"status": 422})).await;
    controller.grow(&volume, 2).await.unwrap();
    world.fault("POST", actions, 9, &json!({"status": 422})).await;
    let status = controller.grow(&volume, 3).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("cannot grow to 3 GiB"), "{status}");
    world.no_faults().await;
    assert_eq!(world.cloud().await["volumes"][0]["size_gigabytes"], 2);
    controller.delete(&volume).await.unwrap();
}
