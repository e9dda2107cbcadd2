//! What volumes and snapshots contain: sparse files, whoever uses them through whatever device.

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::copy;
use crate::state::Cloud;

/// The files of one state folder.
#[derive(Clone, Debug)]
pub(super) struct Content {
    root: PathBuf,
}

impl Content {
    /// The files below this folder, which must exist.
    pub(super) fn open(root: &Path) -> Result<Self> {
        let root = resolve(root)?;
        for folder in ["volumes", "snapshots"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(Self { root })
    }

    /// Whether there is a file of any volume or snapshot.
    pub(super) fn is_there(&self) -> Result<bool> {
        Ok(!self.files("volumes")?.is_empty() || !self.files("snapshots")?.is_empty())
    }

    pub(super) async fn create_volume(
        &self,
        id: &str,
        gigabytes: u64,
        source: Option<&str>,
    ) -> Result<()> {
        let to = self.volume_file(id);
        let size = bytes(gigabytes);
        match source {
            None => set_length(&File::create_new(&to)?, &to, size),
            Some(snapshot) => {
                let from = self.snapshot_file(snapshot);
                blocking(move || copy::still(&from, &to)).await
            }
        }
    }

    pub(super) fn remove_volume(&self, id: &str) -> Result<()> {
        remove_file(&self.volume_file(id))
    }

    pub(super) async fn create_snapshot(&self, id: &str, volume: &str) -> Result<()> {
        let (from, to) = (self.volume_file(volume), self.snapshot_file(id));
        blocking(move || copy::snapshot(&from, &to)).await
    }

    pub(super) fn remove_snapshot(&self, id: &str) -> Result<()> {
        remove_file(&self.snapshot_file(id))
    }

    /// Makes the file at least this large. It is never made smaller: see the crate's promise that
    /// what was written stays.
    pub(super) fn restore_size(&self, id: &str, gigabytes: u64) -> Result<()> {
        let path = self.volume_file(id);
        let file = OpenOptions::new().write(true).open(&path).with_context(|| {
            format!("the content of volume {id} is missing: cannot open {}", path.display())
        })?;
        let size = bytes(gigabytes);
        if file.metadata()?.len() < size { set_length(&file, &path, size) } else { Ok(()) }
    }

    /// Removes the files that this cloud does not know.
    pub(super) fn remove_all_but(&self, cloud: &Cloud) -> Result<()> {
        let volumes: HashSet<&str> = cloud.all_volumes().iter().map(|v| v.id.as_str()).collect();
        self.remove_files_but("volumes", &volumes)?;
        let snapshots: HashSet<&str> =
            cloud.all_snapshots().iter().map(|s| s.id.as_str()).collect();
        self.remove_files_but("snapshots", &snapshots)
    }

    pub(super) fn volume_file(&self, id: &str) -> PathBuf {
        self.root.join("volumes").join(id)
    }

    fn snapshot_file(&self, id: &str) -> PathBuf {
        self.root.join("snapshots").join(id)
    }

    fn remove_files_but(&self, folder: &str, wanted: &HashSet<&str>) -> Result<()> {
        for file in self.files(folder)? {
            let known = file.file_name().and_then(|name| name.to_str());
            if !known.is_some_and(|name| wanted.contains(name)) {
                tracing::info!(file = %file.display(), "removing a file that is left over");
                remove_file(&file)?;
            }
        }
        Ok(())
    }

    fn files(&self, folder: &str) -> Result<Vec<PathBuf>> {
        let folder = self.root.join(folder);
        let list = || -> io::Result<Vec<PathBuf>> {
            fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect()
        };
        list().with_context(|| format!("cannot list {}", folder.display()))
    }
}

/// The folder without links in its path: the kernel tells a loop device's file by that one.
pub(super) fn resolve(root: &Path) -> Result<PathBuf> {
    root.canonicalize().with_context(|| format!("cannot resolve {}", root.display()))
}

/// Runs what may wait for the kernel away from the runtime's own threads.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("the work on a disk broke off")?
}

pub(super) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

fn bytes(gigabytes: u64) -> u64 {
    gigabytes << 30
}

fn set_length(file: &File, path: &Path, size: u64) -> Result<()> {
    file.set_len(size).with_context(|| {
        format!("the filesystem of {} takes no file of {size} bytes", path.display())
    })
}
