//! The requests that most checks begin with.

use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::node_service_capability::rpc::Type as NodeRpc;
use pb::plugin_capability::service::Type as Service;
use pb::volume_capability::access_mode::Mode;
use pb::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};

use super::{Owed, Trial};
use crate::options::Access;
use crate::verdict::{Ended, Verdict, demand, failed};

/// A volume in use at the node: attached and staged, where the driver has these steps.
#[derive(Clone)]
pub(crate) struct Used {
    /// The volume.
    pub(crate) volume: pb::Volume,
    /// What ControllerPublishVolume answered.
    pub(crate) publish_context: HashMap<String, String>,
    /// How it is used.
    pub(crate) capability: pb::VolumeCapability,
    /// Where it is staged; empty when the driver does not stage.
    pub(crate) staging: String,
}

impl Used {
    /// What is asked to stage it.
    pub(crate) fn stage(&self, trial: &Trial) -> pb::NodeStageVolumeRequest {
        pb::NodeStageVolumeRequest {
            volume_id: self.volume.volume_id.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: self.staging.clone(),
            volume_capability: Some(self.capability.clone()),
            secrets: trial.options.secrets.clone(),
            volume_context: self.volume.volume_context.clone(),
        }
    }

    /// What is asked to take it from its staging path.
    pub(crate) fn unstage(&self) -> pb::NodeUnstageVolumeRequest {
        pb::NodeUnstageVolumeRequest {
            volume_id: self.volume.volume_id.clone(),
            staging_target_path: self.staging.clone(),
        }
    }

    /// What is asked to have it at a target path.
    pub(crate) fn publish(&self, trial: &Trial, target: &Path) -> pb::NodePublishVolumeRequest {
        pb::NodePublishVolumeRequest {
            volume_id: self.volume.volume_id.clone(),
            publish_context: self.publish_context.clone(),
            staging_target_path: self.staging.clone(),
            target_path: text(target),
            volume_capability: Some(self.capability.clone()),
            readonly: false,
            secrets: trial.options.secrets.clone(),
            volume_context: self.volume.volume_context.clone(),
        }
    }

    /// What is asked to take it from a target path.
    pub(crate) fn unpublish(&self, target: &Path) -> pb::NodeUnpublishVolumeRequest {
        pb::NodeUnpublishVolumeRequest {
            volume_id: self.volume.volume_id.clone(),
            target_path: text(target),
        }
    }
}

impl Trial {
    /// How the volumes are used: by one writer on one node.
    pub(crate) fn capability(&self) -> pb::VolumeCapability {
        let access = match self.options.access {
            Access::Block => AccessType::Block(BlockVolume {}),
            Access::Mount => AccessType::Mount(MountVolume {
                fs_type: self.options.fs_type.clone(),
                ..Default::default()
            }),
        };
        let mode = AccessMode { mode: Mode::SingleNodeWriter.into() };
        pb::VolumeCapability { access_mode: Some(mode), access_type: Some(access) }
    }

    /// What is asked for a new volume. Where topology matters it is to be near the node.
    pub(crate) fn create(&self, label: &str) -> pb::CreateVolumeRequest {
        let near = self.driver.info().and_then(|info| info.accessible_topology.clone());
        let near = near.filter(|_| self.driver.serves(Service::VolumeAccessibilityConstraints));
        pb::CreateVolumeRequest {
            name: self.name(label),
            capacity_range: Some(pb::CapacityRange {
                required_bytes: self.options.size,
                limit_bytes: 0,
            }),
            volume_capabilities: vec![self.capability()],
            parameters: self.options.parameters.clone(),
            secrets: self.options.secrets.clone(),
            accessibility_requirements: near.map(|near| pb::TopologyRequirement {
                requisite: vec![near.clone()],
                preferred: vec![near],
            }),
            ..Default::default()
        }
    }

    /// A new volume.
    pub(crate) async fn volume(&self, label: &str) -> Verdict<pb::Volume> {
        self.volume_of(self.create(label)).await
    }

    /// The volume that a request is answered with.
    pub(crate) async fn volume_of(&self, request: pb::CreateVolumeRequest) -> Verdict<pb::Volume> {
        let asked = self.ask(request).await;
        let words = asked.asked.clone();
        let volume = asked.ok("the volume is made")?.volume;
        let volume = volume.filter(|volume| !volume.volume_id.is_empty());
        volume.ok_or_else(|| failed(words, "no volume id", "the answer has the volume and its id"))
    }

    /// What is asked to delete a volume.
    pub(crate) fn delete(&self, id: &str) -> pb::DeleteVolumeRequest {
        pb::DeleteVolumeRequest { volume_id: id.to_owned(), secrets: self.options.secrets.clone() }
    }

    /// The id of the node that the node socket is of.
    pub(crate) fn node_id(&self) -> String {
        let told = self.driver.info().map(|info| info.node_id.clone());
        self.options.node_id.clone().or(told).unwrap_or_default()
    }

    /// What is asked to have a volume at a node.
    pub(crate) fn attach(
        &self,
        volume: &pb::Volume,
        node: &str,
    ) -> pb::ControllerPublishVolumeRequest {
        pb::ControllerPublishVolumeRequest {
            volume_id: volume.volume_id.clone(),
            node_id: node.to_owned(),
            volume_capability: Some(self.capability()),
            readonly: false,
            secrets: self.options.secrets.clone(),
            volume_context: volume.volume_context.clone(),
        }
    }

    /// What is asked to take a volume from a node, or from all when none is named.
    pub(crate) fn detach(&self, id: &str, node: &str) -> pb::ControllerUnpublishVolumeRequest {
        pb::ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_owned(),
            secrets: self.options.secrets.clone(),
        }
    }

    /// What is asked for a snapshot.
    pub(crate) fn snapshot(&self, label: &str, source: &str) -> pb::CreateSnapshotRequest {
        pb::CreateSnapshotRequest {
            source_volume_id: source.to_owned(),
            name: self.name(label),
            secrets: self.options.secrets.clone(),
            ..Default::default()
        }
    }

    /// The snapshot that a request is answered with.
    pub(crate) async fn snapshot_of(
        &self,
        request: pb::CreateSnapshotRequest,
    ) -> Verdict<pb::Snapshot> {
        let asked = self.ask(request).await;
        let words = asked.asked.clone();
        let snapshot = asked.ok("the snapshot is made")?.snapshot;
        let snapshot = snapshot.filter(|snapshot| !snapshot.snapshot_id.is_empty());
        snapshot.ok_or_else(|| failed(words, "no snapshot id", "the answer has the snapshot"))
    }

    /// A new volume that is attached, with a staging path where nothing is yet.
    pub(crate) async fn attached(&self, capability: pb::VolumeCapability) -> Verdict<Used> {
        let request = pb::CreateVolumeRequest {
            volume_capabilities: vec![capability.clone()],
            ..self.create("used")
        };
        let volume = self.volume_of(request).await?;
        self.attached_volume(volume, capability).await
    }

    /// The same of a volume that is there.
    pub(crate) async fn attached_volume(
        &self,
        volume: pb::Volume,
        capability: pb::VolumeCapability,
    ) -> Verdict<Used> {
        let mut publish_context = HashMap::new();
        if self.driver.offers(ControllerRpc::PublishUnpublishVolume) {
            let request = pb::ControllerPublishVolumeRequest {
                volume_capability: Some(capability.clone()),
                ..self.attach(&volume, &self.node_id())
            };
            let answer = self.ask(request).await.ok("the volume is free to be attached")?;
            publish_context = answer.publish_context;
        }
        let staging = if self.driver.node_offers(NodeRpc::StageUnstageVolume) {
            text(&self.folder(&self.options.staging_dir.clone(), "staging")?)
        } else {
            String::new()
        };
        Ok(Used { volume, publish_context, capability, staging })
    }

    /// A new volume that is staged.
    pub(crate) async fn staged(&self) -> Verdict<Used> {
        self.staged_with(self.capability()).await
    }

    /// A new volume that is staged with this capability.
    pub(crate) async fn staged_with(&self, capability: pb::VolumeCapability) -> Verdict<Used> {
        let used = self.attached(capability).await?;
        self.stage(&used).await?;
        Ok(used)
    }

    /// Stages a volume, where the driver has that step.
    pub(crate) async fn stage(&self, used: &Used) -> Verdict {
        if !used.staging.is_empty() {
            self.ask(used.stage(self)).await.ok("an attached volume can be staged")?;
        }
        Ok(())
    }

    /// Takes a volume from its staging path, where the driver has that step.
    pub(crate) async fn unstage(&self, used: &Used) -> Verdict {
        if !used.staging.is_empty() {
            self.ask(used.unstage()).await.ok("a volume that is not published can be unstaged")?;
        }
        Ok(())
    }

    /// A new target path, of which there is the parent folder only.
    pub(crate) fn target(&self, label: &str) -> Verdict<PathBuf> {
        Ok(self.folder(&self.options.target_dir.clone(), label)?.join("target"))
    }

    /// A new folder.
    pub(crate) fn folder(&self, parent: &Path, label: &str) -> Verdict<PathBuf> {
        let folder = parent.join(self.name(label));
        fs::create_dir(&folder).map_err(|error| {
            Ended::Skipped(format!("cannot make {}: {error}", folder.display()))
        })?;
        self.owed().push(Owed::Folder(folder.clone()));
        Ok(folder)
    }

    /// The ids of all volumes; nothing when the driver has no list.
    pub(crate) async fn all_volumes(&self) -> Verdict<Option<BTreeSet<String>>> {
        if !self.driver.offers(ControllerRpc::ListVolumes) {
            return Ok(None);
        }
        let ids = self.walk(&pb::ListVolumesRequest::default(), 0).await?;
        Ok(Some(ids.into_iter().collect()))
    }

    /// Demands that exactly these volumes have come since the list was read, where there is one.
    pub(crate) async fn only_new(
        &self,
        asked: &str,
        before: Option<BTreeSet<String>>,
        expected: &[&str],
    ) -> Verdict {
        let (Some(before), Some(now)) = (before, self.all_volumes().await?) else { return Ok(()) };
        let new: Vec<&str> = now.difference(&before).map(String::as_str).collect();
        let mut wanted = expected.to_vec();
        wanted.sort_unstable();
        demand(
            new == wanted,
            format!("{asked}, then ListVolumes"),
            format!("the new volumes are {new:?}"),
            format!("the new volumes are {wanted:?}"),
        )
    }

    /// The nodes that the driver says a volume is at; nothing when it does not say.
    pub(crate) async fn nodes_of(&self, id: &str) -> Verdict<Option<Vec<String>>> {
        if !self.driver.offers(ControllerRpc::ListVolumesPublishedNodes) {
            return Ok(None);
        }
        if self.driver.offers(ControllerRpc::GetVolume) {
            let request = pb::ControllerGetVolumeRequest { volume_id: id.to_owned() };
            let answer = self.ask(request).await.ok("the volume is there")?;
            return Ok(Some(answer.status.unwrap_or_default().published_node_ids));
        }
        if !self.driver.offers(ControllerRpc::ListVolumes) {
            return Ok(None);
        }
        let answer = self.ask(pb::ListVolumesRequest::default()).await.ok("lists are claimed")?;
        let mut entries = answer.entries.into_iter();
        let entry = entries.find(|one| one.volume.as_ref().is_some_and(|v| v.volume_id == id));
        Ok(entry.map(|entry| entry.status.unwrap_or_default().published_node_ids))
    }

    /// Demands that a volume is at these nodes, where the driver says at which it is.
    pub(crate) async fn is_at(&self, asked: &str, id: &str, nodes: &[String]) -> Verdict {
        let Some(mut told) = self.nodes_of(id).await? else { return Ok(()) };
        told.sort_unstable();
        let mut wanted = nodes.to_vec();
        wanted.sort_unstable();
        demand(
            told == wanted,
            format!("{asked}, then the published nodes of {id:?}"),
            format!("{told:?}"),
            format!("{wanted:?}"),
        )
    }
}

/// The same use in another mode.
pub(crate) fn with_mode(capability: pb::VolumeCapability, mode: Mode) -> pb::VolumeCapability {
    let mode = AccessMode { mode: mode.into() };
    pb::VolumeCapability { access_mode: Some(mode), ..capability }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
