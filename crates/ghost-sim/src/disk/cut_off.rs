//! Surprise removal: a loop device loses its file at once, whoever has it open or mounted.
//!
//! Detaching alone is lazy: what has the device mounted goes on writing into the file. Here the
//! device is first limited to one sector. The kernel flushes the device's cache, freezes its
//! queue and sets the new size; from then on every access beyond the first sector fails. Then the
//! device is detached, which the kernel finishes when the last user has closed it. The first sector
//! stays within reach until then: whoever calls this has to put another file in the place of one
//! whose device lingers.
#![expect(unsafe_code, reason = "the loop ioctls have no safe wrapper")]

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::io::Errno;
use rustix::ioctl::{Getter, NoArg, Opcode, Setter, ioctl};

/// What a device that was cut off is limited to, in bytes: the least that is not "no limit".
pub(super) const SIZE_LIMIT: u64 = 512;

/// How long the kernel may go on saying that the device's cache is not written back yet.
const PATIENCE: Duration = Duration::from_secs(10);

// The numbers and the layout are those of linux/loop.h.
const LOOP_CLR_FD: Opcode = 0x4C01;
const LOOP_SET_STATUS64: Opcode = 0x4C04;
const LOOP_GET_STATUS64: Opcode = 0x4C05;

/// `struct loop_info64`.
#[repr(C)]
#[derive(Clone, Copy)]
struct LoopInfo64 {
    device: u64,
    inode: u64,
    rdevice: u64,
    offset: u64,
    size_limit: u64,
    number: u32,
    encrypt_type: u32,
    encrypt_key_size: u32,
    flags: u32,
    file_name: [u8; 64],
    crypt_name: [u8; 64],
    encrypt_key: [u8; 32],
    init: [u64; 2],
}

const _: () = assert!(size_of::<LoopInfo64>() == 232, "the kernel's struct has 232 bytes");

/// Cuts the device off from its file and detaches it. Without a file already is success.
pub(super) fn remove(device: &Path) -> Result<()> {
    let handle = OpenOptions::new()
        .read(true)
        .open(device)
        .with_context(|| format!("cannot open {}", device.display()))?;
    match limit(&handle) {
        Err(error) if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) => return Ok(()),
        other => other.with_context(|| format!("cannot cut off {}", device.display()))?,
    }
    // SAFETY: LOOP_CLR_FD takes no argument.
    match unsafe { ioctl(&handle, NoArg::<LOOP_CLR_FD>::new()) } {
        Ok(()) | Err(Errno::NXIO) => Ok(()),
        Err(error) => bail!("cannot detach {}: {error}", device.display()),
    }
}

fn limit(handle: &File) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        // SAFETY: LOOP_GET_STATUS64 writes one loop_info64, which `LoopInfo64` has the layout of;
        // every bit pattern is a value of it.
        let mut info = unsafe { ioctl(handle, Getter::<LOOP_GET_STATUS64, LoopInfo64>::new()) }?;
        info.size_limit = SIZE_LIMIT;
        // SAFETY: LOOP_SET_STATUS64 reads one loop_info64.
        match unsafe { ioctl(handle, Setter::<LOOP_SET_STATUS64, LoopInfo64>::new(info)) } {
            Err(Errno::AGAIN) if Instant::now() < deadline => {
                // Someone dirtied the cache between the kernel's flush and its check.
                thread::sleep(Duration::from_millis(5));
            }
            other => return Ok(other?),
        }
    }
}
