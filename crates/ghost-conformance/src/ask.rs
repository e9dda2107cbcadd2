//! Every call of the protocol in one form: a request that can be sent, shown without its secrets,
//! and that knows what it makes and what it undoes.

use std::fmt::{Debug, Write as _};
use std::time::Duration;

use ghost_csi as pb;
use pb::controller_client::ControllerClient;
use pb::group_controller_client::GroupControllerClient;
use pb::identity_client::IdentityClient;
use pb::node_client::NodeClient;
use tonic::transport::Channel;
use tonic::{Request, Status};

use crate::driver::Half;

/// How much of one field is shown, in characters.
const FIELD_LIMIT: usize = 240;

/// Something that is there and is to be taken away again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// A volume with this id.
    Volume(String),
    /// A snapshot with this id.
    Snapshot(String),
    /// A volume at a node.
    Attachment { volume: String, node: String },
    /// A volume at a staging path.
    Staging { volume: String, path: String },
    /// A volume at a target path.
    Target { volume: String, path: String },
}

/// What a request may make.
#[derive(Clone)]
pub(crate) enum Makes {
    /// Nothing that lasts.
    Nothing,
    /// A volume whose id the answer tells.
    Volume(Box<pb::CreateVolumeRequest>),
    /// A snapshot whose id the answer tells.
    Snapshot(Box<pb::CreateSnapshotRequest>),
    /// This.
    Known(Made),
}

/// A request of the protocol.
pub(crate) trait Ask: Clone + Send {
    /// What is answered.
    type Answer: Send;
    /// The call's name.
    const RPC: &'static str;
    /// Which half of a driver answers it.
    const HALF: Half;

    /// Sends it.
    fn send(
        self,
        channel: Channel,
        limit: Duration,
    ) -> impl Future<Output = Result<Self::Answer, Status>> + Send;
    /// What it asks, without secrets.
    fn shown(&self) -> String;
    /// What it may make.
    fn makes(&self) -> Makes;
    /// What is gone when it succeeds.
    fn undoes(&self) -> Option<Made>;
    /// The id of what it made.
    fn id(answer: &Self::Answer) -> Option<String>;
}

fn field<T: Debug + Default + PartialEq>(text: &mut String, name: &str, value: &T) {
    if *value == T::default() {
        return;
    }
    let whole = format!("{value:?}");
    let start: String = whole.chars().take(FIELD_LIMIT).collect();
    let rest = if start.len() < whole.len() { "…" } else { "" };
    let comma = if text.ends_with('{') { "" } else { "," };
    let _ = write!(text, "{comma} {name}: {start}{rest}");
}

macro_rules! ask {
    ($request:ident => $answer:ident, $half:ident, $client:ident.$method:ident,
     [$($field:ident),*] $(, makes $makes:expr)? $(, undoes $undoes:expr)? $(, id $id:expr)?) => {
        impl Ask for pb::$request {
            type Answer = pb::$answer;
            const RPC: &'static str = stringify!($request).split_at(stringify!($request).len() - 7).0;
            const HALF: Half = Half::$half;

            async fn send(self, channel: Channel, limit: Duration) -> Result<pb::$answer, Status> {
                let mut request = Request::new(self);
                request.set_timeout(limit);
                $client::new(channel).$method(request).await.map(tonic::Response::into_inner)
            }

            fn shown(&self) -> String {
                #[allow(unused_mut, reason = "a request without fields has nothing to add")]
                let mut text = format!("{} {{", Self::RPC);
                $(field(&mut text, stringify!($field), &self.$field);)*
                text + " }"
            }

            fn makes(&self) -> Makes {
                let makes: &[fn(&Self) -> Makes] = &[$($makes)?];
                makes.first().map_or(Makes::Nothing, |makes| makes(self))
            }

            fn undoes(&self) -> Option<Made> {
                let undoes: &[fn(&Self) -> Made] = &[$($undoes)?];
                undoes.first().map(|undoes| undoes(self))
            }

            fn id(_answer: &Self::Answer) -> Option<String> {
                let id: &[fn(&Self::Answer) -> Option<String>] = &[$($id)?];
                id.first().and_then(|id| id(_answer))
            }
        }
    };
}

ask!(GetPluginInfoRequest => GetPluginInfoResponse, Any, IdentityClient.get_plugin_info, []);
ask!(GetPluginCapabilitiesRequest => GetPluginCapabilitiesResponse, Any,
    IdentityClient.get_plugin_capabilities, []);
ask!(ProbeRequest => ProbeResponse, Any, IdentityClient.probe, []);

ask!(CreateVolumeRequest => CreateVolumeResponse, Controller, ControllerClient.create_volume,
    [name, capacity_range, volume_capabilities, parameters, volume_content_source,
     accessibility_requirements, mutable_parameters],
    makes |request| Makes::Volume(Box::new(request.clone())),
    id |answer| answer.volume.as_ref().map(|volume| volume.volume_id.clone()));
ask!(DeleteVolumeRequest => DeleteVolumeResponse, Controller, ControllerClient.delete_volume,
    [volume_id], undoes |request| Made::Volume(request.volume_id.clone()));
ask!(ControllerPublishVolumeRequest => ControllerPublishVolumeResponse, Controller,
ControllerClient.controller_publish_volume,
[volume_id, node_id, volume_capability, readonly, volume_context],
makes |request| Makes::Known(Made::Attachment {
    volume: request.volume_id.clone(), node: request.node_id.clone(),
}));
ask!(ControllerUnpublishVolumeRequest => ControllerUnpublishVolumeResponse, Controller,
ControllerClient.controller_unpublish_volume, [volume_id, node_id],
undoes |request| Made::Attachment {
    volume: request.volume_id.clone(), node: request.node_id.clone(),
});
ask!(ValidateVolumeCapabilitiesRequest => ValidateVolumeCapabilitiesResponse, Controller,
    ControllerClient.validate_volume_capabilities,
    [volume_id, volume_context, volume_capabilities, parameters, mutable_parameters]);
ask!(ListVolumesRequest => ListVolumesResponse, Controller, ControllerClient.list_volumes,
    [max_entries, starting_token]);
ask!(ControllerGetVolumeRequest => ControllerGetVolumeResponse, Controller,
    ControllerClient.controller_get_volume, [volume_id]);
ask!(ControllerModifyVolumeRequest => ControllerModifyVolumeResponse, Controller,
    ControllerClient.controller_modify_volume, [volume_id, mutable_parameters]);
ask!(ControllerExpandVolumeRequest => ControllerExpandVolumeResponse, Controller,
    ControllerClient.controller_expand_volume, [volume_id, capacity_range, volume_capability]);
ask!(GetCapacityRequest => GetCapacityResponse, Controller, ControllerClient.get_capacity,
    [volume_capabilities, parameters, accessible_topology]);
ask!(ControllerGetCapabilitiesRequest => ControllerGetCapabilitiesResponse, Controller,
    ControllerClient.controller_get_capabilities, []);
ask!(CreateSnapshotRequest => CreateSnapshotResponse, Controller,
    ControllerClient.create_snapshot, [name, source_volume_id, parameters, accessibility_requirements],
    makes |request| Makes::Snapshot(Box::new(request.clone())),
    id |answer| answer.snapshot.as_ref().map(|snapshot| snapshot.snapshot_id.clone()));
ask!(DeleteSnapshotRequest => DeleteSnapshotResponse, Controller,
    ControllerClient.delete_snapshot, [snapshot_id],
    undoes |request| Made::Snapshot(request.snapshot_id.clone()));
ask!(ListSnapshotsRequest => ListSnapshotsResponse, Controller, ControllerClient.list_snapshots,
    [max_entries, starting_token, source_volume_id, snapshot_id]);
ask!(GetSnapshotRequest => GetSnapshotResponse, Controller, ControllerClient.get_snapshot,
    [snapshot_id]);
ask!(ControllerGetVolumeHealthRequest => ControllerGetVolumeHealthResponse, Controller,
    ControllerClient.controller_get_volume_health, [volume_id]);
ask!(ControllerListVolumeHealthRequest => ControllerListVolumeHealthResponse, Controller,
    ControllerClient.controller_list_volume_health, [max_entries, starting_token]);

ask!(GroupControllerGetCapabilitiesRequest => GroupControllerGetCapabilitiesResponse, Controller,
    GroupControllerClient.group_controller_get_capabilities, []);
ask!(CreateVolumeGroupSnapshotRequest => CreateVolumeGroupSnapshotResponse, Controller,
    GroupControllerClient.create_volume_group_snapshot, [name, source_volume_ids]);
ask!(DeleteVolumeGroupSnapshotRequest => DeleteVolumeGroupSnapshotResponse, Controller,
    GroupControllerClient.delete_volume_group_snapshot, [group_snapshot_id, snapshot_ids]);
ask!(GetVolumeGroupSnapshotRequest => GetVolumeGroupSnapshotResponse, Controller,
    GroupControllerClient.get_volume_group_snapshot, [group_snapshot_id, snapshot_ids]);

ask!(NodeStageVolumeRequest => NodeStageVolumeResponse, Node, NodeClient.node_stage_volume,
[volume_id, publish_context, staging_target_path, volume_capability, volume_context],
makes |request| Makes::Known(Made::Staging {
    volume: request.volume_id.clone(), path: request.staging_target_path.clone(),
}));
ask!(NodeUnstageVolumeRequest => NodeUnstageVolumeResponse, Node, NodeClient.node_unstage_volume,
[volume_id, staging_target_path],
undoes |request| Made::Staging {
    volume: request.volume_id.clone(), path: request.staging_target_path.clone(),
});
ask!(NodePublishVolumeRequest => NodePublishVolumeResponse, Node, NodeClient.node_publish_volume,
[volume_id, publish_context, staging_target_path, target_path, volume_capability, readonly,
 volume_context],
makes |request| Makes::Known(Made::Target {
    volume: request.volume_id.clone(), path: request.target_path.clone(),
}));
ask!(NodeUnpublishVolumeRequest => NodeUnpublishVolumeResponse, Node,
NodeClient.node_unpublish_volume, [volume_id, target_path],
undoes |request| Made::Target {
    volume: request.volume_id.clone(), path: request.target_path.clone(),
});
ask!(NodeGetVolumeStatsRequest => NodeGetVolumeStatsResponse, Node,
    NodeClient.node_get_volume_stats, [volume_id, volume_path, staging_target_path]);
ask!(NodeGetVolumeHealthRequest => NodeGetVolumeHealthResponse, Node,
    NodeClient.node_get_volume_health, [volume_id, volume_publish_path, staging_target_path]);
ask!(NodeGetStorageHealthRequest => NodeGetStorageHealthResponse, Node,
    NodeClient.node_get_storage_health, []);
ask!(NodeExpandVolumeRequest => NodeExpandVolumeResponse, Node, NodeClient.node_expand_volume,
    [volume_id, volume_path, capacity_range, staging_target_path, volume_capability]);
ask!(NodeGetCapabilitiesRequest => NodeGetCapabilitiesResponse, Node,
    NodeClient.node_get_capabilities, []);
ask!(NodeGetInfoRequest => NodeGetInfoResponse, Node, NodeClient.node_get_info, []);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_shown_with_its_fields_and_without_its_secrets() {
        let request = pb::DeleteVolumeRequest {
            volume_id: "v".to_owned(),
            secrets: [("key".to_owned(), "CANARY".to_owned())].into(),
        };
        assert_eq!(request.shown(), "DeleteVolume { volume_id: \"v\" }");
        assert_eq!(pb::ProbeRequest {}.shown(), "Probe { }");
        let long = pb::GetSnapshotRequest { snapshot_id: "x".repeat(4096), ..Default::default() };
        assert!(long.shown().len() < 400, "{}", long.shown());
    }
}
