//! The files of a layer, in memory, and the archive that they make: sorted, of one owner, and of no
//! time, so that the same files always make the same bytes.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use anyhow::{Context, Result};
use tar::{Builder, EntryType, Header};

/// One entry of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Entry {
    Folder { mode: u32 },
    File { mode: u32, content: Vec<u8> },
    Link { to: String },
}

/// The files of a layer, by their path from the root, without a slash in front.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tree(BTreeMap<String, Entry>);

impl Tree {
    /// Adds a file, with the folders that it is in; it takes the place of what was there.
    pub(crate) fn file(&mut self, path: &str, mode: u32, content: Vec<u8>) {
        self.parents(path);
        self.0.insert(path.to_owned(), Entry::File { mode, content });
    }

    /// Adds a folder, with those that it is in.
    pub(crate) fn folder(&mut self, path: &str, mode: u32) {
        self.parents(path);
        self.0.insert(path.to_owned(), Entry::Folder { mode });
    }

    /// Adds a symbolic link, with the folders that it is in.
    pub(crate) fn link(&mut self, path: &str, to: &str) {
        self.parents(path);
        self.0.insert(path.to_owned(), Entry::Link { to: to.to_owned() });
    }

    /// Whether there is anything at this path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.0.contains_key(path)
    }

    /// Writes it as an archive.
    pub(crate) fn write(&self, out: impl Write) -> Result<()> {
        let mut archive = Builder::new(out);
        for (path, entry) in &self.0 {
            let mut header = header();
            match entry {
                Entry::Folder { mode } => {
                    header.set_entry_type(EntryType::Directory);
                    header.set_mode(*mode);
                    archive.append_data(&mut header, format!("{path}/"), std::io::empty())?;
                }
                Entry::File { mode, content } => {
                    header.set_mode(*mode);
                    header.set_size(u64::try_from(content.len())?);
                    archive.append_data(&mut header, path, content.as_slice())?;
                }
                Entry::Link { to } => {
                    header.set_entry_type(EntryType::Symlink);
                    header.set_mode(0o777);
                    archive.append_link(&mut header, path, to)?;
                }
            }
        }
        archive.finish()?;
        Ok(())
    }

    /// Makes the files below a folder, over what is there already.
    pub(crate) fn unpack(&self, root: &Path) -> Result<()> {
        fs::create_dir_all(root)?;
        for (path, entry) in &self.0 {
            let place = root.join(path);
            let made = match entry {
                Entry::Folder { mode } => fs::create_dir_all(&place)
                    .and_then(|()| fs::set_permissions(&place, fs::Permissions::from_mode(*mode))),
                Entry::File { mode, content } => fs::write(&place, content)
                    .and_then(|()| fs::set_permissions(&place, fs::Permissions::from_mode(*mode))),
                Entry::Link { to } => {
                    drop(fs::remove_file(&place));
                    symlink(to, &place)
                }
            };
            made.with_context(|| format!("cannot make {}", place.display()))?;
        }
        Ok(())
    }

    fn parents(&mut self, path: &str) {
        for (at, _) in path.match_indices('/') {
            self.0.entry(path[..at].to_owned()).or_insert(Entry::Folder { mode: 0o755 });
        }
    }
}

/// What is the same of every entry.
pub(crate) fn header() -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header.set_size(0);
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(tree: &Tree) -> Vec<u8> {
        let mut bytes = Vec::new();
        tree.write(&mut bytes).expect("written");
        bytes
    }

    #[test]
    fn the_order_in_which_files_are_added_does_not_show() {
        let (mut one, mut other) = (Tree::default(), Tree::default());
        one.file("usr/bin/a", 0o755, b"a".to_vec());
        one.file("etc/b", 0o644, b"b".to_vec());
        one.link("bin", "usr/bin");
        other.link("bin", "usr/bin");
        other.file("etc/b", 0o644, b"old".to_vec());
        other.file("etc/b", 0o644, b"b".to_vec());
        other.file("usr/bin/a", 0o755, b"a".to_vec());
        assert_eq!(bytes(&one), bytes(&other));
    }

    #[test]
    fn folders_come_before_what_is_in_them_and_nobody_and_no_time_is_named() {
        let mut tree = Tree::default();
        tree.file("usr/bin/ghost", 0o755, b"program".to_vec());
        tree.folder("tmp", 0o1777);
        let bytes = bytes(&tree);
        let mut archive = tar::Archive::new(bytes.as_slice());
        let mut seen = Vec::new();
        for entry in archive.entries().expect("an archive") {
            let entry = entry.expect("an entry");
            let header = entry.header();
            assert_eq!(
                (header.uid().ok(), header.gid().ok(), header.mtime().ok()),
                (Some(0), Some(0), Some(0))
            );
            let path = entry.path().expect("a path").display().to_string();
            seen.push((path, header.mode().expect("a mode")));
        }
        let expected =
            [("tmp/", 0o1777), ("usr/", 0o755), ("usr/bin/", 0o755), ("usr/bin/ghost", 0o755)];
        assert_eq!(seen, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }
}
