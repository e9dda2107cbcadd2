//! Showing a mounted directory, or a device node, at a second place.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, Stat, StatVfsMountFlags};
use rustix::mount::{MountFlags, OpenTreeFlags, UnmountFlags};

use crate::device::{self, DeviceNumber, Roots};
use crate::error::{Error, Result};
use crate::mount::Access;
use crate::mount::attach::{descriptor_path, put};

/// Binds as [`crate::Host::bind`] promises.
pub(crate) fn bind(roots: &Roots, source: &Path, target: &Path, access: Access) -> Result<()> {
    let failure = |detail: &str, error: io::Error| Error::Mount {
        source_path: source.to_owned(),
        target: target.to_owned(),
        detail: detail.to_owned(),
        source: error,
    };
    let (from, from_stat) =
        look(source).map_err(|error| failure("the source cannot be opened", error))?;
    let (to, to_stat) =
        look(target).map_err(|error| failure("the target cannot be opened", error))?;
    must_fit(&from_stat, &to_stat)
        .map_err(|error| failure("source and target do not fit", error))?;
    let device = device::block_number(from_stat).ok();
    if let (Some(number), Access::ReadOnly) = (device, access) {
        // A mount that is read-only keeps nobody from writing through a device node in it.
        if !device::is_write_protected(roots, number) {
            let error = io::Error::from(io::ErrorKind::Unsupported);
            return Err(failure(
                "a device that can be written to cannot be bound read-only",
                error,
            ));
        }
    }

    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_EMPTY_PATH;
    let copy = rustix::mount::open_tree(from.as_fd(), "", flags)
        .map_err(|error| failure("the source cannot be bound", error.into()))?;
    put(&copy, &to).map_err(|error| failure("it cannot be put there", error))?;
    let finished = restrict(&copy, access).and_then(|()| match device {
        Some(number) => must_be_seen(target, number),
        None => Ok(()),
    });
    finished.map_err(|error| {
        // Nobody can have come to use it yet but this process's own descriptor, which is why it is
        // detached rather than unmounted.
        match rustix::mount::unmount(descriptor_path(&copy), UnmountFlags::DETACH) {
            Ok(()) => failure("the bind was taken off again", error),
            Err(_) => failure("the bind is not as asked and cannot be taken off", error),
        }
    })
}

/// Holds a path without opening what is there: opening a device node could act on the device.
fn look(path: &Path) -> io::Result<(OwnedFd, Stat)> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&held)?;
    Ok((held, stat))
}

/// A directory goes onto a directory and a device node onto a file; nothing else is bound. Above
/// all no file, which a device that is missing easily turns into.
fn must_fit(source: &Stat, target: &Stat) -> io::Result<()> {
    let kind = |stat: &Stat| FileType::from_raw_mode(stat.st_mode);
    match (kind(source), kind(target)) {
        (FileType::Directory, FileType::Directory)
        | (FileType::BlockDevice, FileType::RegularFile) => Ok(()),
        (source, target) => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the source is a {source:?}, the target a {target:?}"),
        )),
    }
}

/// Makes the mount read-only if asked, and looks whether it is. All else about it stays as it is at
/// the source: the kernel takes every flag that is not repeated as one to be cleared.
fn restrict(mount: &OwnedFd, access: Access) -> io::Result<()> {
    if access == Access::ReadWrite {
        return Ok(());
    }
    let present = rustix::fs::fstatvfs(mount)?.f_flag;
    let kept = [
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        (ST_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
    ];
    let mut flags = MountFlags::BIND | MountFlags::RDONLY;
    for (_, flag) in kept.into_iter().filter(|(state, _)| present.contains(*state)) {
        flags |= flag;
    }
    // Nothing set means strict access times, and that has a flag of its own.
    if !present.intersects(StatVfsMountFlags::NOATIME | StatVfsMountFlags::RELATIME) {
        flags |= MountFlags::STRICTATIME;
    }
    rustix::mount::mount_remount(descriptor_path(mount), flags, "")?;
    let after = rustix::fs::fstatvfs(mount)?.f_flag;
    if after != present | StatVfsMountFlags::RDONLY {
        return Err(io::Error::other(format!("its flags are {after:?} after {present:?}")));
    }
    Ok(())
}

/// `ST_NOSYMFOLLOW` of the kernel's `include/linux/statfs.h`, which rustix does not name.
const ST_NOSYMFOLLOW: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(0x2000);

/// The target itself must now be the device.
fn must_be_seen(target: &Path, number: DeviceNumber) -> io::Result<()> {
    let found = device::block_number(rustix::fs::lstat(target)?)?;
    if found != number {
        return Err(io::Error::other(format!("wanted device {number}, found {found}")));
    }
    Ok(())
}
