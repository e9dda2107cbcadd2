//! Clones: a snapshot of the source is made for them, restored, and deleted again.
//!
//! A snapshot tells for which clones it was made. It counts for those alone, because only they had
//! been asked for when its content was fixed: a clone that is asked for later must have what was
//! written meanwhile. A storage may want a pause between two snapshots of one volume, so all clones
//! of it that are being asked for at that moment share one, and the last of them deletes it.
//!
//! What is remembered here is only who is at it in this process. After a crash the next try of a
//! clone finds its snapshot by that clone's key, and so it finds it to delete it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::content::{check_ready, check_region, check_size, grow, make_of};
use super::{CreateRequest, mends};
use crate::backend::Snapshots;
use crate::controller::Controller;
use crate::controller::snapshot::power;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{
    CloneKey, Purpose, Snapshot, SnapshotName, SnapshotSpec, Volume, VolumeId, VolumeName,
};

/// The most clones that share one snapshot; each takes a tag.
const SHARED_BY_AT_MOST: usize = 20;
/// The longest id that is part of the name of a snapshot, in bytes.
const READABLE_ID: usize = 64;

/// The clones that are being made in this process. Copies share them.
#[derive(Clone, Debug, Default)]
pub struct Clones(Arc<Mutex<HashMap<VolumeId, Arc<Source>>>>);

/// A volume of which clones are being made.
#[derive(Debug, Default)]
struct Source {
    /// Whoever has it may make a snapshot or delete one.
    turn: tokio::sync::Mutex<()>,
    /// The clones that are being made, each with how often it is at it.
    wanted: Mutex<BTreeMap<CloneKey, usize>>,
}

/// One clone that is being made; it counts until this is dropped.
struct Ticket {
    clones: Clones,
    id: VolumeId,
    source: Arc<Source>,
    key: CloneKey,
}

impl Clones {
    fn enter(&self, id: &VolumeId, key: CloneKey) -> Ticket {
        // Under one lock, so that nobody who leaves takes the source away in between.
        let mut sources = lock(&self.0);
        let source = Arc::clone(sources.entry(id.clone()).or_default());
        *lock(&source.wanted).entry(key.clone()).or_default() += 1;
        drop(sources);
        Ticket { clones: self.clone(), id: id.clone(), source, key }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut sources = lock(&self.clones.0);
        let mut wanted = lock(&self.source.wanted);
        if let Some(count) = wanted.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                wanted.remove(&self.key);
            }
        }
        if wanted.is_empty() {
            sources.remove(&self.id);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that can panic runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The clone of that volume, with the size that is asked for; and nothing else left behind.
pub(super) async fn clone(
    controller: &Controller,
    request: &CreateRequest,
    id: &VolumeId,
    found: Option<Volume>,
) -> Result<Volume> {
    let snapshots = power(controller)?;
    let ticket = controller.clones.enter(id, CloneKey::of(&request.name));
    let mut used = Vec::new();
    let made = match found {
        Some(volume) => Ok(volume),
        None => make(controller, request, &ticket, &mut used).await.map_err(mends),
    };
    // While the outcome is open, the next try needs the snapshot again. A clone that is made does
    // not, and its growth may be refused for long.
    let is_open = made.as_ref().is_err_and(|error| error.kind().is_open());
    if !is_open {
        ticket.tidy_up(snapshots, used).await?;
    }
    grow(controller, request, made?).await
}

async fn make(
    controller: &Controller,
    request: &CreateRequest,
    ticket: &Ticket,
    used: &mut Vec<Snapshot>,
) -> Result<Volume> {
    let absent = || Error::not_found(format!("there is no volume {} to clone", ticket.id));
    let original = controller.backend.get(&ticket.id).await?.ok_or_else(absent)?;
    let source = format!("volume {}", ticket.id);
    check_region(&request.requirement, &source, &original.region)?;
    check_size(controller, request, &source, original.size)?;
    *used = ticket.snapshots(power(controller)?).await?;
    let best = used.iter().max_by_key(|snapshot| (snapshot.is_ready(), snapshot.created));
    let snapshot = best.ok_or_else(|| Error::bug("no snapshot was made"))?;
    // If it is not, it stays for the next try, which finds it by the clone's key.
    check_ready(snapshot)?;
    match make_of(controller, request, snapshot).await {
        // Another process has deleted it: the next try makes one.
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(error.into_kind(ErrorKind::Unavailable))
        }
        made => made,
    }
}

impl Ticket {
    /// The snapshots that count for this clone, one made if there is none. There may be more: an
    /// answer may have been lost while the list lagged.
    async fn snapshots(&self, snapshots: &dyn Snapshots) -> Result<Vec<Snapshot>> {
        let _turn = self.source.turn.lock().await;
        let mut listed = snapshots.list(Some(&self.id)).await?;
        listed.retain(|snapshot| self.counts(snapshot));
        if !listed.is_empty() {
            return Ok(listed);
        }
        let others = lock(&self.source.wanted).keys().cloned().collect::<Vec<_>>();
        let others = others.into_iter().filter(|key| *key != self.key);
        let keys = std::iter::once(self.key.clone()).chain(others).take(SHARED_BY_AT_MOST);
        let spec = SnapshotSpec {
            name: snapshot_name(&self.id),
            source: self.id.clone(),
            purpose: Purpose::Clones(keys.collect()),
            tags: Vec::new(),
        };
        Ok(vec![snapshots.create(&spec).await?])
    }

    fn counts(&self, snapshot: &Snapshot) -> bool {
        matches!(&snapshot.purpose, Purpose::Clones(keys) if keys.contains(&self.key))
    }

    /// Deletes what was made for this clone, unless others are at it. `used` are the snapshots that
    /// this try has met; if none, an earlier one may have left some.
    async fn tidy_up(self, snapshots: &dyn Snapshots, used: Vec<Snapshot>) -> Result<()> {
        let source = Arc::clone(&self.source);
        let _turn = source.turn.lock().await;
        let own = if used.is_empty() {
            snapshots.list(Some(&self.id)).await.map_err(left_behind)?
        } else {
            used
        };
        for snapshot in own.iter().filter(|snapshot| self.counts(snapshot)) {
            if self.is_shared(snapshot) {
                continue;
            }
            match snapshots.delete(&snapshot.id).await {
                Ok(()) => {}
                Err(error) => match error.kind() {
                    ErrorKind::NotFound => {}
                    // It would be refused for ever, and the clone is made. What is only in use for
                    // now, as while it is copied, is deleted by the next try.
                    ErrorKind::Refused => {
                        tracing::warn!(
                            snapshot_id = snapshot.id.as_str(),
                            error = error.chain(),
                            "the snapshot that a clone was made of is left behind"
                        );
                    }
                    _ => return Err(left_behind(error)),
                },
            }
        }
        // Within the turn, so that of two who leave the later sees that it is the last.
        drop(self);
        Ok(())
    }

    /// Whether another clone that is being made has it.
    fn is_shared(&self, snapshot: &Snapshot) -> bool {
        let Purpose::Clones(keys) = &snapshot.purpose else { return true };
        let wanted = lock(&self.source.wanted);
        keys.iter().any(|key| *key != self.key && wanted.contains_key(key))
    }
}

/// The next try deletes it.
fn left_behind(error: Error) -> Error {
    error
        .into_kind(ErrorKind::Unavailable)
        .context("the snapshot that the clone was made of is still to be deleted")
}

/// The name of the snapshots that are made for clones of this volume.
fn snapshot_name(id: &VolumeId) -> SnapshotName {
    let readable = id.as_str().len() <= READABLE_ID;
    let text = if readable {
        format!("clone-of-{id}")
    } else {
        let hash = VolumeName::new(id.as_str()).map(|name| CloneKey::of(&name));
        format!("clone-of-{}", hash.expect("an id is short enough for a name").as_str())
    };
    SnapshotName::new(text).expect("it is short enough")
}
