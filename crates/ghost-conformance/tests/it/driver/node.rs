//! The Node service.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ghost_csi as pb;
use pb::node_service_capability::rpc::Type as Rpc;
use pb::volume_capability::AccessType;
use pb::volume_capability::access_mode::Mode;
use pb::volume_usage::Unit;
use tonic::{Code, Request, Status};

use super::fault::Fault;
use super::{Answer, NODES, Published, Reference, Staged, State, disk, given, is_block, no};

impl Reference {
    fn stage(&self, request: pb::NodeStageVolumeRequest) -> Result<(), Status> {
        given("volume_id", &request.volume_id)?;
        given("staging_target_path", &request.staging_target_path)?;
        let path = self.path(&request.staging_target_path);
        let capability = match request.volume_capability {
            None if self.is(Fault::StagesWithoutCapability) => pb::VolumeCapability::default(),
            capability => {
                is_block(capability.as_ref())?;
                capability.unwrap_or_default()
            }
        };
        let mut state = self.state();
        let staged = state.staged.get(&path).cloned();
        let State { volumes, .. } = &mut *state;
        let Some(volume) = volumes.get_mut(&request.volume_id) else {
            return no(Code::NotFound, "there is no such volume");
        };
        if let Some(staged) = staged {
            let same = staged.capability == capability && staged.volume == request.volume_id;
            if !same && !self.is(Fault::StageIgnoresCapability) {
                return no(Code::AlreadyExists, "it is staged there in another way");
            }
            if self.is(Fault::StageStacks) && !volume.block {
                disk::bind(&self.disk(&request.volume_id), &path, false)?;
            }
            return Ok(());
        }
        let disk_path = self.disk(&request.volume_id);
        if let Some(AccessType::Mount(mount)) = &capability.access_type {
            let has = volume.filesystem.get_or_insert_with(|| mount.fs_type.clone());
            if *has != mount.fs_type {
                if !self.is(Fault::Reformats) {
                    return no(Code::FailedPrecondition, format!("the volume has {has}"));
                }
                has.clone_from(&mount.fs_type);
                disk::wipe(&disk_path);
            }
        }
        if self.is(Fault::StageWipes) {
            disk::wipe(&disk_path);
        }
        let device = if volume.block {
            Some(disk::attach(&disk_path)?)
        } else {
            disk::bind(&disk_path, &path, false)?;
            None
        };
        let staged = Staged { volume: request.volume_id, capability, device };
        state.staged.insert(path, staged);
        Ok(())
    }

    fn unstage(&self, request: &pb::NodeUnstageVolumeRequest) -> Result<(), Status> {
        given("volume_id", &request.volume_id)?;
        given("staging_target_path", &request.staging_target_path)?;
        let path = self.path(&request.staging_target_path);
        match self.state().staged.remove(&path) {
            Some(Staged { device: Some(device), .. }) => disk::detach(&device),
            Some(_) => while disk::unbind(&path) {},
            None if self.is(Fault::UnstageNeedsStaged) => {
                return no(Code::Internal, "it is not mounted");
            }
            None => {}
        }
        Ok(())
    }

    fn publish(&self, request: pb::NodePublishVolumeRequest) -> Result<(), Status> {
        given("volume_id", &request.volume_id)?;
        given("target_path", &request.target_path)?;
        let block = is_block(request.volume_capability.as_ref())?;
        if request.staging_target_path.is_empty() {
            return no(Code::FailedPrecondition, "staging_target_path is missing");
        }
        let staging = self.path(&request.staging_target_path);
        let target = self.path(&request.target_path);
        let mut state = self.state();
        let staged = state.staged.get(&staging).cloned();
        let unstaged = staged.is_none();
        if unstaged && !self.is(Fault::PublishesUnstaged) {
            return no(Code::FailedPrecondition, "the volume is not staged there");
        }
        let published = Published {
            volume: request.volume_id.clone(),
            capability: request.volume_capability.unwrap_or_default(),
            readonly: request.readonly,
        };
        let file = block && self.is(Fault::BlockTargetIsFile);
        let source = match staged.and_then(|staged| staged.device) {
            Some(_) if file => self.disk(&request.volume_id),
            Some(device) => device,
            None if unstaged => self.disk(&request.volume_id),
            None => staging,
        };
        if let Some(there) = state.targets.get(&target) {
            let same = there.volume == published.volume
                && there.readonly == published.readonly
                && there.capability == published.capability;
            if !same && !self.is(Fault::OtherArgumentsTaken) {
                return no(Code::AlreadyExists, "it is published there in another way");
            }
            if self.is(Fault::PublishStacks) {
                disk::bind(&source, &target, false)?;
            }
            return Ok(());
        }
        self.check_second_target(&state, &published)?;
        if block {
            File::create(&target)?;
        } else {
            fs::create_dir(&target)?;
        }
        let readonly = request.readonly && !self.is(Fault::ReadonlyIsWritable);
        disk::bind(&source, &target, readonly)?;
        state.targets.insert(target, published);
        Ok(())
    }

    fn check_second_target(&self, state: &State, wanted: &Published) -> Result<(), Status> {
        let second = state.targets.values().any(|there| there.volume == wanted.volume);
        let mode = wanted.capability.access_mode.as_ref().map_or(0, |mode| mode.mode);
        let many = if mode == i32::from(Mode::SingleNodeMultiWriter) {
            !self.is(Fault::SecondWriterRefused)
        } else {
            mode != i32::from(Mode::SingleNodeSingleWriter) || self.is(Fault::SecondWriterTaken)
        };
        let plain = mode == i32::from(Mode::SingleNodeWriter);
        if second && plain && self.is(Fault::SecondTargetFails) {
            return no(Code::Internal, "there is a target already");
        }
        if second && !many {
            return no(Code::FailedPrecondition, "the volume has a target on this node");
        }
        Ok(())
    }

    fn unpublish(&self, request: &pb::NodeUnpublishVolumeRequest) -> Result<(), Status> {
        given("volume_id", &request.volume_id)?;
        given("target_path", &request.target_path)?;
        let mut targets = vec![self.path(&request.target_path)];
        let mut state = self.state();
        let published = state.targets.contains_key(&targets[0]);
        if self.is(Fault::TargetNeedsPublished) && !published {
            return no(Code::Internal, "it is not published there");
        }
        if self.is(Fault::UnpublishesAll) {
            let own = |(_, there): &(&PathBuf, &Published)| there.volume == request.volume_id;
            targets.extend(state.targets.iter().filter(own).map(|(path, _)| path.clone()));
        }
        for target in targets {
            while disk::unbind(&target) {}
            state.targets.remove(&target);
            if !self.is(Fault::TargetLeft) {
                let folder = target.is_dir();
                let _ = if folder { fs::remove_dir(&target) } else { fs::remove_file(&target) };
            }
        }
        Ok(())
    }

    /// A path as the driver takes it.
    fn path(&self, text: &str) -> PathBuf {
        let cut = self.is(Fault::PathsCutAtBlank);
        let end = text.find(' ').filter(|_| cut).unwrap_or(text.len());
        PathBuf::from(&text[..end])
    }

    /// Whether the volume is at a path.
    fn is_at(&self, id: &str, path: &Path) -> bool {
        let state = self.state();
        state.targets.get(path).is_some_and(|there| there.volume == id)
            || state.staged.get(path).is_some_and(|there| there.volume == id)
    }

    fn stats(
        &self,
        request: &pb::NodeGetVolumeStatsRequest,
    ) -> Result<Vec<pb::VolumeUsage>, Status> {
        given("volume_id", &request.volume_id)?;
        given("volume_path", &request.volume_path)?;
        let there = self.is_at(&request.volume_id, request.volume_path.as_ref());
        if !there && !self.is(Fault::StatsOfNothing) {
            return no(Code::NotFound, "the volume is not at that path");
        }
        let state = self.state();
        let Some(volume) = state.volumes.get(&request.volume_id) else {
            return no(Code::NotFound, "there is no such volume");
        };
        let total = if volume.block { volume.size } else { volume.filesystem_size };
        let negative = self.is(Fault::StatsNegative);
        let (used, available) = if negative { (-1, total) } else { (0, total) };
        Ok(vec![pb::VolumeUsage { available, total, used, unit: Unit::Bytes.into() }])
    }

    fn expand_at(&self, request: &pb::NodeExpandVolumeRequest) -> Result<i64, Status> {
        given("volume_id", &request.volume_id)?;
        given("volume_path", &request.volume_path)?;
        let there = self.is_at(&request.volume_id, request.volume_path.as_ref());
        if !there {
            if self.is(Fault::ExpandsAnything) {
                return Ok(request.capacity_range.map_or(0, |range| range.required_bytes));
            }
            return no(Code::NotFound, "the volume is not at that path");
        }
        let mut state = self.state();
        let Some(volume) = state.volumes.get_mut(&request.volume_id) else {
            return no(Code::NotFound, "there is no such volume");
        };
        if !self.is(Fault::ExpandsNothing) {
            volume.filesystem_size = volume.size;
        }
        Ok(if volume.block { volume.size } else { volume.filesystem_size })
    }

    fn health(&self, request: &pb::NodeGetVolumeHealthRequest) -> Result<pb::VolumeHealth, Status> {
        given("volume_id", &request.volume_id)?;
        let there = self.is_at(&request.volume_id, request.volume_publish_path.as_ref());
        if !there && !self.is(Fault::NodeHealthOfUnknown) {
            return no(Code::NotFound, "the volume is not at that path");
        }
        let volume_id = request.volume_id.clone();
        Ok(pb::VolumeHealth { volume_id, health_statuses: Vec::new() })
    }
}

#[tonic::async_trait]
impl pb::node_server::Node for Reference {
    async fn node_stage_volume(
        &self,
        request: Request<pb::NodeStageVolumeRequest>,
    ) -> Answer<pb::NodeStageVolumeResponse> {
        let staged = self.stage(request.into_inner());
        self.answer(staged.map(|()| pb::NodeStageVolumeResponse {}))
    }

    async fn node_unstage_volume(
        &self,
        request: Request<pb::NodeUnstageVolumeRequest>,
    ) -> Answer<pb::NodeUnstageVolumeResponse> {
        let unstaged = self.unstage(&request.into_inner());
        self.answer(unstaged.map(|()| pb::NodeUnstageVolumeResponse {}))
    }

    async fn node_publish_volume(
        &self,
        request: Request<pb::NodePublishVolumeRequest>,
    ) -> Answer<pb::NodePublishVolumeResponse> {
        let published = self.publish(request.into_inner());
        self.answer(published.map(|()| pb::NodePublishVolumeResponse {}))
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<pb::NodeUnpublishVolumeRequest>,
    ) -> Answer<pb::NodeUnpublishVolumeResponse> {
        let unpublished = self.unpublish(&request.into_inner());
        self.answer(unpublished.map(|()| pb::NodeUnpublishVolumeResponse {}))
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<pb::NodeGetVolumeStatsRequest>,
    ) -> Answer<pb::NodeGetVolumeStatsResponse> {
        let usage = self.stats(&request.into_inner());
        self.answer(usage.map(|usage| pb::NodeGetVolumeStatsResponse { usage }))
    }

    async fn node_expand_volume(
        &self,
        request: Request<pb::NodeExpandVolumeRequest>,
    ) -> Answer<pb::NodeExpandVolumeResponse> {
        let size = self.expand_at(&request.into_inner());
        self.answer(size.map(|capacity_bytes| pb::NodeExpandVolumeResponse { capacity_bytes }))
    }

    async fn node_get_volume_health(
        &self,
        request: Request<pb::NodeGetVolumeHealthRequest>,
    ) -> Answer<pb::NodeGetVolumeHealthResponse> {
        let health = self.health(&request.into_inner());
        self.answer(
            health.map(|health| pb::NodeGetVolumeHealthResponse { volume_health: Some(health) }),
        )
    }

    async fn node_get_storage_health(
        &self,
        _: Request<pb::NodeGetStorageHealthRequest>,
    ) -> Answer<pb::NodeGetStorageHealthResponse> {
        use pb::node_get_storage_health_response::StorageBackendHealth;
        let sentence = self.is(Fault::ReasonIsSentence);
        let one = StorageBackendHealth {
            status: pb::StorageHealthErrorType::StorageDegraded.into(),
            reason: if sentence { "a disk is slow" } else { "DiskSlow" }.to_owned(),
            ..Default::default()
        };
        self.answer(Ok(pb::NodeGetStorageHealthResponse { backend_health: vec![one] }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<pb::NodeGetCapabilitiesRequest>,
    ) -> Answer<pb::NodeGetCapabilitiesResponse> {
        use pb::node_service_capability::{self, Type};
        let claims = [
            Rpc::StageUnstageVolume,
            Rpc::GetVolumeStats,
            Rpc::ExpandVolume,
            Rpc::SingleNodeMultiWriter,
            Rpc::GetVolumeHealth,
            Rpc::GetStorageHealth,
        ];
        let capabilities = claims.map(|rpc| pb::NodeServiceCapability {
            r#type: Some(Type::Rpc(node_service_capability::Rpc { r#type: rpc.into() })),
        });
        self.answer(Ok(pb::NodeGetCapabilitiesResponse { capabilities: capabilities.into() }))
    }

    async fn node_get_info(
        &self,
        _: Request<pb::NodeGetInfoRequest>,
    ) -> Answer<pb::NodeGetInfoResponse> {
        let node_id = if self.is(Fault::NodeIdChanges) {
            format!("{}-{}", NODES[0], self.next())
        } else {
            NODES[0].to_owned()
        };
        self.answer(Ok(pb::NodeGetInfoResponse {
            node_id,
            max_volumes_per_node: if self.is(Fault::NegativeLimit) { -1 } else { 0 },
            accessible_topology: Some(self.topology()),
        }))
    }
}
