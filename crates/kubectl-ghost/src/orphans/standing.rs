//! Where something at the cloud stands: in use, forgotten, or not to be touched. Decided without
//! any I/O.

use std::fmt::Write as _;

use ghost::backend::cosmos::{Item, ItemId, Maker};
use jiff::{SignedDuration, Timestamp};

use super::names::Names;
use super::report::ago;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Another cluster's, or anybody's.
    Foreign,
    /// Kubernetes names it.
    InUse,
    /// Nothing in this cluster could name it.
    Unjudged,
    /// Nothing names it, and it may be deleted.
    Orphan,
    /// Nothing names it, but it is not to be deleted.
    Kept(Reason),
}

/// Why something that nothing names is not to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Its name or its tags say that the cluster made it, but not both.
    NotMadeHere,
    /// It is attached.
    Attached,
    /// The cloud does not tell when it was made.
    Ageless,
    /// It was made a moment ago.
    Young(SignedDuration),
}

/// What is old enough, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The time.
    pub(super) now: Timestamp,
    /// The least age of what is deleted.
    pub(super) minimum_age: SignedDuration,
}

impl Rule {
    /// Where this stands.
    pub(super) fn decide(&self, item: &Item, names: &Names) -> Standing {
        if item.maker == Maker::Other {
            return Standing::Foreign;
        }
        let words = match &item.id {
            ItemId::Volume(_) => Some(&names.of_volumes),
            ItemId::Snapshot(_) => names.of_snapshots.as_ref(),
        };
        match words {
            Some(words) if words.have(item.id.as_str()) || words.have(&item.name) => {
                return Standing::InUse;
            }
            // What is made for clones is named by nothing anyway.
            None if !item.is_for_clones => return Standing::Unjudged,
            _ => {}
        }
        if item.maker != Maker::Cluster {
            return Standing::Kept(Reason::NotMadeHere);
        }
        if !item.attached.is_empty() {
            return Standing::Kept(Reason::Attached);
        }
        match item.created.map(|created| self.now.duration_since(created)) {
            None => Standing::Kept(Reason::Ageless),
            Some(age) if age < self.minimum_age => Standing::Kept(Reason::Young(self.minimum_age)),
            Some(_) => Standing::Orphan,
        }
    }
}

impl Standing {
    /// Whether a list of orphans shows it.
    pub(super) fn is_listed(&self) -> bool {
        matches!(self, Self::Orphan | Self::Kept(_))
    }

    /// Why it is not deleted; `None` when it may be.
    pub(super) fn refusal(&self, item: &Item) -> Option<String> {
        let reason = match self {
            Self::Orphan => return None,
            Self::Foreign => "not made by this cluster".to_owned(),
            Self::InUse => match item.id {
                ItemId::Volume(_) => "in use: a PersistentVolume names it".to_owned(),
                ItemId::Snapshot(_) => "in use: a VolumeSnapshotContent names it".to_owned(),
            },
            Self::Unjudged => {
                "the cluster has no VolumeSnapshotContents, so nothing tells whether \
                               it is in use"
                    .to_owned()
            }
            Self::Kept(reason) => reason.text(item),
        };
        Some(reason)
    }
}

impl Reason {
    fn text(self, item: &Item) -> String {
        match self {
            Self::NotMadeHere => match item.maker {
                Maker::OnlyNamedSo => {
                    "not made by this cluster: its name fits, its tags do not".to_owned()
                }
                _ => "not made by this cluster: its tags fit, its name does not".to_owned(),
            },
            Self::Attached => {
                let mut text = "attached to node".to_owned();
                for node in &item.attached {
                    let _ = write!(text, " {node}");
                }
                text
            }
            Self::Ageless => "of unknown age: the cloud does not tell when it was made".to_owned(),
            Self::Young(minimum) => format!("younger than {}", ago(minimum)),
        }
    }
}
