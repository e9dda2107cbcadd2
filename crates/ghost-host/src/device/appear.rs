//! Waiting for a disk until it is there and is the right one.

use std::io::Write as _;
use std::path::{Component, Path};
use std::time::Duration;

use rustix::fs::OFlags;
use tokio::time::Instant;

use crate::blocking;
use crate::device::identity::{self, Fit};
use crate::device::open::{self, Roots};
use crate::device::unidentified::{self, Taken};
use crate::device::watch::Watch;
use crate::device::{BlockDevice, DeviceNumber, DiskAddress, Identity, xen};
use crate::error::{Error, Result};

/// How long is waited for an event at most before looking anyway. Not everything that is waited for
/// gives an event in a folder: a disk may grow, or tell its serial a moment after it appeared.
const LOOK_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// Why a disk cannot be used at this moment.
enum NotYet {
    /// Nothing usable is there; this is what was seen.
    Absent(String),
    /// Something else is there.
    Refused(Error),
}

impl NotYet {
    /// Logs why the disk is waited for, unless that is what was told last.
    fn tell(&self, link: &Path, told: &mut String) {
        let why = match self {
            Self::Absent(seen) => seen.clone(),
            Self::Refused(error) => error.to_string(),
        };
        if *told != why {
            tracing::info!(link = %link.display(), why, "waiting for a disk");
            *told = why;
        }
    }
}

/// Waits for the disk as [`crate::Host::find_disk`] promises.
pub(crate) async fn find(
    roots: &Roots,
    disk: &DiskAddress,
    patience: Duration,
) -> Result<BlockDevice> {
    let link = roots.devices.join(&disk.link);
    let started = Instant::now();
    // A watch costs a grace period of the kernel (some 20 ms) when it is closed, so that there is
    // none for a disk that is there already.
    let mut watch: Option<Watch> = None;
    let mut looked_without = false;
    let mut reminded = false;
    let mut told = String::new();
    loop {
        if let Some(watch) = &watch {
            watch.arm(&link);
        }
        // Read before the look, so that the last look is at or after the end of the patience.
        let waited = started.elapsed();
        let (look_roots, look_disk) = (roots.clone(), disk.clone());
        let seen = blocking::run(move || Ok(look(&look_roots, &look_disk))).await?;
        if let Err(not_yet) = &seen {
            not_yet.tell(&link, &mut told);
        }
        match seen {
            Ok(device) => return Ok(device),
            Err(NotYet::Absent(seen)) if waited >= patience => {
                return Err(Error::DiskAbsent { link, waited, seen });
            }
            Err(NotYet::Refused(error)) if waited >= patience => return Err(error),
            Err(NotYet::Refused(Error::WrongDisk { path, .. })) if !reminded => {
                reminded = true;
                let roots = roots.clone();
                blocking::run(move || {
                    remind_udev(&roots, &path);
                    Ok(())
                })
                .await?;
            }
            Err(_) => {}
        }
        if !looked_without {
            looked_without = true;
            // Without events (a limit of the machine on watches) the look once a second remains.
            watch = Watch::new()
                .inspect_err(|error| tracing::warn!(%error, "cannot watch the device folder"))
                .ok();
            if watch.is_some() {
                continue;
            }
        }
        let pause = patience.saturating_sub(waited).min(LOOK_AT_LEAST_EVERY);
        match &watch {
            Some(watch) => drop(tokio::time::timeout(pause, watch.changed()).await),
            None => tokio::time::sleep(pause).await,
        }
    }
}

/// Looks once. All failures count as "not yet", since a disk may go and come at any moment.
fn look(roots: &Roots, disk: &DiskAddress) -> std::result::Result<BlockDevice, NotYet> {
    if !disk.link.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(NotYet::Absent("this is no path below the device folder".to_owned()));
    }
    let link = roots.devices.join(&disk.link);
    let link = match identity::cut_short(&link, &disk.names) {
        Some(cut) if link.symlink_metadata().is_err() => cut,
        _ => link,
    };
    let device = match open::open_path(roots, &link) {
        Ok(device) => device,
        Err(error) => return without_link(roots, disk, seen(&link, &error)),
    };
    let fit = identity::compare(&device.identity, &disk.names);
    match (fit, &device.identity, &roots.unidentified) {
        (Fit::Whole | Fit::CutShort, ..) => must_be_unique(roots, &device, disk, fit)?,
        (Fit::Other, Identity::Unreadable, Some(taken)) => take(taken, &device, disk)?,
        (Fit::Other, ..) => return Err(another(device, disk)),
    }
    large_enough(device, disk)
}

fn another(device: BlockDevice, disk: &DiskAddress) -> NotYet {
    NotYet::Refused(Error::WrongDisk {
        path: device.path,
        wanted: disk.names.join(" or "),
        found: device.identity,
    })
}

fn large_enough(
    device: BlockDevice,
    disk: &DiskAddress,
) -> std::result::Result<BlockDevice, NotYet> {
    if device.size >= disk.minimum_size {
        return Ok(device);
    }
    Err(NotYet::Refused(Error::TooSmall {
        path: device.path,
        size: device.size,
        minimum: disk.minimum_size,
    }))
}

/// Looks for a disk that has no link: that of a Xen host has none. It is the one in the slot that is
/// named; without a slot, and only where that is allowed, the only one that it can be.
fn without_link(
    roots: &Roots,
    disk: &DiskAddress,
    seen: String,
) -> std::result::Result<BlockDevice, NotYet> {
    let absent = |error: Error| NotYet::Absent(format!("{seen}; {error}"));
    if let Some(slot) = disk.names.iter().find_map(|name| xen::slot_of(name)) {
        let is_it = |identity: &Identity| *identity == Identity::Xen(slot.to_owned());
        let names = identity::disks_that_say(&roots.sysfs, is_it)
            .map_err(|error| NotYet::Absent(format!("the disks cannot be listed: {error}")))?;
        let [name] = &names[..] else {
            return Err(NotYet::Absent(format!("{seen}, and no disk in slot {slot}")));
        };
        let number = std::fs::read_to_string(roots.sysfs.join("block").join(name).join("dev"));
        let number = number.ok().as_deref().and_then(DeviceNumber::parse);
        let device = number.map_or(Ok(None), |number| open::open_number(roots, number));
        let device = device.map_err(absent)?;
        let device = device.ok_or_else(|| NotYet::Absent(format!("{name} has gone away")))?;
        // The number may have become another disk's before it was opened, and cannot any more.
        if !is_it(&device.identity) {
            return Err(another(device, disk));
        }
        return large_enough(device, disk);
    }
    let Some(taken) = &roots.unidentified else { return Err(NotYet::Absent(seen)) };
    let mut candidates = unidentified::candidates(roots, disk).map_err(absent)?;
    match (candidates.pop(), candidates.is_empty()) {
        (None, _) => Err(NotYet::Absent(format!("{seen}, and no unused Xen disk of that size"))),
        (Some(device), true) => take(taken, &device, disk).map(|()| device),
        (Some(device), false) => {
            candidates.push(device.clone());
            let names = candidates.iter().map(|one| one.path.display().to_string()).collect();
            Err(NotYet::Refused(Error::Ambiguous {
                path: device.path,
                serial: format!("a size of {} bytes", disk.minimum_size),
                candidates: names,
            }))
        }
    }
}

/// Takes a disk that nothing proves to be the right one, as the operator allows.
fn take(
    taken: &Taken,
    device: &BlockDevice,
    disk: &DiskAddress,
) -> std::result::Result<(), NotYet> {
    let path = device.path.display();
    // Whoever has it mounted, in any mount namespace, or swaps on it has it for itself.
    let claimed = open::reopen(device, OFlags::RDONLY | OFlags::EXCL);
    if claimed.is_err_and(|error| error.kind() == std::io::ErrorKind::ResourceBusy) {
        return Err(NotYet::Absent(format!("{path} does not say who it is, and is in use")));
    }
    if !taken.take(device, &disk.names) {
        return Err(NotYet::Absent(format!("{path} has just been taken for another volume")));
    }
    let names = disk.names.join(" or ");
    tracing::warn!(%path, names, "taking a disk that does not say who it is, as is allowed");
    Ok(())
}

/// Has the kernel tell udev of the device once more, so that a stale link to it is mended. That it
/// cannot be done is no failure: udev may come to it by itself.
fn remind_udev(roots: &Roots, node: &Path) {
    let reminded = open::device_at(node).ok().flatten().map(|number| {
        std::fs::OpenOptions::new()
            .write(true)
            .open(roots.folder(number).join("uevent"))
            .and_then(|mut file| file.write_all(b"change"))
    });
    tracing::debug!(node = %node.display(), ?reminded, "a link leads to another disk");
}

/// What a disk says of itself counts only when no other one says it too.
fn must_be_unique(
    roots: &Roots,
    device: &BlockDevice,
    disk: &DiskAddress,
    fit: Fit,
) -> std::result::Result<(), NotYet> {
    let serial = match &device.identity {
        Identity::Virtio(serial) | Identity::Nvme(serial) => serial.clone(),
        Identity::Scsi(designators) => designators.join(" and "),
        // The kernel's own account of a loop device's file leaves no doubt of what is in it.
        Identity::Xen(slot) => slot.clone(),
        Identity::Loop(_) | Identity::Unreadable => return Ok(()),
    };
    let says_the_same = |other: &Identity| match fit {
        Fit::Whole => identity::compare(other, &disk.names) == Fit::Whole,
        Fit::CutShort | Fit::Other => *other == device.identity,
    };
    let candidates = identity::disks_that_say(&roots.sysfs, says_the_same)
        .map_err(|error| NotYet::Absent(format!("the disks cannot be listed: {error}")))?;
    match candidates.len() {
        1 => Ok(()),
        0 => Err(NotYet::Absent("the device has gone away".to_owned())),
        _ => {
            Err(NotYet::Refused(Error::Ambiguous { path: device.path.clone(), serial, candidates }))
        }
    }
}

/// What is at the link, in words.
fn seen(link: &Path, error: &std::io::Error) -> String {
    match (std::fs::read_link(link), std::fs::symlink_metadata(link)) {
        (Ok(target), _) => format!("a link to {}: {error}", target.display()),
        (Err(_), Ok(_)) => error.to_string(),
        (Err(_), Err(_)) => "nothing is there".to_owned(),
    }
}
