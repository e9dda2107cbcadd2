//! Copies of sparse files that keep the holes.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fs::{SeekFrom, copy_file_range, ioctl_ficlone, seek};
use rustix::io::Errno;

/// How long to try for a copy during which nothing was written.
const PATIENCE: Duration = Duration::from_secs(5);

/// The extension of a file that is about to replace another. No volume has one.
const REPLACEMENT: &str = "new";

/// Copies a file that someone may be writing to, as it was at one moment.
///
/// A filesystem that shares extents does that by itself. Elsewhere a copy counts only if nothing
/// was written meanwhile; if that never happens, this fails and leaves nothing.
pub(super) fn snapshot(from: &Path, to: &Path) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = stamp(from)?;
        let shared = copy(from, to)?;
        if shared == Shared::Yes || stamp(from)? == before {
            return Ok(());
        }
        super::content::remove_file(to)?;
        if Instant::now() >= deadline {
            bail!(
                "{} is written to without a pause, and its filesystem cannot share extents: \
                 no copy of one moment is possible",
                from.display()
            );
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Copies a file that nobody writes to.
pub(super) fn still(from: &Path, to: &Path) -> Result<()> {
    copy(from, to).map(drop)
}

/// Puts a copy in the place of the file, so that whoever still holds the old one no longer reaches
/// what is at this path.
pub(super) fn replace(file: &Path) -> Result<()> {
    let new = file.with_extension(REPLACEMENT);
    super::content::remove_file(&new)?;
    copy(file, &new)?;
    fs::rename(&new, file).with_context(|| format!("cannot replace {}", file.display()))
}

/// Whether the filesystem made the copy share the original's extents, in one step.
#[derive(PartialEq, Eq)]
enum Shared {
    Yes,
    No,
}

/// Copies into a new file; leaves none when it fails.
fn copy(from: &Path, to: &Path) -> Result<Shared> {
    let result = fill(from, to);
    if result.is_err() {
        super::content::remove_file(to)?;
    }
    result.with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))
}

fn fill(from: &Path, to: &Path) -> io::Result<Shared> {
    let source = File::open(from)?;
    let target = File::create_new(to)?;
    if ioctl_ficlone(&target, &source).is_ok() {
        return Ok(Shared::Yes);
    }
    let size = source.metadata()?.len();
    target.set_len(size)?;
    let mut position = 0;
    while position < size {
        let data = match seek(&source, SeekFrom::Data(position)) {
            Err(Errno::NXIO) => break,
            data => data?,
        };
        let hole = seek(&source, SeekFrom::Hole(data))?;
        copy_range(&source, &target, data, hole)?;
        position = hole;
    }
    Ok(Shared::No)
}

fn copy_range(source: &File, target: &File, start: u64, end: u64) -> io::Result<()> {
    let (mut from, mut to) = (start, start);
    while from < end {
        let length = usize::try_from(end - from).unwrap_or(usize::MAX);
        if copy_file_range(source, Some(&mut from), target, Some(&mut to), length)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(())
}

/// Changes with every write: the kernel gives a file that is watched like this a new time for
/// each change (multigrain timestamps), and elsewhere one for each tick.
fn stamp(path: &Path) -> Result<(i64, i64, i64, i64)> {
    let data = fs::metadata(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok((data.mtime(), data.mtime_nsec(), data.ctime(), data.ctime_nsec()))
}
