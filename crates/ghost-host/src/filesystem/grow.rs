//! Growing a filesystem to the size of its device with its own tool.
//!
//! Callers repeat this often, so that "as large already" is read from the superblock where it
//! stands there plainly. When in doubt the tool decides: it says that there is nothing to do.

use std::fs;
use std::path::Path;

use crate::blocking;
use crate::command::{Command, STDIN};
use crate::device::{self, BlockDevice, Roots};
use crate::error::{Error, Result};
use crate::filesystem::check::preen;
use crate::filesystem::{BtrfsIdentity, FilesystemKind, alone};
use crate::mount;

/// The bit of `CAP_SYS_RESOURCE` in a set of capabilities.
const CAP_SYS_RESOURCE: u32 = 24;

/// Grows as [`crate::Host::grow`] promises. An ext filesystem that is mounted nowhere is grown as
/// well, after the check that its tool demands.
pub(crate) async fn grow(
    roots: &Roots,
    device: &BlockDevice,
    target: &Path,
    kind: FilesystemKind,
) -> Result<()> {
    // What cannot be written to is as large as it will be; that is no failure.
    if device::is_write_protected(roots, device.number) || is_as_large(device, target, kind).await?
    {
        return Ok(());
    }
    match kind {
        FilesystemKind::Ext3 | FilesystemKind::Ext4 => grow_ext(device).await,
        FilesystemKind::Xfs => run(Command::new("xfs_growfs").argument(target)).await,
        FilesystemKind::Btrfs => grow_btrfs(device, target).await,
    }
}

async fn run(tool: Command) -> Result<()> {
    tool.succeed().await.map(drop)
}

/// Names the device by its number within the filesystem: without that, the tool takes the first
/// one, which need not be this one.
async fn grow_btrfs(device: &BlockDevice, target: &Path) -> Result<()> {
    let looked_at = device.clone();
    let identity = blocking::run(move || BtrfsIdentity::read(&looked_at)).await?;
    let size = match identity {
        Some(identity) => format!("{}:max", identity.device_id),
        None => "max".to_owned(),
    };
    let resize = ["filesystem", "resize", size.as_str()];
    run(Command::new("btrfs").arguments(&resize).argument(target)).await
}

async fn grow_ext(device: &BlockDevice) -> Result<()> {
    let number = device.number;
    let is_mounted =
        blocking::run(move || Ok(mount::read_table()?.of_device(number).next().is_some())).await?;
    let tool = |disk| Command::new("resize2fs").argument(STDIN).stdin(disk);
    if !is_mounted {
        preen(device, &["-f"]).await?;
        // Only then it claims the device.
        return alone::run(device, tool).await?.success().map(drop);
    }
    match tool(device::duplicate(device)?).succeed().await {
        // The kernel's answer to a missing capability is the same as to other refusals.
        Err(Error::Command { output, .. })
            if output.contains("Permission denied") && !has(CAP_SYS_RESOURCE) =>
        {
            Err(Error::MissingCapability {
                action: format!("growing the mounted filesystem of {}", device.path.display()),
                capability: "CAP_SYS_RESOURCE",
            })
        }
        other => other.map(drop),
    }
}

/// Whether this process has the capability in effect. If that cannot be read, it is taken to.
fn has(capability: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok())
        .is_none_or(|set| set >> capability & 1 == 1)
}

/// Whether the filesystem's own account says that it fills the device. `false` when in doubt.
async fn is_as_large(device: &BlockDevice, target: &Path, kind: FilesystemKind) -> Result<bool> {
    let (device, target) = (device.clone(), target.to_owned());
    blocking::run(move || {
        let size = device::current_size(&device)?;
        let recorded = match kind {
            FilesystemKind::Ext3 | FilesystemKind::Ext4 => ext_size(&device)?,
            FilesystemKind::Xfs => xfs_size(&device, &target)?,
            FilesystemKind::Btrfs => btrfs_size(&device)?,
        };
        Ok(recorded
            .is_some_and(|recorded| recorded.unit > 0 && recorded.units == size / recorded.unit))
    })
    .await
}

/// A size as a filesystem counts it.
struct Recorded {
    units: u64,
    /// In bytes.
    unit: u64,
}

/// Reads the superblock through the cache, where a mounted ext filesystem keeps its own copy.
/// The layout is that of the kernel's `struct ext4_super_block`.
fn ext_size(device: &BlockDevice) -> Result<Option<Recorded>> {
    const INCOMPATIBLE_64_BIT: u32 = 0x80;
    let block = read(device, 1024)?;
    if block[0x38..0x3a] != [0x53, 0xef] {
        return Ok(None);
    }
    let is_64_bit = little_u32(&block, 0x60) & INCOMPATIBLE_64_BIT != 0;
    let high = if is_64_bit { little_u32(&block, 0x150) } else { 0 };
    let units = u64::from(high) << 32 | u64::from(little_u32(&block, 0x04));
    let unit = 1024_u64.checked_shl(little_u32(&block, 0x18)).unwrap_or(0);
    Ok(Some(Recorded { units, unit }))
}

/// Asks the mounted filesystem, since the superblock on the disk may lag behind its log; only the
/// length of that log, which `statvfs` leaves out, is read from it. The layout is `struct xfs_dsb`.
fn xfs_size(device: &BlockDevice, target: &Path) -> Result<Option<Recorded>> {
    let block = read(device, 0)?;
    if &block[0..4] != b"XFSB" {
        return Ok(None);
    }
    let has_log_inside = block[48..56] != [0; 8];
    let log = if has_log_inside { big_u32(&block, 96) } else { 0 };
    let unit = u64::from(big_u32(&block, 4));
    let stat = rustix::fs::statvfs(target).map_err(Error::io("look at", target))?;
    Ok((stat.f_frsize == unit).then(|| Recorded { units: stat.f_blocks + u64::from(log), unit }))
}

/// Reads `dev_item.total_bytes` of `struct btrfs_super_block`, which is written at each commit.
fn btrfs_size(device: &BlockDevice) -> Result<Option<Recorded>> {
    let block = read(device, 64 << 10)?;
    if &block[0x40..0x48] != b"_BHRfS_M" {
        return Ok(None);
    }
    let unit = u64::from(little_u32(&block, 0x90));
    let total = u64::from_le_bytes(block[0xd1..0xd9].try_into().expect("8 bytes were taken"));
    Ok(total.checked_div(unit).map(|units| Recorded { units, unit }))
}

/// Reads the 1024 bytes of a superblock through the cache.
fn read(device: &BlockDevice, offset: u64) -> Result<[u8; 1024]> {
    let mut block = [0; 1024];
    match rustix::io::pread(&device.handle, &mut block[..], offset) {
        Ok(1024) => Ok(block),
        Ok(_) => Err(Error::io("read", &device.path)(std::io::Error::from(
            std::io::ErrorKind::UnexpectedEof,
        ))),
        Err(source) => Err(Error::io("read", &device.path)(source)),
    }
}

fn little_u32(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(block[at..at + 4].try_into().expect("4 bytes were taken"))
}

fn big_u32(block: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(block[at..at + 4].try_into().expect("4 bytes were taken"))
}
