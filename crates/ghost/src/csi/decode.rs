//! Protobuf into the words of the domain. What is missing or malformed is refused here, by name;
//! below, nothing is optional that an operation needs.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, PathBuf};
use std::time::Duration;

use ghost_csi as pb;
use ghost_host::FilesystemKind;
use tokio::time::Instant;
use tonic::metadata::MetadataMap;

use crate::controller::ListRequest;
use crate::error::{Error, Result};
use crate::volume::{
    AccessMode, AccessType, Capability, ContentSource, Context, NodeId, Requirement, SizeRange,
    SnapshotId, TopologyKey, VolumeId,
};

/// How long before the caller's own deadline an answer goes out.
const ANSWER_AHEAD: Duration = Duration::from_millis(200);

/// When an answer has to go out, from the caller's `grpc-timeout`; a malformed one counts as none.
pub(super) fn deadline(metadata: &MetadataMap) -> Option<Instant> {
    let text = metadata.get("grpc-timeout")?.to_str().ok()?;
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let amount: u64 = digits.parse().ok()?;
    let timeout = match unit {
        "H" => Duration::from_secs(amount.checked_mul(3600)?),
        "M" => Duration::from_secs(amount.checked_mul(60)?),
        "S" => Duration::from_secs(amount),
        "m" => Duration::from_millis(amount),
        "u" => Duration::from_micros(amount),
        "n" => Duration::from_nanos(amount),
        _ => return None,
    };
    Instant::now().checked_add(timeout.saturating_sub(ANSWER_AHEAD.min(timeout / 4)))
}

pub(super) fn volume_id(text: String) -> Result<VolumeId> {
    VolumeId::new(text).map_err(|error| error.context("volume_id"))
}

pub(super) fn node_id(text: String) -> Result<NodeId> {
    NodeId::new(text).map_err(|error| error.context("node_id"))
}

pub(super) fn snapshot_id(text: String) -> Result<SnapshotId> {
    SnapshotId::new(text).map_err(|error| error.context("snapshot_id"))
}

/// An id of a list's filter, if it is set.
pub(super) fn filter<T>(
    text: String,
    parse: impl FnOnce(String) -> Result<T>,
) -> Result<Option<T>> {
    if text.is_empty() { Ok(None) } else { parse(text).map(Some) }
}

/// What the content of a new volume is to come from.
pub(super) fn content_source(
    source: Option<pb::VolumeContentSource>,
) -> Result<Option<ContentSource>> {
    use pb::volume_content_source::Type;

    let Some(source) = source else { return Ok(None) };
    let source = match source.r#type {
        None => {
            return Err(Error::invalid(
                "volume_content_source names nothing; expected a snapshot or a volume",
            ));
        }
        Some(Type::Snapshot(snapshot)) => {
            ContentSource::Snapshot(snapshot_id(snapshot.snapshot_id)?)
        }
        Some(Type::Volume(volume)) => ContentSource::Volume(volume_id(volume.volume_id)?),
    };
    Ok(Some(source))
}

/// A path at which a volume is looked for. Where nothing can be published, nothing is found, so
/// that its form is no matter here.
pub(super) fn looked_for(field: &str, text: String) -> Result<PathBuf> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{field} is missing")));
    }
    Ok(PathBuf::from(text))
}

/// A path that the orchestrator gives to be used. It is absolute and has no `..`, so that it means the same
/// to everybody.
pub(super) fn path(field: &str, text: String) -> Result<PathBuf> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{field} is missing")));
    }
    let path = PathBuf::from(text);
    let plain = path.is_absolute() && !path.components().any(|part| part == Component::ParentDir);
    if !plain || path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(Error::invalid(format!(
            "{field} {path:?} must be an absolute path without \"..\""
        )));
    }
    Ok(path)
}

pub(super) fn context(map: HashMap<String, String>) -> Context {
    map.into_iter().collect()
}

pub(super) fn size_range(range: Option<pb::CapacityRange>) -> Result<Option<SizeRange>> {
    range.map(|range| SizeRange::from_csi(range.required_bytes, range.limit_bytes)).transpose()
}

pub(super) fn capability(capability: Option<pb::VolumeCapability>) -> Result<Capability> {
    use pb::volume_capability::AccessType as Type;
    use pb::volume_capability::access_mode::Mode;

    let capability =
        capability.ok_or_else(|| Error::invalid("the volume capability is missing"))?;
    let mode = capability.access_mode.map_or(0, |mode| mode.mode);
    let mode = match Mode::try_from(mode) {
        Ok(Mode::SingleNodeWriter) => AccessMode::SingleNodeWriter,
        Ok(Mode::SingleNodeReaderOnly) => AccessMode::SingleNodeReaderOnly,
        Ok(Mode::SingleNodeSingleWriter) => AccessMode::SingleNodeSingleWriter,
        Ok(Mode::SingleNodeMultiWriter) => AccessMode::SingleNodeMultiWriter,
        Ok(Mode::MultiNodeReaderOnly) => AccessMode::MultiNodeReaderOnly,
        Ok(Mode::MultiNodeSingleWriter) => AccessMode::MultiNodeSingleWriter,
        Ok(Mode::MultiNodeMultiWriter) => AccessMode::MultiNodeMultiWriter,
        Ok(Mode::Unknown) | Err(_) => {
            return Err(Error::invalid(format!(
                "access_mode of the volume capability is {mode}, which is no known mode; expected \
                 {}",
                AccessMode::OFFERED
            )));
        }
    };
    let access = match capability.access_type {
        None => {
            return Err(Error::invalid(
                "access_type of the volume capability is missing; expected mount or block",
            ));
        }
        Some(Type::Block(_)) => AccessType::Block,
        Some(Type::Mount(mount)) => {
            if !mount.volume_mount_group.is_empty() {
                return Err(Error::invalid(format!(
                    "volume_mount_group is {:?}; expected none: this driver does not offer it, use \
                     fsGroup",
                    mount.volume_mount_group
                )));
            }
            AccessType::Mount {
                filesystem: filesystem(&mount.fs_type)?,
                options: mount.mount_flags,
            }
        }
    };
    Ok(Capability { mode, access })
}

pub(super) fn capabilities(capabilities: Vec<pb::VolumeCapability>) -> Result<Vec<Capability>> {
    if capabilities.is_empty() {
        return Err(Error::invalid("the volume capabilities are missing"));
    }
    capabilities.into_iter().map(|one| capability(Some(one))).collect()
}

/// The filesystem of that name; ext4 where none is named.
fn filesystem(name: &str) -> Result<FilesystemKind> {
    if name.is_empty() {
        return Ok(FilesystemKind::Ext4);
    }
    FilesystemKind::from_name(name).ok_or_else(|| {
        let known = FilesystemKind::ALL.map(FilesystemKind::name).join(", ");
        Error::invalid(format!("fs_type {name:?} is not offered; the filesystems are {known}"))
    })
}

/// The filesystem that one fresh volume needs to serve all these uses; none for a block volume.
///
/// # Errors
/// `Invalid` when one volume cannot serve them.
pub(super) fn together(capabilities: &[Capability]) -> Result<Option<FilesystemKind>> {
    let mut wanted = None;
    for capability in capabilities {
        capability.check_offered()?;
        if let AccessType::Mount { filesystem, .. } = &capability.access {
            match wanted {
                Some(other) if other != *filesystem => {
                    return Err(Error::invalid(format!(
                        "a volume has one filesystem; {other} and {filesystem} are asked for"
                    )));
                }
                _ => wanted = Some(*filesystem),
            }
        }
    }
    Ok(wanted)
}

pub(super) fn requirement(
    requirement: Option<pb::TopologyRequirement>,
    key: &TopologyKey,
) -> Result<Requirement> {
    let regions = |topologies: Vec<pb::Topology>| {
        topologies
            .into_iter()
            .map(|topology| {
                let segments: BTreeMap<String, String> = topology.segments.into_iter().collect();
                key.region(&segments)
            })
            .collect::<Result<Vec<_>>>()
    };
    let requirement = requirement.unwrap_or_default();
    Ok(Requirement {
        requisite: regions(requirement.requisite)?,
        preferred: regions(requirement.preferred)?,
    })
}

/// Which page of a list is asked for.
pub(super) fn page(max_entries: i32, starting_token: String) -> Result<ListRequest> {
    let limit = match usize::try_from(max_entries) {
        Ok(0) => None,
        Ok(limit) => Some(limit),
        Err(_) => {
            return Err(Error::invalid(format!(
                "max_entries is negative: {max_entries}; expected 0, for all, or more"
            )));
        }
    };
    Ok(ListRequest { limit, token: Some(starting_token).filter(|token| !token.is_empty()) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn mount(fs_type: &str, mode: i32) -> pb::VolumeCapability {
        pb::VolumeCapability {
            access_mode: Some(pb::volume_capability::AccessMode { mode }),
            access_type: Some(pb::volume_capability::AccessType::Mount(
                pb::volume_capability::MountVolume {
                    fs_type: fs_type.to_owned(),
                    ..Default::default()
                },
            )),
        }
    }

    #[test]
    fn b34_no_filesystem_means_ext4_and_an_unknown_one_is_refused() {
        let read = capability(Some(mount("", 1))).expect("the default");
        let expected = AccessType::Mount { filesystem: FilesystemKind::Ext4, options: Vec::new() };
        assert_eq!(read, Capability { mode: AccessMode::SingleNodeWriter, access: expected });
        let error = capability(Some(mount("ntfs", 1))).expect_err("not offered");
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("ext4, ext3, xfs, btrfs"), "{error}");
    }

    #[test]
    fn a_capability_without_mode_or_type_is_refused() {
        let typeless = pb::VolumeCapability { access_type: None, ..mount("", 1) };
        let modeless = pb::VolumeCapability { access_mode: None, ..mount("", 1) };
        for bad in [None, Some(typeless), Some(modeless), Some(mount("", 0)), Some(mount("", 99))] {
            assert_eq!(capability(bad).expect_err("must fail").kind(), ErrorKind::Invalid);
        }
    }

    #[test]
    fn a_fresh_volume_has_one_filesystem_and_one_node() {
        let read =
            |list: Vec<pb::VolumeCapability>| together(&capabilities(list).expect("well-formed"));
        assert!(read(vec![mount("xfs", 1), mount("xfs", 6)]).is_ok());
        assert!(read(vec![mount("xfs", 1), mount("ext4", 1)]).is_err());
        for multi_node in [3, 4, 5] {
            assert!(read(vec![mount("", multi_node)]).is_err(), "{multi_node}");
        }
    }

    #[test]
    fn paths_are_absolute_and_do_not_climb() {
        assert!(path("target_path", "/var/lib/kubelet/x".to_owned()).is_ok());
        for bad in ["", "relative", "/a/../b", "/a\0b"] {
            let error = path("target_path", bad.to_owned()).expect_err("must be refused");
            assert!(error.to_string().contains("target_path"), "{error}");
        }
    }

    #[test]
    fn the_callers_deadline_is_read_in_all_its_units() {
        let of = |text: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("grpc-timeout", text.parse().expect("ascii"));
            deadline(&metadata).map(|at| at.duration_since(Instant::now()))
        };
        for (text, seconds) in [("1H", 3600), ("2M", 120), ("15S", 15), ("15000m", 15)] {
            let left = of(text).expect("well-formed");
            let whole = Duration::from_secs(seconds);
            assert!(left <= whole && left > whole - Duration::from_secs(2), "{text}: {left:?}");
        }
        for bad in ["", "S", "15", "xS", "15X", "18446744073709551615H"] {
            assert!(of(bad).is_none(), "{bad:?}");
        }
    }
}
