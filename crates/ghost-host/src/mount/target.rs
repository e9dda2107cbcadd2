//! Making and removing what is mounted on. Never more than one entry of a folder is touched.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::error::{Error, Result};
use crate::mount::{TargetKind, read_table, resolve};

/// Makes a target as [`crate::Host::create_target`] promises. The folder it lies in must be there:
/// it belongs to the caller of the driver.
pub(crate) fn create_target(path: &Path, kind: TargetKind) -> Result<()> {
    let made = match kind {
        TargetKind::Directory => fs::DirBuilder::new().mode(0o750).create(path),
        TargetKind::File => {
            fs::OpenOptions::new().write(true).create_new(true).mode(0o640).open(path).map(drop)
        }
    };
    match made {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => must_be(path, kind),
        Err(error) => Err(Error::io("create", path)(error)),
    }
}

/// Removes a target as [`crate::Host::remove_target`] promises.
pub(crate) fn remove_target(path: &Path) -> Result<()> {
    let place = match resolve(path) {
        Err(Error::Io { source, .. }) if is_absent(&source) => return Ok(()),
        other => other?,
    };
    // A mount is looked for before the path is, which may hang if the mount is dead.
    if read_table()?.at(&place).next().is_some() {
        return Err(left(path, "something is mounted there"));
    }
    let metadata = match fs::symlink_metadata(&place) {
        Err(error) if is_absent(&error) => return Ok(()),
        other => other.map_err(Error::io("look at", path))?,
    };
    let removed = if metadata.is_dir() {
        fs::remove_dir(&place)
    } else if metadata.is_file() && metadata.len() == 0 {
        fs::remove_file(&place)
    } else if metadata.is_file() {
        return Err(left(path, "it is a file with content"));
    } else {
        return Err(left(path, "it is neither a directory nor a file"));
    };
    match removed {
        Ok(()) => Ok(()),
        Err(error) if is_absent(&error) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            Err(left(path, "the directory is not empty"))
        }
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            Err(Error::Busy { path: path.to_owned() })
        }
        Err(error) => Err(Error::io("remove", path)(error)),
    }
}

/// What is there already must be of the kind that was asked for.
fn must_be(path: &Path, kind: TargetKind) -> Result<()> {
    let metadata = fs::symlink_metadata(path).map_err(Error::io("look at", path))?;
    match kind {
        TargetKind::Directory if metadata.is_dir() => Ok(()),
        TargetKind::Directory => Err(left(path, "it is there and is no directory")),
        TargetKind::File if metadata.is_file() && metadata.len() == 0 => Ok(()),
        TargetKind::File => Err(left(path, "it is there and is no empty file")),
    }
}

fn left(path: &Path, detail: &str) -> Error {
    Error::NotEmpty { path: path.to_owned(), detail: detail.to_owned() }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
