//! Folders and files of a machine in memory.

use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::fake::state::{Entry, State};
use crate::mount::TargetKind;

impl State {
    pub(super) fn resolve(&self, path: &Path) -> Result<PathBuf> {
        if !path.is_absolute()
            || !matches!(path.components().next_back(), Some(Component::Normal(_)))
        {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no absolute path");
            return Err(Error::io("resolve", path)(source));
        }
        let parent = path.parent().unwrap_or(Path::new("/"));
        self.must_be_folder(parent).map_err(Error::io("resolve", parent))?;
        Ok(path.components().collect())
    }

    pub(super) fn create_target(&mut self, path: &Path, kind: TargetKind) -> Result<()> {
        let parent = path.parent().unwrap_or(Path::new("/"));
        self.must_be_folder(parent).map_err(Error::io("create", path))?;
        let left =
            |detail: &str| Error::NotEmpty { path: path.to_owned(), detail: detail.to_owned() };
        let bound_device = self.device_at(path).is_some();
        match (self.entries.get(path), kind) {
            (None, TargetKind::Directory) => {
                self.entries.insert(path.to_owned(), Entry::Folder);
                Ok(())
            }
            (None, TargetKind::File) => {
                self.entries.insert(path.to_owned(), Entry::EmptyFile);
                Ok(())
            }
            (Some(Entry::Folder), TargetKind::Directory) => Ok(()),
            (Some(Entry::EmptyFile), TargetKind::File) if !bound_device => Ok(()),
            (Some(_), TargetKind::Directory) => Err(left("it is there and is no directory")),
            (Some(_), TargetKind::File) => Err(left("it is there and is no empty file")),
        }
    }

    pub(super) fn remove_target(&mut self, path: &Path) -> Result<()> {
        let left =
            |detail: &str| Error::NotEmpty { path: path.to_owned(), detail: detail.to_owned() };
        if self.mounts.iter().any(|entry| entry.target == path) {
            return Err(left("something is mounted there"));
        }
        match self.entries.get(path) {
            None => return Ok(()),
            Some(Entry::FileWithContent) => return Err(left("it is a file with content")),
            Some(Entry::EmptyFile) => {}
            Some(Entry::Folder) => {
                let is_inside = |entry: &PathBuf| entry.parent() == Some(path);
                if self.entries.keys().any(is_inside) {
                    return Err(left("the directory is not empty"));
                }
            }
        }
        self.entries.remove(path);
        Ok(())
    }

    fn must_be_folder(&self, path: &Path) -> io::Result<()> {
        match self.entries.get(path) {
            Some(Entry::Folder) => Ok(()),
            Some(_) => Err(Errno::NOTDIR.into()),
            None => Err(Errno::NOENT.into()),
        }
    }
}
