//! The Identity service.

use ghost_csi as pb;
use pb::plugin_capability::service::Type as Service;
use pb::plugin_capability::volume_expansion::Type as Expansion;
use pb::plugin_capability::{self, Type};
use tonic::Request;

use super::fault::Fault;
use super::{Answer, Reference};

#[tonic::async_trait]
impl pb::identity_server::Identity for Reference {
    async fn get_plugin_info(
        &self,
        _: Request<pb::GetPluginInfoRequest>,
    ) -> Answer<pb::GetPluginInfoResponse> {
        let dash = if self.is(Fault::NameWithUnderscore) { '_' } else { '-' };
        self.answer(Ok(pb::GetPluginInfoResponse {
            name: format!("reference{dash}driver.example"),
            vendor_version: if self.is(Fault::VersionChanges) {
                self.next().to_string()
            } else {
                "1".to_owned()
            },
            manifest: [].into(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<pb::GetPluginCapabilitiesRequest>,
    ) -> Answer<pb::GetPluginCapabilitiesResponse> {
        let service =
            |service: Service| Type::Service(plugin_capability::Service { r#type: service.into() });
        let mut types = Vec::new();
        if !self.is(Fault::ControllerServiceUnsaid) {
            types.push(service(Service::ControllerService));
        }
        if !self.is(Fault::TopologyUnclaimed) {
            types.push(service(Service::VolumeAccessibilityConstraints));
        }
        if !self.is(Fault::ExpansionUnsaid) {
            types.push(Type::VolumeExpansion(plugin_capability::VolumeExpansion {
                r#type: Expansion::Online.into(),
            }));
        }
        let capabilities =
            types.into_iter().map(|one| pb::PluginCapability { r#type: Some(one) }).collect();
        self.answer(Ok(pb::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(&self, _: Request<pb::ProbeRequest>) -> Answer<pb::ProbeResponse> {
        self.answer(Ok(pb::ProbeResponse { ready: Some(!self.is(Fault::ProbeNotReady)) }))
    }
}
