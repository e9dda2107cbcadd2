//! Space and inodes of a filesystem.

use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::error::{Error, Result};
use crate::mount::Usage;
use crate::patient::{PATIENCE, Patient, Unanswered};

/// Asks filesystems. A dead one hangs one thread.
#[derive(Debug, Default)]
pub(crate) struct UsageReader(Patient<PathBuf, std::result::Result<Usage, Errno>>);

impl UsageReader {
    /// Asks as [`crate::Host::usage`] promises.
    pub(crate) async fn read(&self, path: &Path) -> Result<Usage> {
        let measure = |path: &PathBuf| rustix::fs::statvfs(path).map(|stat| usage(&stat));
        let answer = self.0.ask(path.to_owned(), PATIENCE, measure).await;
        let action = "measure the use of";
        match answer {
            Ok(usage) => usage.map_err(Error::io(action, path)),
            Err(Unanswered::NotAsked(error)) => Err(Error::io(action, path)(error)),
            Err(Unanswered::NotYet(waited)) => {
                Err(Error::NoAnswer { action, path: path.to_owned(), waited })
            }
        }
    }
}

fn usage(stat: &rustix::fs::StatVfs) -> Usage {
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    Usage {
        total_bytes: bytes(stat.f_blocks),
        used_bytes: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        available_bytes: bytes(stat.f_bavail),
        total_inodes: stat.f_files,
        used_inodes: stat.f_files.saturating_sub(stat.f_ffree),
        available_inodes: stat.f_favail,
    }
}
