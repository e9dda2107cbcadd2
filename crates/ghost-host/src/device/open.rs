//! Opening a device, and what the kernel tells of it under its number.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{FileType, Mode, OFlags, SeekFrom};

use crate::blocking;
use crate::device::unidentified::Taken;
use crate::device::{BlockDevice, DeviceNumber, Partition, identity};
use crate::error::{Error, Result};

/// Where the kernel shows its devices.
#[derive(Debug, Clone)]
pub(crate) struct Roots {
    /// The folder of device nodes, `/dev`.
    pub(crate) devices: PathBuf,
    /// The kernel's account of them, `/sys`.
    pub(crate) sysfs: PathBuf,
    /// Disks that say nothing of themselves and were taken nevertheless; `None` where none is.
    pub(crate) unidentified: Option<Taken>,
}

impl Default for Roots {
    fn default() -> Self {
        Self { devices: PathBuf::from("/dev"), sysfs: PathBuf::from("/sys"), unidentified: None }
    }
}

impl Roots {
    /// The folder in sysfs of the device with this number.
    pub(crate) fn folder(&self, number: DeviceNumber) -> PathBuf {
        self.sysfs.join("dev/block").join(number.to_string())
    }
}

/// Opens the block device at this path, which may be a link.
///
/// It is opened for reading only. The handle is held for long, and a handle for writing would be
/// in the way of others: kernels can forbid writers beside a mount
/// (`CONFIG_BLK_DEV_WRITE_MOUNTED`), and udev looks at a disk anew whenever a writer closes it.
/// Who has to write opens this handle once more (see [`reopen`]). While it is held the kernel
/// gives the device's number to no other device.
pub(crate) fn open_path(roots: &Roots, path: &Path) -> io::Result<BlockDevice> {
    // Opening something else than a disk may act on it, so that it is looked at before.
    block_number(rustix::fs::stat(path)?)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let handle = rustix::fs::open(path, flags, Mode::empty())?;
    let number = block_number(rustix::fs::fstat(&handle)?)?;
    let folder = roots.folder(number);
    if !folder.exists() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "the device has gone away"));
    }
    let path = match node(roots, number) {
        Some(path) => path,
        None => fs::canonicalize(path)?,
    };
    let partitions = partitions(&folder)?;
    Ok(BlockDevice {
        size: rustix::fs::seek(&handle, SeekFrom::End(0))?,
        path,
        number,
        identity: identity::read(&folder),
        users: users(&folder, &partitions)?,
        partitions,
        handle: Arc::new(handle),
    })
}

/// Opens the device with this number; `None` when the kernel has no such device any more.
pub(crate) fn open_number(roots: &Roots, number: DeviceNumber) -> Result<Option<BlockDevice>> {
    let folder = roots.folder(number);
    let opened = match node(roots, number) {
        Some(path) => open_path(roots, &path).map_err(Error::io("open", path)),
        None => Err(Error::io("find the node of device", number.to_string())(io::Error::from(
            io::ErrorKind::NotFound,
        ))),
    };
    match opened {
        Ok(device) if device.number == number => Ok(Some(device)),
        // Its folder has the last word: a node may be missing, or may be another's by now.
        _ if !folder.exists() => Ok(None),
        Ok(device) => Err(Error::io("open", device.path)(io::Error::other(format!(
            "this node is device {}, not {number}",
            device.number
        )))),
        Err(error) => Err(error),
    }
}

/// The same device once more, opened in another way. No path is involved but that of the handle.
pub(crate) fn reopen(device: &BlockDevice, flags: OFlags) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", device.handle.as_raw_fd());
    Ok(rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, Mode::empty())?)
}

/// How often a device that is claimed is looked at again, and after what pause: a millisecond more
/// each time, since it is mostly let go of at once.
const CLAIMED_TRIES: u32 = 30;
const CLAIMED_PAUSE: Duration = Duration::from_millis(1);

/// Claims a device for itself, and waits a little where somebody else does; half a second at most.
///
/// A filesystem lets go of its device a moment after its last unmount has returned, above all when
/// this process is just starting a tool, which has a copy of every open file until it runs: of an
/// earlier claim too. There is no event for it.
pub(crate) async fn claim(device: &BlockDevice, flags: OFlags) -> Result<OwnedFd> {
    let mut tries = 0;
    loop {
        let claimed = device.clone();
        let handle = blocking::run(move || Ok(reopen(&claimed, flags | OFlags::EXCL))).await?;
        match handle {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && tries < CLAIMED_TRIES => {
                tries += 1;
                tokio::time::sleep(CLAIMED_PAUSE * tries).await;
            }
            handle => return handle.map_err(Error::io("claim", &device.path)),
        }
    }
}

/// Waits like [`claim`] until nobody claims the device. Whoever still does later is named by the
/// tool that wants it.
pub(crate) async fn wait_until_unclaimed(device: &BlockDevice) {
    drop(claim(device, OFlags::RDONLY).await);
}

/// A copy of the handle, to give away.
pub(crate) fn duplicate(device: &BlockDevice) -> Result<OwnedFd> {
    device.handle.try_clone().map_err(Error::io("hold", &device.path))
}

/// The size in bytes at this moment.
pub(crate) fn current_size(device: &BlockDevice) -> Result<u64> {
    rustix::fs::seek(&device.handle, SeekFrom::End(0))
        .map_err(Error::io("read the size of", &device.path))
}

/// Whether the kernel refuses all writes to the device.
pub(crate) fn is_write_protected(roots: &Roots, number: DeviceNumber) -> bool {
    fs::read(roots.folder(number).join("ro")).is_ok_and(|text| text.starts_with(b"1"))
}

/// The number of a block device; an error for anything else.
pub(crate) fn block_number(stat: rustix::fs::Stat) -> io::Result<DeviceNumber> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::BlockDevice {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no block device"));
    }
    Ok(DeviceNumber::from_raw(stat.st_rdev))
}

/// The number of the block device whose node is at the path itself, not behind a link.
pub(crate) fn device_at(path: &Path) -> Result<Option<DeviceNumber>> {
    match rustix::fs::lstat(path) {
        Ok(stat) => Ok(block_number(stat).ok()),
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR) => Ok(None),
        Err(error) => Err(Error::io("look at", path)(error)),
    }
}

/// The node that the kernel names for this number, if it is there and is that device.
fn node(roots: &Roots, number: DeviceNumber) -> Option<PathBuf> {
    let facts = fs::read(roots.folder(number).join("uevent")).ok()?;
    let name =
        facts.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"DEVNAME="))?;
    let name = Path::new(std::ffi::OsStr::from_bytes(name));
    // The device folder may be one with links only, beside the kernel's own.
    [roots.devices.as_path(), Path::new("/dev")].into_iter().map(|root| root.join(name)).find(
        |path| {
            rustix::fs::lstat(path)
                .is_ok_and(|stat| block_number(stat).is_ok_and(|found| found == number))
        },
    )
}

/// The partitions of a disk.
fn partitions(folder: &Path) -> io::Result<Vec<Partition>> {
    let mut partitions = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // Looking into what is no folder would cost more than all else that is read of a device.
        if !entry.file_type()?.is_dir() || !entry.path().join("partition").exists() {
            continue;
        }
        let name = entry.file_name().to_string_lossy().into_owned();
        let text = fs::read_to_string(entry.path().join("dev"))?;
        let number = DeviceNumber::parse(text.trim()).ok_or_else(|| {
            let text = format!("partition {name} has the number {text:?}");
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        partitions.push(Partition { name, number });
    }
    partitions.sort();
    Ok(partitions)
}

/// Who builds on the device: the devices on top of it or of its partitions; and the whole disk, for
/// a device that is itself a partition.
fn users(folder: &Path, partitions: &[Partition]) -> io::Result<Vec<String>> {
    let mut users = Vec::new();
    let parts = partitions.iter().map(|partition| folder.join(&partition.name));
    for folder in std::iter::once(folder.to_owned()).chain(parts) {
        if let Ok(holders) = fs::read_dir(folder.join("holders")) {
            for holder in holders {
                users.push(format!("holder {}", holder?.file_name().to_string_lossy()));
            }
        }
    }
    if folder.join("partition").exists() {
        users.push("it is itself a partition of a larger disk".to_owned());
    }
    users.sort();
    Ok(users)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_who_build_on_a_device_are_told() {
        let tree = tempfile::tempdir().unwrap();
        let disk = tree.path().join("sdb");
        for folder in ["holders/dm-3", "sdb1/holders", "sdb2/holders/md0", "queue", "slaves"] {
            fs::create_dir_all(disk.join(folder)).unwrap();
        }
        for (name, number) in [("sdb1", "8:17\n"), ("sdb2", "8:18\n")] {
            fs::write(disk.join(name).join("partition"), "1").unwrap();
            fs::write(disk.join(name).join("dev"), number).unwrap();
        }
        let found = partitions(&disk).unwrap();
        let shown: Vec<String> =
            found.iter().map(|one| format!("{} {}", one.name, one.number)).collect();
        assert_eq!(shown, ["sdb1 8:17", "sdb2 8:18"]);
        assert_eq!(users(&disk, &found).unwrap(), ["holder dm-3", "holder md0"]);
        let wanted = ["it is itself a partition of a larger disk"];
        assert_eq!(users(&disk.join("sdb1"), &[]).unwrap(), wanted);
        assert!(users(&disk.join("queue"), &[]).unwrap().is_empty());
        fs::write(disk.join("sdb1/dev"), "eight").unwrap();
        partitions(&disk).unwrap_err();
        partitions(&tree.path().join("absent")).unwrap_err();
    }
}
