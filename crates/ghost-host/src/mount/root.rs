//! Whether a mounted filesystem still lets anybody in.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::patient::{PATIENCE, Patient, Unanswered};

/// Opens roots of filesystems. A dead one hangs one thread.
#[derive(Debug, Default)]
pub(crate) struct RootReader(Patient<PathBuf, std::result::Result<(), Errno>>);

impl RootReader {
    /// Asks as [`crate::Host::has_shut_down`] promises.
    pub(crate) async fn has_shut_down(&self, target: &Path) -> Result<bool> {
        let enter = |target: &PathBuf| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(target, flags, Mode::empty()).map(drop)
        };
        let action = "open the root of the filesystem at";
        match self.0.ask(target.to_owned(), PATIENCE, enter).await {
            Ok(opened) => judge(opened).map_err(Error::io(action, target)),
            Err(Unanswered::NotAsked(error)) => Err(Error::io(action, target)(error)),
            Err(Unanswered::NotYet(waited)) => {
                Err(Error::NoAnswer { action, path: target.to_owned(), waited })
            }
        }
    }
}

fn judge(opened: std::result::Result<(), Errno>) -> std::result::Result<bool, Errno> {
    match opened {
        // `UCLEAN` is what xfs and ext4 say of metadata that is damaged.
        Err(Errno::IO | Errno::SHUTDOWN | Errno::UCLEAN) => Ok(true),
        // Whoever may not look, or looks at what is covered by now, learns nothing.
        Ok(()) | Err(Errno::ACCESS | Errno::PERM | Errno::NOENT | Errno::NOTDIR) => Ok(false),
        // It is this process that lacks something.
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answer_of_the_filesystem_itself_says_that_it_has_shut_down() {
        for error in [Errno::IO, Errno::SHUTDOWN, Errno::UCLEAN] {
            assert_eq!(judge(Err(error)), Ok(true));
        }
        for error in [Errno::ACCESS, Errno::PERM, Errno::NOENT, Errno::NOTDIR] {
            assert_eq!(judge(Err(error)), Ok(false));
        }
        assert_eq!(judge(Ok(())), Ok(false));
        assert_eq!(judge(Err(Errno::MFILE)), Err(Errno::MFILE));
    }
}
