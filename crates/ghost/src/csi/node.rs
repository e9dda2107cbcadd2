//! The Node service: each call is decoded, run as an operation, and encoded.

use std::path::PathBuf;

use ghost_csi as pb;
use ghost_host::Access;
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span, info_span};

use super::status::answer;
use super::{NodeIdentity, decode, encode};
use crate::error::{Error, Result};
use crate::node::{
    self, GrowRequest, HealthRequest, Node, PublishRequest, StageRequest, Stats, StatsRequest,
    UnpublishRequest, UnstageRequest,
};
use crate::operation::{Key, Operations};
use crate::volume::{
    AccessType, Bytes, Formatting, Locator, StorageProblem, TopologyKey, VolumeHealth, VolumeId,
};

type Answer<T> = std::result::Result<Response<T>, Status>;

/// The Node service.
pub struct NodeService {
    node: Node,
    identity: NodeIdentity,
    attach_limit: u32,
    operations: Operations,
    key: TopologyKey,
}

impl NodeService {
    /// The service of this node, which takes that many volumes.
    #[must_use]
    pub fn new(
        node: Node,
        identity: NodeIdentity,
        attach_limit: u32,
        operations: Operations,
        key: TopologyKey,
    ) -> Self {
        Self { node, identity, attach_limit, operations, key }
    }

    async fn stage(&self, request: Request<pb::NodeStageVolumeRequest>) -> Result<()> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let staging = decode::path("staging_target_path", request.staging_target_path)?;
        let capability = decode::capability(request.volume_capability)?;
        capability.check_usable()?;
        let locator = Locator::from_contexts(
            &id,
            &decode::context(request.publish_context),
            &decode::context(request.volume_context.clone()),
        )?;
        let formatting = Formatting::from_context(&decode::context(request.volume_context))?;
        if let AccessType::Mount { filesystem, .. } = &capability.access {
            formatting.check(*filesystem)?;
        }
        let stage = StageRequest { locator, staging, capability, formatting };
        let node = self.node.clone();
        self.operations
            .run("stage_volume", id_key(&id), deadline, stage, |stage| async move {
                node::stage(&node, &stage).await
            })
            .instrument(span("NodeStageVolume", &id))
            .await
    }

    async fn unstage(&self, request: Request<pb::NodeUnstageVolumeRequest>) -> Result<()> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let staging = decode::path("staging_target_path", request.staging_target_path)?;
        let unstage = UnstageRequest { id: id.clone(), staging };
        let node = self.node.clone();
        self.operations
            .run("unstage_volume", id_key(&id), deadline, unstage, |unstage| async move {
                node::unstage(&node, &unstage).await
            })
            .instrument(span("NodeUnstageVolume", &id))
            .await
    }

    async fn publish(&self, request: Request<pb::NodePublishVolumeRequest>) -> Result<()> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let target = decode::path("target_path", request.target_path)?;
        let capability = decode::capability(request.volume_capability)?;
        capability.check_usable()?;
        if request.staging_target_path.is_empty() {
            return Err(Error::precondition(
                "staging_target_path is missing: volumes of this driver are staged first",
            ));
        }
        let staging = decode::path("staging_target_path", request.staging_target_path)?;
        let locator = Locator::from_contexts(
            &id,
            &decode::context(request.publish_context),
            &decode::context(request.volume_context),
        )?;
        let access = if request.readonly { Access::ReadOnly } else { Access::ReadWrite };
        let publish = PublishRequest { locator, staging, target, capability, access };
        let node = self.node.clone();
        self.operations
            .run("publish_volume", id_key(&id), deadline, publish, |publish| async move {
                node::publish(&node, &publish).await
            })
            .instrument(span("NodePublishVolume", &id))
            .await
    }

    async fn unpublish(&self, request: Request<pb::NodeUnpublishVolumeRequest>) -> Result<()> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let target = decode::path("target_path", request.target_path)?;
        let unpublish = UnpublishRequest { id: id.clone(), target };
        let node = self.node.clone();
        self.operations
            .run("unpublish_volume", id_key(&id), deadline, unpublish, |unpublish| async move {
                node::unpublish(&node, &unpublish).await
            })
            .instrument(span("NodeUnpublishVolume", &id))
            .await
    }

    async fn expand(&self, request: Request<pb::NodeExpandVolumeRequest>) -> Result<Bytes> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let path = decode::looked_for("volume_path", request.volume_path)?;
        let staging = optional_path("staging_target_path", request.staging_target_path)?;
        let block = match request.volume_capability {
            None => false,
            given => decode::capability(given)?.access == AccessType::Block,
        };
        let size = decode::size_range(request.capacity_range)?;
        let grow = GrowRequest { id: id.clone(), path, staging, block, size };
        let node = self.node.clone();
        self.operations
            .run("expand_filesystem", id_key(&id), deadline, grow, |grow| async move {
                node::grow(&node, &grow).await
            })
            .instrument(span("NodeExpandVolume", &id))
            .await
    }

    async fn stats(&self, request: Request<pb::NodeGetVolumeStatsRequest>) -> Result<Stats> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let path = decode::looked_for("volume_path", request.volume_path)?;
        let staging = optional_path("staging_target_path", request.staging_target_path)?;
        // A dead disk may hang whoever looks at it: the next one joins instead of hanging too.
        let key = Key::Read(format!("{id} at {}", path.display()));
        let span = span("NodeGetVolumeStats", &id);
        let stats = StatsRequest { id, path, staging };
        let node = self.node.clone();
        self.operations
            .run("volume_stats", key, deadline, stats, |stats| async move {
                node::stats(&node, &stats).await
            })
            .instrument(span)
            .await
    }

    async fn volume_health(
        &self,
        request: Request<pb::NodeGetVolumeHealthRequest>,
    ) -> Result<VolumeHealth> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let id = decode::volume_id(request.volume_id)?;
        let paths = [request.volume_publish_path, request.staging_target_path];
        let paths: Vec<PathBuf> =
            paths.into_iter().filter(|path| !path.is_empty()).map(PathBuf::from).collect();
        let key = Key::Read(format!("health of {id} at {paths:?}"));
        let span = span("NodeGetVolumeHealth", &id);
        let node = self.node.clone();
        self.operations
            .run("volume_health", key, deadline, HealthRequest { id, paths }, |wanted| async move {
                node::health(&node, &wanted).await
            })
            .instrument(span)
            .await
    }

    async fn storage_health(
        &self,
        request: &Request<pb::NodeGetStorageHealthRequest>,
    ) -> Result<Vec<StorageProblem>> {
        let deadline = decode::deadline(request.metadata());
        let key = Key::Read("health of the storage".to_owned());
        let span = info_span!("operation", rpc = "NodeGetStorageHealth");
        let node = self.node.clone();
        let found = self
            .operations
            .run("storage_health", key, deadline, (), |()| async move {
                node::storage_health(&node).await
            })
            .instrument(span)
            .await;
        let mut problems = found?;
        if !self.identity.is_known() {
            problems.push(StorageProblem::NodeUnknown);
        }
        Ok(problems)
    }
}

fn optional_path(field: &str, text: String) -> Result<Option<std::path::PathBuf>> {
    if text.is_empty() { Ok(None) } else { decode::path(field, text).map(Some) }
}

fn id_key(id: &VolumeId) -> Key {
    Key::Id(id.to_string())
}

fn span(rpc: &'static str, id: &VolumeId) -> Span {
    info_span!("operation", rpc, volume_id = id.as_str())
}

fn usage(stats: Stats) -> Vec<pb::VolumeUsage> {
    use pb::volume_usage::Unit;
    let signed = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let of = |unit: Unit, total: u64, used: u64, available: u64| pb::VolumeUsage {
        available: signed(available),
        total: signed(total),
        used: signed(used),
        unit: unit.into(),
    };
    match stats {
        Stats::Block { total } => vec![of(Unit::Bytes, total.get(), 0, 0)],
        Stats::Filesystem(usage) => {
            let mut list =
                vec![of(Unit::Bytes, usage.total_bytes, usage.used_bytes, usage.available_bytes)];
            // A filesystem that makes inodes as needed has no number to tell.
            if usage.total_inodes > 0 {
                list.push(of(
                    Unit::Inodes,
                    usage.total_inodes,
                    usage.used_inodes,
                    usage.available_inodes,
                ));
            }
            list
        }
    }
}

#[tonic::async_trait]
impl pb::node_server::Node for NodeService {
    async fn node_stage_volume(
        &self,
        request: Request<pb::NodeStageVolumeRequest>,
    ) -> Answer<pb::NodeStageVolumeResponse> {
        answer(self.stage(request).await.map(|()| pb::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<pb::NodeUnstageVolumeRequest>,
    ) -> Answer<pb::NodeUnstageVolumeResponse> {
        answer(self.unstage(request).await.map(|()| pb::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<pb::NodePublishVolumeRequest>,
    ) -> Answer<pb::NodePublishVolumeResponse> {
        answer(self.publish(request).await.map(|()| pb::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<pb::NodeUnpublishVolumeRequest>,
    ) -> Answer<pb::NodeUnpublishVolumeResponse> {
        answer(self.unpublish(request).await.map(|()| pb::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<pb::NodeGetVolumeStatsRequest>,
    ) -> Answer<pb::NodeGetVolumeStatsResponse> {
        let stats = self.stats(request).await;
        answer(stats.map(|stats| pb::NodeGetVolumeStatsResponse { usage: usage(stats) }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<pb::NodeExpandVolumeRequest>,
    ) -> Answer<pb::NodeExpandVolumeResponse> {
        let size = self.expand(request).await;
        answer(
            size.map(|size| pb::NodeExpandVolumeResponse { capacity_bytes: encode::bytes(size) }),
        )
    }

    async fn node_get_capabilities(
        &self,
        _: Request<pb::NodeGetCapabilitiesRequest>,
    ) -> Answer<pb::NodeGetCapabilitiesResponse> {
        use pb::node_service_capability::rpc::Type as Offered;
        use pb::node_service_capability::{Rpc, Type};
        let offered = [
            Offered::StageUnstageVolume,
            Offered::GetVolumeStats,
            Offered::ExpandVolume,
            Offered::SingleNodeMultiWriter,
            Offered::GetVolumeHealth,
            Offered::GetStorageHealth,
        ];
        let capabilities = offered.map(|rpc| pb::NodeServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: rpc.into() })),
        });
        answer(Ok(pb::NodeGetCapabilitiesResponse { capabilities: capabilities.into() }))
    }

    async fn node_get_info(
        &self,
        _: Request<pb::NodeGetInfoRequest>,
    ) -> Answer<pb::NodeGetInfoResponse> {
        let info = async {
            let (id, region) = self.identity.get()?;
            let limit = node::attach_limit(&self.node, self.attach_limit).await?;
            Ok(pb::NodeGetInfoResponse {
                node_id: id.to_string(),
                max_volumes_per_node: i64::from(limit),
                accessible_topology: Some(encode::topology(&region, &self.key)),
            })
        };
        answer(info.await)
    }

    async fn node_get_volume_health(
        &self,
        request: Request<pb::NodeGetVolumeHealthRequest>,
    ) -> Answer<pb::NodeGetVolumeHealthResponse> {
        let health = self.volume_health(request).await;
        answer(health.map(|health| pb::NodeGetVolumeHealthResponse {
            volume_health: Some(encode::volume_health(&health)),
        }))
    }

    async fn node_get_storage_health(
        &self,
        request: Request<pb::NodeGetStorageHealthRequest>,
    ) -> Answer<pb::NodeGetStorageHealthResponse> {
        let problems = self.storage_health(&request).await;
        answer(problems.map(|problems| pb::NodeGetStorageHealthResponse {
            backend_health: problems.iter().map(encode::storage_health).collect(),
        }))
    }
}
