//! Attach, detach and grow: an action is asked for, and then the *state* is waited for.
//!
//! The cloud's answer to the action itself is the arbiter: it is asked first, and what it refuses
//! is decided from the state read afterwards, never from the words of the refusal. An action that
//! is accepted is not yet done, and one that is done may not show yet.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::broadcast::error::RecvError;
use tokio::time::Instant;

use super::budget::Urgency;
use super::client::Call;
use super::durations::{Durations, Ended, Next};
use super::error::ApiError;
use super::exchange::Exchange;
use super::look::{Guess, Lists, Seen, volume_path};
use super::refused::Calm;
use super::wire::{self, ActionStatus, PostAction};
use super::{Cosmos, SETTLE};
use crate::error::{Error, ErrorKind, Result};
use crate::volume::VolumeId;

/// How long a state is waited for within one operation. The next call goes on from there.
const PATIENCE: Duration = Duration::from_secs(120);
/// The wait before an action is asked for again that was refused for no reason that shows, which
/// may be what somebody else does on the droplet; each next one is twice as long.
const FIRST_WAIT: Duration = Duration::from_secs(1);
/// The longest of these waits.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// The wait between two looks at an action that an earlier call began.
const END_WAIT: Duration = Duration::from_millis(500);
/// The longest of these waits; each next one is half as long again.
const LONGEST_END_WAIT: Duration = Duration::from_secs(10);
/// For how long after it was taken a detachment is nobody else's business. Another controller may
/// have been asked since, and have begun to attach the volume again.
const UNDISTURBED: Duration = Duration::from_secs(30);
/// After how many looks that showed nothing the action itself is read, and then after how many more;
/// where a list spares calls, each of these reads is dear.
const LOOKS_PER_ACTION: u32 = 6;
const LISTS_PER_ACTION: u32 = 10;

/// How long the actions take, by their kind.
#[derive(Debug, Default)]
pub(super) struct ByKind {
    attach: Mutex<Durations>,
    detach: Mutex<Durations>,
    grow: Mutex<Durations>,
}

/// The state that an action is to bring about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Goal {
    /// Attached to this droplet.
    On(u64),
    /// Not attached to this droplet.
    Off(u64),
    /// At least this many GiB.
    Large(u64),
}

impl Goal {
    fn action(self) -> PostAction {
        match self {
            Self::On(droplet_id) => PostAction::Attach { droplet_id },
            Self::Off(droplet_id) => PostAction::Detach { droplet_id },
            Self::Large(size_gigabytes) => PostAction::Resize { size_gigabytes },
        }
    }

    /// The droplet that the action takes place on, and how urgent it is.
    fn place(self) -> Option<(u64, Urgency)> {
        match self {
            Self::On(droplet) => Some((droplet, Urgency::Begin)),
            Self::Off(droplet) => Some((droplet, Urgency::Release)),
            Self::Large(_) => None,
        }
    }

    /// Whether a state that was read so long after the action was taken may be that of before the
    /// last attachment, which did not show yet: that is then no detachment.
    fn may_be_older(self, since: Duration) -> bool {
        matches!(self, Self::Off(_)) && since < SETTLE
    }

    /// Whether a state that was read so long after the action was taken may be about to change again.
    fn may_be_undone(self, since: Duration) -> bool {
        matches!(self, Self::Off(_)) && since > UNDISTURBED
    }

    pub(super) fn is_reached(self, volume: &wire::Volume) -> bool {
        match self {
            Self::On(droplet) => volume.is_on(droplet),
            Self::Off(droplet) => !volume.is_on(droplet),
            Self::Large(gib) => volume.size_gigabytes >= gib,
        }
    }
}

/// What cannot be read for the moment tells nothing.
fn not_yet(error: Error) -> Result<Option<bool>> {
    if error.kind() == ErrorKind::Unavailable { Ok(None) } else { Err(error) }
}

/// The attachment of the volume, if nothing that has ended since has taken it off again.
fn last_attachment(actions: &[wire::Action]) -> Option<&wire::Action> {
    let done = actions.iter().filter(|action| action.status == ActionStatus::Completed);
    let moves = done.filter(|action| action.kind.contains("tach"));
    moves.max_by_key(|action| action.id).filter(|last| last.kind.starts_with("attach"))
}

/// The volume in the next list that was read after it `begun`, and when that was asked for.
async fn in_list(lists: &mut Lists, id: &VolumeId, begun: Instant) -> (Instant, Seen) {
    loop {
        let listed = match lists.recv().await {
            Ok(listed) => listed,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => std::future::pending().await,
        };
        // That it is not there proves nothing.
        if listed.began >= begun
            && let Some(volume) = listed.volumes.get(id.as_str())
        {
            return (listed.began, Ok(Some(volume.clone())));
        }
    }
}

impl<E: Exchange> Cosmos<E> {
    /// Brings the volume to the goal and answers it as it then is; `None` when there is no such
    /// volume.
    ///
    /// The cloud does one thing at a time for a volume and, on some, for a droplet. After a refusal
    /// the state proves something only when nothing is under way on the volume: an attachment that
    /// an earlier call began would come after a detach that believed it was not there. So a running
    /// action is waited for first, and read *before* the state. A refusal that neither explains is
    /// waited out.
    pub(super) async fn reach(&self, id: &VolumeId, goal: Goal) -> Result<Option<wire::Volume>> {
        let mut give_up = None;
        let mut wait = FIRST_WAIT;
        let mut calm_since = None;
        loop {
            let turn = match goal.place() {
                Some((droplet, urgency)) => Some(self.turns.on(droplet, urgency).await),
                None => None,
            };
            let posted = self.post_action(id, goal).await;
            // From when the cloud was first asked, however long that had to wait for its turn.
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + PATIENCE);
            let refusal = match posted {
                Ok(action) => return self.wait_for(id, goal, &action, give_up).await,
                Err(error) if error.is_not_found() || error.is_refusal() => error,
                Err(error) if error.status() == Some(403) && matches!(goal, Goal::Large(_)) => {
                    return Err(self.explain_forbidden(error).await);
                }
                Err(error) => return Err(error.into()),
            };
            let actions = self.actions(id).await?;
            if let Some(running) = actions.iter().find(|action| action.is_running()) {
                self.wait_for_end(id, running.id, give_up).await?;
                continue;
            }
            let Some(mut volume) = self.look(id).await? else { return Ok(None) };
            let attachment = last_attachment(&actions);
            if matches!(goal, Goal::Off(_)) && goal.is_reached(&volume) && attachment.is_some() {
                // An attachment that has just ended may not show yet.
                tokio::time::sleep(SETTLE).await;
                let Some(settled) = self.look(id).await? else { return Ok(None) };
                volume = settled;
            }
            if goal.is_reached(&volume) {
                let slot = attachment.and_then(|attachment| attachment.device.clone());
                volume.device = volume.device.or(slot);
                return Ok(Some(volume));
            }
            // What was in the way may have ended between the refusal and the reading of the actions:
            // only where none has been added since the last time was nothing in the way.
            let newest = actions.iter().map(|action| action.id).max();
            let calm =
                if calm_since.replace(newest) == Some(newest) { Calm::Long } else { Calm::Now };
            self.explain(goal, &volume, &refusal, calm).await?;
            if Instant::now() + wait > give_up {
                return Err(refusal.meaning(
                    ErrorKind::Unavailable,
                    format!("the cloud does not take an action on volume {id} now"),
                ));
            }
            // Meanwhile another may try, above all one that takes a disk off.
            drop(turn);
            tokio::time::sleep(self.client.jitter(wait)).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    /// The droplets that the volume is on once nothing is under way.
    pub(super) async fn holders(&self, id: &VolumeId) -> Result<Vec<u64>> {
        let actions = self.actions(id).await?;
        if let Some(running) = actions.iter().find(|action| action.is_running()) {
            self.wait_for_end(id, running.id, Instant::now() + PATIENCE).await?;
        }
        // An attachment that has just ended may not show yet, and no action tells its droplet.
        tokio::time::sleep(SETTLE).await;
        let volume = self.look(id).await?;
        Ok(volume.into_iter().flat_map(|volume| volume.droplet_ids).flatten().collect())
    }

    /// How long actions of this kind take.
    fn durations(&self, goal: Goal) -> MutexGuard<'_, Durations> {
        let durations = match goal {
            Goal::On(_) => &self.durations.attach,
            Goal::Off(_) => &self.durations.detach,
            Goal::Large(_) => &self.durations.grow,
        };
        durations.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn post_action(
        &self,
        id: &VolumeId,
        goal: Goal,
    ) -> std::result::Result<wire::Action, ApiError> {
        let path = volume_path(id, "/actions");
        let (_, urgency) = goal.place().unwrap_or((0, Urgency::Begin));
        let call = Call::post("/v2/volumes/{id}/actions", path, &goal.action()).urgent(urgency);
        Ok(self.client.json::<wire::ActionBody>(call).await?.action)
    }

    /// Waits until the goal shows, in looks that are shared with all who wait, each when it is
    /// likely to show something.
    ///
    /// When many have shown nothing, the action itself is read: if it ended in an error, so does
    /// this. A look that fails for the moment shows nothing, and no more: the action goes on.
    async fn wait_for(
        &self,
        id: &VolumeId,
        goal: Goal,
        action: &wire::Action,
        give_up: Instant,
    ) -> Result<Option<wire::Volume>> {
        let begun = Instant::now();
        let mut lists = self.looks.lists();
        let mut after = Duration::ZERO;
        let is_over = action.status == ActionStatus::Completed;
        let plan = |elapsed| self.durations(goal).next(elapsed, self.looks.waiting());
        let mut next = if is_over { Next::NOW } else { plan(after) };
        let (mut looks, mut seen) = (0, 0);
        while begun + next.at <= give_up {
            let own = async {
                self.looks.due(begun, next).await;
                self.looks.spare(&self.client).await;
                let asked = Instant::now();
                (asked, self.glance(id, next.is_guess.then_some(Guess { goal, looks: seen })).await)
            };
            let shown = tokio::select! {
                biased;
                (asked, shown) = in_list(&mut lists, id, begun) => Ok((asked, Some(shown))),
                shown = tokio::time::timeout_at(give_up, own) => shown,
            };
            match shown {
                Err(_) => break,
                Ok((_, None)) => {}
                Ok((asked, Some(Ok(Some(volume)))))
                    if goal.is_reached(&volume)
                        && !is_over
                        && goal.may_be_older(asked.duration_since(begun))
                        && self.is_done(id, action.id).await.or_else(not_yet)? != Some(true) => {}
                Ok((_, Some(Ok(None)))) => return Ok(None),
                Ok((asked, Some(Ok(Some(volume)))))
                    if goal.is_reached(&volume)
                        && goal.may_be_undone(asked.duration_since(begun))
                        && self.actions(id).await?.iter().any(|other| other.id > action.id) =>
                {
                    return Err(Error::unavailable(format!(
                        "another controller has acted on volume {id} since it was to be detached; \
                         the next call looks again"
                    )));
                }
                Ok((_, Some(Ok(Some(mut volume))))) if goal.is_reached(&volume) => {
                    if !is_over {
                        let ended = Ended { after, by: begun.elapsed() };
                        self.durations(goal).learn(ended, next.at);
                    }
                    // Where the slot is told with the action only.
                    volume.device = volume.device.or_else(|| action.device.clone());
                    return Ok(Some(volume));
                }
                Ok((asked, Some(Ok(Some(_))))) => {
                    after = after.max(asked.duration_since(begun));
                    seen += 1;
                }
                Ok((_, Some(Err(error)))) if error.kind() == ErrorKind::Unavailable => {
                    tracing::debug!(error = error.chain(), "looking again");
                }
                Ok((_, Some(Err(error)))) => return Err(error),
            }
            if begun.elapsed() < next.at {
                // Another's look has come before its own, and has not been too late.
                continue;
            }
            looks += 1;
            let per_action =
                if self.looks.are_many() { LISTS_PER_ACTION } else { LOOKS_PER_ACTION };
            if looks >= per_action {
                looks = 0;
                self.is_done(id, action.id).await.or_else(not_yet)?;
            }
            next = plan(begun.elapsed());
        }
        Err(Error::timeout(format!(
            "the cloud has not finished with volume {id} within {} s; it goes on there, and the \
             next call looks again",
            PATIENCE.as_secs()
        )))
    }

    /// A look, or `None` if it is a guess that was spared.
    async fn glance(&self, id: &VolumeId, guess: Option<Guess>) -> Option<Seen> {
        match guess {
            Some(guess) => self.looks.glance(&self.client, &self.recent, id, guess).await,
            None => Some(self.look(id).await),
        }
    }

    /// Whether the action has done what it was for, if the cloud tells of it. Fails when it has ended
    /// in an error.
    async fn is_done(&self, id: &VolumeId, action: u64) -> Result<Option<bool>> {
        match self.read_action(id, action).await {
            Ok(read) if read.status == ActionStatus::Errored => Err(Error::failed(format!(
                "the cloud's {} of volume {id} ended in an error (action {action}); the volume is \
                 as it was",
                if read.kind.is_empty() { "action" } else { read.kind.as_str() }
            ))),
            Ok(read) => Ok(Some(!read.is_running())),
            // Not yet, or no longer; the state is what is waited for.
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn read_action(
        &self,
        id: &VolumeId,
        action: u64,
    ) -> std::result::Result<wire::Action, ApiError> {
        let path = volume_path(id, &format!("/actions/{action}"));
        let call = Call::get("/v2/volumes/{id}/actions/{id}", path);
        Ok(self.client.json::<wire::ActionBody>(call).await?.action)
    }

    /// The actions on the volume that the cloud still tells of.
    async fn actions(&self, id: &VolumeId) -> Result<Vec<wire::Action>> {
        let call = Call::get("/v2/volumes/{id}/actions", volume_path(id, "/actions"));
        match self.client.json::<wire::ActionsBody>(call).await {
            Ok(body) => Ok(body.actions),
            Err(error) if error.is_not_found() => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }

    async fn wait_for_end(&self, id: &VolumeId, action: u64, give_up: Instant) -> Result<()> {
        let mut wait = END_WAIT;
        while Instant::now() < give_up {
            match self.read_action(id, action).await {
                Ok(read) if read.status == ActionStatus::InProgress => {}
                Ok(_) => return Ok(()),
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(self.client.jitter(wait)).await;
            wait = (wait * 3 / 2).min(LONGEST_END_WAIT);
        }
        Err(Error::timeout(format!(
            "an earlier action ({action}) on volume {id} is still under way at the cloud"
        )))
    }
}
