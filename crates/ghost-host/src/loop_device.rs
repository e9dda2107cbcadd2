//! Loop devices over files: found, attached, refreshed and detached.
//!
//! A loop device is recognised by the device and inode of its backing file, not by the name that
//! the kernel prints: names change, are cut, and get a suffix when the file is deleted.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::blocking;
use crate::command::Command;
use crate::device::{self, BlockDevice, DeviceNumber, Identity, Roots};
use crate::error::{Error, Result};

/// What the kernel adds to the name of a file that is deleted.
const DELETED: &[u8] = b" (deleted)";

/// The loop device over this very file (by device and inode), if there is one. For a file that is
/// deleted, the one whose backing file had this path, which must be absolute and free of links.
pub async fn find(file: &Path) -> Result<Option<BlockDevice>> {
    let file = file.to_owned();
    blocking::run(move || find_now(&file)).await
}

/// A loop device over the file: the one that is there, or else a new one.
///
/// Calls for one file, in this and in other processes that use this crate, come one after the
/// other: a lock on the file (`flock`) is held meanwhile.
pub async fn attach(file: &Path) -> Result<BlockDevice> {
    let path = file.to_owned();
    let (lock, present) = blocking::run(move || {
        let lock = File::open(&path).map_err(Error::io("open", &path))?;
        rustix::fs::flock(&lock, FlockOperation::LockExclusive)
            .map_err(Error::io("lock", &path))?;
        Ok((lock, find_now(&path)?))
    })
    .await?;
    if let Some(device) = present {
        return Ok(device);
    }
    let outcome = Command::new("losetup")
        .arguments(&["--find", "--show", "--nooverlap"])
        .argument(file)
        .succeed()
        .await?;
    let (path, node) = (file.to_owned(), PathBuf::from(outcome.stdout.trim()));
    blocking::run(move || {
        let _held_until_it_is_opened = lock;
        let stat = rustix::fs::stat(&node).map_err(Error::io("look at", &node))?;
        let number = device::block_number(stat).map_err(Error::io("use", &node))?;
        let wanted = inode(&path).map_err(Error::io("look at", &path))?;
        match device::open_number(&Roots::default(), number)? {
            Some(device) if backing_inode(&device) == Some(wanted) => Ok(device),
            _ => Err(Error::io("attach", &path)(io::Error::other(format!(
                "{} is over another file by now",
                node.display()
            )))),
        }
    })
    .await
}

/// Makes the device as large as its file has become.
pub async fn refresh(device: &BlockDevice) -> Result<()> {
    Command::new("losetup").argument("--set-capacity").argument(&device.path).succeed().await?;
    Ok(())
}

/// Lets go of the file. While something has the device mounted or open, this very handle
/// included, the kernel does so when the last of them is gone. Already gone is success.
pub async fn detach(device: &BlockDevice) -> Result<()> {
    let folder = Roots::default().folder(device.number).join("loop");
    if !folder.exists() {
        return Ok(());
    }
    match Command::new("losetup").argument("--detach").argument(&device.path).succeed().await {
        Ok(_) => Ok(()),
        Err(_) if !folder.exists() => Ok(()),
        Err(error) => Err(error),
    }
}

fn find_now(file: &Path) -> Result<Option<BlockDevice>> {
    let wanted = match inode(file) {
        Ok(wanted) => Some(wanted),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(Error::io("look at", file)(error)),
    };
    let roots = Roots::default();
    let blocks = roots.sysfs.join("block");
    for entry in fs::read_dir(&blocks).map_err(Error::io("list", &blocks))? {
        let entry = entry.map_err(Error::io("list", &blocks))?;
        let Ok(mut name) = fs::read(entry.path().join("loop/backing_file")) else { continue };
        if name.last() == Some(&b'\n') {
            name.pop();
        }
        if !is_over(&name, file, wanted) {
            continue;
        }
        let number = fs::read_to_string(entry.path().join("dev")).ok();
        let Some(number) = number.as_deref().and_then(parse_number) else { continue };
        if let Some(device) = device::open_number(&roots, number)? {
            return Ok(Some(device));
        }
    }
    Ok(None)
}

/// Whether a backing file of this printed name is the file.
fn is_over(name: &[u8], file: &Path, wanted: Option<(u64, u64)>) -> bool {
    let printed = PathBuf::from(OsString::from_vec(name.to_vec()));
    match wanted {
        Some(wanted) => inode(&printed).is_ok_and(|found| found == wanted),
        None => {
            let file = file.as_os_str().as_bytes();
            name == file || name.strip_suffix(DELETED) == Some(file)
        }
    }
}

/// The device and inode of the backing file, if it can be looked at.
fn backing_inode(device: &BlockDevice) -> Option<(u64, u64)> {
    match &device.identity {
        Identity::Loop(file) => inode(file).ok(),
        _ => None,
    }
}

fn inode(file: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(file).map(|metadata| (metadata.dev(), metadata.ino()))
}

fn parse_number(text: &str) -> Option<DeviceNumber> {
    let (major, minor) = text.trim().split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}
