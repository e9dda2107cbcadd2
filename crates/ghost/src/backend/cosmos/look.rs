//! Looks at the cloud that are shared by all who wait for something there.
//!
//! One look runs at a time. Whoever wants one while another runs is served by the next, together
//! with all that have gathered by then: one volume is read by itself, many are read with one list.
//! Each look begins after it was asked for, so it shows what the asker did before.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

use super::client::{Call, Client, encoded};
use super::error::ApiError;
use super::exchange::Exchange;
use super::list::{self, PAGE, Recent};
use super::wire;
use crate::error::Result;
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
        loop {
            let (sender, mut seen) = oneshot::channel();
            self.lock().push((id.clone(), sender));
            let mut pages = self.turn.lock().await;
            match seen.try_recv() {
                Ok(seen) => return seen,
                // Whoever was looking for us was cut off, as a caller is that hangs up.
                Err(TryRecvError::Closed) => continue,
                Err(TryRecvError::Empty) => {}
            }
            let asked = std::mem::take(&mut *self.lock());
            serve(client, recent, &mut pages, asked).await;
            if let Ok(seen) = seen.try_recv() {
                return seen;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(VolumeId, oneshot::Sender<Seen>)>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
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
        match list::volumes(client, recent).await {
            Ok(volumes) => {
                pages.0 = u64::try_from(volumes.len()).map_or(1, |n| n.div_ceil(PAGE).max(1));
                listed = volumes.into_iter().map(|volume| (volume.id.clone(), volume)).collect();
            }
            // Restless or too slow to be read whole: each volume is then read by itself.
            Err(error) => tracing::debug!(error = error.chain(), "no list"),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use async_trait::async_trait;

    use super::super::exchange::{Failure, Request, Response};
    use super::super::fixture::{Played, client, response};
    use super::*;

    const ABSENT: &str = r#"{"id":"not_found","message":"no such volume"}"#;

    /// A cloud that takes its time with the first answer, and never gives the second.
    struct Slow(Arc<AtomicUsize>);

    #[async_trait]
    impl Exchange for Slow {
        async fn exchange(&self, _: Request) -> std::result::Result<Response, Failure> {
            match self.0.fetch_add(1, Ordering::SeqCst) {
                0 => tokio::time::sleep(Duration::from_secs(1)).await,
                1 => std::future::pending::<()>().await,
                _ => {}
            }
            Ok(response(404, None, ABSENT))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_look_that_is_cut_off_looks_again() {
        let asked = Arc::new(AtomicUsize::new(0));
        let client = client(Slow(Arc::clone(&asked)));
        let (looks, recent) = (Looks::default(), Recent::default());
        let id = VolumeId::new("v-1").expect("an id");

        // The second looks for itself and the third while the first is answered, and is cut off.
        let cut_off = async {
            let look = looks.volume(&client, &recent, &id);
            tokio::time::timeout(Duration::from_secs(2), look).await.expect_err("it never ends");
        };
        let look = || looks.volume(&client, &recent, &id);
        let (first, (), third) = tokio::join!(look(), cut_off, look());
        for seen in [first, third] {
            assert!(seen.expect("an answer").is_none());
        }
        assert_eq!(asked.load(Ordering::SeqCst), 3);
    }
    #[tokio::test(start_paused = true)]
    async fn a_list_that_cannot_be_read_is_made_up_for_by_single_reads() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let client = client(Played(move |path: &str| {
            log.lock().expect("sound").push(path.to_owned());
            match path {
                "/v2/volumes/v-1" => response(
                    200,
                    None,
                    r#"{"volume":{"id":"v-1","name":"a","size_gigabytes":1,"region":{"slug":"r"}}}"#,
                ),
                "/v2/volumes/v-2" | "/v2/volumes/v-3" => response(404, None, ABSENT),
                // A list that says that it has more than it shows.
                _ => response(200, None, r#"{"volumes":[],"meta":{"total":1}}"#),
            }
        }));
        let (looks, recent) = (Looks::default(), Recent::default());
        let ids = ["v-1", "v-2", "v-3"].map(|id| VolumeId::new(id).expect("an id"));
        let look = |number: usize| looks.volume(&client, &recent, &ids[number]);
        // The first is served alone; the others have gathered and are worth a list.
        let (first, second, third, again) = tokio::join!(look(0), look(0), look(1), look(2));
        assert!(first.expect("read").is_some() && second.expect("read").is_some());
        assert!(third.expect("read").is_none() && again.expect("read").is_none());
        let asked = asked.lock().expect("sound");
        assert!(asked.iter().any(|path| path.contains("per_page")), "{asked:?}");
        let single = |id: &str| asked.iter().filter(|path| path.ends_with(id)).count();
        assert_eq!((single("v-1"), single("v-2"), single("v-3")), (2, 1, 1), "{asked:?}");
    }
}
