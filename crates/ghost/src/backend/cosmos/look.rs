//! Looks at the cloud that are shared by all who wait for something there.
//!
//! One look runs at a time, as long as it is answered soon. Whoever wants one while another runs, or
//! while there is no budget for it, is served by the next, together with all that have gathered by
//! then: one volume is read by itself, many are read with one list.
//! Each look begins after it was asked for, so it shows what the asker did before. Whatever the
//! reason for which a list was read, all who wait for a volume are told of it. Where a look is a
//! guess, one volume is read for all, and the list only when that has what is waited for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use tokio::sync::{broadcast, oneshot};
use tokio::time::Instant;

use super::action::Goal;
use super::budget::Urgency;
use super::client::{Call, Client, encoded};
use super::durations::Next;
use super::error::ApiError;
use super::exchange::Exchange;
use super::list::{self, AT_ONCE, PAGE, Recent};
use super::wire;
use crate::error::{Error, Result};
use crate::volume::VolumeId;

/// What part of the minute is spent on looks while new work waits: one call in so many.
const SHARE: u32 = 20;
/// A look waits at most this part of its time for others that are due to be made with it.
const GRACE: u32 = 8;

/// A look that takes longer lets the next begin: the slowest answer that is none of a cloud in
/// trouble takes less.
const HELD_UP: Duration = Duration::from_secs(2);

/// What a look has shown: the volume, or that there is none, or why it is not known.
pub(super) type Seen = Result<Option<wire::Volume>>;

/// Tells of each list, whoever has waited longest first: the order is the same each time.
pub(super) type Lists = broadcast::Receiver<Arc<Listed>>;

/// Every volume there is.
#[derive(Debug)]
pub(super) struct Listed {
    /// The volumes as they are at some moment after this.
    pub(super) began: Instant,
    /// By their ids.
    pub(super) volumes: BTreeMap<String, wire::Volume>,
}

enum Asked {
    One(One),
    All(oneshot::Sender<Result<Arc<Listed>>>),
}

struct One {
    id: VolumeId,
    guess: Option<Guess>,
    /// `None` is told when the look was spared.
    sender: oneshot::Sender<Option<Seen>>,
}

/// A look that may well come too early.
#[derive(Clone, Copy, Debug)]
pub(super) struct Guess {
    /// What is waited for.
    pub(super) goal: Goal,
    /// How often this one was looked at already: whoever was not goes first, since it may be that
    /// one never ends.
    pub(super) looks: u32,
}

/// Looks of one client.
pub(super) struct Looks {
    asked: Mutex<Vec<Asked>>,
    turn: tokio::sync::Mutex<()>,
    listed: broadcast::Sender<Arc<Listed>>,
    /// When the last look began or ended, and how many calls it takes.
    last: Mutex<(Instant, usize)>,
    due: Mutex<Due>,
    /// How many pages the list of all volumes had when it was last read.
    pages: AtomicUsize,
}

/// When looks are due, and when the next ones are made together.
struct Due {
    each: BTreeSet<Instant>,
    common: Instant,
}

impl Default for Looks {
    fn default() -> Self {
        let now = Instant::now();
        Self {
            asked: Mutex::default(),
            turn: tokio::sync::Mutex::default(),
            listed: broadcast::Sender::new(1),
            last: Mutex::new((now, 0)),
            due: Mutex::new(Due { each: BTreeSet::new(), common: now }),
            pages: AtomicUsize::new(1),
        }
    }
}

impl Looks {
    /// The volume as it is at some moment after this call began.
    pub(super) async fn volume<E: Exchange>(
        &self,
        client: &Client<E>,
        recent: &Recent,
        id: &VolumeId,
    ) -> Seen {
        let one = |sender| Asked::One(One { id: id.clone(), guess: None, sender });
        match self.ask(client, recent, one).await {
            Some(seen) => seen,
            None => Err(Error::bug("a look was spared that was no guess")),
        }
    }

    /// The same, or `None` if many guess and another of them has not what it waits for.
    pub(super) async fn glance<E: Exchange>(
        &self,
        client: &Client<E>,
        recent: &Recent,
        id: &VolumeId,
        guess: Guess,
    ) -> Option<Seen> {
        let one = |sender| Asked::One(One { id: id.clone(), guess: Some(guess), sender });
        self.ask(client, recent, one).await
    }

    /// Every volume, each once, as they are at some moment after this call began.
    pub(super) async fn all<E: Exchange>(
        &self,
        client: &Client<E>,
        recent: &Recent,
    ) -> Result<Arc<Listed>> {
        self.ask(client, recent, Asked::All).await
    }

    /// All lists that are read from now on.
    pub(super) fn lists(&self) -> Lists {
        self.listed.subscribe()
    }

    /// How many wait for lists.
    pub(super) fn waiting(&self) -> usize {
        self.listed.receiver_count()
    }

    /// Waits until the look after `begun` is due, and if so many wait that a list spares calls,
    /// until the last of the others that are due soon.
    pub(super) async fn due(&self, begun: Instant, next: Next) {
        let at = begun + next.at;
        if next.is_probe {
            return tokio::time::sleep_until(at).await;
        }
        self.lock_due().add(at);
        tokio::time::sleep_until(at).await;
        if self.are_many() {
            let until = self.lock_due().together(at, next.at / GRACE);
            tokio::time::sleep_until(until).await;
        }
    }

    /// Whether so many wait that a list spares calls.
    pub(super) fn are_many(&self) -> bool {
        self.waiting() > self.pages()
    }

    fn lock_due(&self) -> MutexGuard<'_, Due> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Waits as long as looks have to be rare, because new work waits for budget.
    pub(super) async fn spare<E: Exchange>(&self, client: &Client<E>) {
        loop {
            let last = self.last();
            client.spare(last.0, last.1, SHARE).await;
            // Another look may have begun meanwhile, and has spent the share of them all.
            if self.last() == last {
                return;
            }
        }
    }

    fn last(&self) -> (Instant, usize) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn takes(&self, calls: usize) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = (Instant::now(), calls);
    }

    async fn ask<E: Exchange, T>(
        &self,
        client: &Client<E>,
        recent: &Recent,
        asked: impl Fn(oneshot::Sender<T>) -> Asked,
    ) -> T {
        let push = || {
            let (sender, seen) = oneshot::channel();
            self.lock().push(asked(sender));
            seen
        };
        let mut seen = push();
        loop {
            let turn = tokio::select! {
                biased;
                told = &mut seen => match told {
                    Ok(told) => return told,
                    // Whoever was looking for us was cut off, as a caller is that hangs up.
                    Err(_) => {
                        seen = push();
                        continue;
                    }
                },
                turn = self.turn.lock() => turn,
            };
            // Whoever would have looked for us has not come to it, or is held up.
            seen = push();
            client.welcome(Urgency::Look).await;
            // Others whose time has come in the same moment.
            tokio::task::yield_now().await;
            let asked = std::mem::take(&mut *self.lock());
            let mut served = std::pin::pin!(self.serve(client, recent, asked));
            if tokio::time::timeout(HELD_UP, &mut served).await.is_err() {
                drop(turn);
                served.await;
            }
        }
    }

    async fn serve<E: Exchange>(&self, client: &Client<E>, recent: &Recent, asked: Vec<Asked>) {
        let mut ones = Vec::new();
        let mut alls = Vec::new();
        for asked in asked {
            match asked {
                // Nobody waits for it any more.
                Asked::One(one) if one.sender.is_closed() => {}
                Asked::All(sender) if sender.is_closed() => {}
                Asked::One(one) => ones.push(one),
                Asked::All(sender) => alls.push(sender),
            }
        }
        let mut calls = 0;
        let mut listed = None;
        let is_dear = |ones: &[One]| {
            let ids: BTreeSet<&VolumeId> = ones.iter().map(|one| &one.id).collect();
            ids.len() > self.pages().max(1)
        };
        if alls.is_empty()
            && is_dear(&ones)
            && let Some((id, goal)) = sample(&ones)
        {
            self.takes(1);
            let seen = read(client, &id).await;
            self.takes(1);
            calls += 1;
            if let Ok(Some(volume)) = &seen
                && !goal.is_reached(volume)
            {
                for one in ones {
                    let seen = (one.id == id).then(|| Ok(Some(volume.clone())));
                    let _ = one.sender.send(seen);
                }
                return;
            }
        }
        let ids: BTreeSet<&VolumeId> = ones.iter().map(|one| &one.id).collect();
        let as_list = !alls.is_empty() || ids.len() > self.pages();
        if as_list || !ids.is_empty() {
            self.takes(if as_list { self.pages() } else { ids.len() });
        }
        if as_list {
            let began = Instant::now();
            let list = list::volumes(client, recent).await;
            calls += self.pages();
            match &list {
                Ok(volumes) => {
                    let pages = volumes.len().div_ceil(usize::try_from(PAGE).unwrap_or(1));
                    self.pages.store(pages.max(1), Ordering::Relaxed);
                }
                // Restless or too slow to be read whole: each volume is then read by itself.
                Err(error) => tracing::debug!(error = error.chain(), "no list"),
            }
            let list = list.map(|volumes| {
                let by_id = volumes.into_iter().map(|volume| (volume.id.clone(), volume));
                Arc::new(Listed { began, volumes: by_id.collect() })
            });
            for sender in alls {
                let _ = sender.send(list.clone());
            }
            listed = list.ok();
        }
        let found = |id: &VolumeId| listed.as_ref()?.volumes.get(id.as_str()).cloned();
        // A list does not prove absence: only the answer for this very id does.
        let unseen: Vec<VolumeId> =
            ids.into_iter().filter(|id| found(id).is_none()).cloned().collect();
        let reads = stream::iter(unseen).map(|id| async move {
            let seen = read(client, &id).await.map_err(Into::into);
            (id, seen)
        });
        let reads: BTreeMap<VolumeId, Seen> = reads.buffered(AT_ONCE).collect().await;
        calls += reads.len();
        for one in ones {
            let seen = reads.get(&one.id).cloned().unwrap_or_else(|| Ok(found(&one.id)));
            let _ = one.sender.send(Some(seen));
        }
        if calls > 0 {
            self.takes(calls);
        }
        if let Some(listed) = listed {
            // It fails when nobody waits.
            let _ = self.listed.send(listed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Asked>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due {
    /// Remembers one, and forgets those that were.
    fn add(&mut self, at: Instant) {
        self.each = self.each.split_off(&Instant::now());
        self.each.insert(at);
    }

    /// When the look that is due now is made together with others that are due within this time.
    fn together(&mut self, now: Instant, grace: Duration) -> Instant {
        let soon = now..=now + grace;
        if !soon.contains(&self.common) {
            self.common = self.each.range(soon).next_back().copied().unwrap_or(now);
        }
        self.common
    }
}

/// The one that is read for all, and what it waits for, if all are guesses.
fn sample(ones: &[One]) -> Option<(VolumeId, Goal)> {
    if ones.iter().any(|one| one.guess.is_none()) {
        return None;
    }
    let guesses = ones.iter().filter_map(|one| Some((&one.id, one.guess?)));
    let (id, guess) = guesses.min_by_key(|(_, guess)| guess.looks)?;
    Some((id.clone(), guess.goal))
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

    /// A cloud that never answers what concerns one volume, nor the first list.
    struct HeldUp(Mutex<u32>);

    #[async_trait]
    impl Exchange for HeldUp {
        async fn exchange(&self, request: Request) -> std::result::Result<Response, Failure> {
            let lists = {
                let mut lists = self.0.lock().expect("sound");
                *lists += u32::from(request.path.contains("per_page"));
                *lists
            };
            if request.path.ends_with("v-1") || request.path.contains("per_page") && lists == 1 {
                std::future::pending::<()>().await;
            }
            let list = r#"{"volumes":[],"meta":{"total":0}}"#;
            let is_list = request.path.contains("per_page");
            Ok(if is_list { response(200, None, list) } else { response(404, None, ABSENT) })
        }
    }

    #[tokio::test(start_paused = true)]
    async fn b50_a_look_that_is_held_up_delays_no_other() {
        let client = client(HeldUp(Mutex::default()));
        let (looks, recent) = (Looks::default(), Recent::default());
        let ids = ["v-1", "v-2", "v-3"].map(|id| VolumeId::new(id).expect("an id"));
        let start = Instant::now();
        let soon = HELD_UP * 3;
        let held_up = tokio::time::timeout(soon, looks.volume(&client, &recent, &ids[0]));
        let other = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let seen = looks.volume(&client, &recent, &ids[1]).await;
            (seen, start.elapsed())
        };
        let (held_up, (seen, after)) = tokio::join!(held_up, other);
        held_up.expect_err("it is never answered");
        assert!(seen.expect("read").is_none());
        assert_eq!(after, HELD_UP);

        // Whoever was to be served by a list that is held up is served by the next.
        let start = Instant::now();
        let list = tokio::time::timeout(soon, looks.all(&client, &recent));
        let with_it = async { (looks.volume(&client, &recent, &ids[2]).await, start.elapsed()) };
        let (list, (seen, after)) = tokio::join!(list, with_it);
        list.expect_err("it is never answered");
        assert!(seen.expect("read").is_none());
        assert_eq!(after, HELD_UP);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_look_that_is_cut_off_looks_again() {
        let asked = Arc::new(AtomicUsize::new(0));
        let client = client(Slow(Arc::clone(&asked)));
        let (looks, recent) = (Looks::default(), Recent::default());
        let id = VolumeId::new("v-1").expect("an id");

        // The second and the third want a look while the first is answered; the second makes it for
        // both, and is cut off.
        let meanwhile = || tokio::time::sleep(Duration::from_millis(1));
        let cut_off = async {
            meanwhile().await;
            let look = looks.volume(&client, &recent, &id);
            tokio::time::timeout(Duration::from_secs(2), look).await.expect_err("it never ends");
        };
        let third = async {
            meanwhile().await;
            looks.volume(&client, &recent, &id).await
        };
        let (first, (), third) = tokio::join!(looks.volume(&client, &recent, &id), cut_off, third);
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
                    r#"{"volume":{"id":"v-1","name":"a","size_gigabytes":1,"droplet_ids":[],
                        "region":{"slug":"r"}}}"#,
                ),
                "/v2/volumes/v-2" | "/v2/volumes/v-3" => response(404, None, ABSENT),
                // A list that says that it has more than it shows.
                _ => response(200, None, r#"{"volumes":[],"meta":{"total":1}}"#),
            }
        }));
        let (looks, recent) = (Looks::default(), Recent::default());
        let ids = ["v-1", "v-2", "v-3"].map(|id| VolumeId::new(id).expect("an id"));
        let look = |number: usize| looks.volume(&client, &recent, &ids[number]);
        // Three volumes are worth a list.
        let (first, second, third, again) = tokio::join!(look(0), look(0), look(1), look(2));
        assert!(first.expect("read").is_some() && second.expect("read").is_some());
        assert!(third.expect("read").is_none() && again.expect("read").is_none());
        let asked = asked.lock().expect("sound");
        assert!(asked.iter().any(|path| path.contains("per_page")), "{asked:?}");
        let single = |id: &str| asked.iter().filter(|path| path.ends_with(id)).count();
        assert_eq!((single("v-1"), single("v-2"), single("v-3")), (1, 1, 1), "{asked:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn of_many_guesses_one_is_read_and_the_list_only_if_that_was_right() {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let is_over = Arc::new(AtomicUsize::new(0));
        let over = Arc::clone(&is_over);
        let client = client(Played(move |path: &str| {
            log.lock().expect("sound").push(path.to_owned());
            let on = if over.load(Ordering::SeqCst) == 0 { "" } else { "7" };
            let volume = |id: &str| {
                format!(
                    r#"{{"id":"{id}","name":"{id}","size_gigabytes":1,"region":{{"slug":"r"}},
                        "droplet_ids":[{on}]}}"#
                )
            };
            let id = path.trim_start_matches("/v2/volumes/");
            if id.starts_with("v-") {
                return response(200, None, format!(r#"{{"volume":{}}}"#, volume(id)));
            }
            let all = ["v-1", "v-2", "v-3"].map(volume).join(",");
            response(200, None, format!(r#"{{"volumes":[{all}],"meta":{{"total":3}}}}"#))
        }));
        let (looks, recent) = (Looks::default(), Recent::default());
        let ids = ["v-1", "v-2", "v-3"].map(|id| VolumeId::new(id).expect("an id"));
        let look = |number: usize, looked| {
            let guess = Guess { goal: Goal::On(7), looks: looked };
            looks.glance(&client, &recent, &ids[number], guess)
        };
        let is_on =
            |seen: Option<Seen>| seen.map(|seen| seen.expect("read").expect("there").is_on(7));
        // The first was looked at before, so that it is another's turn.
        let (first, second, third) = tokio::join!(look(0, 1), look(1, 0), look(2, 0));
        assert_eq!((is_on(first), is_on(second), is_on(third)), (None, Some(false), None));
        assert_eq!(*asked.lock().expect("sound"), ["/v2/volumes/v-2"]);

        is_over.store(1, Ordering::SeqCst);
        let (first, second, third) = tokio::join!(look(0, 1), look(1, 1), look(2, 0));
        for seen in [first, second, third] {
            assert_eq!(is_on(seen), Some(true));
        }
        let asked = std::mem::take(&mut *asked.lock().expect("sound"));
        assert_eq!((asked.len(), asked[1].as_str()), (3, "/v2/volumes/v-3"), "{asked:?}");

        // Who does not guess is never spared.
        is_over.store(0, Ordering::SeqCst);
        let certain = looks.volume(&client, &recent, &ids[0]);
        let (first, second, third) = tokio::join!(certain, look(1, 0), look(2, 0));
        assert!(!first.expect("read").expect("there").is_on(7));
        assert_eq!((is_on(second), is_on(third)), (Some(false), Some(false)));
    }
}
