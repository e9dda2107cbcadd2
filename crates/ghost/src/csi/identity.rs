//! The Identity service: who this plugin is, and whether it can be asked.

use ghost_csi as pb;
use tonic::{Request, Response, Status};

use super::NodeIdentity;
use super::status::answer;
use crate::controller::Controller;
use crate::error::{Error, Result};
use crate::node::{self, Node};

/// What the plugin says of itself.
#[derive(Clone, Debug)]
pub struct Plugin {
    /// Its name, as in the CSIDriver object.
    name: String,
}

impl Plugin {
    /// A plugin of this name: a domain name of at most 63 characters (the specification's rule).
    ///
    /// # Errors
    /// `Invalid` when it is anything else.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let label = |label: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            !label.is_empty()
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label.chars().all(inner)
        };
        // The topology key is `topology.<name>/region`, whose prefix may have 253 characters.
        if name.len() > 63 || !name.split('.').all(label) {
            return Err(Error::invalid(format!(
                "driver name {name:?} must be a domain name of at most 63 small letters, digits, \
                 dashes and dots"
            )));
        }
        Ok(Self { name })
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// The Identity service.
#[derive(Clone)]
pub struct IdentityService {
    plugin: Plugin,
    /// On a node: the machine, and who it is, once that is known.
    node: Option<(Node, NodeIdentity)>,
    grows: bool,
    snapshots: bool,
}

impl IdentityService {
    /// The service of this controller.
    #[must_use]
    pub fn of_controller(plugin: Plugin, controller: &Controller) -> Self {
        let backend = &controller.backend;
        let (grows, snapshots) = (backend.grow().is_some(), backend.snapshots().is_some());
        Self { plugin, node: None, grows, snapshots }
    }

    /// The service of a node.
    #[must_use]
    pub fn of_node(plugin: Plugin, node: Node, identity: NodeIdentity) -> Self {
        Self { plugin, node: Some((node, identity)), grows: true, snapshots: true }
    }
}

#[tonic::async_trait]
impl pb::identity_server::Identity for IdentityService {
    async fn get_plugin_info(
        &self,
        _: Request<pb::GetPluginInfoRequest>,
    ) -> std::result::Result<Response<pb::GetPluginInfoResponse>, Status> {
        answer(Ok(pb::GetPluginInfoResponse {
            name: self.plugin.name.clone(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<pb::GetPluginCapabilitiesRequest>,
    ) -> std::result::Result<Response<pb::GetPluginCapabilitiesResponse>, Status> {
        use pb::plugin_capability::service::Type as Service;
        use pb::plugin_capability::volume_expansion::Type as Expansion;
        use pb::plugin_capability::{self, Type};

        let service =
            |service: Service| Type::Service(plugin_capability::Service { r#type: service.into() });
        let mut types = vec![
            service(Service::ControllerService),
            service(Service::VolumeAccessibilityConstraints),
        ];
        if self.snapshots {
            types.push(service(Service::SnapshotAccessibilityConstraints));
        }
        if self.grows {
            types.push(Type::VolumeExpansion(plugin_capability::VolumeExpansion {
                r#type: Expansion::Online.into(),
            }));
        }
        let capabilities =
            types.into_iter().map(|one| pb::PluginCapability { r#type: Some(one) }).collect();
        answer(Ok(pb::GetPluginCapabilitiesResponse { capabilities }))
    }

    async fn probe(
        &self,
        _: Request<pb::ProbeRequest>,
    ) -> std::result::Result<Response<pb::ProbeResponse>, Status> {
        // No call to the cloud: its faults are not this process's, and restarting would not help.
        let Some((node, identity)) = &self.node else {
            return answer(Ok(pb::ProbeResponse { ready: Some(true) }));
        };
        let checked = node::check_kubelet_dir(node).await;
        answer(checked.map(|()| pb::ProbeResponse { ready: Some(identity.is_known()) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_name_is_a_domain_name() {
        assert!(Plugin::new("ghost.csi.greenhost.net").is_ok());
        for bad in ["", ".", "a..b", "-a.b", "a-.b", "A.b", "a_b", "a/b", &"a".repeat(64)] {
            assert!(Plugin::new(bad).is_err(), "{bad:?}");
        }
    }
}
