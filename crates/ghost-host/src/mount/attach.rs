//! Mounting a device's filesystem by system calls, and unmounting.
//!
//! `mount(8)` is never started: it would split and join options in its own way, and could mount
//! something else than what was checked. The mount is made detached, compared with the device that
//! is held open, and only then put at its target.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MoveMountFlags, UnmountFlags};

use crate::device::{self, BlockDevice, DeviceNumber, Roots};
use crate::error::{Error, Result};
use crate::filesystem::FilesystemKind;
use crate::mount::options::{self, Options, Parameter};
use crate::mount::{Access, Mount, btrfs, read_table, resolve};

/// Mounts as [`crate::Host::mount`] promises.
pub(crate) fn attach(roots: &Roots, device: &BlockDevice, mount: &Mount) -> Result<()> {
    let failure = |detail: String, source: io::Error| Error::Mount {
        source_path: device.path.clone(),
        target: mount.target.clone(),
        detail,
        source,
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let target = rustix::fs::open(&mount.target, flags, Mode::empty())
        .map_err(|error| failure("the target is no directory".to_owned(), error.into()))?;
    // While the device is held open its number is given to no other, so that a node that has that
    // number now leads to this device.
    let stat = rustix::fs::stat(&device.path)
        .map_err(|error| failure("the device's node is gone".to_owned(), error.into()))?;
    must_be(device.number, device::block_number(stat).ok())
        .map_err(|error| failure("the device's node is another's".to_owned(), error))?;

    let is_btrfs = mount.kind == FilesystemKind::Btrfs;
    if is_btrfs {
        btrfs::must_be_distinct(roots, device)?;
    }
    let write_protected = device::is_write_protected(roots, device.number);
    if write_protected && mount.access == Access::ReadOnly {
        tracing::warn!(device = %device.path.display(),
            "the disk is write-protected: a log that waits to be replayed is left alone, and what \
             only it knows of does not show");
    }
    let options = options::divide(mount, write_protected);
    let made = make(device, mount, &options).map_err(|(detail, error)| match error.kind() {
        io::ErrorKind::AlreadyExists if is_btrfs => btrfs::refused_by_kernel(device),
        _ => failure(detail, error),
    })?;
    let number = DeviceNumber::from_raw(
        rustix::fs::fstat(&made)
            .map_err(|error| failure("the mount cannot be looked at".to_owned(), error.into()))?
            .st_dev,
    );
    let is_other = |error| failure("the kernel mounted another device".to_owned(), error);
    // A btrfs has an anonymous number (major 0); the kernel's account tells of what devices it is,
    // and the table below which of them was mounted here.
    if number.major != 0 {
        must_be(device.number, Some(number)).map_err(is_other)?;
    } else {
        btrfs::must_be_alone(roots, device).map_err(is_other)?;
    }
    put(&made, &target).map_err(|error| failure("it cannot be put there".to_owned(), error))?;
    if number.major == 0 {
        // The descriptor would keep the mount busy if it had to be taken off.
        drop(made);
        let place = path_of(&target).map_err(Error::io("look at", &mount.target))?;
        let table = read_table()?;
        let mounted = table.at(&place).next_back().and_then(|entry| entry.device);
        if let Err(error) = must_be(device.number, mounted) {
            detach(&place)?;
            return Err(is_other(error));
        }
    }
    Ok(())
}

/// How often a busy mount is tried again, and after what pause. Whoever measures all mounts keeps
/// each busy for a moment, and so does a tool that this process is starting: until it runs, it has
/// a copy of every open file. The kernel tells no event of their end.
const BUSY_TRIES: u32 = 10;
const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// Unmounts as [`crate::Host::unmount`] promises.
pub(crate) fn detach(target: &Path) -> Result<()> {
    use rustix::io::Errno;
    let mut result = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW);
    for _ in 0..BUSY_TRIES {
        if result != Err(Errno::BUSY) {
            break;
        }
        std::thread::sleep(BUSY_PAUSE);
        result = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW);
    }
    match result {
        Ok(()) => Ok(()),
        Err(Errno::BUSY) => Err(Error::Busy { path: target.to_owned() }),
        Err(error @ (Errno::INVAL | Errno::NOENT)) => {
            let place = resolve(target).unwrap_or(target.to_owned());
            match read_table()?.at(&place).next() {
                None => Ok(()),
                Some(_) => Err(Error::io("unmount", target)(error)),
            }
        }
        Err(error) => Err(Error::io("unmount", target)(error)),
    }
}

/// Puts a detached mount at a target, both given by descriptors so that no path can lead astray.
pub(crate) fn put(made: &OwnedFd, target: &OwnedFd) -> io::Result<()> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    Ok(rustix::mount::move_mount(made.as_fd(), "", target.as_fd(), "", flags)?)
}

/// A path by which the kernel finds what the descriptor holds.
pub(crate) fn descriptor_path(descriptor: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", descriptor.as_raw_fd())
}

/// The path of what the descriptor holds, as the mount table shows it.
fn path_of(descriptor: &OwnedFd) -> io::Result<PathBuf> {
    fs::read_link(descriptor_path(descriptor))
}

/// Makes the mount, attached nowhere yet. An error comes with the kernel's words.
fn make(
    device: &BlockDevice,
    mount: &Mount,
    options: &Options,
) -> std::result::Result<OwnedFd, (String, io::Error)> {
    let kind = mount.kind.name();
    let context = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)
        .map_err(|error| (format!("the kernel offers no {kind}"), error.into()))?;
    let explain = |what: &str, error: rustix::io::Errno| {
        let words = kernel_words(&context);
        let detail = if words.is_empty() { what.to_owned() } else { format!("{what}: {words}") };
        (detail, error.into())
    };
    let source = device.path.as_path();
    rustix::mount::fsconfig_set_string(context.as_fd(), "source", source)
        .map_err(|error| explain("the source is refused", error))?;
    for parameter in &options.parameters {
        match parameter {
            Parameter::Flag(name) => {
                rustix::mount::fsconfig_set_flag(context.as_fd(), name.as_str())
                    .map_err(|error| explain(&format!("option {name:?} is refused"), error))?;
            }
            Parameter::Text(name, value) => {
                rustix::mount::fsconfig_set_string(context.as_fd(), name.as_str(), value.as_str())
                    .map_err(|error| {
                        // The value may be a secret.
                        explain(&format!("the value of option {name:?} is refused"), error)
                    })?;
            }
        }
    }
    rustix::mount::fsconfig_create(context.as_fd())
        .map_err(|error| explain(&format!("the {kind} filesystem is refused"), error))?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    rustix::mount::fsmount(context.as_fd(), flags, options.attributes)
        .map_err(|error| explain("the mount is refused", error))
}

/// What the kernel says of a filesystem context: one message with each read, marked with `e`, `w`
/// or `i` for its weight.
fn kernel_words(context: &OwnedFd) -> String {
    let mut words = Vec::new();
    let mut message = [0; 1024];
    while let Ok(count @ 1..) = rustix::io::read(context, &mut message) {
        let text = String::from_utf8_lossy(&message[..count]);
        let text = text.trim();
        words.push(text.get(2..).unwrap_or(text).to_owned());
    }
    words.join("; ")
}

fn must_be(wanted: DeviceNumber, found: Option<DeviceNumber>) -> io::Result<()> {
    match found {
        Some(found) if found == wanted => Ok(()),
        Some(found) => Err(io::Error::other(format!("wanted {wanted}, found {found}"))),
        None => Err(io::Error::other(format!("wanted {wanted}, found no block device"))),
    }
}
