//! What is asked, what counts as an answer, and what happens between the two.

use serde_json::json;

use crate::account::{Account, DRIVER};
use crate::api_server::{How, Trouble, VOLUMES, volume};

#[tokio::test]
async fn only_yes_deletes_and_a_missing_answer_ends_it() {
    let account = Account::prepare().await;
    let world = &account.world;
    let before = world.there().await;
    let options = account.in_cluster(&["--delete"]);
    world.orphans(&options, "\nn\nno\nyellow\n").told(3, "0 deleted, 4 kept as you said");
    world.orphans(&options, "").told(1, "ended without an answer");
    assert_eq!((world.there().await, world.deletions().await), (before.clone(), 0));
    // The first is agreed to before the answers end.
    let run = world.orphans(&options, "YES\n");
    run.told(1, "1 deleted, 0 kept as you said, 0 refused");
    assert_eq!(world.there().await.len(), before.len() - 1);
}

#[tokio::test]
async fn what_comes_into_use_before_the_answer_is_not_deleted() {
    let account = Account::prepare().await;
    let world = &account.world;
    let id = world.id("volume", "prod-pvc-orphan").await;
    let options = account.in_cluster(&["prod-pvc-orphan"]);

    let named = async { account.cluster.change(|c| c.volumes.push(volume(DRIVER, &id))) };
    let run = world.orphans_meanwhile(&options, named).await;
    run.told(1, "refused: volume prod-pvc-orphan: in use: a PersistentVolume names it");
    account.cluster.change(|cluster| drop(cluster.volumes.pop()));

    let trouble = Trouble { list: VOLUMES, page: 1, how: How::Status(410) };
    let broken = async { account.cluster.change(|cluster| cluster.trouble = Some(trouble)) };
    let run = world.orphans_meanwhile(&options, broken).await;
    run.told(1, "volume prod-pvc-orphan is not deleted: the list of PersistentVolumes could not");
    account.cluster.change(|cluster| cluster.trouble = None);

    let renewed = world.age("volume", &id, 1);
    let run = world.orphans_meanwhile(&options, renewed).await;
    run.told(1, "it is not what was listed any more");
    world.age("volume", &id, 72).await;

    let run = world.orphans_meanwhile(&options, world.attach(&id)).await;
    run.told(1, "refused: volume prod-pvc-orphan: attached to node 101");
    assert_eq!(world.deletions().await, 0);

    // Attached, and the cloud does not say so when it is read: it refuses the deletion itself.
    let detached = json!({ "replace": (0..30)
        .map(|n| (format!("/volumes/{n}/droplet_ids"), json!([])))
        .collect::<serde_json::Map<_, _>>() });
    let rules = json!([
        { "route": "/v2/volumes/{volume_id}", "method": "GET",
          "effect": { "replace": { "/volume/droplet_ids": [] } } },
        { "route": "/v2/volumes", "method": "GET", "effect": detached },
    ]);
    world.ask(reqwest::Method::PUT, "/sim/v1/faults", rules).await;
    let run = world.orphans(&[&options[..], &["--delete"]].concat(), "y\n");
    run.told(1, "volume prod-pvc-orphan is not deleted: ");
    run.told(1, "409 conflict");
    world.no_faults().await;
    assert!(world.there().await.contains("volume prod-pvc-orphan"));
}

#[tokio::test]
async fn an_orphan_that_somebody_else_deletes_counts_as_deleted() {
    let account = Account::prepare().await;
    let world = &account.world;
    let id = world.id("snapshot", "prod-snapshot-orphan").await;
    let path = format!("/v2/snapshots/{id}");
    let gone = async {
        world.ask(reqwest::Method::DELETE, &path, serde_json::Value::Null).await;
    };
    let options = account.in_cluster(&["snapshot/prod-snapshot-orphan"]);
    let run = world.orphans_meanwhile(&options, gone).await;
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("snapshot prod-snapshot-orphan was gone already\n"), "{run:?}");

    // The answer to the deletion is lost, and the next try finds nothing.
    let id = world.id("volume", "prod-pvc-orphan").await;
    let lost = json!([{ "method": "DELETE", "route": "/v2/volumes/{volume_id}", "times": 1,
        "effect": { "drop": "after" } }]);
    world.ask(reqwest::Method::PUT, "/sim/v1/faults", lost).await;
    world.orphans(&account.in_cluster(&["--delete", &id]), "y\n").told(0, "1 deleted");
    assert!(!world.there().await.contains("volume prod-pvc-orphan"));
}
