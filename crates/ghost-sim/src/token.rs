//! The token file, read again whenever it has changed.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};

/// The file that holds the token which requests must carry.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    seen: Option<Version>,
}

/// What differs between two versions of a file.
type Version = (u64, u64, i64, i64, i64, i64);

impl TokenFile {
    /// The token file at this path. It is not read yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        Self { path, seen: None }
    }

    /// The token, if the file has changed since it was read last.
    pub fn changed(&mut self) -> Result<Option<String>> {
        let shown = self.path.display();
        let data = fs::metadata(&self.path)
            .with_context(|| format!("cannot read the token file {shown}"))?;
        let version = (
            data.ino(),
            data.len(),
            data.mtime(),
            data.mtime_nsec(),
            data.ctime(),
            data.ctime_nsec(),
        );
        if self.seen == Some(version) {
            return Ok(None);
        }
        let token = fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read the token file {shown}"))?;
        let token = token.trim().to_owned();
        ensure!(!token.is_empty(), "the token file {shown} is empty");
        self.seen = Some(version);
        Ok(Some(token))
    }
}
