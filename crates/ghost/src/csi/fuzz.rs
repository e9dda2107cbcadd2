//! Any bytes as requests: the first chooses the message, the others are it.

use ghost_csi as pb;
use prost::Message;
use tonic::metadata::{MetadataMap, MetadataValue};

use super::decode;
use crate::volume::{
    Bytes, Locator, Parameters, SizeRange, SizeRule, SnapshotName, TopologyKey, VolumeName,
};

const GIB: u64 = 1 << 30;
const SIZES: SizeRule = SizeRule {
    granularity: Bytes::new(GIB),
    minimum: Bytes::new(GIB),
    maximum: Bytes::new(16_384 * GIB),
};

/// Decodes a request as the services do. What is accepted means the same when it is said again, and
/// is within the limits.
pub fn requests(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    match kind % 8 {
        0 => message(bytes, create),
        1 => message(bytes, attach),
        2 => message(bytes, stage),
        3 => message(bytes, publish),
        4 => message(bytes, |request| grow(&request)),
        5 => message(bytes, snapshot),
        6 => message(bytes, list),
        _ => deadline(bytes),
    }
}

/// Decodes a message, and checks that nothing of it is lost on the way.
fn message<M: Message + Default + Clone + PartialEq>(bytes: &[u8], check: impl Fn(M)) {
    let Ok(message) = M::decode(bytes) else { return };
    let again = M::decode(message.encode_to_vec().as_slice());
    assert!(again.is_ok_and(|again| again == message), "a message is not what it was");
    check(message);
}

fn create(request: pb::CreateVolumeRequest) {
    let text = request.name.clone();
    if let Ok(name) = VolumeName::new(request.name) {
        assert!(name.as_str() == text && (1..=128).contains(&text.len()));
    }
    let range = decode::size_range(request.capacity_range);
    if let Ok(range) = range {
        size(range);
    }
    let key = TopologyKey::new("ghost.csi.greenhost.net");
    if let Ok(requirement) = decode::requirement(request.accessibility_requirements, &key) {
        assert!(requirement.choose(None).is_none_or(|region| requirement.allows(region)));
    }
    let _ = decode::content_source(request.volume_content_source);
    let filesystem = decode::capabilities(request.volume_capabilities)
        .and_then(|capabilities| decode::together(&capabilities));
    if let Ok(filesystem) = filesystem {
        let _ = Parameters::parse(&decode::context(request.parameters), filesystem);
    }
}

fn size(range: Option<SizeRange>) {
    let Ok(size) = SIZES.choose(range, Bytes::from_gib(10)) else { return };
    assert!(range.is_none_or(|range| range.contains(size)), "{size} is outside of {range:?}");
    assert!(size.get() % GIB == 0 && size >= SIZES.minimum && size <= SIZES.maximum);
}

fn attach(request: pb::ControllerPublishVolumeRequest) {
    let _ = decode::volume_id(request.volume_id);
    let _ = decode::node_id(request.node_id);
    let _ = decode::capability(request.volume_capability);
}

fn stage(request: pb::NodeStageVolumeRequest) {
    path(&request.staging_target_path);
    let Ok(id) = decode::volume_id(request.volume_id) else { return };
    let publish = decode::context(request.publish_context);
    let volume = decode::context(request.volume_context);
    if let Ok(locator) = Locator::from_contexts(&id, &publish, &volume) {
        let again =
            Locator::from_contexts(&id, &locator.publish_context(), &locator.volume_context());
        assert_eq!(again.ok(), Some(locator), "what is passed on means something else");
    }
}

fn publish(request: pb::NodePublishVolumeRequest) {
    path(&request.target_path);
    let _ = decode::capability(request.volume_capability);
}

fn path(text: &str) {
    if let Ok(path) = decode::path("path", text.to_owned()) {
        assert!(path.is_absolute() && path.as_os_str().to_str() == Some(text));
        assert!(!text.split('/').any(|part| part == "..") && !text.contains('\0'));
    }
}

fn grow(request: &pb::ControllerExpandVolumeRequest) {
    if let Ok(range) = decode::size_range(request.capacity_range) {
        size(range);
    }
}

fn snapshot(request: pb::CreateSnapshotRequest) {
    let _ = SnapshotName::new(request.name);
    let _ = Parameters::parse_snapshot(&decode::context(request.parameters));
}

fn list(request: pb::ListSnapshotsRequest) {
    let is_negative = request.max_entries < 0;
    assert_eq!(decode::page(request.max_entries, request.starting_token).is_err(), is_negative);
    let _ = decode::filter(request.snapshot_id, decode::snapshot_id);
}

fn deadline(bytes: &[u8]) {
    let Ok(value) = MetadataValue::try_from(bytes) else { return };
    let mut metadata = MetadataMap::new();
    metadata.insert("grpc-timeout", value);
    let _ = decode::deadline(&metadata);
}
