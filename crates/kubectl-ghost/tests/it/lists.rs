//! Lists that are not whole: nothing is listed, nothing is deleted.

use serde_json::json;

use crate::account::Account;
use crate::api_server::{CONTENTS, GROUPS, How, Trouble, VOLUMES};
use crate::world::Run;

/// Runs the command both ways and checks that it does neither.
async fn refuses_altogether(account: &Account, source: &[&str], reason: &str) {
    for task in [&[][..], &["--delete"], &["-o", "json"]] {
        let run: Run = account.world.orphans(&[source, task].concat(), "y\ny\ny\ny\n");
        run.told(1, reason);
        assert_eq!(run.stdout, "", "nothing is listed: {run:?}");
        assert!(!run.stderr.contains("[y/N]"), "nothing is asked: {run:?}");
    }
    assert_eq!(account.world.deletions().await, 0);
}

#[tokio::test]
async fn a_list_of_the_cluster_that_is_not_whole_ends_it() {
    let account = Account::prepare().await;
    let source = account.in_cluster(&[]);
    for list in [VOLUMES, CONTENTS] {
        for (page, how, reason) in [
            (0, How::Status(403), "could not be read whole: the API server answered 403"),
            (1, How::Status(410), "answered 410"),
            (1, How::Status(500), "answered 500"),
            (0, How::Status(404), "answered 404"),
            (1, How::OtherMoment, "its pages are not of one moment"),
            (0, How::EndsEarly, "it ends before its last object"),
            (1, How::Endless, "it goes on without end"),
            (1, How::OtherKind, "a page is a \"NodeList\""),
            (1, How::Garbage, "could not be read whole"),
        ] {
            let trouble = Trouble { list, page, how };
            account.cluster.change(|cluster| cluster.trouble = Some(trouble));
            refuses_altogether(&account, &source, reason).await;
        }
    }
    for status in [403, 404, 500] {
        let trouble = Trouble { list: GROUPS, page: 0, how: How::Status(status) };
        account.cluster.change(|cluster| cluster.trouble = Some(trouble));
        refuses_altogether(&account, &source, "the list of API groups could not be read").await;
    }
    account.cluster.change(|cluster| {
        cluster.trouble = None;
        cluster.versions = vec!["v1beta1"];
    });
    refuses_altogether(&account, &source, "only as v1beta1, and v1 is needed").await;
    let nowhere = [account.kubeconfig.as_str()];
    refuses_altogether(&account, &nowhere, "the list of PersistentVolumes could not be").await;
}

#[tokio::test]
async fn a_list_of_the_cloud_that_is_not_whole_ends_it() {
    let account = Account::prepare().await;
    let world = &account.world;
    let source = account.in_cluster(&[]);
    let reason = "the cloud's volumes and snapshots could not be read whole";
    // More than one page of volumes.
    for number in 0..200 {
        world.volume_by_hand(&format!("crowd-{number}"), &[]).await;
    }
    for (route, spared, effect) in [
        ("/v2/volumes", 1, json!({ "status": 403 })),
        ("/v2/volumes", 1, json!({ "body": "garbage" })),
        ("/v2/volumes", 0, json!({ "replace": { "/meta/total": 217 } })),
        ("/v2/snapshots", 0, json!({ "status": 500 })),
        ("/v2/snapshots", 0, json!({ "replace": { "/meta/total": 1 } })),
        ("/v2/snapshots", 0, json!({ "replace": { "/snapshots/0/id": "" } })),
    ] {
        world.fault("GET", route, spared, effect).await;
        let run = world.orphans(&[&source[..], &["--delete"]].concat(), "y\ny\ny\ny\n");
        run.told(1, reason);
        assert_eq!((run.stdout.as_str(), world.deletions().await), ("", 0));
    }
    world.no_faults().await;
    refuses_altogether(&account, &["--handles=/nonexistent/file"], "cannot be read").await;
    std::fs::write(world.path("cut-off"), "v-1\n# end of volumes\ns-1\n").unwrap();
    let cut_off = format!("--handles={}", world.path("cut-off").display());
    refuses_altogether(&account, &[&cut_off], "\"# end of snapshots\" is missing").await;
    let handles = account.handles();
    let file = std::fs::File::options().append(true).open(world.path("handles")).unwrap();
    let written = file.metadata().unwrap().modified().unwrap();
    file.set_modified(written - std::time::Duration::from_secs(2 * 3600)).unwrap();
    refuses_altogether(&account, &[&handles], "what has come into use since is not in it").await;

    // All is well again.
    assert_eq!(world.orphans(&source, "").code, 3);
}

#[tokio::test]
async fn without_snapshot_contents_only_what_nothing_can_name_is_an_orphan() {
    let account = Account::prepare().await;
    let world = &account.world;
    account.cluster.change(|cluster| cluster.versions.clear());
    let run = world.orphans(&account.in_cluster(&["-o", "name"]), "");
    run.told(3, "4 snapshots are not judged: the cluster has no VolumeSnapshotContents");
    let mut orphans = account.orphans().await;
    orphans.retain(|name| name != "snapshot prod-snapshot-orphan");
    let orphans: Vec<String> = orphans.iter().map(|name| name.replace(' ', "/")).collect();
    assert_eq!(run.stdout.lines().collect::<Vec<_>>(), orphans);
    let run = world.orphans(&account.in_cluster(&["--delete", "prod-snapshot-orphan"]), "y\n");
    run.told(1, "so nothing tells whether it is in use");
    assert_eq!(world.deletions().await, 0);
}

#[tokio::test]
async fn nothing_is_deleted_when_the_cluster_seems_to_be_another() {
    let account = Account::prepare().await;
    let world = &account.world;
    let another = "no object of this Kubernetes cluster names anything that cluster \"prod\" made";
    let delete = account.in_cluster(&["--delete"]);
    account.cluster.change(|cluster| {
        cluster.volumes.retain(|volume| volume["spec"]["csi"]["driver"] == "nfs.csi.k8s.io");
        cluster.contents.clear();
    });
    world.orphans(&account.in_cluster(&[]), "").told(3, another);
    world.orphans(&delete, "y\ny\ny\ny\n").told(1, another);
    let driver = account.in_cluster(&["--delete", "--driver-name", "other.example.org"]);
    world.orphans(&driver, "y\n").told(1, another);
    assert_eq!(world.deletions().await, 0);
    // A file says it for certain.
    let all = world.handles(&[], &[]);
    world.orphans(&[&all, "--delete", "prod-pvc-orphan"], "y\n").told(0, "1 deleted");
}
