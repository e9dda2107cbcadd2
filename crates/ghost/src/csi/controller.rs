//! The Controller service: each call is decoded, run as an operation, and encoded.

use ghost_csi as pb;
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span, info_span};

use super::status::{answer, not_offered};
use super::{decode, encode};
use crate::controller::{self, Controller, CreateRequest, GrowRequest, Lists};
use crate::error::{Error, Result};
use crate::operation::{Key, Operations};
use crate::volume::{
    AccessType, Filesystem, NodeId, Parameters, Snapshot, TopologyKey, Volume, VolumeHealth,
    VolumeId, VolumeName,
};

mod read;
mod snapshot;

type Answer<T> = std::result::Result<Response<T>, Status>;

/// The Controller service.
pub struct ControllerService {
    controller: Controller,
    volumes: Lists<Volume>,
    snapshots: Lists<Snapshot>,
    unhealthy: Lists<VolumeHealth>,
    operations: Operations,
    key: TopologyKey,
}

impl ControllerService {
    /// The service over this controller. `origin` is a random number of this process, part of the
    /// tokens of its lists.
    #[must_use]
    pub fn new(
        controller: Controller,
        origin: u64,
        operations: Operations,
        key: TopologyKey,
    ) -> Self {
        Self {
            controller,
            // Each has its own, so that a token of one is none of another.
            volumes: Lists::new(origin),
            snapshots: Lists::new(origin.wrapping_add(1)),
            unhealthy: Lists::new(origin.wrapping_add(2)),
            operations,
            key,
        }
    }

    async fn create(&self, request: Request<pb::CreateVolumeRequest>) -> Result<pb::Volume> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let name = VolumeName::new(request.name)?;
        let span = info_span!("operation", rpc = "CreateVolume", name = name.as_str());
        let filesystem = decode::together(&decode::capabilities(request.volume_capabilities)?)?;
        let Parameters { formatting, labels } =
            Parameters::parse(&decode::context(request.parameters), filesystem)?;
        if let Some(key) = request.mutable_parameters.keys().min() {
            return Err(Error::invalid(format!(
                "mutable parameter {key:?} is not known; expected none: volumes of this driver have none"
            )));
        }
        let source = decode::content_source(request.volume_content_source)?;
        // A copy has the options of its source, whatever the class says.
        let filesystem = filesystem.map(|kind| match &source {
            None => Filesystem::to_be_made(kind, &formatting),
            Some(_) => Filesystem::present(kind),
        });
        let create = CreateRequest {
            size: decode::size_range(request.capacity_range)?,
            requirement: decode::requirement(request.accessibility_requirements, &self.key)?,
            source,
            filesystem,
            labels,
            name,
        };
        let key = Key::Name(create.name.to_string());
        let controller = self.controller.clone();
        let volume = self
            .operations
            .run("create_volume", key, deadline, create, |create| async move {
                controller::create(&controller, create).await
            })
            .instrument(span)
            .await?;
        let mut volume = encode::volume(&volume, &self.key);
        volume.volume_context.extend(formatting.context());
        Ok(volume)
    }

    async fn delete(&self, request: Request<pb::DeleteVolumeRequest>) -> Result<()> {
        let deadline = decode::deadline(request.metadata());
        let id = decode::volume_id(request.into_inner().volume_id)?;
        let span = span("DeleteVolume", &id, None);
        let controller = self.controller.clone();
        self.operations
            .run("delete_volume", id_key(&id), deadline, id, |id| async move {
                controller::delete(&controller, &id).await
            })
            .instrument(span)
            .await
    }

    async fn publish(
        &self,
        request: Request<pb::ControllerPublishVolumeRequest>,
    ) -> Result<Volume> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let node = decode::node_id(request.node_id)?;
        decode::capability(request.volume_capability)?.check_usable()?;
        if request.readonly {
            return Err(Error::invalid(
                "readonly is true; expected false: attachments are not made read-only, mounts are, on the \
                 node",
            ));
        }
        let span = span("ControllerPublishVolume", &id, Some(&node));
        let controller = self.controller.clone();
        self.operations
            .run("attach_volume", id_key(&id), deadline, (id, node), |(id, node)| async move {
                controller::attach(&controller, &id, &node).await
            })
            .instrument(span)
            .await
    }

    async fn unpublish(
        &self,
        request: Request<pb::ControllerUnpublishVolumeRequest>,
    ) -> Result<()> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let node = match request.node_id {
            every if every.is_empty() => None,
            one => Some(decode::node_id(one)?),
        };
        let span = span("ControllerUnpublishVolume", &id, node.as_ref());
        let controller = self.controller.clone();
        self.operations
            .run("detach_volume", id_key(&id), deadline, (id, node), |(id, node)| async move {
                controller::detach(&controller, &id, node.as_ref()).await
            })
            .instrument(span)
            .await
    }

    async fn expand(
        &self,
        request: Request<pb::ControllerExpandVolumeRequest>,
    ) -> Result<pb::ControllerExpandVolumeResponse> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let size = decode::size_range(request.capacity_range)?
            .ok_or_else(|| Error::invalid("capacity_range is missing"))?;
        let access = match request.volume_capability {
            None => None,
            given => {
                let capability = decode::capability(given)?;
                capability.check_usable()?;
                Some(capability.access)
            }
        };
        let filesystem = match &access {
            Some(AccessType::Mount { filesystem, .. }) => Some(Filesystem::present(*filesystem)),
            Some(AccessType::Block) | None => None,
        };
        let span = span("ControllerExpandVolume", &id, None);
        let controller = self.controller.clone();
        let grow = GrowRequest { id: id.clone(), size, filesystem };
        let volume = self
            .operations
            .run("expand_volume", id_key(&id), deadline, grow, |grow| async move {
                controller::grow(&controller, &grow).await
            })
            .instrument(span)
            .await?;
        Ok(pb::ControllerExpandVolumeResponse {
            capacity_bytes: encode::bytes(volume.size),
            // Also when the disk was large enough: the node's part may be what is missing.
            node_expansion_required: access != Some(AccessType::Block),
        })
    }

    /// What is offered, read off what the backend answers to.
    fn capabilities(&self) -> Vec<pb::controller_service_capability::rpc::Type> {
        use pb::controller_service_capability::rpc::Type;
        let backend = &self.controller.backend;
        let mut types = vec![
            Type::CreateDeleteVolume,
            Type::ListVolumes,
            Type::GetVolume,
            Type::GetCapacity,
            Type::GetVolumeHealth,
            Type::ListVolumeHealth,
            Type::SingleNodeMultiWriter,
        ];
        if backend.attach().is_some() {
            types.extend([Type::PublishUnpublishVolume, Type::ListVolumesPublishedNodes]);
        }
        if backend.snapshots().is_some() {
            types.extend([
                Type::CreateDeleteSnapshot,
                Type::ListSnapshots,
                Type::GetSnapshot,
                Type::CloneVolume,
            ]);
        }
        if backend.grow().is_some() {
            types.push(Type::ExpandVolume);
        }
        types
    }
}

fn id_key(id: &VolumeId) -> Key {
    Key::Id(id.to_string())
}

fn span(rpc: &'static str, id: &VolumeId, node: Option<&NodeId>) -> Span {
    let span =
        info_span!("operation", rpc, volume_id = id.as_str(), node_id = tracing::field::Empty);
    if let Some(node) = node {
        span.record("node_id", node.as_str());
    }
    span
}

#[tonic::async_trait]
impl pb::controller_server::Controller for ControllerService {
    async fn create_volume(
        &self,
        request: Request<pb::CreateVolumeRequest>,
    ) -> Answer<pb::CreateVolumeResponse> {
        let created = self.create(request).await;
        answer(created.map(|volume| pb::CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<pb::DeleteVolumeRequest>,
    ) -> Answer<pb::DeleteVolumeResponse> {
        answer(self.delete(request).await.map(|()| pb::DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<pb::ControllerPublishVolumeRequest>,
    ) -> Answer<pb::ControllerPublishVolumeResponse> {
        let published = self.publish(request).await;
        answer(published.map(|volume| pb::ControllerPublishVolumeResponse {
            publish_context: encode::context(volume.locator().publish_context()),
        }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<pb::ControllerUnpublishVolumeRequest>,
    ) -> Answer<pb::ControllerUnpublishVolumeResponse> {
        let unpublished = self.unpublish(request).await;
        answer(unpublished.map(|()| pb::ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<pb::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<pb::ValidateVolumeCapabilitiesResponse> {
        answer(self.validate(request.into_inner()).await)
    }

    async fn list_volumes(
        &self,
        request: Request<pb::ListVolumesRequest>,
    ) -> Answer<pb::ListVolumesResponse> {
        answer(self.list(request.into_inner()).await)
    }

    async fn controller_get_volume(
        &self,
        request: Request<pb::ControllerGetVolumeRequest>,
    ) -> Answer<pb::ControllerGetVolumeResponse> {
        use pb::controller_get_volume_response::VolumeStatus;

        let read = async {
            let id = decode::volume_id(request.into_inner().volume_id)?;
            self.get(&id).await
        };
        answer(read.await.map(|volume| pb::ControllerGetVolumeResponse {
            volume: Some(encode::volume(&volume, &self.key)),
            status: Some(VolumeStatus { published_node_ids: encode::published_nodes(&volume) }),
        }))
    }

    async fn controller_expand_volume(
        &self,
        request: Request<pb::ControllerExpandVolumeRequest>,
    ) -> Answer<pb::ControllerExpandVolumeResponse> {
        answer(self.expand(request).await)
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<pb::ControllerGetCapabilitiesRequest>,
    ) -> Answer<pb::ControllerGetCapabilitiesResponse> {
        use pb::controller_service_capability::{Rpc, Type};
        let capabilities = self.capabilities().into_iter().map(|rpc| {
            pb::ControllerServiceCapability { r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })) }
        });
        answer(Ok(pb::ControllerGetCapabilitiesResponse { capabilities: capabilities.collect() }))
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<pb::ControllerListVolumeHealthRequest>,
    ) -> Answer<pb::ControllerListVolumeHealthResponse> {
        answer(self.list_health(request.into_inner()).await)
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<pb::ControllerGetVolumeHealthRequest>,
    ) -> Answer<pb::ControllerGetVolumeHealthResponse> {
        answer(self.health(request.into_inner()).await)
    }

    async fn get_capacity(
        &self,
        request: Request<pb::GetCapacityRequest>,
    ) -> Answer<pb::GetCapacityResponse> {
        answer(self.capacity(request.into_inner()).await)
    }

    async fn create_snapshot(
        &self,
        request: Request<pb::CreateSnapshotRequest>,
    ) -> Answer<pb::CreateSnapshotResponse> {
        let made = self.snapshot(request).await;
        answer(made.map(|snapshot| pb::CreateSnapshotResponse {
            snapshot: Some(encode::snapshot(&snapshot, &self.key)),
        }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<pb::DeleteSnapshotRequest>,
    ) -> Answer<pb::DeleteSnapshotResponse> {
        answer(self.drop_snapshot(request).await.map(|()| pb::DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<pb::ListSnapshotsRequest>,
    ) -> Answer<pb::ListSnapshotsResponse> {
        answer(self.list_of_snapshots(request.into_inner()).await)
    }

    async fn get_snapshot(
        &self,
        request: Request<pb::GetSnapshotRequest>,
    ) -> Answer<pb::GetSnapshotResponse> {
        let found = self.one_snapshot(request.into_inner().snapshot_id).await;
        answer(found.map(|snapshot| pb::GetSnapshotResponse {
            snapshot: Some(encode::snapshot(&snapshot, &self.key)),
        }))
    }

    async fn controller_modify_volume(
        &self,
        _: Request<pb::ControllerModifyVolumeRequest>,
    ) -> Answer<pb::ControllerModifyVolumeResponse> {
        not_offered("ControllerModifyVolume")
    }
}
