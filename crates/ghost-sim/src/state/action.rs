//! Actions: attach, detach and resize. Each runs for a while and ends well, ends badly or sticks.
//!
//! Starting one checks every rule; what it does to its volume happens when it ends.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Attachment, Cloud, DeviceSlots, Effect, Refusal};

/// So many ended actions are kept to be read; older ones are forgotten.
const ENDED_ACTIONS_KEPT: usize = 1000;

/// What an action does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionKind {
    /// Puts a volume on a droplet.
    Attach,
    /// Takes a volume off a droplet.
    Detach,
    /// Makes a volume larger.
    Resize,
}

/// How far an action is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionStatus {
    /// It runs.
    InProgress,
    /// It ended well.
    Completed,
    /// It ended badly, and the volume is as it was.
    Errored,
}

/// How an action is going to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// Well, when its time is over.
    Completes,
    /// Badly, when its time is over.
    Fails,
    /// Never.
    Sticks,
}

/// One action.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Action {
    /// Its number, larger than that of every earlier one.
    pub id: u64,
    /// What it does.
    pub kind: ActionKind,
    /// The id of its volume.
    pub volume: String,
    /// Its volume's region.
    pub region: String,
    /// Its droplet, if it has one.
    pub droplet: Option<u64>,
    /// The size in GiB that it brings, if it does.
    pub gigabytes: Option<u64>,
    /// How far it is.
    pub status: ActionStatus,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
    /// The slot on its droplet that a volume gets, where slots are told.
    #[serde(default)]
    pub slot: Option<String>,
    ending: Ending,
    due: Timestamp,
}

/// The volume that an action is for.
#[derive(Clone, Debug)]
pub enum VolumeKey {
    /// By id.
    Id(String),
    /// By name, in the request's region.
    Name(Option<String>),
}

/// A request for an action, as far as it could be read.
#[derive(Clone, Debug, Default)]
pub struct ActionRequest {
    /// `attach`, `detach` or `resize`.
    pub kind: Option<String>,
    /// The droplet.
    pub droplet_id: Option<i64>,
    /// The region's slug.
    pub region: Option<String>,
    /// The new size in GiB.
    pub size_gigabytes: Option<i64>,
}

impl Cloud {
    /// The actions of one volume, newest first.
    pub fn actions_of<'cloud>(
        &'cloud self,
        volume: &'cloud str,
    ) -> impl Iterator<Item = &'cloud Action> {
        self.records.actions.iter().rev().filter(move |action| action.volume == volume)
    }

    /// Every action that is remembered, oldest first.
    #[must_use]
    pub fn all_actions(&self) -> &[Action] {
        &self.records.actions
    }

    /// The action with this number.
    pub fn action(&self, id: u64) -> Result<&Action, Refusal> {
        let found = self.records.actions.iter().find(|action| action.id == id);
        found.ok_or_else(|| Refusal::NotFound(format!("action {id} does not exist")))
    }

    /// Starts an action. It ends by [`Cloud::end_action`] once [`Cloud::due_action`] names it.
    pub fn start_action(
        &mut self,
        key: &VolumeKey,
        request: &ActionRequest,
        ending: Ending,
        now: Timestamp,
    ) -> Result<u64, Refusal> {
        let volume = self.keyed(key, request.region.as_deref())?;
        let (kind, droplet, gigabytes) = match (request.kind.as_deref(), key) {
            (Some("attach"), _) => {
                (ActionKind::Attach, Some(self.can_attach(volume, request)?), None)
            }
            (Some("detach"), _) => {
                (ActionKind::Detach, Some(self.can_detach(volume, request)?), None)
            }
            (Some("resize"), VolumeKey::Id(_)) => {
                (ActionKind::Resize, None, Some(self.can_resize(volume, request)?))
            }
            (other, _) => {
                let kind = other.unwrap_or_default();
                return Err(Refusal::Unprocessable(format!(
                    "action type {kind:?} is not possible here"
                )));
            }
        };
        let longer = self.records.identifiers.fraction(self.records.next_action);
        let takes = self.settings.action_time + self.settings.action_spread.mul_f64(longer);
        let slot = droplet.filter(|_| kind == ActionKind::Attach).and_then(|it| self.free_slot(it));
        let action = Action {
            id: self.records.next_action,
            slot,
            kind,
            volume: volume.id.clone(),
            region: volume.region.clone(),
            droplet,
            gigabytes,
            status: ActionStatus::InProgress,
            started_at: now,
            completed_at: None,
            ending,
            due: now.checked_add(takes).unwrap_or(Timestamp::MAX),
        };
        let id = action.id;
        self.records.next_action += 1;
        self.records.actions.push(action);
        self.forget_old_actions();
        self.revision += 1;
        Ok(id)
    }

    /// When the next action is due, if one is running that will ever end.
    #[must_use]
    pub fn next_due(&self) -> Option<Timestamp> {
        self.will_end().map(|action| action.due).min()
    }

    /// The action that is due first, if it is due by now.
    #[must_use]
    pub fn due_action(&self, now: Timestamp) -> Option<u64> {
        let first = self.will_end().min_by_key(|action| (action.due, action.id))?;
        (first.due <= now).then_some(first.id)
    }

    /// Ends a running action as it was to end, at the time that it was due.
    pub fn end_action(&mut self, id: u64) -> Option<Effect> {
        let horizon = self.now_as_read(self.action(id).ok()?.due);
        let action = self.running_mut(id)?;
        action.completed_at = Some(action.due);
        action.status = match action.ending {
            Ending::Completes => ActionStatus::Completed,
            Ending::Fails | Ending::Sticks => ActionStatus::Errored,
        };
        let action = action.clone();
        self.revision += 1;
        if action.status == ActionStatus::Errored {
            return None;
        }
        let volume = self.volume_mut(&action.volume)?;
        let attachment = |droplet| Attachment {
            volume: action.volume.clone(),
            name: volume.name.clone(),
            droplet,
        };
        match (action.kind, action.droplet, action.gigabytes) {
            (ActionKind::Attach, Some(droplet), _) => {
                let effect = Effect::Attach(attachment(droplet));
                volume.history.move_to(Some(droplet), action.due, horizon);
                volume.slot = action.slot;
                Some(effect)
            }
            (ActionKind::Detach, Some(droplet), _) => {
                let effect = Effect::Detach(attachment(droplet));
                volume.history.move_to(None, action.due, horizon);
                volume.slot = None;
                Some(effect)
            }
            (ActionKind::Resize, _, Some(gigabytes)) => {
                volume.gigabytes = gigabytes;
                Some(Effect::Resize { volume: action.volume, gigabytes })
            }
            _ => None,
        }
    }

    /// Whether a volume itself tells its slot.
    #[must_use]
    pub fn volumes_tell_slots(&self) -> bool {
        self.settings.device_slots == Some(DeviceSlots::Everywhere)
    }

    /// The first slot after those of the machine's own disks that is free on the droplet.
    fn free_slot(&self, droplet: u64) -> Option<String> {
        self.settings.device_slots?;
        let on_it = self.records.volumes.iter().filter(|one| one.attached() == Some(droplet));
        let coming = self.running().filter(|action| action.droplet == Some(droplet));
        let taken = on_it.map(|one| &one.slot).chain(coming.map(|action| &action.slot));
        let taken: Vec<&String> = taken.flatten().collect();
        ('f'..='z').map(|letter| format!("xvd{letter}")).find(|slot| !taken.contains(&slot))
    }

    /// Ends a running action badly, because the disks did not follow.
    pub fn fail_action(&mut self, id: u64) {
        if let Some(action) = self.running_mut(id) {
            action.completed_at = Some(action.due);
            action.status = ActionStatus::Errored;
            self.revision += 1;
        }
    }

    pub(super) fn running_on(&self, volume: &str) -> Option<&Action> {
        self.running().find(|action| action.volume == volume)
    }

    pub(super) fn event_on(&self, droplet: u64) -> Option<&Action> {
        self.running().find(|action| action.droplet == Some(droplet))
    }

    pub(super) fn running(&self) -> impl Iterator<Item = &Action> {
        self.records.actions.iter().filter(|action| action.status == ActionStatus::InProgress)
    }

    fn will_end(&self) -> impl Iterator<Item = &Action> {
        self.running().filter(|action| action.ending != Ending::Sticks)
    }

    fn running_mut(&mut self, id: u64) -> Option<&mut Action> {
        let mut actions = self.records.actions.iter_mut();
        actions.find(|action| action.id == id && action.status == ActionStatus::InProgress)
    }

    fn forget_old_actions(&mut self) {
        let ended = |action: &Action| action.status != ActionStatus::InProgress;
        let surplus = self.records.actions.len().saturating_sub(ENDED_ACTIONS_KEPT);
        let mut to_forget = surplus;
        self.records.actions.retain(|action| {
            let forgotten = to_forget > 0 && ended(action);
            to_forget -= usize::from(forgotten);
            !forgotten
        });
    }
}
