//! The API token, read from its file again whenever the file changes.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use secrecy::{ExposeSecret, SecretString};

use crate::error::{Error, Result};

/// The largest token file that is read, in bytes.
const FILE_LIMIT: u64 = 64 << 10;

/// A token in a file, such as a mounted secret that is swapped at any time.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    token: SecretString,
    version: Option<Version>,
}

/// What changes when the file's content is changed or another file takes its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    inode: u64,
    size: u64,
    modified: (i64, i64),
}

impl TokenFile {
    /// Reads the token.
    ///
    /// # Errors
    /// `Invalid` when there is no usable token in the file.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let version = version(&path);
        let token = read(&path)?;
        Ok(Self { path, last: Mutex::new(Last { token, version }) })
    }

    /// The token of this moment. When the file has become unusable it is the last good one.
    pub fn current(&self) -> SecretString {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = version(&self.path);
        if now != last.version {
            self.refresh(&mut last, now);
        }
        last.token.clone()
    }

    /// Another token than the refused one, if the file has one by now.
    pub fn instead_of(&self, refused: &SecretString) -> Option<SecretString> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        self.refresh(&mut last, version(&self.path));
        (last.token.expose_secret() != refused.expose_secret()).then(|| last.token.clone())
    }

    fn refresh(&self, last: &mut Last, now: Option<Version>) {
        match read(&self.path) {
            Ok(token) => {
                last.token = token;
                last.version = now;
            }
            Err(error) => {
                // The version stays old, so that the next call looks again.
                tracing::warn!(error = error.chain(), "keeping the last good token");
            }
        }
    }
}

fn version(path: &Path) -> Option<Version> {
    let metadata = fs::metadata(path).ok()?;
    Some(Version {
        inode: metadata.ino(),
        size: metadata.len(),
        modified: (metadata.mtime(), metadata.mtime_nsec()),
    })
}

fn read(path: &Path) -> Result<SecretString> {
    let unusable = |why: &str| Error::invalid(format!("token file {} {why}", path.display()));
    let size = fs::metadata(path).map_err(|e| unusable("cannot be read").with_source(e))?.len();
    if size > FILE_LIMIT {
        return Err(unusable("is too large to be a token"));
    }
    let text = fs::read(path).map_err(|e| unusable("cannot be read").with_source(e))?;
    let text = String::from_utf8(text).map_err(|_| unusable("is not text"))?;
    let token = text.trim();
    if token.is_empty() {
        return Err(unusable("is empty"));
    }
    if !token.chars().all(|c| c.is_ascii_graphic()) {
        return Err(unusable("holds characters that no token has"));
    }
    Ok(SecretString::from(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b48_an_unusable_file_keeps_the_last_good_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        fs::write(&path, "T1\n").expect("written");
        let file = TokenFile::open(&path).expect("a token");
        assert_eq!(file.current().expose_secret(), "T1");

        let long = "x".repeat(70_000);
        for bad in
            [b"".as_slice(), b"  \n", "T\u{fc}".as_bytes(), b"\xff\xfe", b"a b", long.as_bytes()]
        {
            fs::write(&path, bad).expect("written");
            assert_eq!(file.current().expose_secret(), "T1", "{bad:?}");
        }
        fs::remove_file(&path).expect("removed");
        assert_eq!(file.current().expose_secret(), "T1");
        fs::write(&path, " T2\n").expect("written");
        assert_eq!(file.current().expose_secret(), "T2");
        assert!(file.instead_of(&SecretString::from("T2")).is_none());
        assert!(file.instead_of(&SecretString::from("T1")).is_some());
    }

    #[test]
    fn a_start_without_a_token_is_refused_by_the_files_name() {
        let error = TokenFile::open("/nonexistent/token").expect_err("there is none");
        assert!(error.chain().contains("/nonexistent/token"), "{}", error.chain());
    }
}
