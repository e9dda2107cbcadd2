//! CreateSnapshot, DeleteSnapshot and GetSnapshot.

use std::time::{Duration, Instant};

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use tonic::Code;

use super::{Check, Need, check};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand, failed};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "snapshot.twice",
        "the same name of the same volume is the same snapshot, with its fields",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        twice
    ),
    check!(
        "snapshot.other-source",
        "the same name of another volume is ALREADY_EXISTS",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        other_source
    ),
    check!(
        "snapshot.unknown-source",
        "a snapshot of a volume that does not exist is NOT_FOUND",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        unknown_source
    ),
    check!(
        "snapshot.look-alike",
        "snapshot names of 128 bytes, of any language and alike are as many snapshots",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        look_alike
    ),
    check!(
        "snapshot.delete",
        "a snapshot that is gone, or was never there, is deleted",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        delete
    ),
    check!(
        "snapshot.source-deleted",
        "a volume with snapshots is deleted and leaves them, or is refused and stays",
        [
            Need::Volume,
            Need::Rpc(ControllerRpc::CreateDeleteSnapshot),
            Need::Rpc(ControllerRpc::ListSnapshots)
        ],
        source_deleted
    ),
    check!(
        "snapshot.get",
        "GetSnapshot agrees with CreateSnapshot, and knows no other",
        [
            Need::Volume,
            Need::Rpc(ControllerRpc::CreateDeleteSnapshot),
            Need::Rpc(ControllerRpc::GetSnapshot)
        ],
        get
    ),
];

/// Asks for a snapshot until it can be used.
pub(super) async fn ready(
    trial: &Trial,
    request: pb::CreateSnapshotRequest,
) -> Verdict<pb::Snapshot> {
    let begun = Instant::now();
    loop {
        let snapshot = trial.snapshot_of(request.clone()).await?;
        if snapshot.ready_to_use {
            return Ok(snapshot);
        }
        if begun.elapsed() > trial.options.patience {
            let came = "ready_to_use: false, all the time";
            return Err(failed("CreateSnapshot, repeated", came, "ready_to_use: true in the end"));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn twice(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let request = trial.snapshot("twice", &volume.volume_id);
    let first = ready(trial, request.clone()).await?;
    let again = trial.snapshot_of(request).await?;
    demand(
        first.snapshot_id == again.snapshot_id && first.creation_time == again.creation_time,
        "CreateSnapshot, twice",
        format!("{first:?}, then {again:?}"),
        "the same snapshot",
    )?;
    let sound = first.source_volume_id == volume.volume_id
        && first.size_bytes >= 0
        && first.creation_time.as_ref().is_some_and(|time| time.seconds > 0);
    demand(
        sound,
        "CreateSnapshot",
        format!("{first:?}"),
        "the source volume, the time of the cut and no negative size",
    )
}

async fn other_source(trial: &Trial) -> Verdict {
    let (one, other) = (trial.volume("one").await?, trial.volume("other").await?);
    let request = trial.snapshot("name", &one.volume_id);
    trial.snapshot_of(request.clone()).await?;
    let source_volume_id = other.volume_id;
    trial
        .ask(pb::CreateSnapshotRequest { source_volume_id, ..request })
        .await
        .refused(&[Code::AlreadyExists], "the name is that of a snapshot of another volume")?;
    Ok(())
}

async fn unknown_source(trial: &Trial) -> Verdict {
    trial
        .ask(trial.snapshot("nothing", "conformance-nothing"))
        .await
        .refused(&[Code::NotFound], "there is no such volume")?;
    Ok(())
}

async fn look_alike(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let start = trial.name("snapshot");
    let long = format!("{start}-{}", "s".repeat(126 - start.len()));
    let ends = ["-a", "_a", "/a", " a", "-A", "容量"];
    let mut names: Vec<String> = ends.map(|end| format!("{start}{end}")).into();
    names.extend([format!("{long}1"), format!("{long}2")]);
    let mut ids = Vec::new();
    for name in names {
        let request = pb::CreateSnapshotRequest { name, ..trial.snapshot("", &volume.volume_id) };
        let words = format!("CreateSnapshot {{ name: {:?} }}", request.name);
        let id = trial.snapshot_of(request).await?.snapshot_id;
        let came = format!("{id:?}, which is another name's");
        demand(!ids.contains(&id), words, came, "another name is another snapshot")?;
        ids.push(id);
    }
    Ok(())
}

async fn delete(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let snapshot = trial.snapshot_of(trial.snapshot("delete", &volume.volume_id)).await?;
    for id in [&snapshot.snapshot_id, &snapshot.snapshot_id, "conformance-nothing", "../../etc"] {
        let request = pb::DeleteSnapshotRequest {
            snapshot_id: id.to_owned(),
            secrets: trial.options.secrets.clone(),
        };
        trial.ask(request).await.ok("it is there and unused, or it is gone")?;
    }
    Ok(())
}

/// The snapshots of the list with this id.
async fn listed(trial: &Trial, id: &str) -> Verdict<Vec<pb::Snapshot>> {
    let request = pb::ListSnapshotsRequest {
        snapshot_id: id.to_owned(),
        secrets: trial.options.secrets.clone(),
        ..Default::default()
    };
    let answer = trial.ask(request).await.ok("the list is claimed")?;
    Ok(answer.entries.into_iter().filter_map(|entry| entry.snapshot).collect())
}

async fn source_deleted(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let snapshot = ready(trial, trial.snapshot("left", &volume.volume_id)).await?;
    let asked = trial.ask(trial.delete(&volume.volume_id)).await;
    let words = asked.asked.clone();
    let codes = [Code::FailedPrecondition];
    let deleted = asked.ok_or(&codes, "its snapshots do not depend on it, or keep it")?.is_some();
    let left = listed(trial, &snapshot.snapshot_id).await?;
    demand(
        left.len() == 1 && left[0].source_volume_id == volume.volume_id,
        format!("{words}, then ListSnapshots {{ snapshot_id: {:?} }}", snapshot.snapshot_id),
        format!("{left:?}"),
        "the snapshot, of that source, whether the volume is gone or not",
    )?;
    if !deleted && trial.driver.offers(ControllerRpc::GetVolume) {
        let request = pb::ControllerGetVolumeRequest { volume_id: volume.volume_id };
        trial.ask(request).await.ok("its deletion was refused")?;
    }
    Ok(())
}

async fn get(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let snapshot = ready(trial, trial.snapshot("get", &volume.volume_id)).await?;
    let request = |id: &str| pb::GetSnapshotRequest {
        snapshot_id: id.to_owned(),
        secrets: trial.options.secrets.clone(),
    };
    let asked = trial.ask(request(&snapshot.snapshot_id)).await;
    let words = asked.asked.clone();
    let got = asked.ok("the snapshot is there")?.snapshot;
    demand(
        got.as_ref() == Some(&snapshot),
        words,
        format!("{got:?}"),
        format!("{snapshot:?}, as CreateSnapshot answered"),
    )?;
    if trial.driver.offers(ControllerRpc::ListSnapshots) {
        let listed = listed(trial, &snapshot.snapshot_id).await?;
        demand(
            listed == [snapshot.clone()],
            "ListSnapshots with its id",
            format!("{listed:?}"),
            format!("{snapshot:?}, as CreateSnapshot answered"),
        )?;
    }
    let none = [Code::NotFound];
    trial.ask(request("conformance-nothing")).await.refused(&none, "there is no such snapshot")?;
    Ok(())
}
