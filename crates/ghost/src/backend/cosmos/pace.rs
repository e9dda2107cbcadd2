//! Whose request goes next: one queue for the whole process, before the budget.
//!
//! The most urgent goes first, and of equals who came first. Only the head of the queue asks the
//! budget; whoever leaves the head wakes the next. A permit is held until its request was answered,
//! because the budget counts what is under way. The principal type is [`Pace`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::{Budget, Heard, Sent, Urgency};

/// The queue and the budget of one account.
#[derive(Debug)]
pub(super) struct Pace {
    state: Mutex<State>,
    /// Wakes who waits for plenty, in the order in which they came.
    plenty: Notify,
}

#[derive(Debug)]
struct State {
    budget: Budget,
    queue: BTreeMap<Place, Arc<Notify>>,
    next: u64,
}

type Place = (Urgency, u64);

impl Pace {
    pub(super) fn new(per_minute: usize) -> Self {
        let state = State { budget: Budget::new(per_minute), queue: BTreeMap::new(), next: 0 };
        Self { state: Mutex::new(state), plenty: Notify::new() }
    }

    /// Waits for leave to send one request.
    ///
    /// # Errors
    /// How much longer it would take at least, when it is not this request's turn by `give_up`.
    pub(super) async fn turn(
        &self,
        urgency: Urgency,
        give_up: Instant,
    ) -> Result<Permit<'_>, Duration> {
        let waiting = self.enter(urgency);
        loop {
            let now = Instant::now();
            let until = match waiting.ask(now) {
                Ok(sent) => return Ok(Permit { pace: self, sent: Some(sent) }),
                Err(until) => until,
            };
            let until = until.unwrap_or(give_up);
            if until > give_up || now >= give_up {
                return Err(until.saturating_duration_since(now));
            }
            let _ = tokio::time::timeout_at(until, waiting.woken.notified()).await;
        }
    }

    /// Waits while new work is waiting for budget.
    pub(super) async fn plenty(&self) {
        loop {
            let mut plenty = std::pin::pin!(self.plenty.notified());
            plenty.as_mut().enable();
            if !self.is_short() {
                return;
            }
            plenty.await;
        }
    }

    fn enter(&self, urgency: Urgency) -> Waiting<'_> {
        let mut state = self.lock();
        state.next += 1;
        let place = (urgency, state.next);
        let woken = Arc::new(Notify::new());
        state.queue.insert(place, Arc::clone(&woken));
        Waiting { pace: self, place, woken }
    }

    /// Whether new work is waiting for budget.
    fn is_short(&self) -> bool {
        self.lock().is_short()
    }

    fn tell(&self, state: &State) {
        if !state.is_short() {
            self.plenty.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request in the queue; dropped, it leaves.
struct Waiting<'a> {
    pace: &'a Pace,
    place: Place,
    woken: Arc<Notify>,
}

impl Waiting<'_> {
    /// Takes the turn, or says until when it cannot be had; `None` until woken.
    fn ask(&self, now: Instant) -> Result<Sent, Option<Instant>> {
        let mut state = self.pace.lock();
        let asked = match state.queue.first_key_value() {
            Some((place, _)) if *place == self.place => state.budget.take(now, self.place.0),
            // Nobody has a turn while the cloud wants to be left alone.
            _ => Err(state.budget.closed(now)),
        };
        if asked.is_ok() {
            state.queue.remove(&self.place);
            state.wake_first();
            self.pace.tell(&state);
        }
        asked
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.pace.lock();
        if state.queue.remove(&self.place).is_some() {
            state.wake_first();
            self.pace.tell(&state);
        }
    }
}

impl State {
    fn is_short(&self) -> bool {
        self.queue.last_key_value().is_some_and(|((urgency, _), _)| *urgency == Urgency::Begin)
    }

    fn wake_first(&self) {
        if let Some((_, first)) = self.queue.first_key_value() {
            first.notify_one();
        }
    }
}

/// Leave to send one request. Dropped without an answer, it counts as one that none came to.
#[derive(Debug)]
pub(super) struct Permit<'a> {
    pace: &'a Pace,
    sent: Option<Sent>,
}

impl Permit<'_> {
    /// The request was answered.
    pub(super) fn answered(mut self, heard: Heard) {
        self.end(Some(heard));
    }

    /// Nothing was sent.
    pub(super) fn unused(mut self) {
        if let Some(sent) = self.sent.take() {
            let mut state = self.pace.lock();
            state.budget.unused(sent);
            state.wake_first();
        }
    }

    fn end(&mut self, heard: Option<Heard>) {
        if let Some(sent) = self.sent.take() {
            let mut state = self.pace.lock();
            state.budget.answered(&sent, Instant::now(), heard);
            state.wake_first();
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.end(None);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use reqwest::header::HeaderMap;

    use super::Urgency::{Begin, Look, Release};
    use super::*;

    async fn answered(pace: &Pace, urgency: Urgency, give_up: Instant) -> Result<(), Duration> {
        let permit = pace.turn(urgency, give_up).await?;
        permit.answered(Heard::new(200, &HeaderMap::new()));
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn the_most_urgent_goes_first_and_of_equals_who_came_first() {
        let pace = Pace::new(1);
        let far = Instant::now() + Duration::from_secs(3600);
        answered(&pace, Begin, far).await.expect("the only one of this minute");
        let order = Mutex::new(Vec::new());
        let one = async |name: &'static str, urgency| {
            answered(&pace, urgency, far).await.expect("a turn");
            order.lock().expect("sound").push(name);
        };
        tokio::join!(
            one("begin", Begin),
            one("begin later", Begin),
            one("release", Release),
            one("look", Look),
        );
        assert_eq!(*order.lock().expect("sound"), ["look", "release", "begin", "begin later"]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_leaves_the_queue_lets_the_next_go() {
        let pace = Pace::new(1);
        let start = Instant::now();
        answered(&pace, Begin, start).await.expect("free");
        let soon = start + Duration::from_secs(10);
        let early = answered(&pace, Look, soon);
        let late = answered(&pace, Begin, start + Duration::from_secs(100));
        assert!(!pace.is_short());
        let (early, late) = tokio::join!(early, async {
            tokio::task::yield_now().await;
            late.await
        });
        assert_eq!(early, Err(Duration::from_secs(60)), "known at once");
        assert_eq!(late, Ok(()));
        assert_eq!(start.elapsed(), Duration::from_secs(60));
        assert!(!pace.is_short());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_an_answer_counts_and_new_work_that_waits_is_told() {
        let pace = Pace::new(1);
        let start = Instant::now();
        let far = start + Duration::from_secs(600);
        let permit = pace.turn(Begin, far).await.expect("free");
        let waits = answered(&pace, Begin, far);
        let lost = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert!(pace.is_short());
            drop(permit);
            pace.plenty().await;
        };
        let (waited, ()) = tokio::join!(waits, lost);
        assert_eq!(waited, Ok(()));
        assert_eq!(start.elapsed(), Duration::from_secs(65));
    }
}
