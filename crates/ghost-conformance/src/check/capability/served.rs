//! Every RPC: whether it is claimed, and with which code it answers an empty request.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::node_service_capability::rpc::Type as NodeRpc;
use pb::plugin_capability::service::Type as Service;
use pb::snapshot_metadata_client::SnapshotMetadataClient;
use tonic::{Code, Status};

use crate::ask::Ask;
use crate::driver::Half;
use crate::trial::Trial;

/// One RPC.
pub(super) struct Served {
    pub(super) rpc: &'static str,
    pub(super) claimed: bool,
    /// What it answers to an empty request.
    pub(super) code: Code,
}

/// Every RPC of the sockets that are given.
pub(super) async fn served(trial: &Trial) -> Vec<Served> {
    let mut all = Vec::new();
    if trial.driver.has(Half::Controller) {
        of_volumes(trial, &mut all).await;
        of_snapshots(trial, &mut all).await;
        of_groups(trial, &mut all).await;
    }
    if trial.driver.has(Half::Node) {
        of_node(trial, &mut all).await;
    }
    all
}

async fn of<A: Ask + Default>(trial: &Trial, all: &mut Vec<Served>, claimed: bool) {
    let code = code(trial.once(A::default()).await.answer);
    all.push(Served { rpc: A::RPC, claimed, code });
}

fn code<T>(answer: Result<T, Status>) -> Code {
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

async fn of_volumes(trial: &Trial, all: &mut Vec<Served>) {
    use ControllerRpc as Rpc;
    let claimed = |rpc| trial.driver.offers(rpc);
    of::<pb::ValidateVolumeCapabilitiesRequest>(trial, all, true).await;
    of::<pb::ControllerGetCapabilitiesRequest>(trial, all, true).await;
    of::<pb::CreateVolumeRequest>(trial, all, claimed(Rpc::CreateDeleteVolume)).await;
    of::<pb::DeleteVolumeRequest>(trial, all, claimed(Rpc::CreateDeleteVolume)).await;
    let publishes = claimed(Rpc::PublishUnpublishVolume);
    of::<pb::ControllerPublishVolumeRequest>(trial, all, publishes).await;
    of::<pb::ControllerUnpublishVolumeRequest>(trial, all, publishes).await;
    of::<pb::ListVolumesRequest>(trial, all, claimed(Rpc::ListVolumes)).await;
    of::<pb::GetCapacityRequest>(trial, all, claimed(Rpc::GetCapacity)).await;
    of::<pb::ControllerExpandVolumeRequest>(trial, all, claimed(Rpc::ExpandVolume)).await;
    of::<pb::ControllerGetVolumeRequest>(trial, all, claimed(Rpc::GetVolume)).await;
    of::<pb::ControllerModifyVolumeRequest>(trial, all, claimed(Rpc::ModifyVolume)).await;
    of::<pb::ControllerGetVolumeHealthRequest>(trial, all, claimed(Rpc::GetVolumeHealth)).await;
    of::<pb::ControllerListVolumeHealthRequest>(trial, all, claimed(Rpc::ListVolumeHealth)).await;
}

async fn of_snapshots(trial: &Trial, all: &mut Vec<Served>) {
    use ControllerRpc as Rpc;
    let claimed = |rpc| trial.driver.offers(rpc);
    of::<pb::CreateSnapshotRequest>(trial, all, claimed(Rpc::CreateDeleteSnapshot)).await;
    of::<pb::DeleteSnapshotRequest>(trial, all, claimed(Rpc::CreateDeleteSnapshot)).await;
    of::<pb::ListSnapshotsRequest>(trial, all, claimed(Rpc::ListSnapshots)).await;
    of::<pb::GetSnapshotRequest>(trial, all, claimed(Rpc::GetSnapshot)).await;
}

/// Services that are there only as a whole.
async fn of_groups(trial: &Trial, all: &mut Vec<Served>) {
    let groups = trial.driver.serves(Service::GroupControllerService);
    of::<pb::GroupControllerGetCapabilitiesRequest>(trial, all, groups).await;
    of::<pb::CreateVolumeGroupSnapshotRequest>(trial, all, groups).await;
    of::<pb::DeleteVolumeGroupSnapshotRequest>(trial, all, groups).await;
    of::<pb::GetVolumeGroupSnapshotRequest>(trial, all, groups).await;

    let claimed = trial.driver.serves(Service::SnapshotMetadataService);
    let mut client = SnapshotMetadataClient::new(trial.driver.channel(Half::Controller));
    let allocated = client.get_metadata_allocated(pb::GetMetadataAllocatedRequest::default()).await;
    let refused = streamed(allocated).await;
    all.push(Served { rpc: "GetMetadataAllocated", claimed, code: refused });
    let delta = client.get_metadata_delta(pb::GetMetadataDeltaRequest::default()).await;
    let refused = streamed(delta).await;
    all.push(Served { rpc: "GetMetadataDelta", claimed, code: refused });
}

/// The code of a stream, which may come with the first message only.
async fn streamed<T>(answer: Result<tonic::Response<tonic::Streaming<T>>, Status>) -> Code {
    match answer {
        Ok(stream) => code(stream.into_inner().message().await),
        Err(status) => status.code(),
    }
}

async fn of_node(trial: &Trial, all: &mut Vec<Served>) {
    let claimed = |rpc| trial.driver.node_offers(rpc);
    of::<pb::NodeGetInfoRequest>(trial, all, true).await;
    of::<pb::NodeGetCapabilitiesRequest>(trial, all, true).await;
    of::<pb::NodePublishVolumeRequest>(trial, all, true).await;
    of::<pb::NodeUnpublishVolumeRequest>(trial, all, true).await;
    of::<pb::NodeStageVolumeRequest>(trial, all, claimed(NodeRpc::StageUnstageVolume)).await;
    of::<pb::NodeUnstageVolumeRequest>(trial, all, claimed(NodeRpc::StageUnstageVolume)).await;
    of::<pb::NodeGetVolumeStatsRequest>(trial, all, claimed(NodeRpc::GetVolumeStats)).await;
    of::<pb::NodeExpandVolumeRequest>(trial, all, claimed(NodeRpc::ExpandVolume)).await;
    of::<pb::NodeGetVolumeHealthRequest>(trial, all, claimed(NodeRpc::GetVolumeHealth)).await;
    of::<pb::NodeGetStorageHealthRequest>(trial, all, claimed(NodeRpc::GetStorageHealth)).await;
}
