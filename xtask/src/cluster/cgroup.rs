//! The control groups of the nodes, as far as their kubelets do not make them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

const ROOT: &str = "/sys/fs/cgroup";
/// The group that all others of a cluster are in.
const OWN: &str = "ghost-cluster";

/// What a node's kubelet is told.
pub(super) fn of_node(number: u8) -> String {
    format!("/{OWN}/node{number}")
}

/// Fails where the machine has no control groups of the kind that is known here.
pub(super) fn check() -> Result<()> {
    ensure!(
        Path::new(ROOT).join("cpuset").is_dir(),
        "this machine has no version 1 control groups, and a cluster has not been tried with others; \
         boot it with systemd.unified_cgroup_hierarchy=0"
    );
    Ok(())
}

/// Makes a node's groups, which a machine has from its boot on.
pub(super) fn make(number: u8) -> Result<()> {
    for hierarchy in hierarchies()? {
        let mut group = hierarchy.clone();
        for name in of_node(number).split('/').filter(|name| !name.is_empty()) {
            let parent = group.clone();
            group.push(name);
            fs::create_dir_all(&group)
                .with_context(|| format!("cannot make {}", group.display()))?;
            // A new group of this kind has nothing until it is told.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if let Ok(all) = fs::read(parent.join(file)) {
                    fs::write(group.join(file), all)?;
                }
            }
        }
    }
    Ok(())
}

/// Moves the calling process into the group by which its node can be frozen.
pub(super) fn join_freezer(number: u8) -> Result<()> {
    fs::write(freezer(number).join("cgroup.procs"), "0").context("cannot join the freezer")
}

/// Removes a node's groups, in which no process is left.
pub(super) fn remove_node(number: u8) -> Vec<String> {
    remove_below(of_node(number).trim_start_matches('/'))
}

/// Removes all of a cluster's groups, and answers the commands that would remove the rest.
pub(super) fn remove() -> Vec<String> {
    remove_below(OWN)
}

fn remove_below(group: &str) -> Vec<String> {
    let mut left = Vec::new();
    for hierarchy in hierarchies().unwrap_or_default() {
        let group = hierarchy.join(group);
        if group.is_dir() && remove_tree(&group).is_err() {
            left.push(format!("find {} -depth -type d -exec rmdir {{}} +", group.display()));
        }
    }
    left
}

/// Groups are removed from the innermost on; their files go with them.
fn remove_tree(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(group)
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(ROOT)? {
        let entry = entry?;
        // Links lead to one that is there under another name.
        if entry.file_type()?.is_dir() && entry.path().join("cgroup.procs").exists() {
            found.push(entry.path());
        }
    }
    Ok(found)
}

fn freezer(number: u8) -> PathBuf {
    Path::new(ROOT).join("freezer").join(of_node(number).trim_start_matches('/'))
}
