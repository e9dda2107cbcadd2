//! The calls of a volume's life, as the sidecars and the kubelet make them.

use std::collections::HashMap;
use std::path::Path;

use ghost_csi as pb;
use pb::controller_client::ControllerClient;
use pb::node_client::NodeClient;
use tonic::Status;
use tonic::transport::Channel;

/// What a call answers.
pub type Answer<T> = std::result::Result<T, Status>;

/// A number of bytes.
pub const GIB: i64 = 1 << 30;

/// A volume as its creation answered it, with the context of its last attachment.
#[derive(Clone, Debug)]
pub struct Volume {
    /// The cloud's id.
    pub id: String,
    /// The volume context.
    pub context: HashMap<String, String>,
    /// The publish context of the last attachment.
    pub attachment: HashMap<String, String>,
    /// How it is used.
    pub capability: pb::VolumeCapability,
}

/// A capability for a filesystem of this kind.
#[must_use]
pub fn mounted(filesystem: &str) -> pb::VolumeCapability {
    use pb::volume_capability::access_mode::Mode;
    use pb::volume_capability::{AccessMode, AccessType, MountVolume};
    pb::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: filesystem.to_owned(),
            ..MountVolume::default()
        })),
    }
}

/// A capability for a raw device.
#[must_use]
pub fn block() -> pb::VolumeCapability {
    use pb::volume_capability::{AccessType, BlockVolume};
    pb::VolumeCapability { access_type: Some(AccessType::Block(BlockVolume {})), ..mounted("") }
}

/// The controller half.
#[derive(Clone, Debug)]
pub struct Controller(
    /// The client.
    pub ControllerClient<Channel>,
);

impl Controller {
    /// CreateVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn create(
        &mut self,
        name: &str,
        gib: i64,
        capability: pb::VolumeCapability,
    ) -> Answer<Volume> {
        let request = create_request(name, gib, &capability);
        let volume = self.0.create_volume(request).await?.into_inner().volume;
        Ok(made(volume.expect("an answer has a volume"), capability))
    }

    /// CreateVolume of a snapshot or of another volume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn create_of(
        &mut self,
        name: &str,
        gib: i64,
        capability: pb::VolumeCapability,
        source: pb::volume_content_source::Type,
    ) -> Answer<Volume> {
        let source = pb::VolumeContentSource { r#type: Some(source) };
        let request = pb::CreateVolumeRequest {
            volume_content_source: Some(source.clone()),
            ..create_request(name, gib, &capability)
        };
        let volume = self.0.create_volume(request).await?.into_inner().volume;
        let volume = volume.expect("an answer has a volume");
        assert_eq!(volume.content_source, Some(source), "the source is repeated");
        assert!(volume.capacity_bytes >= gib * GIB, "{} bytes", volume.capacity_bytes);
        Ok(made(volume, capability))
    }

    /// CreateSnapshot.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn snapshot(&mut self, name: &str, volume: &Volume) -> Answer<pb::Snapshot> {
        let request = pb::CreateSnapshotRequest {
            name: name.to_owned(),
            source_volume_id: volume.id.clone(),
            ..Default::default()
        };
        let snapshot = self.0.create_snapshot(request).await?.into_inner().snapshot;
        Ok(snapshot.expect("an answer has a snapshot"))
    }

    /// DeleteSnapshot.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn delete_snapshot(&mut self, id: &str) -> Answer<()> {
        let request =
            pb::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        self.0.delete_snapshot(request).await?;
        Ok(())
    }

    /// ControllerPublishVolume; the volume learns its publish context.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn attach(&mut self, volume: &mut Volume, node: u64) -> Answer<()> {
        let request = pb::ControllerPublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: node.to_string(),
            volume_capability: Some(volume.capability.clone()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        let answer = self.0.controller_publish_volume(request).await?;
        volume.attachment = answer.into_inner().publish_context;
        Ok(())
    }

    /// ControllerUnpublishVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn detach(&mut self, volume: &Volume, node: u64) -> Answer<()> {
        let request = pb::ControllerUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            node_id: node.to_string(),
            ..Default::default()
        };
        self.0.controller_unpublish_volume(request).await?;
        Ok(())
    }

    /// ControllerExpandVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn grow(&mut self, volume: &Volume, gib: i64) -> Answer<()> {
        let request = pb::ControllerExpandVolumeRequest {
            volume_id: volume.id.clone(),
            capacity_range: Some(pb::CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
            volume_capability: Some(volume.capability.clone()),
            ..Default::default()
        };
        self.0.controller_expand_volume(request).await?;
        Ok(())
    }

    /// DeleteVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn delete(&mut self, volume: &Volume) -> Answer<()> {
        let request =
            pb::DeleteVolumeRequest { volume_id: volume.id.clone(), ..Default::default() };
        self.0.delete_volume(request).await?;
        Ok(())
    }

    /// How many volumes ListVolumes shows on its first page.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn count(&mut self) -> Answer<usize> {
        let answer = self.0.list_volumes(pb::ListVolumesRequest::default()).await?;
        Ok(answer.into_inner().entries.len())
    }
}

/// The node half.
#[derive(Clone, Debug)]
pub struct Node(
    /// The client.
    pub NodeClient<Channel>,
);

impl Node {
    /// NodeStageVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn stage(&mut self, volume: &Volume, staging: &Path) -> Answer<()> {
        let request = pb::NodeStageVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: volume.attachment.clone(),
            staging_target_path: text(staging),
            volume_capability: Some(volume.capability.clone()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        self.0.node_stage_volume(request).await?;
        Ok(())
    }

    /// NodeUnstageVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn unstage(&mut self, volume: &Volume, staging: &Path) -> Answer<()> {
        let request = pb::NodeUnstageVolumeRequest {
            volume_id: volume.id.clone(),
            staging_target_path: text(staging),
        };
        self.0.node_unstage_volume(request).await?;
        Ok(())
    }

    /// NodePublishVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn publish(&mut self, volume: &Volume, staging: &Path, target: &Path) -> Answer<()> {
        let request = pb::NodePublishVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: volume.attachment.clone(),
            staging_target_path: text(staging),
            target_path: text(target),
            volume_capability: Some(volume.capability.clone()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        self.0.node_publish_volume(request).await?;
        Ok(())
    }

    /// NodeUnpublishVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn unpublish(&mut self, volume: &Volume, target: &Path) -> Answer<()> {
        let request = pb::NodeUnpublishVolumeRequest {
            volume_id: volume.id.clone(),
            target_path: text(target),
        };
        self.0.node_unpublish_volume(request).await?;
        Ok(())
    }

    /// NodeExpandVolume.
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn grow(&mut self, volume: &Volume, target: &Path, gib: i64) -> Answer<()> {
        let request = pb::NodeExpandVolumeRequest {
            volume_id: volume.id.clone(),
            volume_path: text(target),
            capacity_range: Some(pb::CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
            volume_capability: Some(volume.capability.clone()),
            ..Default::default()
        };
        self.0.node_expand_volume(request).await?;
        Ok(())
    }

    /// The total bytes of the volume as the node sees them (NodeGetVolumeStats).
    ///
    /// # Errors
    /// The status that is answered.
    pub async fn total(&mut self, volume: &Volume, target: &Path) -> Answer<i64> {
        let request = pb::NodeGetVolumeStatsRequest {
            volume_id: volume.id.clone(),
            volume_path: text(target),
            ..Default::default()
        };
        let usage = self.0.node_get_volume_stats(request).await?.into_inner().usage;
        let bytes = usage.iter().find(|u| u.unit == i32::from(pb::volume_usage::Unit::Bytes));
        Ok(bytes.expect("statistics have bytes").total)
    }
}

/// The source "this snapshot".
#[must_use]
pub fn of_snapshot(id: &str) -> pb::volume_content_source::Type {
    use pb::volume_content_source::{SnapshotSource, Type};
    Type::Snapshot(SnapshotSource { snapshot_id: id.to_owned() })
}

/// The source "this volume".
#[must_use]
pub fn of_volume(id: &str) -> pb::volume_content_source::Type {
    use pb::volume_content_source::{Type, VolumeSource};
    Type::Volume(VolumeSource { volume_id: id.to_owned() })
}

fn create_request(
    name: &str,
    gib: i64,
    capability: &pb::VolumeCapability,
) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(pb::CapacityRange { required_bytes: gib * GIB, limit_bytes: 0 }),
        volume_capabilities: vec![capability.clone()],
        ..Default::default()
    }
}

fn made(volume: pb::Volume, capability: pb::VolumeCapability) -> Volume {
    Volume {
        id: volume.volume_id,
        context: volume.volume_context,
        attachment: HashMap::new(),
        capability,
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
