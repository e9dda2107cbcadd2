//! Whose turn it is on a droplet: the cloud runs one event at a time on each, and refuses others.
//!
//! A turn is held from before an action is asked for until it is seen to have ended, so that no
//! request is spent on one that could only be refused. Detachments go before attachments. The turns
//! are this process's own; against others the cloud's refusal decides.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::budget::Urgency;

/// The turns on all droplets.
#[derive(Clone, Debug, Default)]
pub(super) struct Turns(Arc<Mutex<Droplets>>);

/// Every droplet on which it is somebody's turn, with those who wait for theirs.
type Droplets = BTreeMap<u64, BTreeMap<(Urgency, u64), oneshot::Sender<Turn>>>;

/// It is the holder's turn, until this is dropped.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    droplet: u64,
    is_held: bool,
}

impl Turns {
    /// Waits for the turn on this droplet.
    pub(super) async fn on(&self, droplet: u64, urgency: Urgency) -> Turn {
        loop {
            let granted = {
                let mut droplets = self.lock();
                let Some(waiting) = droplets.get_mut(&droplet) else {
                    droplets.insert(droplet, BTreeMap::new());
                    return Turn { turns: self.clone(), droplet, is_held: true };
                };
                let (sender, granted) = oneshot::channel();
                let number = waiting.keys().map(|(_, number)| number + 1).max().unwrap_or(0);
                waiting.insert((urgency, number), sender);
                granted
            };
            if let Ok(turn) = granted.await {
                return turn;
            }
        }
    }

    /// Gives the turn to the next who still waits for it.
    fn pass_on(&self, droplet: u64) {
        loop {
            let mut droplets = self.lock();
            let next = droplets.get_mut(&droplet).and_then(BTreeMap::pop_first);
            let Some((_, next)) = next else {
                droplets.remove(&droplet);
                return;
            };
            drop(droplets);
            match next.send(Turn { turns: self.clone(), droplet, is_held: true }) {
                Ok(()) => return,
                Err(mut unwanted) => unwanted.is_held = false,
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Droplets> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.is_held {
            self.turns.pass_on(self.droplet);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Urgency::{Begin, Release};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_on_a_droplet_and_detachments_first() {
        let turns = Turns::default();
        let order = Mutex::new(Vec::new());
        let one = async |name: &'static str, droplet, urgency| {
            let _turn = turns.on(droplet, urgency).await;
            order.lock().expect("sound").push(name);
            tokio::time::sleep(Duration::from_secs(1)).await;
        };
        tokio::join!(
            one("first", 1, Begin),
            one("attach", 1, Begin),
            one("attach too", 1, Begin),
            one("detach", 1, Release),
            one("elsewhere", 2, Begin),
        );
        let order = order.into_inner().expect("sound");
        assert_eq!(order, ["first", "elsewhere", "detach", "attach", "attach too"]);
        assert!(turns.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_no_longer_waits_is_passed_over() {
        let turns = Turns::default();
        let held = turns.on(1, Begin).await;
        let soon = Duration::from_secs(1);
        let impatient = || tokio::time::timeout(soon, turns.on(1, Begin));
        let patient = turns.on(1, Begin);
        let release = async {
            tokio::time::sleep(soon * 2).await;
            drop(held);
        };
        let (one, two, _turn, ()) = tokio::join!(impatient(), impatient(), patient, release);
        assert!(one.is_err() && two.is_err());
        drop(_turn);
        assert!(turns.lock().is_empty());
    }
}
