//! Calls whose answers are lost, and which are then made again, as the specification has it.

use std::collections::BTreeSet;

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;

use super::{Check, Need, check};
use crate::mounts;
use crate::trial::{LOSSES, Trial};
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!("lost.create", "a lost CreateVolume ends in one volume", [Need::Volume], create),
    check!("lost.delete", "a lost DeleteVolume ends in none", [Need::Volume], delete),
    check!(
        "lost.publish",
        "a lost ControllerPublishVolume ends in one publish",
        [Need::Attachment],
        publish
    ),
    check!(
        "lost.unpublish",
        "a lost ControllerUnpublishVolume ends in none",
        [Need::Attachment],
        unpublish
    ),
    check!(
        "lost.expand",
        "a lost ControllerExpandVolume ends in the size",
        [Need::Volume, Need::Rpc(ControllerRpc::ExpandVolume)],
        expand
    ),
    check!(
        "lost.snapshot",
        "a lost CreateSnapshot ends in one snapshot, and a lost DeleteSnapshot in none",
        [
            Need::Volume,
            Need::Rpc(ControllerRpc::CreateDeleteSnapshot),
            Need::Rpc(ControllerRpc::ListSnapshots)
        ],
        snapshot
    ),
    check!("lost.node", "lost calls at the node end in one mount, and in none", [Need::Use], node),
];

async fn create(trial: &Trial) -> Verdict {
    for loss in LOSSES {
        let before = trial.all_volumes().await?;
        let request = trial.create("lost");
        trial.lose(request.clone(), loss).await;
        let volume = trial.volume_of(request.clone()).await?;
        let words = format!("CreateVolume, lost by {loss:?}, and again");
        trial.only_new(&words, before.clone(), &[&volume.volume_id]).await?;
        let again = trial.volume_of(request).await?;
        demand(
            again.volume_id == volume.volume_id,
            words.clone(),
            format!("{:?}, then {:?}", volume.volume_id, again.volume_id),
            "one volume",
        )?;
        trial.ask(trial.delete(&volume.volume_id)).await.ok("nobody uses the volume")?;
        trial.only_new(&format!("{words}, then DeleteVolume"), before, &[]).await?;
    }
    Ok(())
}

async fn delete(trial: &Trial) -> Verdict {
    for loss in LOSSES {
        let before = trial.all_volumes().await?;
        let volume = trial.volume("lost").await?;
        trial.lose(trial.delete(&volume.volume_id), loss).await;
        let asked = trial.ask(trial.delete(&volume.volume_id)).await;
        asked.ok("nobody uses the volume, or it is gone")?;
        trial.only_new(&format!("DeleteVolume, lost by {loss:?}, and again"), before, &[]).await?;
    }
    Ok(())
}

async fn publish(trial: &Trial) -> Verdict {
    let node = trial.node_id();
    for loss in LOSSES {
        let volume = trial.volume("lost").await?;
        let request = trial.attach(&volume, &node);
        trial.lose(request.clone(), loss).await;
        trial.ask(request).await.ok("the volume is free, or there already")?;
        let words = format!("ControllerPublishVolume, lost by {loss:?}, and again");
        trial.is_at(&words, &volume.volume_id, std::slice::from_ref(&node)).await?;
        // An unpublish also ends what a lost publish has begun.
        trial.lose(trial.attach(&volume, &node), loss).await;
        trial.ask(trial.detach(&volume.volume_id, &node)).await.ok("it is there")?;
        let words = format!("{words}, then ControllerUnpublishVolume");
        trial.is_at(&words, &volume.volume_id, &[]).await?;
        trial.ask(trial.delete(&volume.volume_id)).await.ok("nobody uses the volume")?;
    }
    Ok(())
}

async fn unpublish(trial: &Trial) -> Verdict {
    let node = trial.node_id();
    for loss in LOSSES {
        let volume = trial.volume("lost").await?;
        trial.ask(trial.attach(&volume, &node)).await.ok("the volume is free")?;
        trial.lose(trial.detach(&volume.volume_id, &node), loss).await;
        let asked = trial.ask(trial.detach(&volume.volume_id, &node)).await;
        asked.ok("it is there, or not any more")?;
        let words = format!("ControllerUnpublishVolume, lost by {loss:?}, and again");
        trial.is_at(&words, &volume.volume_id, &[]).await?;
        trial.ask(trial.delete(&volume.volume_id)).await.ok("nobody uses the volume")?;
    }
    Ok(())
}

async fn expand(trial: &Trial) -> Verdict {
    for loss in LOSSES {
        let volume = trial.volume("lost").await?;
        let large = volume.capacity_bytes.max(trial.options.size) * 2;
        let request = super::expand::to(trial, &volume.volume_id, large);
        trial.lose(request.clone(), loss).await;
        let answer = trial.ask(request).await.ok("it is smaller, or large enough already")?;
        demand(
            answer.capacity_bytes >= large && answer.capacity_bytes < large * 2,
            format!("ControllerExpandVolume, lost by {loss:?}, and again"),
            format!("capacity_bytes: {}", answer.capacity_bytes),
            format!("{large}, or a little more"),
        )?;
        trial.ask(trial.delete(&volume.volume_id)).await.ok("nobody uses the volume")?;
    }
    Ok(())
}

async fn snapshot(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let list = pb::ListSnapshotsRequest {
        source_volume_id: volume.volume_id.clone(),
        secrets: trial.options.secrets.clone(),
        ..Default::default()
    };
    for loss in LOSSES {
        let request = trial.snapshot("lost", &volume.volume_id);
        trial.lose(request.clone(), loss).await;
        let snapshot = super::snapshot::ready(trial, request).await?;
        let listed: BTreeSet<String> = trial.walk(&list, 0).await?.into_iter().collect();
        demand(
            listed == BTreeSet::from([snapshot.snapshot_id.clone()]),
            format!("CreateSnapshot, lost by {loss:?}, and again; then ListSnapshots"),
            format!("{listed:?}"),
            format!("only {:?}", snapshot.snapshot_id),
        )?;
        let request = pb::DeleteSnapshotRequest {
            snapshot_id: snapshot.snapshot_id,
            secrets: trial.options.secrets.clone(),
        };
        trial.lose(request.clone(), loss).await;
        trial.ask(request).await.ok("it is unused, or gone")?;
        let listed = trial.walk(&list, 0).await?;
        demand(
            listed.is_empty(),
            format!("DeleteSnapshot, lost by {loss:?}, and again; then ListSnapshots"),
            format!("{listed:?}"),
            "none",
        )?;
    }
    Ok(())
}

async fn node(trial: &Trial) -> Verdict {
    let used = trial.attached(trial.capability()).await?;
    for loss in LOSSES {
        let target = trial.target("lost")?;
        if !used.staging.is_empty() {
            trial.lose(used.stage(trial), loss).await;
        }
        trial.stage(&used).await?;
        trial.lose(used.publish(trial, &target), loss).await;
        let asked = trial.ask(used.publish(trial, &target)).await;
        asked.ok("a staged volume can be published")?;
        let mounted = mounts::at(&target);
        demand(
            mounted <= 1,
            format!("NodePublishVolume, lost by {loss:?}, and again"),
            format!("{mounted} mounts over each other at {}", target.display()),
            "one",
        )?;
        trial.lose(used.unpublish(&target), loss).await;
        trial.ask(used.unpublish(&target)).await.ok("it is there, or not any more")?;
        demand(
            target.symlink_metadata().is_err(),
            format!("NodeUnpublishVolume, lost by {loss:?}, and again"),
            format!("{} is there", target.display()),
            "the driver removes the target path",
        )?;
        if !used.staging.is_empty() {
            trial.lose(used.unstage(), loss).await;
            trial.unstage(&used).await?;
            demand(
                !mounts::any_below(used.staging.as_ref()),
                format!("NodeUnstageVolume, lost by {loss:?}, and again"),
                format!("something is mounted at {}", used.staging),
                "nothing is mounted there",
            )?;
        }
    }
    Ok(())
}
