//! Disks and filesystems of a machine in memory.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::device::{self, BlockDevice, DeviceNumber, DiskAddress, Fit, Identity};
use crate::error::{Error, Result};
use crate::fake::state::{Disk, State};
use crate::filesystem::{Content, FilesystemKind, Format};
use crate::health::DeviceHealth;

/// The folder that links are below.
const DEVICE_FOLDER: &str = "/dev";

/// Why a disk is not found: nothing usable is there, or something else is.
pub(super) enum NotFound {
    Absent(String),
    Refused(Error),
}

/// Where a disk is looked for.
pub(super) fn link_path(disk: &DiskAddress) -> PathBuf {
    Path::new(DEVICE_FOLDER).join(&disk.link)
}

impl State {
    /// Looks for a disk once.
    pub(super) fn look(&self, disk: &DiskAddress) -> std::result::Result<BlockDevice, NotFound> {
        let absent = |seen: &str| NotFound::Absent(seen.to_owned());
        let leads_to = self.links.get(&disk.link).ok_or_else(|| absent("nothing is there"))?;
        let device = leads_to
            .and_then(|number| self.open(number))
            .ok_or_else(|| absent("a link that leads nowhere"))?;
        match device::compare(&device.identity, &disk.names) {
            Fit::Whole => {}
            Fit::CutShort => {
                let candidates: Vec<String> = self
                    .disks
                    .values()
                    .filter(|other| other.plugged && other.identity == device.identity)
                    .map(|other| other.node.display().to_string())
                    .collect();
                if let (Identity::Virtio(serial), true) = (&device.identity, candidates.len() > 1) {
                    return Err(NotFound::Refused(Error::Ambiguous {
                        path: device.path.clone(),
                        serial: serial.clone(),
                        candidates,
                    }));
                }
            }
            Fit::Other => {
                return Err(NotFound::Refused(Error::WrongDisk {
                    path: device.path,
                    wanted: disk.names.join(" or "),
                    found: device.identity,
                }));
            }
        }
        if device.size < disk.minimum_size {
            return Err(NotFound::Refused(Error::TooSmall {
                path: device.path,
                size: device.size,
                minimum: disk.minimum_size,
            }));
        }
        Ok(device)
    }

    /// Opens a disk that is plugged in.
    pub(super) fn open(&self, number: DeviceNumber) -> Option<BlockDevice> {
        let disk = self.disks.get(&number).filter(|disk| disk.plugged)?;
        // Something must be held, and nothing is ever read from it.
        let handle = File::open("/dev/null").expect("every machine has /dev/null");
        Some(BlockDevice {
            handle: Arc::new(handle.into()),
            path: disk.node.clone(),
            number,
            size: disk.size,
            identity: disk.identity.clone(),
            partitions: disk.partitions.clone(),
            users: disk.users.clone(),
        })
    }

    pub(super) fn disk_named(&self, name: &str) -> Option<DeviceNumber> {
        let names = [name.to_owned()];
        let mut disks = self.disks.iter().rev().filter(|(_, disk)| disk.plugged);
        disks
            .find(|(_, disk)| device::compare(&disk.identity, &names) != Fit::Other)
            .map(|(number, _)| *number)
    }

    pub(super) fn linked_disks(&self, folder: &Path) -> Vec<(String, DeviceNumber)> {
        let plugged =
            |number: &DeviceNumber| self.disks.get(number).is_some_and(|disk| disk.plugged);
        let links = self.links.iter().filter(|(link, _)| link.parent() == Some(folder));
        links
            .filter_map(|(link, number)| {
                let name = link.file_name()?.to_str()?.to_owned();
                Some((name, (*number).filter(plugged)?))
            })
            .collect()
    }

    /// The size of a disk; the kernel says 0 of one that is gone.
    pub(super) fn size(&self, device: &BlockDevice) -> u64 {
        let disk = self.disk(device.number);
        if disk.plugged { disk.size } else { 0 }
    }

    pub(super) fn probe(&self, device: &BlockDevice) -> Result<Content> {
        let disk = self.readable(device)?;
        if disk.size < device.size {
            return Err(Error::io("read", &device.path)(io::Error::other("it has shrunk")));
        }
        Ok(disk.content.clone())
    }

    pub(super) fn health(
        &self,
        number: DeviceNumber,
        kind: Option<FilesystemKind>,
    ) -> DeviceHealth {
        let Some(disk) = self.disks.get(&number).filter(|disk| disk.plugged) else {
            return DeviceHealth::Gone;
        };
        let replaced = |kind| disk.content != Content::Filesystem(kind);
        if !disk.readable || disk.size == 0 {
            DeviceHealth::Failing("all reads fail".to_owned())
        } else if kind.is_some_and(replaced) {
            DeviceHealth::Replaced
        } else {
            DeviceHealth::Live { recorded_errors: disk.recorded_errors }
        }
    }

    pub(super) fn format(&mut self, device: &BlockDevice, format: &Format) -> Result<()> {
        self.begin_format(device)?;
        self.disk_mut(device.number).put(Content::Filesystem(format.kind));
        Ok(())
    }

    /// What remains of a format that was cut short.
    pub(super) fn begin_format(&mut self, device: &BlockDevice) -> Result<()> {
        match self.probe(device)? {
            Content::Blank => {}
            found => return Err(Error::NotBlank { path: device.path.clone(), found }),
        }
        self.must_be_writable(device, "mkfs")?;
        let half = Content::Foreign("a half-made filesystem".to_owned());
        self.disk_mut(device.number).put(half);
        Ok(())
    }

    pub(super) fn erase(&mut self, device: &BlockDevice) -> Result<()> {
        let refuse = |error: Errno| Err(Error::io("claim", &device.path)(error));
        self.readable(device)?;
        if self.is_mounted(device.number) {
            return refuse(Errno::BUSY);
        }
        if self.disk(device.number).write_protected {
            return refuse(Errno::ACCESS);
        }
        self.disk_mut(device.number).put(Content::Blank);
        Ok(())
    }

    pub(super) fn check(&self, device: &BlockDevice, kind: FilesystemKind) -> Result<()> {
        match kind {
            FilesystemKind::Xfs | FilesystemKind::Btrfs => return Ok(()),
            FilesystemKind::Ext3 | FilesystemKind::Ext4 => {}
        }
        let disk = self.disk(device.number);
        if disk.write_protected {
            return Ok(());
        }
        self.readable(device)?;
        let failure = |output: &str| Error::Command {
            program: "e2fsck".to_owned(),
            status: "exit status 8".to_owned(),
            output: output.to_owned(),
        };
        if self.is_mounted(device.number) {
            return Err(failure("it is mounted"));
        }
        match &disk.content {
            Content::Filesystem(FilesystemKind::Ext3 | FilesystemKind::Ext4) if disk.damaged => {
                Err(Error::Damaged {
                    path: device.path.clone(),
                    detail: "e2fsck -p ended with status 4".to_owned(),
                })
            }
            Content::Filesystem(FilesystemKind::Ext3 | FilesystemKind::Ext4) => Ok(()),
            _ => Err(failure("bad magic number in super-block")),
        }
    }

    pub(super) fn grow(&mut self, device: &BlockDevice, kind: FilesystemKind) -> Result<()> {
        let is_mounted = self.is_mounted(device.number);
        if self.disk(device.number).write_protected {
            return Ok(());
        }
        self.readable(device)?;
        let is_ext = matches!(kind, FilesystemKind::Ext3 | FilesystemKind::Ext4);
        if self.disk(device.number).content != Content::Filesystem(kind) || !(is_mounted || is_ext)
        {
            return Err(Error::Command {
                program: format!("the tool that grows {kind}"),
                status: "exit status 1".to_owned(),
                output: "it is no mounted filesystem of that kind".to_owned(),
            });
        }
        let may_grow = !(is_ext && is_mounted) || self.may_grow_mounted_ext;
        let disk = self.disk_mut(device.number);
        if disk.filesystem_size < disk.size && !may_grow {
            return Err(Error::MissingCapability {
                action: format!("growing the mounted filesystem of {}", device.path.display()),
                capability: "CAP_SYS_RESOURCE",
            });
        }
        disk.filesystem_size = disk.filesystem_size.max(disk.size);
        Ok(())
    }

    pub(super) fn is_mounted(&self, number: DeviceNumber) -> bool {
        self.mounts.iter().any(|entry| entry.device == Some(number))
    }

    /// The disk, if it can be read.
    pub(super) fn readable(&self, device: &BlockDevice) -> Result<&Disk> {
        let disk = self.disk(device.number);
        if disk.plugged && disk.readable {
            Ok(disk)
        } else {
            Err(Error::io("read", &device.path)(Errno::IO))
        }
    }

    fn must_be_writable(&self, device: &BlockDevice, program: &str) -> Result<()> {
        if self.disk(device.number).write_protected {
            return Err(Error::Command {
                program: program.to_owned(),
                status: "exit status 1".to_owned(),
                output: "the device is write-protected".to_owned(),
            });
        }
        Ok(())
    }
}
