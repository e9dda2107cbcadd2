//! Runs system calls that may block away from the runtime's own threads.

use std::io;

use crate::error::{Error, Result};

/// Runs the closure on a thread for blocking work. It runs to its end even if its caller goes away.
pub(crate) async fn run<T, F>(work: F) -> Result<T>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T> + Send + 'static,
{
    match tokio::task::spawn_blocking(work).await {
        Ok(answer) => answer,
        Err(stopped) => match stopped.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // Only a runtime that shuts down refuses to start such work.
            Err(_) => Err(Error::io("start", "blocking work")(io::Error::from(
                io::ErrorKind::Interrupted,
            ))),
        },
    }
}
