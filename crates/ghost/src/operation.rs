//! Operations: the one narrow way from the gRPC edge to the work.
//!
//! [`Operations::run`] lets one operation run per key. An identical request joins the running one
//! and gets its result; a different one fails at once as `Busy`. The work runs in a task of its
//! own, because the server drops the handler of a call whose caller hung up: the key must stay
//! taken until the work is over, and a retry must see what it did. The work can tell whether
//! anybody still waits for it ([`crate::caller`]). A panic ends that operation
//! only, as a `Bug`, which leaves its outcome open. [`Operations::drain`] lets the running ones finish before the process ends.
//!
//! Keys are per process. Two processes of this driver may act at once; the storage's own rules and
//! the kernel decide between them, and every operation reads the state again.

use std::any::Any;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::Instrument;

use crate::caller::{Caller, Callers};
use crate::error::{Error, ErrorKind, Result};

/// What one operation at a time may work on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// The creation of something of this name.
    Name(String),
    /// A snapshot: the creation of one of this name, or the one that has this id.
    Snapshot(String),
    /// Something that has this id.
    Id(String),
    /// A read that could hang, so that only one of its kind waits.
    Read(String),
}

/// What is told to whoever counts operations.
pub trait Observer: Send + Sync + 'static {
    /// One has begun.
    fn started(&self, operation: &'static str);
    /// One has ended; `outcome` is `ok` or the label of an error kind.
    fn ended(&self, operation: &'static str, outcome: &'static str, took: Duration);
}

/// The running operations of this process. Clones share them.
#[derive(Clone)]
pub struct Operations {
    running: Arc<Mutex<HashMap<Key, Running>>>,
    tracker: TaskTracker,
    observer: Arc<dyn Observer>,
}

struct Running {
    operation: &'static str,
    since: Instant,
    /// The request, to tell an identical one from a different one.
    request: Box<dyn Any + Send>,
    callers: Callers,
    /// A `watch::Receiver<Option<Result<T>>>` of the operation's own result type.
    outcome: Box<dyn Any + Send>,
}

type Outcome<T> = watch::Receiver<Option<Result<T>>>;

impl Operations {
    /// None yet.
    #[must_use]
    pub fn new(observer: Arc<dyn Observer>) -> Self {
        Self { running: Arc::default(), tracker: TaskTracker::new(), observer }
    }

    /// Runs `work`, or joins it when this very request is running already.
    ///
    /// The answer comes by `deadline`, even if the work takes longer: then it is `Timeout`, the
    /// work goes on, and asking again joins it.
    ///
    /// # Errors
    /// What the work says; `Busy` when another operation has the key, `Unavailable` when the process
    /// is stopping, `Bug` when the work panicked.
    pub async fn run<R, T, F>(
        &self,
        operation: &'static str,
        key: Key,
        deadline: Option<Instant>,
        request: R,
        work: impl FnOnce(R) -> F,
    ) -> Result<T>
    where
        R: Clone + PartialEq + Send + 'static,
        T: Clone + Send + Sync + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let (outcome, _caller) = self.start_or_join(operation, key, request, work)?;
        match deadline {
            None => wait(outcome).await,
            Some(deadline) => {
                tokio::time::timeout_at(deadline, wait(outcome)).await.unwrap_or_else(|_| {
                    Err(Error::timeout(format!(
                        "{operation} is still running; it goes on, ask again to learn its outcome"
                    )))
                })
            }
        }
    }

    /// Admits no more operations and waits for the running ones, for at most `grace`. Answers
    /// whether all of them ended.
    pub async fn drain(&self, grace: Duration) -> bool {
        {
            // Under the lock, so that no operation begins after the last look at what is running.
            let _admitting = self.lock();
            self.tracker.close();
        }
        let running = self.tracker.len();
        if running > 0 {
            tracing::info!(running, "waiting for operations to end");
        }
        tokio::time::timeout(grace, self.tracker.wait()).await.is_ok()
    }

    fn start_or_join<R, T, F>(
        &self,
        operation: &'static str,
        key: Key,
        request: R,
        work: impl FnOnce(R) -> F,
    ) -> Result<(Outcome<T>, Caller)>
    where
        R: Clone + PartialEq + Send + 'static,
        T: Clone + Send + Sync + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut running = self.lock();
        if let Some(other) = running.get(&key) {
            let same = other.operation == operation
                && other.request.downcast_ref::<R>().is_some_and(|other| *other == request);
            return match other.outcome.downcast_ref::<Outcome<T>>() {
                Some(outcome) if same => Ok((outcome.clone(), other.callers.one_more())),
                _ => Err(Error::busy(format!(
                    "{} has been running on the same {} for {:.1} s",
                    other.operation,
                    match key {
                        Key::Name(_) => "name",
                        Key::Snapshot(_) => "snapshot",
                        Key::Id(_) | Key::Read(_) => "volume",
                    },
                    other.since.elapsed().as_secs_f64()
                ))),
            };
        }
        if self.tracker.is_closed() {
            return Err(Error::unavailable("the driver is stopping; ask again in a moment"));
        }
        // From here on a drain waits for this operation.
        let tracked = self.tracker.token();
        let (sender, outcome) = watch::channel(None);
        let (callers, caller) = Callers::first();
        let since = Instant::now();
        running.insert(
            key.clone(),
            Running {
                operation,
                since,
                request: Box::new(request.clone()),
                callers: callers.clone(),
                outcome: Box::new(outcome.clone()),
            },
        );
        drop(running);

        self.observer.started(operation);
        let done = Done { operations: self.clone(), key, operation, since, sender };
        let task = work(request).in_current_span();
        #[expect(clippy::disallowed_methods, reason = "this is the place that spawns operations")]
        tokio::spawn(async move {
            callers.scope(done.finish(task)).await;
            drop(tracked);
        });
        Ok((outcome, caller))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Running>> {
        // No code that can panic runs under the lock, so a poisoned one is still sound.
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn wait<T: Clone>(mut outcome: Outcome<T>) -> Result<T> {
    match outcome.wait_for(Option::is_some).await {
        Ok(result) => result.clone().unwrap_or_else(|| Err(lost())),
        Err(_) => Err(lost()),
    }
}

fn lost() -> Error {
    Error::bug("the operation ended without an outcome")
}

/// Frees the key and tells the outcome when dropped, however the work ended.
struct Done<T> {
    operations: Operations,
    key: Key,
    operation: &'static str,
    since: Instant,
    sender: watch::Sender<Option<Result<T>>>,
}

impl<T: Clone + Send + Sync + 'static> Done<T> {
    async fn finish(self, work: impl Future<Output = Result<T>> + Send) {
        let result = work.await;
        self.tell(result);
    }
}

impl<T> Done<T> {
    fn tell(&self, result: Result<T>) {
        let took = self.since.elapsed();
        let outcome = match &result {
            Ok(_) => "ok",
            Err(error) => error.kind().label(),
        };
        self.operations.observer.ended(self.operation, outcome, took);
        let millis = took.as_secs_f64() * 1000.0;
        match &result {
            Ok(_) if matches!(self.key, Key::Read(_)) => {
                tracing::debug!(operation = self.operation, millis, "done");
            }
            Ok(_) => tracing::info!(operation = self.operation, millis, "done"),
            Err(error) => match error.kind() {
                ErrorKind::Bug | ErrorKind::Failed | ErrorKind::Unauthenticated => {
                    tracing::error!(
                        operation = self.operation,
                        millis,
                        outcome,
                        error = error.chain()
                    );
                }
                _ => {
                    tracing::warn!(
                        operation = self.operation,
                        millis,
                        outcome,
                        error = error.chain()
                    );
                }
            },
        }
        // The key first: whoever learns the outcome may ask for the next operation at once.
        self.operations.lock().remove(&self.key);
        self.sender.send_replace(Some(result));
    }
}

impl<T> Drop for Done<T> {
    fn drop(&mut self) {
        if self.sender.borrow().is_none() {
            self.tell(Err(Error::bug(format!(
                "{} ended by a panic or was cut off; see the log",
                self.operation
            ))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Observer for Nobody {
        fn started(&self, _: &'static str) {}
        fn ended(&self, _: &'static str, _: &'static str, _: Duration) {}
    }

    #[tokio::test]
    async fn b59_a_panic_ends_its_operation_as_a_bug_and_frees_the_key() {
        let operations = Operations::new(Arc::new(Nobody));
        let key = || Key::Name("pvc-1".to_owned());
        let panics = operations.run("create", key(), None, (), |()| async {
            // Not at its first step: the caller waits already.
            tokio::task::yield_now().await;
            if true {
                panic!("told to");
            }
            Ok(1)
        });
        let error = panics.await.expect_err("it panicked");
        assert_eq!(error.kind(), ErrorKind::Bug, "{}", error.chain());
        let again = operations.run("create", key(), None, (), |()| async { Ok(2) });
        assert_eq!(again.await.expect("the key is free"), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_waits_for_what_runs_and_admits_nothing_more() {
        let operations = Operations::new(Arc::new(Nobody));
        let (go, gone) = tokio::sync::oneshot::channel::<()>();
        let key = |id: &str| Key::Id(id.to_owned());
        let running = operations.run("attach", key("v-1"), None, (), |()| async {
            gone.await.expect("told to go on");
            Ok(1)
        });
        let drain = async {
            // The operation has begun: it is polled first.
            assert!(!operations.drain(Duration::from_secs(1)).await, "it is still running");
            let refused = operations.run("attach", key("v-2"), None, (), |()| async { Ok(2) });
            let error = refused.await.expect_err("no more are admitted");
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
            // Whoever asks for the one that is running still learns how it ends.
            let deadline = Some(Instant::now());
            let joined = operations.run("attach", key("v-1"), deadline, (), |()| async { Ok(3) });
            assert_eq!(joined.await.expect_err("not yet").kind(), ErrorKind::Timeout);
            go.send(()).expect("it waits");
            assert!(operations.drain(Duration::from_secs(1)).await, "it has ended");
        };
        let (ended, ()) = tokio::join!(biased; running, drain);
        assert_eq!(ended.expect("it ended"), 1);
    }
}
