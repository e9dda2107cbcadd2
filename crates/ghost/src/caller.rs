//! Whether somebody still waits for what is being done.
//!
//! An operation outlives its callers: what has begun at the storage goes on, and the next call
//! joins it. But nothing that changes the storage should *begin* for nobody. The orchestrator may
//! have thought better of it by then, and may have asked another process for something else.

use std::future::Future;

use tokio::sync::watch;

tokio::task_local! {
    static CALLERS: watch::Receiver<usize>;
}

/// Those who wait for one operation.
#[derive(Clone, Debug)]
pub struct Callers(watch::Sender<usize>);

/// One who waits, until it is dropped.
#[derive(Debug)]
pub struct Caller(Callers);

impl Callers {
    /// The callers of an operation that one has just asked for.
    #[must_use]
    pub fn first() -> (Self, Caller) {
        let callers = Self(watch::Sender::new(0));
        let first = callers.one_more();
        (callers, first)
    }

    /// One more.
    #[must_use]
    pub fn one_more(&self) -> Caller {
        self.0.send_modify(|count| *count += 1);
        Caller(self.clone())
    }

    /// Does this for them: within it, [`all_gone`] means these callers.
    pub async fn scope<T>(&self, work: impl Future<Output = T>) -> T {
        CALLERS.scope(self.0.subscribe(), work).await
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

/// Waits until nobody waits any more; for ever where nobody is known to wait.
pub async fn all_gone() {
    if let Ok(mut callers) = CALLERS.try_with(Clone::clone) {
        // Its sender lives as long as the scope.
        let _ = callers.wait_for(|count| *count == 0).await;
    } else {
        std::future::pending::<()>().await;
    }
}
