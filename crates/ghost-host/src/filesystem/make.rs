//! Making a filesystem on a blank device, and making a half-made one blank again.

use rustix::fs::OFlags;

use crate::blocking;
use crate::command::{Command, STDIN};
use crate::device::{self, BlockDevice};
use crate::error::{Error, Result};
use crate::filesystem::places::{self, Place};
use crate::filesystem::{Content, Format, alone, options, probe};

/// Makes a filesystem as [`crate::Host::format`] promises.
///
/// The device is probed once more right here, since `mke2fs` without a terminal overwrites
/// whatever it finds, also without a force flag. The other tools refuse by themselves as well.
pub(crate) async fn format(device: &BlockDevice, format: &Format) -> Result<()> {
    match probe(device).await? {
        Content::Blank => {}
        found => return Err(Error::NotBlank { path: device.path.clone(), found }),
    }
    let (program, arguments) = options::tool(format);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let tool = |disk| Command::new(program).arguments(&arguments).argument(STDIN).stdin(disk);
    alone::run(device, tool).await?.success()?;
    sync(device).await
}

/// Zeroes as [`crate::Host::erase`] promises.
pub(crate) async fn erase(device: &BlockDevice) -> Result<()> {
    // A device that is mounted or built upon refuses.
    let handle = device::claim(device, OFlags::RDWR).await?;
    let erased = device.clone();
    blocking::run(move || {
        let size = device::current_size(&erased)?;
        let zeros = vec![0; places::largest()];
        // The head goes last: as long as anything is left, it is still recognised.
        for place in places::beyond_head(size).into_iter().rev().chain([places::head(size)]) {
            write_all(&handle, &zeros, place).map_err(Error::io("erase", &erased.path))?;
        }
        Ok(())
    })
    .await?;
    sync(device).await
}

fn write_all(handle: &std::os::fd::OwnedFd, zeros: &[u8], place: Place) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < place.length {
        let rest = &zeros[..place.length - done];
        match rustix::io::pwrite(handle, rest, place.offset + done as u64) {
            Ok(0) => return Err(rustix::io::Errno::NOSPC),
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Waits until the disk itself has what was written, by whomever.
async fn sync(device: &BlockDevice) -> Result<()> {
    let device = device.clone();
    blocking::run(move || {
        rustix::fs::fsync(&device.handle).map_err(Error::io("flush", &device.path))
    })
    .await
}
