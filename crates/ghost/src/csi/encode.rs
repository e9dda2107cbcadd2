//! The words of the domain into protobuf.

use std::collections::HashMap;

use ghost_csi as pb;

use crate::volume::{
    Bytes, ContentSource, Context, Region, Severity, Snapshot, StorageProblem, TopologyKey, Volume,
    VolumeHealth,
};

/// A size as CSI has it: signed. Sizes above the signed range do not occur; they would be the largest.
pub(super) fn bytes(size: Bytes) -> i64 {
    i64::try_from(size.get()).unwrap_or(i64::MAX)
}

pub(super) fn context(context: Context) -> HashMap<String, String> {
    context.into_iter().collect()
}

pub(super) fn topology(region: &Region, key: &TopologyKey) -> pb::Topology {
    pb::Topology {
        segments: HashMap::from([(key.as_str().to_owned(), region.as_str().to_owned())]),
    }
}

pub(super) fn volume(volume: &Volume, key: &TopologyKey) -> pb::Volume {
    pb::Volume {
        capacity_bytes: bytes(volume.size),
        volume_id: volume.id.to_string(),
        volume_context: context(volume.locator().volume_context()),
        content_source: volume.source.as_ref().map(content_source),
        accessible_topology: vec![topology(&volume.region, key)],
    }
}

fn content_source(source: &ContentSource) -> pb::VolumeContentSource {
    use pb::volume_content_source::{SnapshotSource, Type, VolumeSource};

    let source = match source {
        ContentSource::Snapshot(id) => {
            Type::Snapshot(SnapshotSource { snapshot_id: id.to_string() })
        }
        ContentSource::Volume(id) => Type::Volume(VolumeSource { volume_id: id.to_string() }),
    };
    pb::VolumeContentSource { r#type: Some(source) }
}

pub(super) fn snapshot(snapshot: &Snapshot, key: &TopologyKey) -> pb::Snapshot {
    pb::Snapshot {
        size_bytes: bytes(snapshot.size),
        snapshot_id: snapshot.id.to_string(),
        source_volume_id: snapshot.source.to_string(),
        creation_time: Some(pb::Timestamp {
            seconds: snapshot.created.as_second(),
            nanos: snapshot.created.subsec_nanosecond(),
        }),
        ready_to_use: snapshot.is_ready(),
        group_snapshot_id: String::new(),
        accessible_topology: vec![topology(&snapshot.region, key)],
    }
}

pub(super) fn volume_health(health: &VolumeHealth) -> pb::VolumeHealth {
    use pb::VolumeHealthErrorType as Type;
    use pb::volume_health::VolumeHealthEntry;

    let entries = health.problems.iter().map(|problem| VolumeHealthEntry {
        status: match problem.severity() {
            Severity::Degraded => Type::Degraded,
            Severity::Inaccessible => Type::Inaccessible,
        }
        .into(),
        reason: problem.reason().to_owned(),
        message: problem.to_string(),
    });
    pb::VolumeHealth { volume_id: health.id.to_string(), health_statuses: entries.collect() }
}

pub(super) fn storage_health(
    problem: &StorageProblem,
) -> pb::node_get_storage_health_response::StorageBackendHealth {
    use pb::StorageHealthErrorType as Type;
    use pb::volume_capability::{AccessType, MountVolume};

    let status = if problem.is_total() { Type::StorageUnreachable } else { Type::StorageDegraded };
    let volume_capability = problem.concerns().map(|kind| {
        let fs_type = kind.name().to_owned();
        let mount = MountVolume { fs_type, ..MountVolume::default() };
        pb::VolumeCapability { access_mode: None, access_type: Some(AccessType::Mount(mount)) }
    });
    pb::node_get_storage_health_response::StorageBackendHealth {
        status: status.into(),
        reason: problem.reason().to_owned(),
        message: problem.to_string(),
        volume_capability,
    }
}

/// The nodes that a volume is published on, spelled as the nodes spell themselves.
pub(super) fn published_nodes(volume: &Volume) -> Vec<String> {
    volume.attached.iter().map(ToString::to_string).collect()
}
