//! DeleteVolume, and ControllerGetVolume of what is there.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use tonic::Code;

use super::{Check, Need, check};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!("delete.twice", "a volume that is gone is deleted again", [Need::Volume], twice),
    check!(
        "delete.published",
        "a volume that is at a node is not deleted, and stays there",
        [Need::Attachment],
        published
    ),
    check!("delete.name", "a deleted volume's name can be used again", [Need::Volume], name),
    check!(
        "get.agrees",
        "ControllerGetVolume agrees with CreateVolume",
        [Need::Volume, Need::Rpc(ControllerRpc::GetVolume)],
        get
    ),
];

async fn twice(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let volume = trial.volume("twice").await?;
    for _ in 0..3 {
        let asked = trial.ask(trial.delete(&volume.volume_id)).await;
        asked.ok("nobody uses the volume, or it is gone")?;
    }
    trial.only_new("DeleteVolume", before, &[]).await
}

async fn published(trial: &Trial) -> Verdict {
    let volume = trial.volume("published").await?;
    let node = trial.node_id();
    trial.ask(trial.attach(&volume, &node)).await.ok("the volume is free")?;
    trial
        .ask(trial.delete(&volume.volume_id))
        .await
        .refused(&[Code::FailedPrecondition], "the volume is in use at a node")?;
    trial.is_at("DeleteVolume, refused", &volume.volume_id, std::slice::from_ref(&node)).await?;
    trial.ask(trial.detach(&volume.volume_id, &node)).await.ok("the volume is still there")?;
    trial.ask(trial.delete(&volume.volume_id)).await.ok("nobody uses the volume any more")?;
    Ok(())
}

async fn name(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let request = trial.create("again");
    let first = trial.volume_of(request.clone()).await?;
    trial.ask(trial.delete(&first.volume_id)).await.ok("nobody uses the volume")?;
    let again = trial.volume_of(request).await?;
    trial.only_new("CreateVolume after DeleteVolume", before, &[&again.volume_id]).await
}

async fn get(trial: &Trial) -> Verdict {
    let volume = trial.volume("get").await?;
    let request = pb::ControllerGetVolumeRequest { volume_id: volume.volume_id.clone() };
    let asked = trial.ask(request).await;
    let words = asked.asked.clone();
    let answer = asked.ok("the volume is there")?;
    let got = answer.volume.unwrap_or_default();
    let fits = got.volume_id == volume.volume_id
        && got.capacity_bytes == volume.capacity_bytes
        && got.content_source == volume.content_source;
    demand(fits, words.clone(), format!("{got:?}"), format!("{volume:?}"))?;
    let nodes = answer.status.unwrap_or_default().published_node_ids;
    demand(nodes.is_empty(), words, format!("published_node_ids: {nodes:?}"), "none")
}
