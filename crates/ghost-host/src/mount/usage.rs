//! Space and inodes of a filesystem, asked for so that a dead mount holds up nobody but itself.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;
use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::mount::Usage;

/// How long an answer is waited for. A mount in order answers within microseconds.
const PATIENCE: Duration = Duration::from_secs(10);

type Answer = Option<std::result::Result<Usage, Errno>>;

/// Asks filesystems, each by one thread at a time at most: while one hangs, later callers wait for
/// the same answer instead of hanging a thread each.
#[derive(Debug, Default)]
pub(crate) struct UsageReader {
    asked: Arc<Mutex<HashMap<PathBuf, watch::Receiver<Answer>>>>,
}

impl UsageReader {
    /// Asks as [`crate::Host::usage`] promises.
    pub(crate) async fn read(&self, path: &Path) -> Result<Usage> {
        self.read_by(path, PATIENCE, |path| rustix::fs::statvfs(path).map(|stat| usage(&stat)))
            .await
    }

    async fn read_by<M>(&self, path: &Path, patience: Duration, measure: M) -> Result<Usage>
    where
        M: FnOnce(&Path) -> std::result::Result<Usage, Errno> + Send + 'static,
    {
        let mut answer = self.ask(path, measure)?;
        let answered = tokio::time::timeout(patience, answer.wait_for(Option::is_some)).await;
        match answered {
            Ok(Ok(value)) => value
                .expect("the wait was for an answer")
                .map_err(Error::io("measure the use of", path)),
            Ok(Err(_)) => Err(Error::io("measure the use of", path)(Errno::INTR)),
            Err(_) => Err(Error::NoAnswer {
                action: "measure the use of",
                path: path.to_owned(),
                waited: patience,
            }),
        }
    }

    /// Starts a thread for the path unless there is one. It is none of the runtime's, which would
    /// wait for it when it shuts down.
    fn ask<M>(&self, path: &Path, measure: M) -> Result<watch::Receiver<Answer>>
    where
        M: FnOnce(&Path) -> std::result::Result<Usage, Errno> + Send + 'static,
    {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = asked.get(path) {
            return Ok(answer.clone());
        }
        let (sender, receiver) = watch::channel(None);
        let (all, key) = (Arc::clone(&self.asked), path.to_owned());
        std::thread::Builder::new()
            .name("usage".to_owned())
            .spawn(move || {
                let answer = measure(&key);
                all.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
                sender.send_replace(Some(answer));
            })
            .map_err(Error::io("start a thread for", path))?;
        asked.insert(path.to_owned(), receiver.clone());
        Ok(receiver)
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_mount_that_hangs_holds_one_thread_however_many_ask() {
        let reader = UsageReader::default();
        let path = Path::new("/");
        let (release, held) = mpsc::channel::<()>();
        let hang = move |_: &Path| {
            let _ = held.recv();
            Err(Errno::STALE)
        };
        let short = Duration::from_millis(20);
        let error = reader.read_by(path, short, hang).await.unwrap_err();
        assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
        for _ in 0..20 {
            let never = |_: &Path| panic!("a second thread was started");
            let error = reader.read_by(path, Duration::ZERO, never).await.unwrap_err();
            assert!(matches!(error, Error::NoAnswer { .. }), "{error:?}");
        }
        // Another path is measured meanwhile.
        reader.read(Path::new("/proc")).await.unwrap();

        // The answer that comes at last goes to whoever still waits, and then the path is free.
        let (late, ()) = tokio::join!(reader.read(path), async { drop(release) });
        let error = late.unwrap_err();
        assert!(
            matches!(&error, Error::Io { source, .. }
                if Errno::from_io_error(source) == Some(Errno::STALE)),
            "{error:?}"
        );
        assert!(reader.read(path).await.unwrap().total_bytes > 0);
    }
}
