//! What is deleted: the orphans, and nothing that only looks like one.

use std::collections::BTreeSet;

use serde_json::{Map, json};

use crate::account::{Account, LOOK_ALIKES, MACHINE_SNAPSHOT};

#[tokio::test]
async fn exactly_the_orphans_are_deleted_by_what_the_cluster_names() {
    let account = Account::prepare().await;
    deletes_exactly_the_orphans(&account, &account.in_cluster(&[])).await;
}

#[tokio::test]
async fn exactly_the_orphans_are_deleted_by_what_a_file_names() {
    let account = Account::prepare().await;
    deletes_exactly_the_orphans(&account, &[&account.handles()]).await;
}

async fn deletes_exactly_the_orphans(account: &Account, source: &[&str]) {
    let Account { world, .. } = account;
    let before = world.there().await;
    assert_eq!(before.len(), LOOK_ALIKES.len() + 5, "{before:?}");
    let orphans = account.orphans().await;

    let listed = world.orphans(&[source, &["-o", "name"]].concat(), "");
    let expected: Vec<String> = orphans.iter().map(|name| name.replace(' ', "/")).collect();
    assert_eq!(listed.stdout.lines().collect::<Vec<_>>(), expected);
    listed.told(3, "4 orphans (2 volumes, 2 snapshots) of cluster prod, 40 GiB; ");
    assert_eq!(world.there().await, before);

    // Agreed to all that is asked, and to more.
    let run = world.orphans(&[source, &["--delete"]].concat(), &"y\n".repeat(40));
    run.told(0, "4 deleted, 0 kept as you said, 0 refused");
    for name in &orphans {
        assert!(run.stderr.contains(&format!("delete {name} (10 GiB, 3 days old")), "{run:?}");
        assert!(run.stdout.contains(&format!("{name} deleted\n")), "{run:?}");
    }
    let after = world.there().await;
    let gone: BTreeSet<&String> = before.difference(&after).collect();
    assert_eq!(gone, orphans.iter().collect());
    assert_eq!(world.deletions().await, 4);

    world.orphans(source, "").told(0, "no orphans of cluster prod; ");
}

#[tokio::test]
async fn each_look_alike_is_refused_when_it_is_asked_for_by_name_or_id() {
    let account = Account::prepare().await;
    let world = &account.world;
    let before = world.there().await;
    for (name, reason) in LOOK_ALIKES {
        let kind = if name.contains("snapshot") { "snapshot" } else { "volume" };
        let id = world.id(kind, name).await;
        for wanted in [name.to_owned(), format!("{kind}/{name}"), id] {
            let options = account.in_cluster(&["--delete", &wanted]);
            let run = world.orphans(&options, "y\ny\n");
            run.told(1, &format!("refused: {kind} {name}: "));
            run.told(1, reason);
            assert!(!run.stderr.contains("[y/N]"), "nothing is asked: {run:?}");
        }
    }
    let of_machine = world.id("snapshot", MACHINE_SNAPSHOT).await;
    for absent in ["prod-pvc-absent", MACHINE_SNAPSHOT, &of_machine] {
        let run = world.orphans(&account.in_cluster(&["--delete", absent]), "y\n");
        run.told(1, &format!("there is no volume or snapshot {absent:?}"));
    }
    assert_eq!(world.there().await, before);
    assert_eq!(world.deletions().await, 0);

    // Old enough and detached by now, by another rule of what is old.
    let options = account.in_cluster(&["--delete", "--minimum-age", "10m", "prod-pvc-young"]);
    world.orphans(&options, "y\n").told(1, "younger than 10 minutes");
    let young = world.id("volume", "prod-pvc-young").await;
    world.age("volume", &young, 1).await;
    world.orphans(&options, "y\n").told(0, "1 deleted");
    assert_eq!(world.there().await.len(), before.len() - 1);
}

#[tokio::test]
async fn a_volume_that_is_from_the_future_or_from_no_time_is_no_orphan() {
    let account = Account::prepare().await;
    let world = &account.world;
    let options = account.in_cluster(&["--delete", "prod-pvc-orphan"]);
    let times = [
        (json!("2999-01-01T00:00:00Z"), "younger than 24 hours"),
        (json!(null), "of unknown age"),
        (json!("yesterday"), "of unknown age"),
    ];
    for (time, reason) in times {
        let all = (0..30).map(|n| (format!("/volumes/{n}/created_at"), time.clone()));
        let effect = json!({ "replace": all.collect::<Map<_, _>>() });
        world.fault("GET", "/v2/volumes", 0, effect).await;
        world.orphans(&options, "y\n").told(1, reason);
    }
    assert_eq!(world.deletions().await, 0);
}
