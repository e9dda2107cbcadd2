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
pub struct KubeletDir(PathBuf);

impl KubeletDir {
    /// The folder at this path. As long as it is not there, no volume can be mounted below it.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// Checks that what is mounted at this place reaches the kubelet, if it is the kubelet's.
    pub(super) fn check(&self, table: &MountTable, place: &Path) -> Result<()> {
        let Some(dir) = self.resolve()? else { return Ok(()) };
        match place.parent() {
            Some(folder) if folder.starts_with(&dir) => check_shared(table, &dir, folder),
            _ => Ok(()),
        }
    }

    /// Checks that there is any place in it where what is mounted reaches the kubelet: the folder
    /// itself, or parts of it that are shared each by itself.
    fn check_any(&self, table: &MountTable) -> Result<()> {
        let Some(dir) = self.resolve()? else { return Ok(()) };
        let mut parts = table.entries().iter().filter(|entry| entry.target.starts_with(&dir));
        if parts.any(|entry| entry.shared) {
            return Ok(());
        }
        check_shared(table, &dir, &dir)
    }

    fn resolve(&self) -> Result<Option<PathBuf>> {
        match fs::canonicalize(&self.0) {
            Ok(path) => Ok(Some(path)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let path = self.0.display();
                Err(Error::failed(format!("{path} cannot be looked at")).with_source(error))
            }
        }
    }
}

fn check_shared(table: &MountTable, dir: &Path, folder: &Path) -> Result<()> {
    match table.covering(folder) {
        Some(entry) if !entry.shared => Err(Error::precondition(format!(
            "what is mounted in {} stays unseen by the kubelet, and its pods would write to the \
             root disk: the mount at {} is not shared; mount {} into the driver's container with \
             mountPropagation Bidirectional, and on the machine run `mount --make-rshared /`",
            folder.display(),
            entry.target.display(),
            dir.display()
        ))),
        _ => Ok(()),
    }
}

/// Checks that the kubelet would see what is mounted on this machine now.
///
/// # Errors
/// `Precondition` when it would not; `Failed` when the mount table cannot be read.
pub async fn check_kubelet_dir(node: &Node) -> Result<()> {
    let table = node.host.mounts().await.map_err(domain)?;
    node.kubelet_dir.check_any(&table)
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
        // The folder is a real one, since links are followed; its parents may be links themselves.
        let root = tempfile::tempdir().expect("a folder");
        let kubelet = root.path().join("kubelet");
        fs::create_dir_all(kubelet.join("plugins")).expect("made");
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&kubelet, &link).expect("a link");
        let kubelet = fs::canonicalize(&kubelet).expect("there");
        let [above, below] = [kubelet.parent().expect("a parent"), &kubelet.join("plugins")];
        let text = |path: &Path| path.to_str().expect("text").to_owned();
        let (dir, above, below) = (text(&kubelet), text(above), text(below));
        let check_at = |place: &Path, entries| {
            let dir = KubeletDir::new(link.clone());
            dir.check(&MountTable::new(entries), place).map_err(|error| error.kind())
        };
        let check = |entries| check_at(&kubelet.join("plugins/csi"), entries);
        let refused = Err(ErrorKind::Precondition);
        assert_eq!(check(vec![mount("/", true)]), Ok(()));
        assert_eq!(check(vec![mount("/", false)]), refused);
        assert_eq!(check(vec![mount(&above, false), mount("/", true)]), refused);
        assert_eq!(check(vec![mount("/", false), mount(&dir, true)]), Ok(()));
        // Of two at one place the later is seen; a name that only begins alike is another one.
        let stacked = vec![mount(&dir, true), mount(&dir, false)];
        assert_eq!(check(stacked), refused);
        assert_eq!(check(vec![mount("/", true), mount(&dir[..dir.len() - 1], false)]), Ok(()));
        // A mount of its own between the folder and the place, but not beside or at the place.
        let between = || vec![mount("/", true), mount(&below, false)];
        assert_eq!(check(between()), refused);
        assert_eq!(check_at(&kubelet.join("pods/csi"), between()), Ok(()));
        assert_eq!(check_at(&kubelet.join("plugins"), between()), Ok(()));
        // Parts that are shared each by itself will do, there.
        let apart = || vec![mount("/", false), mount(&below, true)];
        assert_eq!(check(apart()), Ok(()));
        assert_eq!(check_at(&kubelet.join("pods/csi"), apart()), refused);
        let any = |entries| {
            let dir = KubeletDir::new(link.clone());
            dir.check_any(&MountTable::new(entries)).map_err(|error| error.kind())
        };
        assert_eq!(any(apart()), Ok(()));
        assert_eq!(any(vec![mount("/", true)]), Ok(()));
        assert_eq!(any(vec![mount("/", false), mount(&below, false)]), refused);
        // What is not the kubelet's is not its affair.
        assert_eq!(check_at(Path::new("/elsewhere/csi"), between()), Ok(()));
    }

    #[test]
    fn b25_a_folder_that_comes_later_is_checked_then() {
        let root = tempfile::tempdir().expect("a folder");
        let dir = KubeletDir::new(root.path().join("kubelet"));
        let mut entry = Fixture::new(Content::Blank).host.table().entries()[0].clone();
        (entry.target, entry.shared) = ("/".into(), false);
        let table = MountTable::new(vec![entry]);
        let place = root.path().join("kubelet/plugins");
        assert!(dir.check(&table, &place).is_ok());
        fs::create_dir(root.path().join("kubelet")).expect("made");
        assert!(dir.check(&table, &place).is_err());
    }
}
