//! The list of all volumes of the account, whole or not at all.
//!
//! The API's pages are numbered, so a volume that comes or goes while they are read shifts the
//! others, and one could be missed. A walk through the pages is believed when nothing shows that
//! this happened: the total stayed the same, every page was as full as it says, and no volume was
//! seen twice. One thing those signs cannot show: one volume deleted and another made meanwhile. So
//! a walk with a volume that may have been made since it began is believed only when the walk before
//! it saw the very same volumes. A list of one page cannot shift.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::DATE;
use tokio::time::Instant;

use super::client::{Call, Client};
use super::error::ApiError;
use super::exchange::{Exchange, Response};
use super::wire;
use crate::error::{Error, Result};

/// The most volumes of one page (the API's limit).
pub(super) const PAGE: u64 = 200;
/// How often a list is read before it counts as too restless to be read.
const WALKS: usize = 5;
/// How long a creation of our own is remembered. The API's times have whole seconds.
const RECENT: Duration = Duration::from_secs(5);

/// The volumes that this process made a moment ago: certainly before any walk that begins now.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<VecDeque<(Instant, String)>>);

impl Recent {
    /// Remembers that a volume has been made.
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

/// Every volume of the account, each once.
///
/// # Errors
/// `Unavailable` when the list changed during every walk through its pages.
pub(super) async fn all<E: Exchange>(
    client: &Client<E>,
    recent: &Recent,
) -> Result<Vec<wire::Volume>> {
    let mut before: Option<BTreeSet<String>> = None;
    for _ in 0..WALKS {
        let own = recent.ids();
        match walk(client, &own).await? {
            Walk::Sound(volumes) => return Ok(volumes),
            Walk::Doubtful(volumes) => {
                let ids = volumes.iter().map(|volume| volume.id.clone()).collect();
                if before.as_ref() == Some(&ids) {
                    return Ok(volumes);
                }
                before = Some(ids);
            }
            Walk::Shifted => before = None,
        }
        tracing::debug!("volumes came or went while they were listed; listing again");
    }
    Err(Error::unavailable(format!(
        "the cloud's list of volumes changed during each of {WALKS} tries to read it whole"
    )))
}

enum Walk {
    /// Nothing shifted.
    Sound(Vec<wire::Volume>),
    /// A volume may have been made since the walk began.
    Doubtful(Vec<wire::Volume>),
    /// Something did shift.
    Shifted,
}

async fn walk<E: Exchange>(
    client: &Client<E>,
    own: &BTreeSet<String>,
) -> std::result::Result<Walk, ApiError> {
    let (began, first) = page(client, 1).await?;
    let total = first.meta.total;
    let pages = total.div_ceil(PAGE).max(1);
    if u64::try_from(first.volumes.len()) != Ok(total.min(PAGE)) {
        return Ok(Walk::Shifted);
    }
    if pages == 1 {
        return Ok(Walk::Sound(first.volumes));
    }
    let mut volumes = first.volumes;
    for number in 2..=pages {
        let (_, body) = page(client, number).await?;
        volumes.extend(body.volumes);
        let read = total.min(number * PAGE);
        if body.meta.total != total || u64::try_from(volumes.len()) != Ok(read) {
            return Ok(Walk::Shifted);
        }
    }
    let ids: BTreeSet<&str> = volumes.iter().map(|volume| volume.id.as_str()).collect();
    if ids.len() != volumes.len() {
        return Ok(Walk::Shifted);
    }
    let doubtful =
        volumes.iter().any(|volume| may_be_new(volume, began) && !own.contains(&volume.id));
    Ok(if doubtful { Walk::Doubtful(volumes) } else { Walk::Sound(volumes) })
}

/// Whether the volume may have been made since then; when either time is not told, it may.
fn may_be_new(volume: &wire::Volume, began: Option<Timestamp>) -> bool {
    let made = volume.created_at.as_deref().and_then(|text| text.parse::<Timestamp>().ok());
    match (made, began) {
        (Some(made), Some(began)) => made.as_second() >= began.as_second(),
        _ => true,
    }
}

/// One page, and the cloud's own time when it answered.
async fn page<E: Exchange>(
    client: &Client<E>,
    number: u64,
) -> std::result::Result<(Option<Timestamp>, wire::VolumesBody), ApiError> {
    let path = format!("/v2/volumes?per_page={PAGE}&page={number}");
    let response = client.call(Call::get("/v2/volumes", path.clone())).await?;
    let body = serde_json::from_slice(&response.body).map_err(|error| ApiError::Foreign {
        call: format!("GET {path}"),
        status: response.status,
        detail: error.to_string(),
    })?;
    Ok((date(&response), body))
}

fn date(response: &Response) -> Option<Timestamp> {
    let text = response.headers.get(DATE)?.to_str().ok()?;
    jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp())
}
