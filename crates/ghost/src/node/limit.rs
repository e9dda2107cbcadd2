//! How many volumes this node takes: the provider's limit less the disks that are not this driver's.
//!
//! The provider counts all of its disks, whoever attached them; the scheduler counts those of this
//! driver only. So what others have attached is taken off the limit. A disk is this driver's when
//! its name is one that this driver gives, or when it is mounted for a volume of this driver.

use std::ffi::OsStr;

use super::Node;
use super::error::domain;
use crate::error::Result;

/// How this driver's disks are told from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnDisks {
    /// What the names of its disks begin with.
    pub name_prefix: String,
    /// The driver's name, which is part of the path that the kubelet stages its volumes at.
    pub driver_name: String,
}

/// How many volumes this node takes; at least one, since none would mean that there is no limit.
///
/// # Errors
/// When the machine cannot be looked at.
pub async fn attach_limit(node: &Node, limit: u32) -> Result<u32> {
    let Some((folder, prefix, suffix)) = node.disk_link.folder_and_affixes() else {
        return Ok(limit);
    };
    let links = node.host.linked_disks(&folder).await.map_err(domain)?;
    let table = node.host.mounts().await.map_err(domain)?;
    let mut foreign = Vec::new();
    for (link, number) in links {
        let name = link.strip_prefix(prefix).and_then(|rest| rest.strip_suffix(suffix));
        let Some(name) = name.filter(|name| !name.is_empty()) else { continue };
        let is_staged = || {
            let mut mounts = table.of_device(number);
            mounts.any(|entry| entry.target.iter().any(|part| part == driver(&node.own)))
        };
        if !name.starts_with(&node.own.name_prefix) && !is_staged() {
            foreign.push(name.to_owned());
        }
    }
    Ok(decide(limit, &foreign))
}

fn driver(own: &OwnDisks) -> &OsStr {
    OsStr::new(&own.driver_name)
}

fn decide(limit: u32, foreign: &[String]) -> u32 {
    let count = u32::try_from(foreign.len()).unwrap_or(u32::MAX);
    let left = limit.saturating_sub(count).max(1);
    if count > 0 {
        tracing::info!(limit, left, ?foreign, "disks of others are attached to this machine");
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::fixture::Fixture;
    use ghost_host::{Content, FakeDisk, FilesystemKind};

    fn mounted_at(fixture: &Fixture, number: ghost_host::DeviceNumber, target: &str) {
        let mut entry = fixture.host.table().entries()[0].clone();
        entry.device = Some(number);
        entry.target = target.into();
        fixture.host.push_mount(entry);
    }

    #[tokio::test]
    async fn disks_that_are_neither_named_nor_staged_as_ours_are_taken_off() {
        let fixture = Fixture::new(Content::Blank);
        let limit = |limit| attach_limit(&fixture.node, limit);
        assert_eq!(limit(7).await.expect("told"), 7, "pvc-1 is ours by its name");
        let plug = |name: &str| {
            let content = Content::Filesystem(FilesystemKind::Ext4);
            fixture.host.plug(FakeDisk::blank(name, 1 << 30).with_content(content))
        };
        let moved = plug("imported");
        plug("of-somebody");
        assert_eq!(limit(7).await.expect("told"), 5);
        let staged = "/var/lib/kubelet/plugins/kubernetes.io/csi/ghost.example/x/globalmount";
        mounted_at(&fixture, moved, staged);
        assert_eq!(limit(7).await.expect("told"), 6);
        assert_eq!(limit(1).await.expect("told"), 1, "none would be no limit");
    }
}
