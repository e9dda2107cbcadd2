//! Lists that page strictly, of volumes and of snapshots.
//!
//! The storage's own page numbers shift when volumes come and go, so a walk through them could miss
//! one or meet it twice, and whoever compares the list with the world would "repair" what is not
//! broken. A walk here is over one list: the first page takes the whole list from the storage, and
//! the token of each further page names that list and a place in it. Lists are held in memory for a
//! short while only; the token of one that is gone is `StaleToken`, and the caller starts again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Controller;
use super::health::unhealthy;
use super::snapshot::{SnapshotFilter, chosen};
use crate::error::{Error, Result};
use crate::volume::{Snapshot, Volume, VolumeHealth};

/// The most entries of one page, whatever is asked for.
const PAGE_LIMIT: usize = 1000;
/// How long a list is held after its last page was read. The callers' walks take seconds.
const HELD_FOR: Duration = Duration::from_secs(120);
/// How many lists are held at once; the oldest goes first.
const LISTS_HELD: usize = 4;

/// A page that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListRequest {
    /// The most entries; `None` for as many as one page holds.
    pub limit: Option<usize>,
    /// The token of the page before; `None` for the first page.
    pub token: Option<String>,
}

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing<T> {
    /// The entries, by id.
    pub entries: Vec<T>,
    /// The token of the next page, if there is one.
    pub next: Option<String>,
}

/// The lists that are being walked through.
#[derive(Debug)]
pub struct Lists<T> {
    /// Tells this process's tokens from those of another, or of one before a restart.
    origin: u64,
    held: Mutex<Held<T>>,
}

#[derive(Debug)]
struct Held<T> {
    lists: VecDeque<HeldList<T>>,
    count: u64,
}

#[derive(Debug)]
struct HeldList<T> {
    number: u64,
    entries: Arc<Vec<T>>,
    last_read: Instant,
}

/// A page of all volumes.
///
/// # Errors
/// `StaleToken` when the token is not of a list that is still held. When the storage could not be
/// read whole, its error: a part is never answered.
pub async fn list_volumes(
    lists: &Lists<Volume>,
    controller: &Controller,
    request: &ListRequest,
) -> Result<Listing<Volume>> {
    let whole = async {
        let mut volumes = controller.backend.list().await?;
        volumes.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(volumes)
    };
    lists.page(request, whole).await
}

/// A page of the volumes with which something is wrong.
///
/// # Errors
/// As for [`list_volumes`].
pub async fn list_unhealthy(
    lists: &Lists<VolumeHealth>,
    controller: &Controller,
    request: &ListRequest,
) -> Result<Listing<VolumeHealth>> {
    lists.page(request, unhealthy(controller)).await
}

/// A page of the snapshots that are wanted: they are chosen first and cut into pages then.
///
/// # Errors
/// As for [`list_volumes`].
pub async fn list_snapshots(
    lists: &Lists<Snapshot>,
    controller: &Controller,
    filter: &SnapshotFilter,
    request: &ListRequest,
) -> Result<Listing<Snapshot>> {
    let whole = async {
        let mut snapshots = chosen(controller, filter).await?;
        snapshots.sort_by(|a, b| a.id.cmp(&b.id));
        Ok(snapshots)
    };
    lists.page(request, whole).await
}

impl<T: Clone> Lists<T> {
    /// None held yet. `origin` is a random number of this process, part of each token.
    #[must_use]
    pub fn new(origin: u64) -> Self {
        let held = Held { lists: VecDeque::new(), count: 0 };
        Self { origin, held: Mutex::new(held) }
    }

    /// A page; `whole` reads the whole list, sorted by id, and is used for the first page only.
    async fn page(
        &self,
        request: &ListRequest,
        whole: impl Future<Output = Result<Vec<T>>>,
    ) -> Result<Listing<T>> {
        let limit = request.limit.unwrap_or(PAGE_LIMIT).min(PAGE_LIMIT);
        match &request.token {
            Some(token) => self.next(token, limit),
            None => {
                let entries = whole.await?;
                if entries.len() <= limit {
                    return Ok(Listing { entries, next: None });
                }
                Ok(self.first(Arc::new(entries), limit))
            }
        }
    }

    fn first(&self, entries: Arc<Vec<T>>, limit: usize) -> Listing<T> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.expire();
        if held.lists.len() == LISTS_HELD {
            held.lists.pop_front();
        }
        held.count += 1;
        let number = held.count;
        let page = self.cut(&entries, number, 0, limit);
        held.lists.push_back(HeldList { number, entries, last_read: Instant::now() });
        page
    }

    fn next(&self, token: &str, limit: usize) -> Result<Listing<T>> {
        let stale = || {
            Error::stale_token(format!(
                "the list token {token:?} is not, or no longer, known; start the list again"
            ))
        };
        let (number, offset) = self.parse(token).ok_or_else(stale)?;
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        held.expire();
        let list = held.lists.iter_mut().find(|list| list.number == number).ok_or_else(stale)?;
        if offset >= list.entries.len() {
            return Err(stale());
        }
        list.last_read = Instant::now();
        Ok(self.cut(&list.entries, number, offset, limit))
    }

    fn cut(&self, entries: &[T], number: u64, offset: usize, limit: usize) -> Listing<T> {
        let end = entries.len().min(offset + limit);
        Listing {
            entries: entries[offset..end].to_vec(),
            next: (end < entries.len()).then(|| format!("{:x}.{number}.{end}", self.origin)),
        }
    }

    fn parse(&self, token: &str) -> Option<(u64, usize)> {
        let mut parts = token.split('.');
        let origin = u64::from_str_radix(parts.next()?, 16).ok()?;
        let place = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        (origin == self.origin && parts.next().is_none()).then_some(place)
    }
}

impl<T> Held<T> {
    fn expire(&mut self) {
        self.lists.retain(|list| list.last_read.elapsed() < HELD_FOR);
    }
}
