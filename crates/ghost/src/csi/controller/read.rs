//! The calls that only read volumes: they take no key and are no operations.

use ghost_csi as pb;

use super::ControllerService;
use crate::controller;
use crate::csi::{decode, encode};
use crate::error::{Error, Result};
use crate::volume::{Formatting, Locator, Parameters, Volume, VolumeId};

impl ControllerService {
    pub(super) async fn get(&self, id: &VolumeId) -> Result<Volume> {
        let found = self.controller.backend.get(id).await?;
        found.ok_or_else(|| Error::not_found(format!("there is no volume {id}")))
    }

    pub(super) async fn validate(
        &self,
        request: pb::ValidateVolumeCapabilitiesRequest,
    ) -> Result<pb::ValidateVolumeCapabilitiesResponse> {
        let id = decode::volume_id(request.volume_id)?;
        let capabilities = decode::capabilities(request.volume_capabilities.clone())?;
        let volume = self.get(&id).await?;
        let context = decode::context(request.volume_context.clone());
        let parameters = decode::context(request.parameters.clone());
        let fits = decode::together(&capabilities)
            .and_then(|filesystem| {
                filesystem
                    .map_or(Ok(()), |kind| Formatting::from_context(&context)?.check(kind))?;
                Parameters::parse(&parameters, filesystem)
            })
            .and_then(|_| {
                let publish = volume.locator().publish_context();
                Locator::from_contexts(&id, &publish, &context)
            });
        Ok(match fits {
            Ok(_) => pb::ValidateVolumeCapabilitiesResponse {
                confirmed: Some(pb::validate_volume_capabilities_response::Confirmed {
                    volume_context: request.volume_context,
                    volume_capabilities: request.volume_capabilities,
                    parameters: request.parameters,
                    mutable_parameters: Default::default(),
                }),
                message: String::new(),
            },
            Err(error) => {
                pb::ValidateVolumeCapabilitiesResponse { confirmed: None, message: error.chain() }
            }
        })
    }

    pub(super) async fn list(
        &self,
        request: pb::ListVolumesRequest,
    ) -> Result<pb::ListVolumesResponse> {
        use pb::list_volumes_response::{Entry, VolumeStatus};

        let request = decode::page(request.max_entries, request.starting_token)?;
        let page = controller::list_volumes(&self.volumes, &self.controller, &request).await?;
        let entries = page.entries.iter().map(|volume| Entry {
            volume: Some(encode::volume(volume, &self.key)),
            status: Some(VolumeStatus { published_node_ids: encode::published_nodes(volume) }),
        });
        Ok(pb::ListVolumesResponse {
            entries: entries.collect(),
            next_token: page.next.unwrap_or_default(),
        })
    }

    pub(super) async fn health(
        &self,
        request: pb::ControllerGetVolumeHealthRequest,
    ) -> Result<pb::ControllerGetVolumeHealthResponse> {
        let id = decode::volume_id(request.volume_id)?;
        let health = controller::volume_health(&self.controller, &id).await?;
        Ok(pb::ControllerGetVolumeHealthResponse {
            volume_health: Some(encode::volume_health(&health)),
        })
    }

    pub(super) async fn list_health(
        &self,
        request: pb::ControllerListVolumeHealthRequest,
    ) -> Result<pb::ControllerListVolumeHealthResponse> {
        let request = decode::page(request.max_entries, request.starting_token)?;
        let lists = &self.unhealthy;
        let page = controller::list_unhealthy(lists, &self.controller, &request).await?;
        Ok(pb::ControllerListVolumeHealthResponse {
            entries: page.entries.iter().map(encode::volume_health).collect(),
            next_token: page.next.unwrap_or_default(),
        })
    }

    pub(super) async fn capacity(
        &self,
        request: pb::GetCapacityRequest,
    ) -> Result<pb::GetCapacityResponse> {
        let filesystem = match &request.volume_capabilities[..] {
            [] => None,
            some => decode::together(&decode::capabilities(some.to_vec())?)?,
        };
        let parameters = decode::context(request.parameters);
        // Without a capability it is not known whether it is to be a filesystem; then any will do.
        if !request.volume_capabilities.is_empty() {
            Parameters::parse(&parameters, filesystem)?;
        }
        let region = request.accessible_topology;
        let region =
            region.map(|topology| self.key.region(&topology.segments.into_iter().collect()));
        let capacity = controller::capacity(&self.controller, region.transpose()?.as_ref()).await?;
        Ok(pb::GetCapacityResponse {
            available_capacity: encode::bytes(capacity.available),
            maximum_volume_size: Some(encode::bytes(capacity.largest)),
            minimum_volume_size: Some(encode::bytes(capacity.smallest)),
        })
    }
}
