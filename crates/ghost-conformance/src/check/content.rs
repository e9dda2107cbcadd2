//! Volumes made of snapshots and of other volumes.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::volume_content_source::{SnapshotSource, Type, VolumeSource};
use tonic::Code;

use super::snapshot::ready;
use super::{Check, Need, check};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "restore.source",
        "a restored volume tells its source, also when the call is repeated",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        restore
    ),
    check!(
        "restore.size",
        "a restore smaller than its snapshot is OUT_OF_RANGE, a larger one has the size",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        restore_size
    ),
    check!(
        "restore.same-name",
        "a name that exists with another content is ALREADY_EXISTS",
        [Need::Volume, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        same_name
    ),
    check!(
        "clone.source",
        "a clone tells its source, also when the call is repeated, and outlives it",
        [Need::Volume, Need::Rpc(ControllerRpc::CloneVolume)],
        clone
    ),
    check!(
        "clone.size",
        "a clone smaller than its source is OUT_OF_RANGE, a larger one has the size",
        [Need::Volume, Need::Rpc(ControllerRpc::CloneVolume)],
        clone_size
    ),
];

pub(super) fn of_snapshot(id: &str) -> Type {
    Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() })
}

pub(super) fn of_volume(id: &str) -> Type {
    Type::Volume(VolumeSource { volume_id: id.to_owned() })
}

/// What is asked for a volume of this content.
pub(super) fn create(trial: &Trial, source: Type, bytes: i64) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest {
        capacity_range: Some(pb::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        volume_content_source: Some(pb::VolumeContentSource { r#type: Some(source) }),
        ..trial.create("content")
    }
}

/// Makes a volume of a content twice, and demands that both answers have its source.
async fn made_of(trial: &Trial, source: Type, least: i64) -> Verdict<pb::Volume> {
    let request = create(trial, source, least);
    let before = trial.all_volumes().await?;
    let first = trial.volume_of(request.clone()).await?;
    let again = trial.volume_of(request.clone()).await?;
    demand(
        first.content_source == request.volume_content_source,
        "CreateVolume with a content source",
        format!("content_source: {:?}", first.content_source),
        format!("{:?}", request.volume_content_source),
    )?;
    demand(
        first == again,
        "CreateVolume with a content source, repeated",
        format!("{first:?}, then {again:?}"),
        "the same answer",
    )?;
    demand(
        first.capacity_bytes == 0 || first.capacity_bytes >= least,
        "CreateVolume with a content source",
        format!("capacity_bytes: {}", first.capacity_bytes),
        format!("{least} at least"),
    )?;
    let words = "CreateVolume with a content source, twice";
    trial.only_new(words, before, &[&first.volume_id]).await?;
    Ok(first)
}

/// Demands that a limit below the source's size is refused.
async fn too_small(trial: &Trial, source: Type, has: i64) -> Verdict {
    let before = trial.all_volumes().await?;
    let range = pb::CapacityRange { required_bytes: 1, limit_bytes: has / 2 };
    let request =
        pb::CreateVolumeRequest { capacity_range: Some(range), ..create(trial, source, 0) };
    trial
        .ask(request)
        .await
        .refused(&[Code::OutOfRange], &format!("the content has {has} bytes"))?;
    trial.only_new("CreateVolume, refused", before, &[]).await
}

async fn restore(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let snapshot = ready(trial, trial.snapshot("source", &volume.volume_id)).await?;
    let source = of_snapshot(&snapshot.snapshot_id);
    made_of(trial, source, trial.options.size).await?;
    Ok(())
}

async fn restore_size(trial: &Trial) -> Verdict {
    let request = trial.create("source");
    let large = trial.options.size * 2;
    let range = pb::CapacityRange { required_bytes: large, limit_bytes: 0 };
    let request = pb::CreateVolumeRequest { capacity_range: Some(range), ..request };
    let volume = trial.volume_of(request).await?;
    let snapshot = ready(trial, trial.snapshot("source", &volume.volume_id)).await?;
    let source = of_snapshot(&snapshot.snapshot_id);
    too_small(trial, source.clone(), large).await?;
    made_of(trial, source, large * 2).await?;
    Ok(())
}

async fn same_name(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let snapshot = ready(trial, trial.snapshot("source", &volume.volume_id)).await?;
    let blank = trial.create("name");
    trial.volume_of(blank.clone()).await?;
    let filled = pb::CreateVolumeRequest {
        name: blank.name.clone(),
        ..create(trial, of_snapshot(&snapshot.snapshot_id), trial.options.size)
    };
    let exists = [Code::AlreadyExists];
    trial.ask(filled).await.refused(&exists, "the volume of that name is a blank one")?;

    let filled = create(trial, of_snapshot(&snapshot.snapshot_id), trial.options.size);
    trial.volume_of(filled.clone()).await?;
    let blank = pb::CreateVolumeRequest { name: filled.name, ..blank };
    trial.ask(blank).await.refused(&exists, "the volume of that name is of a snapshot")?;
    Ok(())
}

async fn clone(trial: &Trial) -> Verdict {
    let volume = trial.volume("source").await?;
    let source = of_volume(&volume.volume_id);
    let clone = made_of(trial, source, trial.options.size).await?;
    let asked = trial.ask(trial.delete(&volume.volume_id)).await;
    let kept =
        asked.ok_or(&[Code::FailedPrecondition], "its clone does not need it, or keeps it")?;
    if kept.is_some() && trial.driver.offers(ControllerRpc::GetVolume) {
        let request = pb::ControllerGetVolumeRequest { volume_id: clone.volume_id };
        trial.ask(request).await.ok("the clone outlives its source")?;
    }
    Ok(())
}

async fn clone_size(trial: &Trial) -> Verdict {
    let large = trial.options.size * 2;
    let range = pb::CapacityRange { required_bytes: large, limit_bytes: 0 };
    let request = pb::CreateVolumeRequest { capacity_range: Some(range), ..trial.create("source") };
    let volume = trial.volume_of(request).await?;
    let source = of_volume(&volume.volume_id);
    too_small(trial, source.clone(), large).await?;
    made_of(trial, source, large * 2).await?;
    Ok(())
}
