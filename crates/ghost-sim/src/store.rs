//! The state on disk: one JSON file, replaced in one step, so that it is whole whenever read.
//!
//! It outlives this process's death at any point. It is not synced: the death of the machine is
//! not something that a simulator has to outlive.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::state::{Cloud, Records};

/// The state folder, held by this process alone.
#[derive(Debug)]
pub struct Store {
    file: PathBuf,
    stored_revision: Option<u64>,
    _lock: File,
}

impl Store {
    /// Opens the folder and makes it if it is not there. Fails when another process holds it.
    pub fn open(root: &Path) -> Result<Self> {
        fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
        let path = root.join("lock");
        let lock =
            File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("{} is in use by another simulator", root.display())
            }
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        Ok(Self { file: root.join("state.json"), stored_revision: None, _lock: lock })
    }

    /// What was stored last, if anything ever was.
    pub fn load(&self) -> Result<Option<Records>> {
        let json = match fs::read(&self.file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            json => json.with_context(|| format!("cannot read {}", self.file.display()))?,
        };
        let records = serde_json::from_slice(&json).with_context(|| {
            format!("{} does not hold a simulator's state", self.file.display())
        })?;
        Ok(Some(records))
    }

    /// Stores the cloud if it has changed since it was stored last.
    pub fn save(&mut self, cloud: &Cloud) -> Result<()> {
        if self.stored_revision == Some(cloud.revision()) {
            return Ok(());
        }
        let new = self.file.with_extension("json.new");
        let json = serde_json::to_vec(cloud.records()).context("cannot write the state as JSON")?;
        fs::write(&new, json).with_context(|| format!("cannot write {}", new.display()))?;
        fs::rename(&new, &self.file)
            .with_context(|| format!("cannot replace {}", self.file.display()))?;
        self.stored_revision = Some(cloud.revision());
        Ok(())
    }
}
