//! What a machine in memory consists of.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::device::{DeviceNumber, Identity, Partition};
use crate::error::Error;
use crate::fake::{FakeDisk, Moment};
use crate::filesystem::Content;
use crate::mount::{Access, MountEntry, TargetKind};

/// The disk that holds the machine's own root filesystem.
const ROOT_DISK: DeviceNumber = DeviceNumber { major: 254, minor: 0 };

/// The major number of SCSI disks, by the kernel's list of devices.
const SCSI_MAJOR: u32 = 8;

/// All of a machine.
#[derive(Debug)]
pub(super) struct State {
    pub(super) disks: BTreeMap<DeviceNumber, Disk>,
    /// Links below the device folder; one that dangles leads to no number.
    pub(super) links: BTreeMap<PathBuf, Option<DeviceNumber>>,
    pub(super) mounts: Vec<MountEntry>,
    pub(super) entries: BTreeMap<PathBuf, Entry>,
    /// Mount points that are in use.
    pub(super) held: BTreeSet<PathBuf>,
    pub(super) calls: Vec<String>,
    /// Tools that are not installed.
    pub(super) missing_tools: Vec<&'static str>,
    /// Whether the process has what the kernel demands for that.
    pub(super) may_grow_mounted_ext: bool,
    /// By the number of the call in which they strike, counted as `calls` is long.
    pub(super) faults: BTreeMap<usize, Fault>,
}

/// A disk that is, or once was, plugged in. Numbers are not used again.
#[derive(Debug)]
pub(super) struct Disk {
    pub(super) plugged: bool,
    pub(super) node: PathBuf,
    pub(super) identity: Identity,
    pub(super) size: u64,
    pub(super) content: Content,
    pub(super) filesystem_size: u64,
    pub(super) partitions: Vec<Partition>,
    pub(super) users: Vec<String>,
    pub(super) readable: bool,
    pub(super) damaged: bool,
    pub(super) recorded_errors: u64,
    /// Whether its filesystem has shut down; over when the last mount of it is taken off.
    pub(super) shut_down: bool,
    pub(super) write_protected: bool,
}

/// Something in a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Entry {
    Folder,
    EmptyFile,
    FileWithContent,
}

/// What goes wrong in a call.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) moment: Moment,
    /// `None`: no answer ever.
    pub(super) error: Option<Error>,
}

impl Default for State {
    fn default() -> Self {
        let mount = |device, target: &str, filesystem: &str, source: &str| MountEntry {
            device,
            root: PathBuf::from("/"),
            target: PathBuf::from(target),
            access: Access::ReadWrite,
            shared: true,
            filesystem: filesystem.to_owned(),
            source: PathBuf::from(source),
            super_options: vec!["rw".to_owned()],
        };
        let folders = ["/", "/dev"].map(|path| (PathBuf::from(path), Entry::Folder));
        Self {
            disks: BTreeMap::new(),
            links: BTreeMap::new(),
            mounts: vec![
                mount(Some(ROOT_DISK), "/", "ext4", "/dev/vda"),
                mount(None, "/dev", "devtmpfs", "devtmpfs"),
            ],
            entries: folders.into(),
            held: BTreeSet::new(),
            calls: Vec::new(),
            missing_tools: Vec::new(),
            may_grow_mounted_ext: true,
            faults: BTreeMap::new(),
        }
    }
}

impl Disk {
    pub(super) fn put(&mut self, content: Content) {
        self.content = content;
        self.filesystem_size = self.size;
    }
}

impl State {
    pub(super) fn disk(&self, number: DeviceNumber) -> &Disk {
        self.disks.get(&number).expect("the number is one that this machine has given")
    }

    pub(super) fn disk_mut(&mut self, number: DeviceNumber) -> &mut Disk {
        self.disks.get_mut(&number).expect("the number is one that this machine has given")
    }

    pub(super) fn plug(&mut self, disk: FakeDisk) -> DeviceNumber {
        let index = u32::try_from(self.disks.len()).expect("a test has few disks");
        let number = DeviceNumber { major: SCSI_MAJOR, minor: 16 * index };
        self.links.insert(disk.link, Some(number));
        self.disks.insert(
            number,
            Disk {
                plugged: true,
                node: PathBuf::from(format!("/dev/disk{index}")),
                identity: disk.identity,
                size: disk.size,
                content: disk.content,
                filesystem_size: disk.size,
                partitions: disk.partitions,
                users: disk.users,
                readable: true,
                damaged: false,
                recorded_errors: 0,
                shut_down: false,
                write_protected: disk.write_protected,
            },
        );
        number
    }

    pub(super) fn unplug(&mut self, number: DeviceNumber) {
        self.disk_mut(number).plugged = false;
        self.links.retain(|_, leads_to| *leads_to != Some(number));
    }

    pub(super) fn make_folder(&mut self, path: &Path) {
        for folder in path.ancestors() {
            self.entries.entry(folder.to_owned()).or_insert(Entry::Folder);
        }
    }

    pub(super) fn write_file(&mut self, path: &Path) {
        self.make_folder(path.parent().unwrap_or(Path::new("/")));
        self.entries.insert(path.to_owned(), Entry::FileWithContent);
    }

    pub(super) fn target(&self, path: &Path) -> Option<TargetKind> {
        self.entries.get(path).map(|entry| match entry {
            Entry::Folder => TargetKind::Directory,
            Entry::EmptyFile | Entry::FileWithContent => TargetKind::File,
        })
    }

    pub(super) fn add_fault(&mut self, n: usize, fault: Fault) {
        self.faults.insert(self.calls.len() + n, fault);
    }

    /// Writes a call into the log and takes the fault that strikes in it.
    pub(super) fn begin(&mut self, call: String) -> Option<Fault> {
        self.calls.push(call);
        self.faults.remove(&self.calls.len())
    }
}
