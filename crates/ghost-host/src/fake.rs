//! A machine in memory, for tests of what is built on [`crate::Host`].
//!
//! It keeps to what Linux does (both pass one contract suite), and has what a test needs besides:
//! disks that are plugged, pulled, grown and broken at will, faults at the n-th call, and a log of
//! the calls. It has no data: a disk holds a kind of content, a folder has names only.
//! The principal type is [`FakeHost`].

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::device::{DeviceNumber, DiskAddress, Identity, Partition};
use crate::error::Error;
use crate::filesystem::Content;
use crate::mount::{MountEntry, MountTable, TargetKind};

mod devices;
mod host;
mod mounts;
mod state;
mod targets;

use state::{Fault, State};

/// A machine in memory. Clones are the same machine.
#[derive(Debug, Clone, Default)]
pub struct FakeHost {
    state: Arc<Mutex<State>>,
    changed: Arc<Notify>,
}

/// A disk to be plugged into a [`FakeHost`].
#[derive(Debug, Clone)]
pub struct FakeDisk {
    /// The link that leads to it, below the device folder.
    pub link: PathBuf,
    /// What it says of who it is.
    pub identity: Identity,
    /// Its size in bytes.
    pub size: u64,
    /// What is on it. A filesystem there is as large as the disk.
    pub content: Content,
    /// See [`crate::BlockDevice::partitions`].
    pub partitions: Vec<Partition>,
    /// Who builds on it, see [`crate::BlockDevice::users`].
    pub users: Vec<String>,
    /// Whether all writes to it are refused.
    pub write_protected: bool,
}

/// When a fault strikes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// Nothing was done yet.
    Before,
    /// The work was begun: a format leaves a half-made filesystem. What the kernel does in one step
    /// has no middle, and is not done.
    Midway,
    /// All was done, only the answer is lost.
    After,
}

impl FakeDisk {
    /// A blank SCSI disk of this name, found at `disk/by-id/<name>`.
    #[must_use]
    pub fn blank(name: &str, size: u64) -> Self {
        Self {
            link: Path::new("disk/by-id").join(name),
            identity: Identity::Scsi(vec![name.to_owned()]),
            size,
            content: Content::Blank,
            partitions: Vec::new(),
            users: Vec::new(),
            write_protected: false,
        }
    }

    /// The same disk with this on it.
    #[must_use]
    pub fn with_content(self, content: Content) -> Self {
        Self { content, ..self }
    }

    /// How the disk is looked for, if this is its name.
    #[must_use]
    pub fn address(&self, name: &str) -> DiskAddress {
        DiskAddress {
            link: self.link.clone(),
            names: vec![name.to_owned()],
            minimum_size: self.size,
        }
    }
}

impl FakeHost {
    /// A machine with a root filesystem, a device folder, and no disk.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Plugs a disk in. Its link is made, or made to lead to it.
    pub fn plug(&self, disk: FakeDisk) -> DeviceNumber {
        self.change(|state| state.plug(disk))
    }

    /// Pulls a disk out with its links. What was mounted of it stays in the table, dead.
    pub fn unplug(&self, number: DeviceNumber) {
        self.change(|state| state.unplug(number));
    }

    /// The disk that is plugged in and introduces itself in this way, the last one if several do.
    #[must_use]
    pub fn disk_named(&self, name: &str) -> Option<DeviceNumber> {
        self.lock().disk_named(name)
    }

    /// Makes a link lead to that disk, or dangle, whatever was there.
    pub fn set_link(&self, link: impl Into<PathBuf>, leads_to: Option<DeviceNumber>) {
        self.change(|state| state.links.insert(link.into(), leads_to));
    }

    /// Removes a link.
    pub fn remove_link(&self, link: impl AsRef<Path>) {
        self.change(|state| state.links.remove(link.as_ref()));
    }

    /// Gives the disk this size in bytes. A filesystem on it stays as it is.
    pub fn resize(&self, number: DeviceNumber, size: u64) {
        self.change(|state| state.disk_mut(number).size = size);
    }

    /// Makes all reads of the disk fail, or succeed again.
    pub fn set_readable(&self, number: DeviceNumber, readable: bool) {
        self.change(|state| state.disk_mut(number).readable = readable);
    }

    /// Makes the filesystem on the disk one that only a person can repair, or a sound one.
    pub fn set_damaged(&self, number: DeviceNumber, damaged: bool) {
        self.change(|state| state.disk_mut(number).damaged = damaged);
    }

    /// Makes the filesystem on the disk one that has written down this many errors.
    pub fn set_recorded_errors(&self, number: DeviceNumber, errors: u64) {
        self.change(|state| state.disk_mut(number).recorded_errors = errors);
    }

    /// Makes the mounted filesystem of the disk one that has shut down, until it is mounted anew.
    pub fn shut_down(&self, number: DeviceNumber) {
        self.change(|state| state.disk_mut(number).shut_down = true);
    }

    /// Takes these tools from the machine.
    pub fn set_missing_tools(&self, tools: &[&'static str]) {
        self.change(|state| state.missing_tools = tools.to_vec());
    }

    /// Gives the process the right to grow an ext3 or ext4 that is mounted, or takes it away.
    pub fn set_may_grow_mounted_ext(&self, may: bool) {
        self.change(|state| state.may_grow_mounted_ext = may);
    }

    /// Makes the disk refuse writes, or take them again.
    pub fn set_write_protected(&self, number: DeviceNumber, write_protected: bool) {
        self.change(|state| state.disk_mut(number).write_protected = write_protected);
    }

    /// Puts this on the disk. A filesystem is as large as the disk.
    pub fn set_content(&self, number: DeviceNumber, content: Content) {
        self.change(|state| state.disk_mut(number).put(content));
    }

    /// What is on the disk.
    #[must_use]
    pub fn content(&self, number: DeviceNumber) -> Content {
        self.lock().disk(number).content.clone()
    }

    /// The size in bytes of the disk.
    #[must_use]
    pub fn disk_size(&self, number: DeviceNumber) -> u64 {
        self.lock().disk(number).size
    }

    /// The size in bytes of the filesystem on the disk.
    #[must_use]
    pub fn filesystem_size(&self, number: DeviceNumber) -> u64 {
        self.lock().disk(number).filesystem_size
    }

    /// Makes a folder and those above it.
    pub fn make_folder(&self, path: impl AsRef<Path>) {
        self.change(|state| state.make_folder(path.as_ref()));
    }

    /// Puts a file with content somewhere, as a stranger would.
    pub fn write_file(&self, path: impl AsRef<Path>) {
        self.change(|state| state.write_file(path.as_ref()));
    }

    /// What is at the path, mounts aside.
    #[must_use]
    pub fn target(&self, path: impl AsRef<Path>) -> Option<TargetKind> {
        self.lock().target(path.as_ref())
    }

    /// Keeps what is mounted at the path in use, so that it cannot be unmounted.
    pub fn hold(&self, path: impl Into<PathBuf>) {
        self.change(|state| state.held.insert(path.into()));
    }

    /// Ends [`Self::hold`].
    pub fn release(&self, path: impl AsRef<Path>) {
        self.change(|state| state.held.remove(path.as_ref()));
    }

    /// Mounts something by hand, on top of what is there.
    pub fn push_mount(&self, entry: MountEntry) {
        self.change(|state| state.mounts.push(entry));
    }

    /// The mount table, without a call in the log.
    #[must_use]
    pub fn table(&self) -> MountTable {
        MountTable::new(self.lock().mounts.clone())
    }

    /// Makes the n-th call from now (1 is the next) fail in this way, once.
    pub fn fail_at(&self, n: usize, moment: Moment, error: Error) {
        self.change(|state| state.add_fault(n, Fault { moment, error: Some(error) }));
    }

    /// Makes the n-th call from now (1 is the next) never answer, as if the process had died in it.
    pub fn silence_at(&self, n: usize, moment: Moment) {
        self.change(|state| state.add_fault(n, Fault { moment, error: None }));
    }

    /// Takes back all faults that have not struck yet. Returns how many those were, so that a test
    /// knows when its n has passed the last call.
    pub fn clear_faults(&self) -> usize {
        self.change(|state| std::mem::take(&mut state.faults).len())
    }

    /// All calls since the beginning: the method's name, and on what.
    #[must_use]
    pub fn calls(&self) -> Vec<String> {
        self.lock().calls.clone()
    }

    /// Changes the machine, and wakes whoever waits for a disk.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let answer = change(&mut self.lock());
        self.changed.notify_waiters();
        answer
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
