//! The lists of all volumes and of all snapshots, whole or not at all.
//!
//! The API's pages are numbered, so an entry that comes or goes while they are read shifts the
//! others, and one could be missed. A walk through the pages is believed when nothing shows that
//! this happened: the total stayed the same, every page was as full as it says, and no entry was
//! seen twice. One thing those signs cannot show: one entry deleted and another made meanwhile. So
//! a walk with an entry that may have been made since it began is believed only when the walk before
//! it saw the very same entries. A list of one page cannot shift.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::client::{Call, Client};
use super::error::ApiError;
use super::exchange::Exchange;
use super::wire;
use crate::error::{Error, Result};

/// The most entries of one page (the API's limit).
pub(super) const PAGE: u64 = 200;
/// How many reads are under way at once, where their number is known.
pub(super) const AT_ONCE: usize = 4;
/// The most entries that a list may claim to have. No account comes near; an answer that says more
/// is wrong, and walking through it would never end.
const MOST: u64 = 1_000_000;
/// How often a list is read before it counts as too restless to be read.
const WALKS: usize = 5;
/// How long a creation of our own is remembered. The API's times have whole seconds.
const RECENT: Duration = Duration::from_secs(5);

/// What this process made a moment ago: certainly before any walk that begins now.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<(Instant, String)>>);

impl Recent {
    /// Remembers that this has been made.
    pub(super) fn made(&self, id: &str) {
        let mut recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.push_back((Instant::now(), id.to_owned()));
        while recent.front().is_some_and(|(made, _)| made.elapsed() > RECENT) {
            recent.pop_front();
        }
    }

    fn ids(&self) -> BTreeSet<String> {
        let recent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        recent.iter().map(|(_, id)| id.clone()).collect()
    }
}

/// What the API lists in pages.
pub(super) trait Entry: Send + Sized {
    /// A page of them.
    type Page: DeserializeOwned;

    /// The entries of a page, and how many there are on all pages.
    fn take(page: Self::Page) -> (Vec<Self>, u64);

    fn id(&self) -> &str;

    fn created_at(&self) -> Option<&str>;
}

impl Entry for wire::Volume {
    type Page = wire::VolumesBody;

    fn take(page: Self::Page) -> (Vec<Self>, u64) {
        (page.volumes, page.meta.total)
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn created_at(&self) -> Option<&str> {
        self.created_at.as_deref()
    }
}

impl Entry for wire::Snapshot {
    type Page = wire::SnapshotsBody;

    fn take(page: Self::Page) -> (Vec<Self>, u64) {
        (page.snapshots, page.meta.total)
    }

    fn id(&self) -> &str {
        &self.id
    }

    fn created_at(&self) -> Option<&str> {
        self.created_at.as_deref()
    }
}

/// Which list is read.
#[derive(Debug)]
pub(super) struct Which {
    /// The route's template.
    pub(super) route: &'static str,
    /// The path with what of its query is not the page.
    pub(super) path: String,
}

/// Every volume of the account, each once.
///
/// # Errors
/// `Unavailable` when the list changed during every walk through its pages.
pub(super) async fn volumes<E: Exchange>(
    client: &Client<E>,
    recent: &Recent,
) -> Result<Vec<wire::Volume>> {
    let which = Which { route: "/v2/volumes", path: "/v2/volumes?".to_owned() };
    all(client, recent, &which).await
}

/// Every entry of the list, each once.
///
/// # Errors
/// `Unavailable` when the list changed during every walk through its pages.
pub(super) async fn all<E: Exchange, T: Entry>(
    client: &Client<E>,
    recent: &Recent,
    which: &Which,
) -> Result<Vec<T>> {
    let mut before: Option<BTreeSet<String>> = None;
    for _ in 0..WALKS {
        let own = recent.ids();
        match walk(client, which, &own).await? {
            Walk::Sound(entries) => return Ok(entries),
            Walk::Doubtful(entries) => {
                let ids = entries.iter().map(|entry: &T| entry.id().to_owned()).collect();
                if before.as_ref() == Some(&ids) {
                    return Ok(entries);
                }
                before = Some(ids);
            }
            Walk::Shifted => before = None,
        }
        tracing::debug!(?which, "entries came or went while they were listed; listing again");
    }
    Err(Error::unavailable(format!(
        "the cloud's list of {} changed during each of {WALKS} tries to read it whole",
        which.route
    )))
}

enum Walk<T> {
    /// Nothing shifted.
    Sound(Vec<T>),
    /// An entry may have been made since the walk began.
    Doubtful(Vec<T>),
    /// Something did shift.
    Shifted,
}

async fn walk<E: Exchange, T: Entry>(
    client: &Client<E>,
    which: &Which,
    own: &BTreeSet<String>,
) -> std::result::Result<Walk<T>, ApiError> {
    let (began, first) = page::<E, T>(client, which, 1).await?;
    let (mut entries, total) = T::take(first);
    if total > MOST {
        return Err(ApiError::Foreign {
            call: format!("GET {}", which.path),
            status: 200,
            detail: format!("a list that claims {total} entries, more than {MOST}"),
        });
    }
    let pages = total.div_ceil(PAGE).max(1);
    if u64::try_from(entries.len()) != Ok(total.min(PAGE)) {
        return Ok(Walk::Shifted);
    }
    let mut ids = BTreeSet::new();
    if !are_new(&mut ids, &entries) {
        return Ok(Walk::Shifted);
    }
    if pages == 1 {
        return Ok(Walk::Sound(entries));
    }
    let further = stream::iter(2..=pages).map(|number| page::<E, T>(client, which, number));
    let mut further = further.buffered(AT_ONCE);
    let mut number = 1;
    while let Some(answer) = further.next().await {
        let (more, total_now) = T::take(answer?.1);
        number += 1;
        let is_new = are_new(&mut ids, &more);
        entries.extend(more);
        let read = total.min(number * PAGE);
        if !is_new || total_now != total || u64::try_from(entries.len()) != Ok(read) {
            return Ok(Walk::Shifted);
        }
    }
    let doubtful =
        entries.iter().any(|entry| may_be_new(entry, began) && !own.contains(entry.id()));
    Ok(if doubtful { Walk::Doubtful(entries) } else { Walk::Sound(entries) })
}

/// Whether none of these entries was seen before; from now on they were.
fn are_new(seen: &mut BTreeSet<String>, entries: &[impl Entry]) -> bool {
    entries.iter().all(|entry| seen.insert(entry.id().to_owned()))
}

/// Whether the entry may have been made since then; when either time is not told, it may.
fn may_be_new(entry: &impl Entry, began: Option<Timestamp>) -> bool {
    let made = entry.created_at().and_then(|text| text.parse::<Timestamp>().ok());
    match (made, began) {
        (Some(made), Some(began)) => made.as_second() >= began.as_second(),
        _ => true,
    }
}

/// One page, and the cloud's own time when it answered.
async fn page<E: Exchange, T: Entry>(
    client: &Client<E>,
    which: &Which,
    number: u64,
) -> std::result::Result<(Option<Timestamp>, T::Page), ApiError> {
    let separator = if which.path.ends_with('?') { "" } else { "&" };
    let path = format!("{}{separator}per_page={PAGE}&page={number}", which.path);
    let response = client.call(Call::get(which.route, path.clone())).await?;
    let body = serde_json::from_slice(&response.body).map_err(|error| ApiError::Foreign {
        call: format!("GET {path}"),
        status: response.status,
        detail: error.to_string(),
    })?;
    Ok((response.date(), body))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::super::exchange::Response;
    use super::super::fixture::{Played, client, response};
    use super::*;

    const OLD: &str = "2026-01-01T00:00:00Z";
    const NOW: &str = "Thu, 01 Jan 2026 12:00:00 GMT";

    /// One page: the ids of its volumes by number, each made at this time, and the total.
    fn page(ids: std::ops::Range<u64>, made: Option<&str>, total: u64) -> String {
        let volume = |id: u64| {
            let (region, name) = (json!({ "slug": "r" }), format!("n-{id}"));
            json!({ "id": format!("v-{id}"), "name": name, "size_gigabytes": 1, "droplet_ids": [], "region": region,
                "created_at": made })
        };
        let page: Vec<_> = ids.map(volume).collect();
        json!({ "volumes": page, "meta": { "total": total } }).to_string()
    }

    /// Reads a list whose pages are played, told their number and that of the walk.
    async fn read(
        played: impl Fn(usize, &str) -> Response + Send + Sync + 'static,
    ) -> (Result<Vec<wire::Volume>>, usize) {
        let walks = std::sync::Arc::new(AtomicUsize::new(0));
        let count = std::sync::Arc::clone(&walks);
        let client = client(Played(move |path: &str| {
            let number = path.rsplit_once('=').expect("a page is asked for").1;
            if number == "1" {
                count.fetch_add(1, Ordering::SeqCst);
            }
            played(count.load(Ordering::SeqCst), number)
        }));
        let listed = volumes(&client, &Recent::default()).await;
        (listed, walks.load(Ordering::SeqCst))
    }

    #[tokio::test(start_paused = true)]
    async fn every_page_must_be_as_full_as_the_total_says_also_the_first() {
        let (listed, walks) = read(|walk, _| match walk {
            1 => response(200, Some(NOW), page(0..19, Some(OLD), 20)),
            _ => response(200, Some(NOW), page(0..20, Some(OLD), 20)),
        })
        .await;
        assert_eq!((listed.expect("read").len(), walks), (20, 2));
        // The last page of two is one short, for ever.
        let (listed, walks) = read(|_, number| match number {
            "1" => response(200, Some(NOW), page(0..200, Some(OLD), 220)),
            _ => response(200, Some(NOW), page(200..219, Some(OLD), 220)),
        })
        .await;
        let error = listed.expect_err("never whole");
        assert_eq!(error.kind(), crate::error::ErrorKind::Unavailable, "{}", error.chain());
        assert_eq!(walks, WALKS);
    }

    #[tokio::test(start_paused = true)]
    async fn a_volume_that_is_seen_twice_shows_that_the_pages_shifted() {
        let (listed, walks) = read(|walk, number| match (walk, number) {
            (_, "1") => response(200, Some(NOW), page(0..200, Some(OLD), 201)),
            (1, _) => response(200, Some(NOW), page(199..200, Some(OLD), 201)),
            _ => response(200, Some(NOW), page(200..201, Some(OLD), 201)),
        })
        .await;
        assert_eq!((listed.expect("read").len(), walks), (201, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn without_the_times_a_walk_is_believed_only_when_the_one_before_saw_the_same() {
        for (date, made) in
            [(None, Some(OLD)), (Some(NOW), None), (Some(NOW), Some("2026-01-01T12:00:00Z"))]
        {
            let (listed, walks) = read(move |_, number| match number {
                "1" => response(200, date, page(0..200, made, 201)),
                _ => response(200, date, page(200..201, made, 201)),
            })
            .await;
            assert_eq!((listed.expect("read").len(), walks), (201, 2), "{date:?} {made:?}");
        }
        let (listed, walks) = read(|_, number| match number {
            "1" => response(200, Some(NOW), page(0..200, Some(OLD), 201)),
            _ => response(200, Some(NOW), page(200..201, Some(OLD), 201)),
        })
        .await;
        assert_eq!((listed.expect("read").len(), walks), (201, 1), "nothing is doubtful");
    }
}
