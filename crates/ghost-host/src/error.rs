//! What can go wrong on a host, told near the cause.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;

use crate::device::Identity;
use crate::filesystem::Content;

/// The result of a host operation.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed host operation. The text of a variant never repeats its source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk did not appear within the time given.
    #[error("no disk appeared at {} within {} s ({seen})", .link.display(), .waited.as_secs())]
    DiskAbsent {
        /// Where it was looked for.
        link: PathBuf,
        /// How long.
        waited: Duration,
        /// What was seen there at last: nothing, a dangling link, something that is no disk.
        seen: String,
    },
    /// Another disk is where this one was looked for.
    #[error("{} is another disk: wanted {wanted}, it says {found:?}", .path.display())]
    WrongDisk {
        /// The device.
        path: PathBuf,
        /// The names that were accepted.
        wanted: String,
        /// What it says of itself.
        found: Identity,
    },
    /// Several disks introduce themselves in the same way.
    #[error("{} says only {serial:?} of itself, and so do others: {}", .path.display(), .candidates.join(", "))]
    Ambiguous {
        /// The device.
        path: PathBuf,
        /// What it says: a serial, or the designators of a SCSI disk.
        serial: String,
        /// The kernel's names of all disks that say it.
        candidates: Vec<String>,
    },
    /// The disk is smaller than the one that was meant.
    #[error("{} has {size} bytes, less than the {minimum} that it must have", .path.display())]
    TooSmall {
        /// The device.
        path: PathBuf,
        /// Its size in bytes.
        size: u64,
        /// The least size in bytes.
        minimum: u64,
    },
    /// A device that was to be formatted holds something.
    #[error("{} is not blank and is not formatted: {found}", .path.display())]
    NotBlank {
        /// The device.
        path: PathBuf,
        /// What is on it.
        found: Content,
    },
    /// A tool of the host could not be started.
    #[error("cannot run {program}; is it installed?")]
    NoCommand {
        /// Its name.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// A tool of the host failed.
    #[error("{program} failed ({status}): {output}")]
    Command {
        /// Its name.
        program: String,
        /// How it ended: `exit status 1`, `signal 9`, or that it ran into its time limit.
        status: String,
        /// The last lines of what it said.
        output: String,
    },
    /// The filesystem needs a person: an automatic repair could lose data.
    #[error("the filesystem on {} is damaged ({detail})", .path.display())]
    Damaged {
        /// The device.
        path: PathBuf,
        /// What the check said.
        detail: String,
    },
    /// A permission of the kernel is missing.
    #[error("{action} needs the capability {capability}, which this process lacks")]
    MissingCapability {
        /// What was tried.
        action: String,
        /// Its name, `CAP_…`.
        capability: &'static str,
    },
    /// The mount is in use.
    #[error("{} is in use", .path.display())]
    Busy {
        /// The mount point.
        path: PathBuf,
    },
    /// A target that should be empty is not, or is of another kind.
    #[error("{} is left as it is: {detail}", .path.display())]
    NotEmpty {
        /// The target.
        path: PathBuf,
        /// What is in the way.
        detail: String,
    },
    /// The kernel may confuse the filesystem with another one, so that it is not mounted.
    #[error("{} is not mounted: {detail}", .path.display())]
    Indistinct {
        /// The device.
        path: PathBuf,
        /// With which, and what to do.
        detail: String,
    },
    /// The kernel refused a mount option or a mount.
    #[error("cannot mount {} at {}: {detail}", .source_path.display(), .target.display())]
    Mount {
        /// What was to be mounted.
        source_path: PathBuf,
        /// Where.
        target: PathBuf,
        /// The kernel's own words where it gave any.
        detail: String,
        /// The system call's error.
        source: io::Error,
    },
    /// The kernel did not answer in time; the system call may still hang.
    #[error("no answer within {} s when trying to {action} {}", .waited.as_secs(), .path.display())]
    NoAnswer {
        /// What was tried, as a verb.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// How long was waited.
        waited: Duration,
    },
    /// Another system call failed.
    #[error("cannot {action} {}", .path.display())]
    Io {
        /// What was tried, as a verb: `read`, `unmount`, `create directory`.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// The system call's error.
        source: io::Error,
    },
}

impl Error {
    /// Whether a read error says that the device or its connection is at fault, rather than this
    /// process (no memory, no descriptors, no permission), of which nothing follows for the device.
    #[must_use]
    pub fn is_of_the_device(&self) -> bool {
        let Self::Io { source, .. } = self else { return false };
        match Errno::from_io_error(source) {
            Some(errno) => matches!(
                errno,
                Errno::IO
                    | Errno::NXIO
                    | Errno::NODEV
                    | Errno::NOMEDIUM
                    | Errno::TIMEDOUT
                    | Errno::REMOTEIO
                    | Errno::NOLINK
                    | Errno::BADE
                    | Errno::NODATA
                    | Errno::ILSEQ
            ),
            None => matches!(source.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::Other),
        }
    }

    /// Makes [`Error::Io`] of a system call's error.
    pub(crate) fn io<E: Into<io::Error>>(
        action: &'static str,
        path: impl AsRef<Path>,
    ) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { action, path: path.as_ref().to_owned(), source: source.into() }
    }
}
