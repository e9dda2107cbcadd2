//! Whether the kubelet sees what is mounted here.
//!
//! The driver runs in a container with mounts of its own. Only if the kubelet's folder is shared
//! with the machine do its mounts reach the kubelet and the pods; otherwise all calls succeed, and
//! the pods write to the machine's root disk what they believe is in their volumes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ghost_host::MountTable;

use super::Node;
use super::error::domain;
use crate::error::{Error, Result};

/// The folder that the kubelet keeps its volumes below, if this machine has it.
#[derive(Clone, Debug, Default)]
pub struct KubeletDir(Option<PathBuf>);

impl KubeletDir {
    /// The folder at this path. One that is not there is none: no volume can be mounted below it.
    ///
    /// # Errors
    /// `Invalid` when it cannot be looked at.
    pub fn open(path: &Path) -> Result<Self> {
        match fs::canonicalize(path) {
            Ok(path) => Ok(Self(Some(path))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self(None)),
            Err(error) => Err(Error::invalid(format!("{} cannot be looked at", path.display()))
                .with_source(error)),
        }
    }

    /// Checks that what is mounted below it reaches the kubelet.
    pub(super) fn check(&self, table: &MountTable) -> Result<()> {
        let Some(dir) = &self.0 else { return Ok(()) };
        match table.covering(dir) {
            Some(entry) if !entry.shared => Err(Error::precondition(format!(
                "what is mounted below {} stays unseen by the kubelet, and its pods would write to \
                 the root disk: the mount at {} is not shared; mount the folder into the driver's \
                 container with mountPropagation Bidirectional, and on the machine run `mount \
                 --make-rshared /`",
                dir.display(),
                entry.target.display()
            ))),
            _ => Ok(()),
        }
    }
}

/// Checks that the kubelet would see what is mounted on this machine now.
///
/// # Errors
/// `Precondition` when it would not; `Failed` when the mount table cannot be read.
pub async fn check_kubelet_dir(node: &Node) -> Result<()> {
    let table = node.host.mounts().await.map_err(domain)?;
    node.kubelet_dir.check(&table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::node::fixture::Fixture;
    use ghost_host::Content;

    #[test]
    fn b25_the_mount_that_covers_the_folder_must_be_shared() {
        let entry = Fixture::new(Content::Blank).host.table().entries()[0].clone();
        let mount = |target: &str, shared| {
            let mut entry = entry.clone();
            entry.target = target.into();
            entry.shared = shared;
            entry
        };
        let check = |entries| {
            let dir = KubeletDir(Some("/var/lib/kubelet".into()));
            dir.check(&MountTable::new(entries)).map_err(|error| error.kind())
        };
        let refused = Err(ErrorKind::Precondition);
        assert_eq!(check(vec![mount("/", true)]), Ok(()));
        assert_eq!(check(vec![mount("/", false)]), refused);
        assert_eq!(check(vec![mount("/var/lib", false), mount("/", true)]), refused);
        assert_eq!(check(vec![mount("/", false), mount("/var/lib/kubelet", true)]), Ok(()));
        // Of two at one place the later is seen; a name that only begins alike is another one.
        let stacked = vec![mount("/var/lib/kubelet", true), mount("/var/lib/kubelet", false)];
        assert_eq!(check(stacked), refused);
        assert_eq!(check(vec![mount("/", true), mount("/var/lib/kube", false)]), Ok(()));
    }

    #[test]
    fn a_folder_that_is_not_there_is_none_and_links_are_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let absent = KubeletDir::open(&dir.path().join("absent")).expect("none");
        assert!(absent.0.is_none());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(dir.path(), &link).expect("a link");
        let opened = KubeletDir::open(&link).expect("there");
        assert_eq!(opened.0, Some(fs::canonicalize(dir.path()).expect("there")));
    }
}
