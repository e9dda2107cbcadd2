//! Questions to the kernel that may never be answered, asked so that they hold up nobody but
//! whoever asks: a filesystem or a device that is dead may hang every thread that looks at it.

use std::collections::HashMap;
use std::hash::Hash;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

/// How long an answer is waited for. One in order answers within microseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// It did not come in time; the question is still open.
    NotYet(Duration),
    /// It could not be asked.
    NotAsked(io::Error),
}

/// Asks one kind of question, of each key by one thread at a time at most: while one hangs, later
/// callers wait for the same answer instead of hanging a thread each.
#[derive(Debug)]
pub(crate) struct Patient<K, T> {
    asked: Arc<Mutex<HashMap<K, watch::Receiver<Option<T>>>>>,
}

impl<K, T> Default for Patient<K, T> {
    fn default() -> Self {
        Self { asked: Arc::default() }
    }
}

impl<K, T> Patient<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// The answer of `work` for this key, or of the thread that is asking already.
    pub(crate) async fn ask(
        &self,
        key: K,
        patience: Duration,
        work: impl FnOnce(&K) -> T + Send + 'static,
    ) -> std::result::Result<T, Unanswered> {
        let mut answer = self.join(key, work).map_err(Unanswered::NotAsked)?;
        match tokio::time::timeout(patience, answer.wait_for(Option::is_some)).await {
            Ok(Ok(value)) => Ok(value.clone().expect("the wait was for an answer")),
            Ok(Err(_)) => Err(Unanswered::NotAsked(io::Error::from(io::ErrorKind::Interrupted))),
            Err(_) => Err(Unanswered::NotYet(patience)),
        }
    }

    /// Starts a thread for the key unless there is one. It is none of the runtime's, which would
    /// wait for it when it shuts down.
    fn join(
        &self,
        key: K,
        work: impl FnOnce(&K) -> T + Send + 'static,
    ) -> io::Result<watch::Receiver<Option<T>>> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(answer) = asked.get(&key) {
            return Ok(answer.clone());
        }
        let (sender, receiver) = watch::channel(None);
        let (all, own) = (Arc::clone(&self.asked), key.clone());
        std::thread::Builder::new().name("patient".to_owned()).spawn(move || {
            let asked = Asked { all, key: own };
            let answer = work(&asked.key);
            // The key is free before the answer is there: whoever has it may ask again.
            drop(asked);
            sender.send_replace(Some(answer));
        })?;
        asked.insert(key, receiver.clone());
        Ok(receiver)
    }
}

/// Frees the key when the thread ends, also by a panic.
struct Asked<K: Eq + Hash, T> {
    all: Arc<Mutex<HashMap<K, watch::Receiver<Option<T>>>>>,
    key: K,
}

impl<K: Eq + Hash, T> Drop for Asked<K, T> {
    fn drop(&mut self) {
        self.all.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn what_hangs_holds_one_thread_however_many_ask() {
        let patient = Patient::default();
        let (release, held) = mpsc::channel::<()>();
        let hang = move |_: &&str| {
            let _ = held.recv();
            1
        };
        let short = Duration::from_millis(20);
        let unanswered = patient.ask("a", short, hang).await.unwrap_err();
        assert!(matches!(unanswered, Unanswered::NotYet(waited) if waited == short));
        for _ in 0..20 {
            let never = |_: &&str| panic!("a second thread was started");
            patient.ask("a", Duration::ZERO, never).await.unwrap_err();
        }
        // Another key is asked meanwhile.
        assert_eq!(patient.ask("b", PATIENCE, |_| 2).await.unwrap(), 2);

        // The answer that comes at last goes to whoever still waits, and then the key is free.
        let (late, ()) = tokio::join!(patient.ask("a", PATIENCE, |_| 3), async { drop(release) });
        assert_eq!(late.unwrap(), 1);
        assert_eq!(patient.ask("a", PATIENCE, |_| 4).await.unwrap(), 4);
    }

    #[tokio::test]
    async fn a_panic_frees_the_key() {
        let patient = Patient::default();
        let asked = patient.ask("a", PATIENCE, |_| panic!("on purpose")).await;
        assert!(matches!(asked, Err(Unanswered::NotAsked(_))));
        assert_eq!(patient.ask("a", PATIENCE, |_| 1).await.unwrap(), 1);
    }
}
