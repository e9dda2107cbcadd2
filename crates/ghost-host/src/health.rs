//! Whether a device still answers, and what its filesystem has written down about errors.

use std::fs;
use std::path::Path;

use crate::device::{self, BlockDevice, DeviceNumber, Roots};
use crate::error::{Error, Result};
use crate::filesystem::{FilesystemKind, SuperBlock};
use crate::patient::{PATIENCE, Patient, Unanswered};

/// How a device that is in use is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeviceHealth {
    /// The kernel has no such device any more.
    Gone,
    /// It is there and cannot be read; why, in words.
    Failing(String),
    /// It is read, but is no longer what was mounted of it.
    Replaced,
    /// It is read.
    Live {
        /// How many errors its filesystem has written down: since the last check (ext3, ext4), or
        /// since somebody set the counters back (btrfs). XFS writes down none.
        recorded_errors: u64,
    },
}

/// Asks devices. One that hangs holds one thread.
#[derive(Debug, Default)]
pub(crate) struct HealthReader(
    Patient<(DeviceNumber, Option<FilesystemKind>), std::result::Result<DeviceHealth, String>>,
);

impl HealthReader {
    /// Asks as [`crate::Host::device_health`] promises.
    pub(crate) async fn read(
        &self,
        roots: &Roots,
        number: DeviceNumber,
        kind: Option<FilesystemKind>,
    ) -> Result<DeviceHealth> {
        let roots = roots.clone();
        let look = move |&(number, kind): &_| look(&roots, number, kind);
        let (action, path) = ("read the device", number.to_string());
        match self.0.ask((number, kind), PATIENCE, look).await {
            Ok(Ok(health)) => Ok(health),
            Ok(Err(words)) => Err(Error::io(action, path)(std::io::Error::other(words))),
            Err(Unanswered::NotAsked(error)) => Err(Error::io(action, path)(error)),
            Err(Unanswered::NotYet(waited)) => {
                Err(Error::NoAnswer { action, path: path.into(), waited })
            }
        }
    }
}

/// An error in words is one of this process (no memory, no descriptors): nothing follows from it.
fn look(
    roots: &Roots,
    number: DeviceNumber,
    kind: Option<FilesystemKind>,
) -> std::result::Result<DeviceHealth, String> {
    let device = match device::open_number(roots, number) {
        Ok(None) => return Ok(DeviceHealth::Gone),
        Ok(Some(device)) => device,
        Err(error) => return of_the_device(&error),
    };
    let block = match SuperBlock::read(&device, kind) {
        Ok(block) => block,
        Err(error) => return of_the_device(&error),
    };
    Ok(match kind {
        Some(_) if !block.is_of_its_kind() => DeviceHealth::Replaced,
        Some(kind) => {
            let written = block.recorded_errors();
            let counted = counted_errors(roots, &device, kind);
            DeviceHealth::Live { recorded_errors: written.max(counted) }
        }
        None => DeviceHealth::Live { recorded_errors: 0 },
    })
}

fn of_the_device(error: &Error) -> std::result::Result<DeviceHealth, String> {
    if error.is_of_the_device() {
        Ok(DeviceHealth::Failing(chain(error)))
    } else {
        Err(chain(error))
    }
}

fn chain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// What the kernel counts while the filesystem is mounted; 0 where it does not tell.
fn counted_errors(roots: &Roots, device: &BlockDevice, kind: FilesystemKind) -> u64 {
    let Some(name) = device.path.file_name() else { return 0 };
    match kind {
        FilesystemKind::Ext3 | FilesystemKind::Ext4 => {
            let path = roots.sysfs.join("fs/ext4").join(name).join("errors_count");
            fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
        }
        FilesystemKind::Btrfs => btrfs_errors(&roots.sysfs.join("fs/btrfs"), name),
        FilesystemKind::Xfs => 0,
    }
}

/// The sum of the counters of all devices of the filesystem that has this one.
fn btrfs_errors(folder: &Path, name: &std::ffi::OsStr) -> u64 {
    let entries = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    let own = entries(folder).find(|entry| entry.path().join("devices").join(name).exists());
    let Some(own) = own else { return 0 };
    entries(&own.path().join("devinfo"))
        .filter_map(|device| fs::read_to_string(device.path().join("error_stats")).ok())
        .flat_map(|text| {
            let number = |line: &str| line.rsplit_once(' ')?.1.parse::<u64>().ok();
            text.lines().filter_map(number).collect::<Vec<_>>()
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counters_of_the_filesystem_that_has_the_device_are_added_up() {
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("one/devices/sdb", "");
        write("one/devinfo/1/error_stats", "write_errs 1\nread_errs 20\nflush_errs 300\n");
        write("two/devices/sdc", "");
        write("two/devinfo/1/error_stats", "write_errs 0\nread_errs 0\n");
        let errors = |name: &str| btrfs_errors(folder.path(), name.as_ref());
        assert_eq!((errors("sdb"), errors("sdc"), errors("sdd")), (321, 0, 0));
    }
}
