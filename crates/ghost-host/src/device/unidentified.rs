//! Disks that say nothing of themselves, for operators who allow them.
//!
//! Nothing proves that such a disk is the one that was meant. It is taken where a link or nothing
//! but chance could be wrong about it, so it is never chosen between two, never one that is in use,
//! and never one that this process has just taken for another.

use std::collections::HashMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::device::open::{self, Roots};
use crate::device::{BlockDevice, DeviceNumber, DiskAddress, Identity, identity};
use crate::error::Result;
use crate::mount;

/// Which disk was taken for which names, for as long as somebody holds it open. A mounted one is
/// known by the mount table from then on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(Arc<Mutex<HashMap<DeviceNumber, Holder>>>);

/// The names that a disk was taken for, and its handle.
type Holder = (Vec<String>, Weak<OwnedFd>);

impl Taken {
    /// Takes the device for these names, unless it is held for others.
    pub(crate) fn take(&self, device: &BlockDevice, names: &[String]) -> bool {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        taken.retain(|_, (_, handle)| handle.strong_count() > 0);
        let held = taken.get(&device.number).is_some_and(|(other, _)| other != names);
        if !held {
            taken.insert(device.number, (names.to_vec(), Arc::downgrade(&device.handle)));
        }
        !held
    }
}

/// The Xen disks that could be this one: of exactly this size, whole, used by nobody.
pub(crate) fn candidates(roots: &Roots, disk: &DiskAddress) -> Result<Vec<BlockDevice>> {
    let table = mount::read_table()?;
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(roots.sysfs.join("block")) else { return Ok(found) };
    for entry in entries.flatten() {
        if !matches!(identity::read(&entry.path()), Identity::Xen(_)) {
            continue;
        }
        let number = fs::read_to_string(entry.path().join("dev")).ok();
        let Some(number) = number.as_deref().and_then(DeviceNumber::parse) else { continue };
        let Ok(Some(device)) = open::open_number(roots, number) else { continue };
        // The number may have become another disk's before it was opened, and cannot any more.
        let is_xen = matches!(device.identity, Identity::Xen(_));
        let in_use = !device.users.is_empty() || table.of_device(number).next().is_some();
        if is_xen && device.size == disk.minimum_size && !in_use {
            found.push(device);
        }
    }
    found.sort_by(|one, two| one.path.cmp(&two.path));
    Ok(found)
}
