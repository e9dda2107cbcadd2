//! Calls that run at once.

use std::collections::BTreeSet;

use futures_util::future::{join, join_all};
use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use tonic::Code;

use super::{Check, Need, check};
use crate::ask::Ask;
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "concurrency.create",
        "eight callers who make the same volume get one",
        [Need::Volume],
        create
    ),
    check!(
        "concurrency.create-others",
        "eight callers who make eight volumes get eight",
        [Need::Volume],
        create_others
    ),
    check!(
        "concurrency.delete",
        "eight callers who delete the same volume all succeed",
        [Need::Volume],
        delete
    ),
    check!(
        "concurrency.publish",
        "eight callers who publish the same volume get the same context",
        [Need::Attachment],
        publish
    ),
    check!(
        "concurrency.two-nodes",
        "of two nodes that want a volume at once, one gets it",
        [Need::Attachment, Need::SecondNode],
        two_nodes
    ),
    check!(
        "concurrency.mixed",
        "different calls on one volume at once leave it in a state that was asked for",
        [Need::Attachment],
        mixed
    ),
    check!(
        "concurrency.snapshot",
        "eight callers who make the same snapshot get one",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        snapshot
    ),
    check!(
        "concurrency.node",
        "eight callers who stage and publish the same volume end in one mount",
        [Need::Use],
        node
    ),
];

/// How many call at once.
const CALLERS: usize = 8;

/// Makes the same call that many times at once, and demands of each that it succeeds or says that
/// another is at it.
async fn at_once<A: Ask>(trial: &Trial, request: &A) -> Verdict<Vec<A::Answer>> {
    let calls = (0..CALLERS).map(|_| trial.once(request.clone()));
    let mut answers = Vec::new();
    for asked in join_all(calls).await {
        if !asked.is_unsettled() {
            answers.push(asked.ok("it is the same call as the others: OK or ABORTED")?);
        }
    }
    Ok(answers)
}

async fn create(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let request = trial.create("same");
    let answers = at_once(trial, &request).await?;
    let volume = trial.volume_of(request).await?;
    for answer in answers {
        let id = answer.volume.unwrap_or_default().volume_id;
        demand(
            id == volume.volume_id,
            format!("CreateVolume of one name by {CALLERS} callers"),
            format!("{id:?} and {:?}", volume.volume_id),
            "one volume",
        )?;
    }
    let words = format!("CreateVolume of one name by {CALLERS} callers");
    trial.only_new(&words, before, &[&volume.volume_id]).await
}

async fn create_others(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let made = join_all((0..CALLERS).map(|_| trial.volume("other"))).await;
    let ids: Vec<String> =
        made.into_iter().map(|one| one.map(|one| one.volume_id)).collect::<Verdict<_>>()?;
    let words = format!("CreateVolume of {CALLERS} names at once");
    let ids: BTreeSet<&str> = ids.iter().map(String::as_str).collect();
    let (came, demanded) = (format!("{ids:?}"), format!("{CALLERS} volumes"));
    demand(ids.len() == CALLERS, words.clone(), came, demanded)?;
    trial.only_new(&words, before, &Vec::from_iter(ids)).await
}

async fn delete(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let volume = trial.volume("same").await?;
    at_once(trial, &trial.delete(&volume.volume_id)).await?;
    trial.ask(trial.delete(&volume.volume_id)).await.ok("it is gone, or nobody uses it")?;
    trial.only_new(&format!("DeleteVolume by {CALLERS} callers"), before, &[]).await
}

async fn publish(trial: &Trial) -> Verdict {
    let volume = trial.volume("same").await?;
    let node = trial.node_id();
    let request = trial.attach(&volume, &node);
    let mut answers = at_once(trial, &request).await?;
    answers.push(trial.ask(request).await.ok("it is there already")?);
    demand(
        answers.windows(2).all(|pair| pair[0] == pair[1]),
        format!("ControllerPublishVolume by {CALLERS} callers"),
        format!("{answers:?}"),
        "the same context",
    )?;
    trial.is_at("ControllerPublishVolume by many", &volume.volume_id, &[node]).await
}

async fn two_nodes(trial: &Trial) -> Verdict {
    let volume = trial.volume("two").await?;
    let nodes = [trial.node_id(), trial.options.second_node_id.clone().unwrap_or_default()];
    let (one, other) = join(
        trial.ask(trial.attach(&volume, &nodes[0])),
        trial.ask(trial.attach(&volume, &nodes[1])),
    )
    .await;
    let elsewhere = [Code::FailedPrecondition];
    let one = one.ok_or(&elsewhere, "it may be at the other node")?.is_some();
    let other = other.ok_or(&elsewhere, "it may be at the other node")?.is_some();
    let words = "ControllerPublishVolume to two nodes at once";
    demand(
        one != other,
        words,
        if one { "OK for both" } else { "FAILED_PRECONDITION for both" },
        "one of them gets a volume that may be at one node",
    )?;
    let winner = if one { &nodes[0] } else { &nodes[1] };
    trial.is_at(words, &volume.volume_id, std::slice::from_ref(winner)).await
}

async fn mixed(trial: &Trial) -> Verdict {
    let volume = trial.volume("mixed").await?;
    let (id, node) = (volume.volume_id.clone(), trial.node_id());
    for _ in 0..3 {
        let publish = trial.once(trial.attach(&volume, &node));
        let unpublish = trial.once(trial.detach(&id, &node));
        let delete = trial.once(trial.delete("conformance-nothing"));
        let grow = async {
            let large = trial.options.size * 2;
            let expands = trial.driver.offers(ControllerRpc::ExpandVolume);
            let request = super::expand::to(trial, &id, large);
            if expands { Some(trial.once(request).await) } else { None }
        };
        let ((published, unpublished), (deleted, grown)) =
            join(join(publish, unpublish), join(delete, grow)).await;
        // Some storage grows only what is at a node, or only what is not.
        let meanwhile = [Code::Aborted, Code::Unavailable, Code::DeadlineExceeded];
        let busy = [&meanwhile[..], &[Code::FailedPrecondition]].concat();
        published.ok_or(&meanwhile, "another call may be at it")?;
        unpublished.ok_or(&meanwhile, "another call may be at it")?;
        deleted.ok_or(&meanwhile, "no such volume is there")?;
        if let Some(grown) = grown {
            grown.ok_or(&busy, "another call may be at it")?;
        }
        trial.ask(trial.attach(&volume, &node)).await.ok("the last call asks for it")?;
        trial.is_at("calls at once, then a publish", &id, std::slice::from_ref(&node)).await?;
        trial.ask(trial.detach(&id, &node)).await.ok("the last call asks for it")?;
        trial.is_at("calls at once, then an unpublish", &id, &[]).await?;
    }
    Ok(())
}

async fn snapshot(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let request = trial.snapshot("same", &volume.volume_id);
    let answers = at_once(trial, &request).await?;
    let snapshot = super::snapshot::ready(trial, request).await?;
    let words = format!("CreateSnapshot of one name by {CALLERS} callers");
    for answer in answers {
        let id = answer.snapshot.unwrap_or_default().snapshot_id;
        let came = format!("{id:?} and {:?}", snapshot.snapshot_id);
        demand(id == snapshot.snapshot_id, words.clone(), came, "one snapshot")?;
    }
    if trial.driver.offers(ControllerRpc::ListSnapshots) {
        let list = pb::ListSnapshotsRequest {
            source_volume_id: volume.volume_id,
            secrets: trial.options.secrets.clone(),
            ..Default::default()
        };
        let listed = trial.walk(&list, 0).await?;
        demand(
            listed == [snapshot.snapshot_id.clone()],
            format!("{words}, then ListSnapshots"),
            format!("{listed:?}"),
            format!("only {:?}", snapshot.snapshot_id),
        )?;
    }
    Ok(())
}

async fn node(trial: &Trial) -> Verdict {
    let used = trial.attached(trial.capability()).await?;
    let target = trial.target("same")?;
    if !used.staging.is_empty() {
        at_once(trial, &used.stage(trial)).await?;
        trial.stage(&used).await?;
    }
    let publish = used.publish(trial, &target);
    at_once(trial, &publish).await?;
    trial.ask(publish).await.ok("it is there already")?;
    let mounted = crate::mounts::at(&target);
    demand(
        mounted <= 1,
        format!("NodePublishVolume by {CALLERS} callers"),
        format!("{mounted} mounts over each other at {}", target.display()),
        "one",
    )?;
    at_once(trial, &used.unpublish(&target)).await?;
    trial.ask(used.unpublish(&target)).await.ok("it is gone")?;
    if !used.staging.is_empty() {
        at_once(trial, &used.unstage()).await?;
    }
    trial.unstage(&used).await
}
