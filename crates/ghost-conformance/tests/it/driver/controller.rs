//! The Controller service.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as Rpc;
use tonic::{Code, Request, Status};

use super::create::LARGEST;
use super::fault::Fault;
use super::{Answer, MIB, Reference, SLOW, Snapshot, State, disk, given, is_block, no, page};

impl Reference {
    fn list(&self, request: &pb::ListVolumesRequest) -> Result<pb::ListVolumesResponse, Status> {
        use pb::list_volumes_response::{Entry, VolumeStatus};
        let state = self.state();
        let entries = state.volumes.iter().collect();
        let (shown, next_token) =
            page(self, entries, request.max_entries, &request.starting_token)?;
        let mut entries: Vec<Entry> = shown
            .into_iter()
            .map(|(id, volume)| Entry {
                volume: Some(self.listed(id, volume)),
                status: Some(VolumeStatus { published_node_ids: self.nodes(volume) }),
            })
            .collect();
        if let (true, Some(id)) = (self.is(Fault::DeletedIsListed), state.deleted.last()) {
            let volume = pb::Volume { volume_id: id.clone(), ..Default::default() };
            entries.push(Entry { volume: Some(volume), status: None });
        }
        Ok(pb::ListVolumesResponse { entries, next_token })
    }

    fn expand(
        &self,
        request: &pb::ControllerExpandVolumeRequest,
    ) -> Result<pb::ControllerExpandVolumeResponse, Status> {
        given("volume_id", &request.volume_id)?;
        let none = self.is(Fault::ExpandNeedsNoSize).then(pb::CapacityRange::default);
        let Some(range) = request.capacity_range.or(none) else {
            return no(Code::InvalidArgument, "capacity_range is missing");
        };
        let mut state = self.state();
        let Some(volume) = state.volumes.get_mut(&request.volume_id) else {
            return no(Code::NotFound, "there is no such volume");
        };
        if range.limit_bytes > 0
            && range.required_bytes <= range.limit_bytes
            && range.limit_bytes < volume.size
            && !self.is(Fault::ExpandIgnoresLimit)
        {
            return no(Code::OutOfRange, format!("the volume has {} bytes", volume.size));
        }
        let ignored = self.is(Fault::ExpandIgnoresLimit) && range.limit_bytes < volume.size;
        let range =
            pb::CapacityRange { limit_bytes: if ignored { 0 } else { range.limit_bytes }, ..range };
        let wanted = self.size(Some(&range))?;
        volume.size = if self.is(Fault::GrowsEachTime) && wanted <= volume.size {
            volume.size * 2
        } else {
            volume.size.max(wanted)
        };
        if volume.block {
            let file =
                std::fs::OpenOptions::new().write(true).open(self.disk(&request.volume_id))?;
            file.set_len(u64::try_from(volume.size).unwrap_or(0))?;
        }
        let (capacity_bytes, node_expansion_required) = (volume.size, !volume.block);
        Ok(pb::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required })
    }

    fn validate(
        &self,
        request: pb::ValidateVolumeCapabilitiesRequest,
    ) -> Result<pb::ValidateVolumeCapabilitiesResponse, Status> {
        use pb::validate_volume_capabilities_response::Confirmed;
        given("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return no(Code::InvalidArgument, "the volume capabilities are missing");
        }
        let state = self.state();
        let Some(volume) = state.volumes.get(&request.volume_id) else {
            return no(Code::NotFound, "there is no such volume");
        };
        if self.is(Fault::ConfirmsNothing) {
            let confirmed = Some(Confirmed::default());
            return Ok(pb::ValidateVolumeCapabilitiesResponse { confirmed, ..Default::default() });
        }
        for capability in &request.volume_capabilities {
            if is_block(Some(capability))? != volume.block {
                let message = "the volume is of the other kind".to_owned();
                return Ok(pb::ValidateVolumeCapabilitiesResponse { confirmed: None, message });
            }
        }
        Ok(pb::ValidateVolumeCapabilitiesResponse {
            confirmed: Some(Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: request.mutable_parameters,
            }),
            message: String::new(),
        })
    }

    fn claims(&self) -> Vec<Rpc> {
        let mut claims = vec![
            Rpc::CreateDeleteVolume,
            Rpc::PublishUnpublishVolume,
            Rpc::ListVolumes,
            Rpc::GetCapacity,
            Rpc::CreateDeleteSnapshot,
            Rpc::ListSnapshots,
            Rpc::CloneVolume,
            Rpc::PublishReadonly,
            Rpc::ExpandVolume,
            Rpc::ListVolumesPublishedNodes,
            Rpc::GetVolume,
            Rpc::SingleNodeMultiWriter,
            Rpc::ModifyVolume,
            Rpc::ListVolumeHealth,
        ];
        if !self.is(Fault::UnclaimedAnswered) {
            claims.push(Rpc::GetSnapshot);
        }
        if !self.is(Fault::HealthListAlone) {
            claims.push(Rpc::GetVolumeHealth);
        }
        if self.is(Fault::ClaimedTwice) {
            claims.push(Rpc::GetVolume);
        }
        claims
    }

    fn capacity(&self, request: &pb::GetCapacityRequest) -> pb::GetCapacityResponse {
        let here = |one: &pb::Topology| *one == self.topology();
        let here = request.accessible_topology.as_ref().is_none_or(here);
        let all = here || self.is(Fault::CapacityEverywhere);
        pb::GetCapacityResponse {
            available_capacity: match all {
                true if self.is(Fault::CapacityNegative) => -1,
                true => LARGEST,
                false => 0,
            },
            maximum_volume_size: Some(LARGEST),
            minimum_volume_size: Some(MIB),
        }
    }

    pub(super) fn volume_content(&self, state: &State, id: &str) -> Option<Snapshot> {
        let volume = state.volumes.get(id)?;
        Some(Snapshot {
            name: String::new(),
            source: id.to_owned(),
            size: volume.size,
            content: disk::content(&self.disk(id)),
        })
    }
}

#[tonic::async_trait]
impl pb::controller_server::Controller for Reference {
    async fn create_volume(
        &self,
        request: Request<pb::CreateVolumeRequest>,
    ) -> Answer<pb::CreateVolumeResponse> {
        let made = self.create(request.into_inner()).await;
        self.answer(made.map(|volume| pb::CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<pb::DeleteVolumeRequest>,
    ) -> Answer<pb::DeleteVolumeResponse> {
        let id = request.into_inner().volume_id;
        if self.is(Fault::DeleteRaces) && self.state().volumes.contains_key(&id) {
            tokio::time::sleep(SLOW).await;
            if !self.state().volumes.contains_key(&id) {
                return self.answer(no(Code::Internal, "its disk is gone"));
            }
        }
        let gone = self.delete(&id);
        self.answer(gone.map(|()| pb::DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<pb::ControllerPublishVolumeRequest>,
    ) -> Answer<pb::ControllerPublishVolumeResponse> {
        let attached = self.attach(request.into_inner()).await;
        self.answer(attached)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<pb::ControllerUnpublishVolumeRequest>,
    ) -> Answer<pb::ControllerUnpublishVolumeResponse> {
        let request = request.into_inner();
        let detached = self.detach(request.volume_id, request.node_id).await;
        self.answer(detached.map(|()| pb::ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<pb::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<pb::ValidateVolumeCapabilitiesResponse> {
        self.answer(self.validate(request.into_inner()))
    }

    async fn list_volumes(
        &self,
        request: Request<pb::ListVolumesRequest>,
    ) -> Answer<pb::ListVolumesResponse> {
        self.answer(self.list(&request.into_inner()))
    }

    async fn controller_get_volume(
        &self,
        request: Request<pb::ControllerGetVolumeRequest>,
    ) -> Answer<pb::ControllerGetVolumeResponse> {
        use pb::controller_get_volume_response::VolumeStatus;
        let id = request.into_inner().volume_id;
        let found = given("volume_id", &id).and_then(|()| {
            let state = self.state();
            let Some(volume) = state.volumes.get(&id) else {
                return no(Code::NotFound, "there is no such volume");
            };
            let status = Some(VolumeStatus { published_node_ids: self.nodes(volume) });
            let mut volume = self.shown(&id, volume);
            if self.is(Fault::GetForgetsSize) {
                volume.capacity_bytes = 0;
            }
            let volume = Some(volume);
            Ok(pb::ControllerGetVolumeResponse { volume, status })
        });
        self.answer(found)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<pb::ControllerExpandVolumeRequest>,
    ) -> Answer<pb::ControllerExpandVolumeResponse> {
        self.answer(self.expand(&request.into_inner()))
    }

    async fn controller_modify_volume(
        &self,
        request: Request<pb::ControllerModifyVolumeRequest>,
    ) -> Answer<pb::ControllerModifyVolumeResponse> {
        let request = request.into_inner();
        let there = self.state().volumes.contains_key(&request.volume_id);
        let unknown = request.mutable_parameters.keys().next();
        let modified = given("volume_id", &request.volume_id).and_then(|()| match unknown {
            _ if !there => no(Code::NotFound, "there is no such volume"),
            Some(key) if !self.is(Fault::ModifyTakesAnything) => {
                no(Code::InvalidArgument, format!("mutable parameter {key:?} is not known"))
            }
            _ => Ok(pb::ControllerModifyVolumeResponse {}),
        });
        self.answer(modified)
    }

    async fn get_capacity(
        &self,
        request: Request<pb::GetCapacityRequest>,
    ) -> Answer<pb::GetCapacityResponse> {
        if self.is(Fault::ClaimedUnimplemented) {
            return self.answer(no(Code::Unimplemented, "nobody knows"));
        }
        self.answer(Ok(self.capacity(&request.into_inner())))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<pb::ControllerGetCapabilitiesRequest>,
    ) -> Answer<pb::ControllerGetCapabilitiesResponse> {
        use pb::controller_service_capability::{self, Type};
        let capabilities = self.claims().into_iter().map(|rpc| pb::ControllerServiceCapability {
            r#type: Some(Type::Rpc(controller_service_capability::Rpc { r#type: rpc.into() })),
        });
        let capabilities = capabilities.collect();
        self.answer(Ok(pb::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<pb::CreateSnapshotRequest>,
    ) -> Answer<pb::CreateSnapshotResponse> {
        let made = self.make_snapshot(request.into_inner()).await;
        self.answer(made.map(|snapshot| pb::CreateSnapshotResponse { snapshot: Some(snapshot) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<pb::DeleteSnapshotRequest>,
    ) -> Answer<pb::DeleteSnapshotResponse> {
        let id = request.into_inner().snapshot_id;
        let gone = given("snapshot_id", &id).and_then(|()| {
            let gone = self.state().snapshots.remove(&id);
            if gone.is_none() && self.is(Fault::SnapshotDeleteTwiceFails) {
                return no(Code::NotFound, "there is no such snapshot");
            }
            Ok(pb::DeleteSnapshotResponse {})
        });
        self.answer(gone)
    }

    async fn list_snapshots(
        &self,
        request: Request<pb::ListSnapshotsRequest>,
    ) -> Answer<pb::ListSnapshotsResponse> {
        self.answer(self.list_of_snapshots(&request.into_inner()))
    }

    async fn get_snapshot(
        &self,
        request: Request<pb::GetSnapshotRequest>,
    ) -> Answer<pb::GetSnapshotResponse> {
        self.answer(self.one_snapshot(&request.into_inner().snapshot_id))
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<pb::ControllerGetVolumeHealthRequest>,
    ) -> Answer<pb::ControllerGetVolumeHealthResponse> {
        if self.is(Fault::HealthListAlone) {
            return self.answer(no(Code::Unimplemented, "only the list is offered"));
        }
        let id = request.into_inner().volume_id;
        let found = given("volume_id", &id).and_then(|()| {
            let there = self.state().volumes.contains_key(&id);
            if !there && !self.is(Fault::HealthOfUnknown) {
                return no(Code::NotFound, "there is no such volume");
            }
            let health = pb::VolumeHealth { volume_id: id.clone(), health_statuses: Vec::new() };
            Ok(pb::ControllerGetVolumeHealthResponse { volume_health: Some(health) })
        });
        self.answer(found)
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<pb::ControllerListVolumeHealthRequest>,
    ) -> Answer<pb::ControllerListVolumeHealthResponse> {
        let request = request.into_inner();
        let listed = self.is(Fault::HealthyListed);
        let state = self.state();
        let entries = state.volumes.iter().filter(|_| listed).collect();
        let found = page(self, entries, request.max_entries, &request.starting_token);
        self.answer(found.map(|(shown, next_token)| {
            let entries = shown.into_iter().map(|(id, _)| pb::VolumeHealth {
                volume_id: id.clone(),
                health_statuses: Vec::new(),
            });
            pb::ControllerListVolumeHealthResponse { entries: entries.collect(), next_token }
        }))
    }
}
