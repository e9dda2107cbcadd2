//! Waiting for a disk until it is there and is the right one.

use std::io::Write as _;
use std::path::{Component, Path};
use std::time::Duration;

use tokio::time::Instant;

use crate::blocking;
use crate::device::identity::{self, Fit};
use crate::device::open::{self, Roots};
use crate::device::watch::Watch;
use crate::device::{BlockDevice, DiskAddress, Identity};
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
    loop {
        if let Some(watch) = &watch {
            watch.arm(&link);
        }
        // Read before the look, so that the last look is at or after the end of the patience.
        let waited = started.elapsed();
        let (look_roots, look_disk) = (roots.clone(), disk.clone());
        let seen = blocking::run(move || Ok(look(&look_roots, &look_disk))).await?;
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
    let device =
        open::open_path(roots, &link).map_err(|error| NotYet::Absent(seen(&link, &error)))?;
    match identity::compare(&device.identity, &disk.names) {
        Fit::Whole => {}
        Fit::CutShort => must_be_unique(roots, &device)?,
        Fit::Other => {
            return Err(NotYet::Refused(Error::WrongDisk {
                path: device.path,
                wanted: disk.names.join(" or "),
                found: device.identity,
            }));
        }
    }
    if device.size < disk.minimum_size {
        return Err(NotYet::Refused(Error::TooSmall {
            path: device.path,
            size: device.size,
            minimum: disk.minimum_size,
        }));
    }
    Ok(device)
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

/// A serial that was cut short counts only when one disk has it.
fn must_be_unique(roots: &Roots, device: &BlockDevice) -> std::result::Result<(), NotYet> {
    let Identity::Virtio(serial) = &device.identity else { return Ok(()) };
    let candidates = identity::virtio_disks_with(&roots.sysfs, serial)
        .map_err(|error| NotYet::Absent(format!("the disks cannot be listed: {error}")))?;
    match candidates.len() {
        1 => Ok(()),
        0 => Err(NotYet::Absent("the device has gone away".to_owned())),
        _ => Err(NotYet::Refused(Error::Ambiguous {
            path: device.path.clone(),
            serial: serial.clone(),
            candidates,
        })),
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
