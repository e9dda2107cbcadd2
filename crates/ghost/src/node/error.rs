//! What an error of the host means for the caller of an operation: the one place where that is said.
//!
//! Two rules hold: an unknown outcome is never a final kind, and a known failure is never a
//! retryable one. A disk that is not there yet, or not yet the right one, is neither: the cloud or
//! udev will settle it, so that asking again is right.

use std::io;

use ghost_host::Error as HostError;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};

/// The domain's error of a host's error.
pub(super) fn domain(error: HostError) -> Error {
    let kind = kind(&error);
    let damaged = mount_errno(&error) == Some(Errno::UCLEAN);
    let mut message = error.to_string();
    if damaged || matches!(error, HostError::Damaged { .. }) {
        message.push_str(
            "; nothing was changed: a person has to look at it, e.g. with e2fsck or xfs_repair \
             on a copy of the disk, while no node has it mounted",
        );
    }
    let domain = Error::new(kind, message);
    match error {
        HostError::Io { source, .. }
        | HostError::Mount { source, .. }
        | HostError::NoCommand { source, .. } => domain.with_source(source),
        _ => domain,
    }
}

/// The domain's error of a mount with options of the caller's: the kernel refuses an option that it
/// does not know, or that it cannot honour, as an invalid argument, and then the request is at fault.
pub(super) fn domain_of_mount(error: HostError, options: &[String]) -> Error {
    let refused = mount_errno(&error) == Some(Errno::INVAL) && !options.is_empty();
    let error = domain(error);
    if refused { error.into_kind(ErrorKind::Invalid) } else { error }
}

/// Whether the error says that nothing is there.
pub(super) fn is_absent(error: &HostError) -> bool {
    matches!(error, HostError::Io { source, .. }
        if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
}

fn kind(error: &HostError) -> ErrorKind {
    match error {
        // The attachment may still be on its way into the machine, and udev may mend a link.
        HostError::DiskAbsent { .. } | HostError::WrongDisk { .. } | HostError::TooSmall { .. } => {
            ErrorKind::Unavailable
        }
        HostError::Ambiguous { .. }
        | HostError::NotBlank { .. }
        | HostError::Damaged { .. }
        | HostError::Indistinct { .. }
        | HostError::MissingCapability { .. } => ErrorKind::Precondition,
        HostError::NoAnswer { .. } => ErrorKind::Timeout,
        HostError::Mount { source, .. } => match Errno::from_io_error(source) {
            Some(Errno::UCLEAN | Errno::ACCESS | Errno::ROFS) => ErrorKind::Precondition,
            // Not the kernel's word but the host's own: what was mounted is another device.
            None if source.kind() == io::ErrorKind::Other => ErrorKind::Unavailable,
            _ => ErrorKind::Failed,
        },
        HostError::NoCommand { .. }
        | HostError::Command { .. }
        | HostError::Busy { .. }
        | HostError::NotEmpty { .. }
        | HostError::Io { .. } => ErrorKind::Failed,
        // A kind of error that this crate does not know of yet: the machine said no.
        _ => ErrorKind::Failed,
    }
}

fn mount_errno(error: &HostError) -> Option<Errno> {
    match error {
        HostError::Mount { source, .. } => Errno::from_io_error(source),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use ghost_host::{Content, Identity};

    use super::*;

    fn mount(source: io::Error) -> HostError {
        HostError::Mount {
            source_path: PathBuf::from("/dev/sdb"),
            target: PathBuf::from("/t"),
            detail: "it is refused".to_owned(),
            source,
        }
    }

    #[test]
    fn every_host_error_has_its_kind() {
        let path = || PathBuf::from("/dev/sdb");
        let table = [
            (
                HostError::DiskAbsent {
                    link: path(),
                    waited: Duration::from_secs(1),
                    seen: "nothing".to_owned(),
                },
                ErrorKind::Unavailable,
            ),
            (
                HostError::WrongDisk {
                    path: path(),
                    wanted: "pvc-1".to_owned(),
                    found: Identity::Unreadable,
                },
                ErrorKind::Unavailable,
            ),
            (HostError::TooSmall { path: path(), size: 1, minimum: 2 }, ErrorKind::Unavailable),
            (
                HostError::Ambiguous {
                    path: path(),
                    serial: "s".to_owned(),
                    candidates: vec!["vdb".to_owned(), "vdc".to_owned()],
                },
                ErrorKind::Precondition,
            ),
            (
                HostError::NotBlank { path: path(), found: Content::Foreign("LUKS".to_owned()) },
                ErrorKind::Precondition,
            ),
            (
                HostError::NoCommand {
                    program: "mkfs.xfs".to_owned(),
                    source: io::Error::from(io::ErrorKind::NotFound),
                },
                ErrorKind::Failed,
            ),
            (
                HostError::Command {
                    program: "e2fsck".to_owned(),
                    status: "exit status 8".to_owned(),
                    output: String::new(),
                },
                ErrorKind::Failed,
            ),
            (
                HostError::Damaged { path: path(), detail: "status 4".to_owned() },
                ErrorKind::Precondition,
            ),
            (
                HostError::Indistinct { path: path(), detail: "a copy".to_owned() },
                ErrorKind::Precondition,
            ),
            (
                HostError::MissingCapability {
                    action: "growing".to_owned(),
                    capability: "CAP_SYS_RESOURCE",
                },
                ErrorKind::Precondition,
            ),
            (HostError::Busy { path: path() }, ErrorKind::Failed),
            (HostError::NotEmpty { path: path(), detail: "x".to_owned() }, ErrorKind::Failed),
            (
                HostError::NoAnswer {
                    action: "read",
                    path: path(),
                    waited: Duration::from_secs(10),
                },
                ErrorKind::Timeout,
            ),
            (
                HostError::Io { action: "read", path: path(), source: Errno::IO.into() },
                ErrorKind::Failed,
            ),
            (mount(Errno::UCLEAN.into()), ErrorKind::Precondition),
            (mount(Errno::ACCESS.into()), ErrorKind::Precondition),
            (mount(Errno::BUSY.into()), ErrorKind::Failed),
            (mount(Errno::INVAL.into()), ErrorKind::Failed),
            (mount(io::Error::other("wanted 8:16, found 8:32")), ErrorKind::Unavailable),
        ];
        for (error, kind) in table {
            let text = format!("{error:?}");
            assert_eq!(domain(error).kind(), kind, "{text}");
        }
    }

    #[test]
    fn b15_a_filesystem_that_needs_cleaning_comes_with_advice() {
        let error = domain(mount(Errno::UCLEAN.into()));
        assert!(error.to_string().contains("a person has to look"), "{error}");
        assert!(error.chain().ends_with("(os error 117)"), "{}", error.chain());
    }

    #[test]
    fn b60_an_option_that_the_kernel_refuses_is_the_fault_of_the_request() {
        let options = ["context=\"system_u:object_r:container_file_t:s0:c1,c2\"".to_owned()];
        let kind =
            |errno: Errno, options: &[String]| domain_of_mount(mount(errno.into()), options).kind();
        assert_eq!(kind(Errno::INVAL, &options), ErrorKind::Invalid);
        assert_eq!(kind(Errno::INVAL, &[]), ErrorKind::Failed);
        assert_eq!(kind(Errno::BUSY, &options), ErrorKind::Failed);
    }

    #[test]
    fn only_the_devices_own_errors_make_it_dead() {
        let io = |source: io::Error| HostError::Io {
            action: "read",
            path: PathBuf::from("/dev/sdb"),
            source,
        };
        assert!(io(Errno::IO.into()).is_of_the_device());
        assert!(io(io::Error::from(io::ErrorKind::UnexpectedEof)).is_of_the_device());
        for errno in [Errno::MFILE, Errno::NOMEM, Errno::ACCESS, Errno::INTR, Errno::BUSY] {
            assert!(!io(errno.into()).is_of_the_device(), "{errno}");
        }
        assert!(!HostError::Busy { path: PathBuf::from("/t") }.is_of_the_device());
    }
}
