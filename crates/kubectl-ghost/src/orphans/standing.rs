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
        // What was made after the names were read could not be among them.
        let now = names.as_of.map_or(self.now, |as_of| as_of.min(self.now));
        match item.created.map(|created| now.duration_since(created)) {
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

#[cfg(test)]
mod tests {
    use ghost::volume::{Bytes, NodeId, SnapshotId, VolumeId};

    use super::super::names::Words;
    use super::*;

    fn names(of_volumes: &str, of_snapshots: Option<&str>) -> Names {
        let words = |text: &str| {
            let mut words = Words::default();
            words.add(text);
            words
        };
        Names {
            of_volumes: words(of_volumes),
            of_snapshots: of_snapshots.map(words),
            as_of: None,
            of_driver: None,
        }
    }

    fn item(is_snapshot: bool) -> Item {
        let id = match is_snapshot {
            true => ItemId::Snapshot(SnapshotId::new("id-1").expect("an id")),
            false => ItemId::Volume(VolumeId::new("id-1").expect("an id")),
        };
        Item {
            id,
            name: "prod-1".to_owned(),
            maker: Maker::Cluster,
            size: Bytes::from_gib(1),
            region: "ams1".to_owned(),
            created: "2026-01-01T00:00:00Z".parse().ok(),
            attached: Vec::new(),
            is_for_clones: false,
            made_for: None,
        }
    }

    fn rule(now: &str) -> Rule {
        Rule { now: now.parse().expect("a time"), minimum_age: SignedDuration::from_hours(24) }
    }

    #[test]
    fn whatever_speaks_against_it_keeps_it() {
        let late = rule("2026-01-02T00:00:00Z");
        let none = names("", Some(""));
        let attached = vec![NodeId::new("101").expect("an id")];
        for is_snapshot in [false, true] {
            let item = || item(is_snapshot);
            assert_eq!(late.decide(&item(), &none), Standing::Orphan);
            let named = [
                names("x/id-1", Some("id-1")),
                names("prod-1", Some("\"prod-1\"")),
                names("ID-1", Some("ID-1")),
            ];
            for names in named {
                assert_eq!(late.decide(&item(), &names), Standing::InUse);
            }
            let kept = |reason| Standing::Kept(reason);
            let young = kept(Reason::Young(late.minimum_age));
            for (now, item, expected) in [
                ("2026-01-01T23:59:59Z", item(), young.clone()),
                ("2025-01-01T00:00:00Z", item(), young),
                ("2026-02-01T00:00:00Z", Item { created: None, ..item() }, kept(Reason::Ageless)),
                (
                    "2026-02-01T00:00:00Z",
                    Item { attached: attached.clone(), ..item() },
                    kept(Reason::Attached),
                ),
                (
                    "2026-02-01T00:00:00Z",
                    Item { maker: Maker::OnlyNamedSo, ..item() },
                    kept(Reason::NotMadeHere),
                ),
                (
                    "2026-02-01T00:00:00Z",
                    Item { maker: Maker::OnlyTaggedSo, ..item() },
                    kept(Reason::NotMadeHere),
                ),
                ("2026-02-01T00:00:00Z", Item { maker: Maker::Other, ..item() }, Standing::Foreign),
            ] {
                let standing = rule(now).decide(&item, &none);
                assert_eq!(standing, expected, "{item:?}");
                assert!(standing.refusal(&item).is_some());
            }
        }
        // Volumes and snapshots are named by objects of different kinds.
        assert_eq!(late.decide(&item(false), &names("", Some("id-1"))), Standing::Orphan);
        assert_eq!(late.decide(&item(true), &names("id-1", Some(""))), Standing::Orphan);
    }

    #[test]
    fn what_was_young_when_the_names_were_read_is_kept() {
        let late = rule("2026-02-01T00:00:00Z");
        let read = |time: &str| Names { as_of: time.parse().ok(), ..names("", Some("")) };
        let young = Standing::Kept(Reason::Young(late.minimum_age));
        assert_eq!(late.decide(&item(false), &read("2026-01-01T23:59:59Z")), young);
        assert_eq!(late.decide(&item(false), &read("2026-01-02T00:00:00Z")), Standing::Orphan);
        let early = rule("2026-01-01T12:00:00Z");
        assert_eq!(early.decide(&item(false), &read("2026-02-01T00:00:00Z")), young);
    }

    #[test]
    fn without_contents_only_what_is_made_for_clones_is_judged() {
        let (late, unknown) = (rule("2026-02-01T00:00:00Z"), names("", None));
        assert_eq!(late.decide(&item(true), &unknown), Standing::Unjudged);
        let clone = Item { is_for_clones: true, ..item(true) };
        assert_eq!(late.decide(&clone, &unknown), Standing::Orphan);
    }
}
