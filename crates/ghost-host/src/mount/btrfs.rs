//! Whether the kernel can tell a btrfs from those that it has mounted already.
//!
//! It knows a btrfs by its UUID, and every disk made from a snapshot has that of its origin. What it
//! does with a second device of one UUID was seen on Linux 6.18 and is the same since 6.7, where
//! sysfs began to list the feature `temp_fsid`:
//!
//! * A filesystem of one device is mounted beside its original. Until it is unmounted it has a UUID
//!   of its own in memory ("using temp-fsid"); the one on the disk stays. The data does not mix, in
//!   either order, and also when a device was only scanned before, of a newer generation even.
//! * A seed (`btrfstune -S 1`) is never given such a UUID: its copy is refused with `EEXIST`.
//! * Of a filesystem of several devices the kernel *puts together* whatever it has last seen: with
//!   the originals unmounted, the copy of one device was mounted together with the original of the
//!   other. Nothing that is asked of the mount can prevent it.
//!
//! Kernels before 6.7 refuse the second device with `EEXIST`, or show the mount of the first one
//! under the name of the second. Therefore a btrfs is mounted only if it has one device, and beside
//! another of its UUID only where the kernel can do that. Afterwards the kernel's own account must
//! say that the device is mounted, and alone.
//!
//! The kernel is never told to forget devices that it has scanned (`btrfs device scan --forget`):
//! where `temp_fsid` is, that is not needed, and elsewhere the device may be somebody's who is just
//! about to mount it.

use std::fs;
use std::io;
use std::path::Path;

use crate::device::{BlockDevice, DeviceNumber, Roots};
use crate::error::{Error, Result};
use crate::filesystem::BtrfsIdentity;
use crate::mount::table::parse_number;
use crate::mount::{MountEntry, MountTable, read_table};

/// What to do about a copy that cannot be mounted here.
const ADVICE: &str = "unmount that one first, or use this one on another node";

/// Refuses a btrfs that the kernel may confuse with another; nothing is mounted for it.
pub(crate) fn must_be_distinct(roots: &Roots, device: &BlockDevice) -> Result<()> {
    // Without a superblock the mount is refused by the kernel, in its own words.
    let Some(identity) = BtrfsIdentity::read(device)? else { return Ok(()) };
    let has_temp_fsid = roots.sysfs.join("fs/btrfs/features/temp_fsid").exists();
    match decide(&identity, &mounted(roots)?, device.number, has_temp_fsid) {
        Verdict::Distinct => Ok(()),
        Verdict::Spread => Err(indistinct(
            device,
            format!(
                "its btrfs consists of {} devices, and the kernel would put together whatever \
                 devices of this UUID ({}) it has seen, copies among them",
                identity.devices, identity.fsid
            ),
        )),
        Verdict::Copy(other) => Err(indistinct(
            device,
            format!(
                "the btrfs {} is mounted already, from {}, and this kernel cannot have two copies \
                 of {} mounted at once; {ADVICE}",
                identity.fsid,
                whereabouts(&other, &read_table()?),
                if identity.is_seed { "a seed" } else { "one btrfs" },
            ),
        )),
    }
}

/// Makes sure that the device is mounted now, and no other device together with it.
pub(crate) fn must_be_alone(roots: &Roots, device: &BlockDevice) -> io::Result<()> {
    let mounted = mounted(roots).map_err(io::Error::other)?;
    decide_alone(&mounted, device.number).map_err(io::Error::other)
}

/// The error for a copy that the kernel itself refused.
pub(crate) fn refused_by_kernel(device: &BlockDevice) -> Error {
    indistinct(
        device,
        format!(
            "the kernel knows another device with the same btrfs, mounted or seen before; {ADVICE}. \
             If none is mounted, \"btrfs device scan --forget DEVICE\" makes the kernel forget it"
        ),
    )
}

fn indistinct(device: &BlockDevice, detail: String) -> Error {
    Error::Indistinct { path: device.path.clone(), detail }
}

/// A btrfs that is mounted somewhere, in whatever namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Mounted {
    fsid: String,
    devices: Vec<Part>,
}

/// A device of it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Part {
    /// The kernel's name of it.
    name: String,
    /// `None` when the device is gone.
    number: Option<DeviceNumber>,
}

#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The kernel can tell it from all others.
    Distinct,
    /// It has several devices.
    Spread,
    /// Its UUID is taken by what is mounted from these devices.
    Copy(Vec<Part>),
}

/// Decides by the kernel's account of what is mounted.
fn decide(
    identity: &BtrfsIdentity,
    mounted: &[Mounted],
    device: DeviceNumber,
    has_temp_fsid: bool,
) -> Verdict {
    if identity.devices != 1 {
        return Verdict::Spread;
    }
    if has_temp_fsid && !identity.is_seed {
        return Verdict::Distinct;
    }
    // The device may be mounted already, and then is mounted once more.
    let of_another = |one: &&Mounted| {
        one.fsid == identity.fsid && one.devices.iter().any(|part| part.number != Some(device))
    };
    match mounted.iter().find(of_another) {
        Some(other) => Verdict::Copy(other.devices.clone()),
        None => Verdict::Distinct,
    }
}

/// Whether exactly one btrfs is mounted of the device, and of no other; if not, what is instead.
fn decide_alone(mounted: &[Mounted], device: DeviceNumber) -> std::result::Result<(), String> {
    let is_own = |part: &Part| part.number == Some(device);
    let own: Vec<_> = mounted.iter().filter(|one| one.devices.iter().any(is_own)).collect();
    match own[..] {
        [Mounted { devices, .. }] if devices.len() == 1 => Ok(()),
        [] => Err(format!("by the kernel's account no btrfs of {device} is mounted")),
        _ => Err(format!("by the kernel's account the btrfs of {device} has other devices too")),
    }
}

/// What is mounted, by sysfs. It is an account of the whole machine, not of one namespace.
fn mounted(roots: &Roots) -> Result<Vec<Mounted>> {
    let folder = roots.sysfs.join("fs/btrfs");
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        // The kernel has not loaded what it needs for btrfs, so that none is mounted.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io("list", &folder)(error)),
    };
    let mut mounted = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Error::io("list", &folder))?;
        let parts = entry.path().join("devices");
        match devices(&parts) {
            Ok(devices) => mounted
                .push(Mounted { fsid: entry.file_name().to_string_lossy().into_owned(), devices }),
            // The list of features, and what is being unmounted right now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(Error::io("list", &parts)(error)),
        }
    }
    Ok(mounted)
}

fn devices(folder: &Path) -> io::Result<Vec<Part>> {
    let mut devices = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let number = fs::read_to_string(entry.path().join("dev")).ok();
        devices.push(Part {
            name: entry.file_name().to_string_lossy().into_owned(),
            number: number.and_then(|text| parse_number(text.trim().as_bytes())),
        });
    }
    Ok(devices)
}

/// The devices, and where this process sees them mounted.
fn whereabouts(devices: &[Part], table: &MountTable) -> String {
    let one = |part: &Part| {
        // A device that is gone has no number any more, but its mount still has its name.
        let is_of = |entry: &&MountEntry| match part.number {
            Some(number) => entry.device == Some(number),
            None => entry.filesystem == "btrfs" && entry.source.ends_with(&part.name),
        };
        let of_it = table.entries().iter().filter(is_of);
        let targets: Vec<_> = of_it.map(|entry| entry.target.display().to_string()).collect();
        let place = if targets.is_empty() {
            "a place that is not seen here".to_owned()
        } else {
            targets.join(", ")
        };
        format!("{} at {place}", part.name)
    };
    devices.iter().map(one).collect::<Vec<_>>().join(" and ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::Access;

    const OWN: DeviceNumber = DeviceNumber { major: 8, minor: 16 };
    const OTHER: DeviceNumber = DeviceNumber { major: 8, minor: 32 };

    fn identity(devices: u64, is_seed: bool) -> BtrfsIdentity {
        BtrfsIdentity { fsid: "u-1".to_owned(), device_id: 1, devices, is_seed }
    }

    fn mounted_of(fsid: &str, numbers: &[Option<DeviceNumber>]) -> Mounted {
        let part = |number: &Option<DeviceNumber>| Part { name: "x".to_owned(), number: *number };
        Mounted { fsid: fsid.to_owned(), devices: numbers.iter().map(part).collect() }
    }

    #[test]
    fn a_copy_is_mounted_beside_its_original_only_where_the_kernel_can() {
        let original = mounted_of("u-1", &[Some(OTHER)]);
        // The original was pulled out, and its mount is dead but there.
        let gone = mounted_of("u-1", &[None]);
        let own = mounted_of("u-1", &[Some(OWN)]);
        let unrelated = mounted_of("u-2", &[Some(OTHER)]);
        let copy = |of: &Mounted| Verdict::Copy(of.devices.clone());
        let table = [
            (false, false, vec![], Verdict::Distinct),
            (false, false, vec![unrelated.clone()], Verdict::Distinct),
            (false, false, vec![own.clone()], Verdict::Distinct),
            (false, false, vec![unrelated, original.clone()], copy(&original)),
            (false, false, vec![gone.clone()], copy(&gone)),
            (true, false, vec![original.clone()], Verdict::Distinct),
            (true, false, vec![gone], Verdict::Distinct),
            (true, true, vec![original.clone()], copy(&original)),
            (true, true, vec![own], Verdict::Distinct),
            (true, true, vec![], Verdict::Distinct),
        ];
        for (has_temp_fsid, is_seed, mounted, wanted) in table {
            let verdict = decide(&identity(1, is_seed), &mounted, OWN, has_temp_fsid);
            assert_eq!(verdict, wanted, "{has_temp_fsid} {is_seed} {mounted:?}");
        }
    }

    #[test]
    fn a_filesystem_of_several_devices_is_never_mounted() {
        for devices in [0, 2, 3] {
            for has_temp_fsid in [false, true] {
                let verdict = decide(&identity(devices, false), &[], OWN, has_temp_fsid);
                assert_eq!(verdict, Verdict::Spread, "{devices}");
            }
        }
    }

    #[test]
    fn a_mount_whose_device_is_gone_is_still_found_by_its_name() {
        let entry = |source: &str, device| MountEntry {
            device,
            root: "/".into(),
            target: format!("/of{source}").into(),
            access: Access::ReadWrite,
            shared: false,
            filesystem: "btrfs".to_owned(),
            source: source.into(),
            super_options: Vec::new(),
        };
        let table = MountTable::new(vec![entry("/dev/sdb", None), entry("/dev/sdc", Some(OTHER))]);
        let parts = [("sdb", None), ("sdc", Some(OTHER)), ("sdd", None)];
        let parts = parts.map(|(name, number)| Part { name: name.to_owned(), number });
        assert_eq!(
            whereabouts(&parts, &table),
            "sdb at /of/dev/sdb and sdc at /of/dev/sdc and sdd at a place that is not seen here"
        );
    }

    #[test]
    fn what_is_mounted_is_the_device_and_nothing_besides() {
        let own = mounted_of("u-1", &[Some(OWN)]);
        let other = mounted_of("u-2", &[Some(OTHER)]);
        assert_eq!(decide_alone(&[other.clone(), own.clone()], OWN), Ok(()));
        // The kernel gave the one that it had; a device of the copy was put to one of the original;
        // the other device is gone already.
        for mounted in [
            vec![other],
            vec![mounted_of("u-1", &[Some(OWN), Some(OTHER)])],
            vec![mounted_of("u-1", &[None, Some(OWN)])],
            vec![own.clone(), own],
            vec![],
        ] {
            decide_alone(&mounted, OWN).unwrap_err();
        }
    }
}
