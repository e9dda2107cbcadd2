//! Looks at the cloud that are shared by all who wait for something there.
//!
//! One look runs at a time. Whoever wants one while another runs is served by the next, together
//! with all that have gathered by then: one volume is read by itself, many are read with one list.
//! Each look begins after it was asked for, so it shows what the asker did before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use tokio::sync::oneshot;

use super::client::{Call, Client, encoded};
use super::error::ApiError;
use super::exchange::Exchange;
use super::list::{self, PAGE, Recent};
use super::wire;
use crate::error::{Error, Result};
use crate::volume::VolumeId;

/// What a look has shown: the volume, or that there is none, or why it is not known.
type Seen = Result<Option<wire::Volume>>;

/// Looks of one client.
#[derive(Default)]
pub(super) struct Looks {
    asked: Mutex<Vec<(VolumeId, oneshot::Sender<Seen>)>>,
    turn: tokio::sync::Mutex<Pages>,
}

/// How many pages the list of all volumes had when it was last read.
struct Pages(u64);

impl Default for Pages {
    fn default() -> Self {
        Self(1)
    }
}

impl Looks {
    /// The volume as it is at some moment after this call began.
    pub(super) async fn volume<E: Exchange>(
        &self,
        client: &Client<E>,
        recent: &Recent,
        id: &VolumeId,
    ) -> Result<Option<wire::Volume>> {
        let (sender, mut seen) = oneshot::channel();
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push((id.clone(), sender));
        let mut pages = self.turn.lock().await;
        if let Ok(seen) = seen.try_recv() {
            return seen;
        }
        let asked = std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner));
        serve(client, recent, &mut pages, asked).await;
        drop(pages);
        seen.await.unwrap_or_else(|_| Err(Error::bug("a look served all but one")))
    }
}

async fn serve<E: Exchange>(
    client: &Client<E>,
    recent: &Recent,
    pages: &mut Pages,
    asked: Vec<(VolumeId, oneshot::Sender<Seen>)>,
) {
    let ids: BTreeSet<&VolumeId> = asked.iter().map(|(id, _)| id).collect();
    let mut listed = BTreeMap::new();
    if u64::try_from(ids.len()).is_ok_and(|wanted| wanted > pages.0) {
        match list::all(client, recent).await {
            Ok(volumes) => {
                pages.0 = u64::try_from(volumes.len()).map_or(1, |n| n.div_ceil(PAGE).max(1));
                listed = volumes.into_iter().map(|volume| (volume.id.clone(), volume)).collect();
            }
            Err(error) => {
                for (_, sender) in asked {
                    // Nobody waits any more: the asker was cut off.
                    let _ = sender.send(Err(error.clone()));
                }
                return;
            }
        }
    }
    let mut known: BTreeMap<VolumeId, Seen> = BTreeMap::new();
    for (id, sender) in asked {
        let seen = match (listed.get(id.as_str()), known.get(&id)) {
            (Some(volume), _) => Ok(Some(volume.clone())),
            (None, Some(seen)) => seen.clone(),
            // A list does not prove absence: only the answer for this very id does.
            (None, None) => {
                let seen = read(client, &id).await.map_err(Into::into);
                known.insert(id, seen.clone());
                seen
            }
        };
        let _ = sender.send(seen);
    }
}

/// Reads one volume.
async fn read<E: Exchange>(
    client: &Client<E>,
    id: &VolumeId,
) -> std::result::Result<Option<wire::Volume>, ApiError> {
    let call = Call::get("/v2/volumes/{id}", volume_path(id, ""));
    match client.json::<wire::VolumeBody>(call).await {
        Ok(body) => Ok(Some(body.volume)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// The path of a volume, with `rest` behind it.
pub(super) fn volume_path(id: &VolumeId, rest: &str) -> String {
    format!("/v2/volumes/{}{rest}", encoded(id.as_str()))
}
