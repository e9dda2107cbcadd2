//! Which ids may come, and what is answered to those of nothing.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::node_service_capability::rpc::Type as NodeRpc;
use tonic::Code;

use super::{Check, Need, check};
use crate::driver::Half;
use crate::trial::Trial;
use crate::verdict::Verdict;

pub(super) static CHECKS: &[Check] = &[
    check!("id.empty", "an empty id is refused by every RPC that needs one", [], empty),
    check!(
        "id.never-seen",
        "an id that was never given is of nothing, however it looks",
        [Need::Volume],
        never_seen
    ),
    check!("id.gone", "the id of a deleted volume is of nothing", [Need::Volume], gone),
];

/// The most bytes that the specification has for an id.
const LIMIT: usize = 128;

async fn empty(trial: &Trial) -> Verdict {
    const DEMANDED: &str = "the id is required";
    let invalid: &[Code] = &[Code::InvalidArgument];
    macro_rules! refused {
        ($($request:expr),* $(,)?) => {
            $(trial.ask($request).await.refused(invalid, DEMANDED)?;)*
        };
    }
    let offers = |rpc| trial.driver.has(Half::Controller) && trial.driver.offers(rpc);
    let node = |rpc| trial.driver.has(Half::Node) && trial.driver.node_offers(rpc);
    let nothing = pb::Volume::default();
    if offers(ControllerRpc::CreateDeleteVolume) {
        refused!(trial.delete(""));
    }
    if trial.driver.has(Half::Controller) {
        refused!(validate(trial, ""));
    }
    if offers(ControllerRpc::PublishUnpublishVolume) {
        refused!(trial.attach(&nothing, "n"), trial.detach("", "n"));
        let named = pb::Volume { volume_id: "v".to_owned(), ..Default::default() };
        refused!(trial.attach(&named, ""));
    }
    if offers(ControllerRpc::GetVolume) {
        refused!(pb::ControllerGetVolumeRequest::default());
    }
    if offers(ControllerRpc::ExpandVolume) {
        refused!(super::expand::to(trial, "", trial.options.size));
    }
    if offers(ControllerRpc::CreateDeleteSnapshot) {
        refused!(pb::DeleteSnapshotRequest::default(), trial.snapshot("s", ""));
        refused!(pb::CreateSnapshotRequest { name: String::new(), ..trial.snapshot("s", "v") });
    }
    if offers(ControllerRpc::GetSnapshot) {
        refused!(pb::GetSnapshotRequest::default());
    }
    if offers(ControllerRpc::GetVolumeHealth) {
        refused!(pb::ControllerGetVolumeHealthRequest::default());
    }
    if node(NodeRpc::GetVolumeHealth) {
        refused!(pb::NodeGetVolumeHealthRequest::default());
    }
    if node(NodeRpc::GetVolumeStats) {
        let volume_path = "/conformance".to_owned();
        refused!(pb::NodeGetVolumeStatsRequest { volume_path, ..Default::default() });
        let volume_id = "v".to_owned();
        refused!(pb::NodeGetVolumeStatsRequest { volume_id, ..Default::default() });
    }
    Ok(())
}

async fn never_seen(trial: &Trial) -> Verdict {
    let long = trial.name(&"i".repeat(LIMIT));
    for id in
        ["conformance-nothing", "999999999999", "../../etc", "/", ".", "a b", "ÄÖ", &long[..LIMIT]]
    {
        of_nothing(trial, id).await?;
    }
    Ok(())
}

async fn gone(trial: &Trial) -> Verdict {
    let volume = trial.volume("gone").await?;
    trial.ask(trial.delete(&volume.volume_id)).await.ok("nobody uses the volume")?;
    of_nothing(trial, &volume.volume_id).await
}

/// Demands of every RPC what is demanded when there is no such volume.
async fn of_nothing(trial: &Trial, id: &str) -> Verdict {
    const NONE: &str = "there is no such volume";
    let not_found: &[Code] = &[Code::NotFound];
    trial.ask(trial.delete(id)).await.ok("a volume that is not there is deleted")?;
    trial.ask(validate(trial, id)).await.refused(not_found, NONE)?;
    let volume = pb::Volume { volume_id: id.to_owned(), ..Default::default() };
    if trial.driver.offers(ControllerRpc::GetVolume) {
        let request = pb::ControllerGetVolumeRequest { volume_id: id.to_owned() };
        trial.ask(request).await.refused(not_found, NONE)?;
    }
    if trial.driver.offers(ControllerRpc::ExpandVolume) {
        let request = super::expand::to(trial, id, trial.options.size * 2);
        trial.ask(request).await.refused(not_found, NONE)?;
    }
    let node = trial.node_id();
    if trial.driver.offers(ControllerRpc::PublishUnpublishVolume) && !node.is_empty() {
        trial.ask(trial.attach(&volume, &node)).await.refused(not_found, NONE)?;
        trial.ask(trial.detach(id, &node)).await.ok_or(not_found, NONE)?;
        trial.ask(trial.detach(id, "")).await.ok_or(not_found, NONE)?;
    }
    Ok(())
}

fn validate(trial: &Trial, id: &str) -> pb::ValidateVolumeCapabilitiesRequest {
    pb::ValidateVolumeCapabilitiesRequest {
        volume_id: id.to_owned(),
        volume_capabilities: vec![trial.capability()],
        secrets: trial.options.secrets.clone(),
        ..Default::default()
    }
}
