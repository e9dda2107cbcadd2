//! Mounts of a machine in memory.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::device::{BlockDevice, DeviceNumber};
use crate::error::{Error, Result};
use crate::fake::state::{Entry, State};
use crate::filesystem::Content;
use crate::mount::{Access, Mount, MountEntry, Parameter, Usage, divide};

/// The size of a block in what [`State::usage`] says, and how many bytes share one inode.
const BYTES_PER_INODE: u64 = 16 * 1024;

impl State {
    pub(super) fn mount(&mut self, device: &BlockDevice, mount: &Mount) -> Result<()> {
        let failure = |detail: &str, error: Errno| Error::Mount {
            source_path: device.path.clone(),
            target: mount.target.clone(),
            detail: detail.to_owned(),
            source: error.into(),
        };
        if self.entries.get(&mount.target) != Some(&Entry::Folder) {
            return Err(failure("the target is no directory", Errno::NOTDIR));
        }
        let disk = self.disk(device.number);
        if !disk.plugged {
            return Err(failure("the device's node is gone", Errno::NOENT));
        }
        if !disk.readable {
            return Err(failure("the filesystem is refused", Errno::IO));
        }
        if disk.content != Content::Filesystem(mount.kind) {
            return Err(failure("the filesystem is refused", Errno::INVAL));
        }
        let options = divide(mount, disk.write_protected);
        let read_only = options.parameters.contains(&Parameter::Flag("ro".to_owned()));
        if disk.write_protected && !read_only {
            return Err(failure("the filesystem is refused", Errno::ACCESS));
        }
        let mut super_options = vec![if read_only { "ro" } else { "rw" }.to_owned()];
        super_options.extend(options.parameters.into_iter().filter_map(
            |parameter| match parameter {
                Parameter::Flag(name) if name == "ro" => None,
                Parameter::Flag(name) => Some(name),
                Parameter::Text(name, value) => Some(format!("{name}={value}")),
            },
        ));
        let source = disk.node.clone();
        self.mounts.push(MountEntry {
            device: Some(device.number),
            root: PathBuf::from("/"),
            target: mount.target.clone(),
            access: if read_only { Access::ReadOnly } else { Access::ReadWrite },
            shared: self.covering(&mount.target).shared,
            filesystem: mount.kind.name().to_owned(),
            source,
            super_options,
        });
        Ok(())
    }

    pub(super) fn bind(&mut self, source: &Path, target: &Path, access: Access) -> Result<()> {
        let failure = |detail: &str, error: io::Error| Error::Mount {
            source_path: source.to_owned(),
            target: target.to_owned(),
            detail: detail.to_owned(),
            source: error,
        };
        let device = self.device_at(source);
        let fits = match (device, self.entries.get(source), self.entries.get(target)) {
            (Some(_), _, Some(Entry::EmptyFile | Entry::FileWithContent)) => true,
            (None, Some(Entry::Folder), Some(Entry::Folder)) => true,
            (None, None, _) => {
                let error = Errno::NOENT.into();
                return Err(failure("the source cannot be opened", error));
            }
            (_, _, None) => {
                let error = Errno::NOENT.into();
                return Err(failure("the target cannot be opened", error));
            }
            _ => false,
        };
        if !fits {
            let error = io::Error::from(io::ErrorKind::InvalidInput);
            return Err(failure("source and target do not fit", error));
        }
        if let (Some(number), Access::ReadOnly) = (device, access)
            && !self.disk(number).write_protected
        {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            return Err(failure(
                "a device that can be written to cannot be bound read-only",
                error,
            ));
        }
        let covering = self.covering(source);
        let beneath = source.strip_prefix(&covering.target).expect("it covers the source");
        let entry = MountEntry {
            root: if beneath.as_os_str().is_empty() {
                covering.root.clone()
            } else {
                covering.root.join(beneath)
            },
            target: target.to_owned(),
            access: match access {
                Access::ReadOnly => Access::ReadOnly,
                Access::ReadWrite => covering.access,
            },
            ..covering.clone()
        };
        self.mounts.push(entry);
        Ok(())
    }

    pub(super) fn unmount(&mut self, target: &Path) -> Result<()> {
        let Some(index) = self.mounts.iter().rposition(|entry| entry.target == target) else {
            return Ok(());
        };
        let covers_others = self.mounts[index + 1..]
            .iter()
            .any(|entry| entry.target != target && entry.target.starts_with(target));
        if covers_others || self.held.contains(target) {
            return Err(Error::Busy { path: target.to_owned() });
        }
        let removed = self.mounts.remove(index);
        // The kernel forgets the state of a filesystem with its last mount.
        if let Some(number) = removed.device
            && !self.is_mounted(number)
            && let Some(disk) = self.disks.get_mut(&number)
        {
            disk.shut_down = false;
        }
        Ok(())
    }

    pub(super) fn has_shut_down(&self, target: &Path) -> bool {
        let number = self.covering(target).device;
        number.and_then(|number| self.disks.get(&number)).is_some_and(|disk| disk.shut_down)
    }

    pub(super) fn usage(&self, path: &Path) -> Result<Usage> {
        let failure = |error: Errno| Error::io("measure the use of", path)(error);
        let covering = self.covering(path);
        if covering.target != path && !self.entries.contains_key(path) {
            return Err(failure(Errno::NOENT));
        }
        let total_bytes = match covering.device.and_then(|number| self.disks.get(&number)) {
            Some(disk) if !disk.plugged || !disk.readable => return Err(failure(Errno::IO)),
            Some(disk) => disk.filesystem_size,
            None => 1 << 40,
        };
        let total_inodes = total_bytes / BYTES_PER_INODE;
        Ok(Usage {
            total_bytes,
            used_bytes: 0,
            available_bytes: total_bytes,
            total_inodes,
            used_inodes: 0,
            available_inodes: total_inodes,
        })
    }

    /// The disk whose node is at the path: in the device folder, or bound there.
    pub(super) fn device_at(&self, path: &Path) -> Option<DeviceNumber> {
        let covering = self.covering(path);
        if covering.filesystem != "devtmpfs" {
            return None;
        }
        // The root tells which part of the device folder is mounted; a single node as its own.
        let mut node = Path::new("/dev").join(covering.root.strip_prefix("/").ok()?);
        node.extend(path.strip_prefix(&covering.target).ok()?);
        self.disks
            .iter()
            .find(|(_, disk)| disk.plugged && disk.node == node)
            .map(|(number, _)| *number)
    }

    /// The mount that is seen at the path.
    fn covering(&self, path: &Path) -> &MountEntry {
        let mut best = &self.mounts[0];
        for entry in &self.mounts {
            let is_nearer = entry.target.components().count() >= best.target.components().count();
            if path.starts_with(&entry.target) && is_nearer {
                best = entry;
            }
        }
        best
    }
}
