//! The words of the domain into protobuf.

use std::collections::HashMap;

use ghost_csi as pb;

use crate::volume::{Bytes, Context, Region, TopologyKey, Volume};

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
        content_source: None,
        accessible_topology: vec![topology(&volume.region, key)],
    }
}

/// The nodes that a volume is published on, spelled as the nodes spell themselves.
pub(super) fn published_nodes(volume: &Volume) -> Vec<String> {
    volume.attached.iter().map(ToString::to_string).collect()
}
