//! What this process has just done to snapshots, and lists may not show yet.
//!
//! Nothing here is needed after a restart: a new process waits until lists show all that the one
//! before it did.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

use super::SETTLE;
use super::wire::Snapshot;

/// The snapshots that were made or deleted a moment ago.
#[derive(Debug)]
pub(super) struct Fresh {
    began: Instant,
    /// By id; none for one that was deleted.
    changes: Mutex<BTreeMap<String, (Instant, Option<Snapshot>)>>,
}

impl Fresh {
    pub(super) fn new() -> Self {
        Self { began: Instant::now(), changes: Mutex::default() }
    }

    /// Waits until lists show all that was done before this process began.
    pub(super) async fn settled(&self) {
        tokio::time::sleep_until(self.began + SETTLE).await;
    }

    pub(super) fn made(&self, snapshot: &Snapshot) {
        self.changed(&snapshot.id, Some(snapshot.clone()));
    }

    pub(super) fn deleted(&self, id: &str) {
        self.changed(id, None);
    }

    /// Whether this process has made it a moment ago.
    pub(super) fn has_made(&self, id: &str) -> bool {
        self.lock().get(id).is_some_and(|(_, made)| made.is_some())
    }

    /// The list as it will be when it shows all that was done here.
    pub(super) fn applied_to(&self, listed: Vec<Snapshot>) -> Vec<Snapshot> {
        let mut changes = self.lock();
        changes.retain(|_, (when, _)| when.elapsed() <= SETTLE);
        let shown: BTreeSet<String> = listed.iter().map(|one| one.id.clone()).collect();
        let is_deleted = |id: &str| matches!(changes.get(id), Some((_, None)));
        let there = listed.into_iter().filter(|one| !is_deleted(&one.id));
        // What the list shows is newer than the answer to its creation: it may be ready by now.
        let made = changes.values().filter_map(|(_, made)| made.clone());
        there.chain(made.filter(|made| !shown.contains(&made.id))).collect()
    }

    fn changed(&self, id: &str, made: Option<Snapshot>) {
        self.lock().insert(id.to_owned(), (Instant::now(), made));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, (Instant, Option<Snapshot>)>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
