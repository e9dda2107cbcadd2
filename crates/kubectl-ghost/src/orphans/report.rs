//! What people and programs read of the orphans.

use std::fmt::Write as _;

use ghost::backend::cosmos::{ClusterId, Item, ItemId};
use ghost::volume::Bytes;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Found;
use super::standing::Standing;
use crate::cli::Output;

/// What stands in a column that has nothing to say.
const NOTHING: &str = "-";

/// What was found, for a reader.
pub(super) struct Report<'a> {
    cluster: &'a ClusterId,
    minimum_age: SignedDuration,
    now: Timestamp,
    /// Those that are shown.
    rows: Vec<&'a Found>,
    /// All that was looked at.
    found: &'a [Found],
}

impl<'a> Report<'a> {
    /// A report of orphans and what is kept; of all that was found, if that was `asked_for` by name.
    pub(super) fn new(
        cluster: &'a ClusterId,
        minimum_age: SignedDuration,
        now: Timestamp,
        found: &'a [Found],
        asked_for: bool,
    ) -> Self {
        let rows = found.iter().filter(|found| asked_for || found.standing.is_listed()).collect();
        Self { cluster, minimum_age, now, rows, found }
    }

    /// How many orphans there are.
    pub(super) fn orphans(&self) -> usize {
        self.having(&Standing::Orphan).count()
    }

    /// The list in this form.
    pub(super) fn list(&self, output: Output) -> String {
        match output {
            Output::Table => self.table(&["KIND", "NAME", "SIZE", "AGE", "FOR", "STATE"]),
            Output::Wide => self
                .table(&["KIND", "NAME", "SIZE", "AGE", "FOR", "REGION", "ID", "CREATED", "STATE"]),
            Output::Json => format!("{:#}\n", self.json()),
            Output::Name => {
                let orphans = self.having(&Standing::Orphan).map(|found| &found.item);
                orphans.map(|item| format!("{}/{}\n", item.id.kind(), item.name)).collect()
            }
        }
    }

    /// One line, or two, that say what the list means.
    pub(super) fn summary(&self) -> String {
        let cluster = self.cluster.as_str();
        let orphans: Vec<&Item> = self.having(&Standing::Orphan).map(|found| &found.item).collect();
        let mut text = match orphans.len() {
            0 => format!("no orphans of cluster {cluster}"),
            _ => {
                let size =
                    orphans.iter().fold(0_u64, |sum, item| sum.saturating_add(item.size.get()));
                format!("{} of cluster {cluster}, {}", counted(&orphans), Bytes::new(size))
            }
        };
        let is_kept = |found: &&&Found| matches!(found.standing, Standing::Kept(_));
        let kept = self.rows.iter().filter(is_kept).count();
        let count = |standing: &Standing| self.having(standing).count();
        let _ = write!(
            text,
            "; {kept} kept, {} in use, {} made by others",
            count(&Standing::InUse),
            count(&Standing::Foreign)
        );
        match count(&Standing::Unjudged) {
            0 => {}
            unjudged => {
                let _ = write!(
                    text,
                    "\n{unjudged} snapshots are not judged: the cluster has no \
                     VolumeSnapshotContents (their CRD is not installed), so nothing tells \
                     whether they are in use"
                );
            }
        }
        text
    }

    fn having(&self, standing: &Standing) -> impl Iterator<Item = &'a Found> {
        self.found.iter().filter(move |found| found.standing == *standing)
    }

    fn table(&self, columns: &[&str]) -> String {
        if self.rows.is_empty() {
            return String::new();
        }
        let head = columns.iter().map(|column| (*column).to_owned()).collect();
        let rows = self.rows.iter().map(|found| {
            columns.iter().map(|column| self.cell(column, found)).collect::<Vec<String>>()
        });
        let rows: Vec<Vec<String>> = std::iter::once(head).chain(rows).collect();
        let width = |column: usize| {
            rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..columns.len()).map(width).collect();
        let mut text = String::new();
        for row in &rows {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                let _ = write!(line, "{cell:<width$}   ");
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }

    fn cell(&self, column: &str, found: &Found) -> String {
        let Found { item, standing } = found;
        let or_nothing = |text: Option<String>| text.unwrap_or_else(|| NOTHING.to_owned());
        match column {
            "KIND" => item.id.kind().to_owned(),
            "NAME" => item.name.clone(),
            "SIZE" => item.size.to_string(),
            "AGE" => or_nothing(self.age(item).map(short)),
            "FOR" => match &item.made_for {
                None if item.is_for_clones => "a clone".to_owned(),
                made_for => or_nothing(made_for.clone()),
            },
            "REGION" => item.region.clone(),
            "ID" => item.id.as_str().to_owned(),
            "CREATED" => or_nothing(item.created.map(|created| created.to_string())),
            _ => match (standing, standing.refusal(item)) {
                (Standing::Kept(_), Some(reason)) => format!("kept: {reason}"),
                (_, Some(reason)) => reason,
                (_, None) => "orphan".to_owned(),
            },
        }
    }

    fn age(&self, item: &Item) -> Option<SignedDuration> {
        item.created.map(|created| self.now.duration_since(created))
    }

    fn json(&self) -> Value {
        let items = self.rows.iter().map(|found| {
            let Found { item, standing } = found;
            json!({
                "kind": item.id.kind(),
                "name": item.name,
                "id": item.id.as_str(),
                "region": item.region,
                "sizeBytes": item.size.get(),
                "createdAt": item.created.map(|created| created.to_string()),
                "ageSeconds": self.age(item).map(|age| age.as_secs()),
                "attachedTo": item.attached.iter().map(|node| node.as_str()).collect::<Vec<_>>(),
                "madeFor": item.made_for,
                "madeForClones": item.is_for_clones,
                "orphan": *standing == Standing::Orphan,
                "reason": standing.refusal(item),
            })
        });
        let count = |standing: &Standing| self.having(standing).count();
        json!({
            "cluster": self.cluster.as_str(),
            "minimumAgeSeconds": self.minimum_age.as_secs(),
            "items": items.collect::<Vec<_>>(),
            "inUse": count(&Standing::InUse),
            "madeByOthers": count(&Standing::Foreign),
            "unjudgedSnapshots": count(&Standing::Unjudged),
        })
    }
}

/// Something as it is asked about: `volume prod-pvc-1 (10 GiB, 3 days old, for shop/data)`.
pub(super) fn described(item: &Item, now: Timestamp) -> String {
    let mut text = format!("{} {} ({}", item.id.kind(), item.name, item.size);
    if let Some(created) = item.created {
        let _ = write!(text, ", {} old", ago(now.duration_since(created)));
    }
    match &item.made_for {
        Some(made_for) => {
            let _ = write!(text, ", made for {made_for}");
        }
        None if item.is_for_clones => text.push_str(", left by a clone"),
        None => {}
    }
    text.push(')');
    text
}

/// How many of each kind: `2 orphans (1 volume, 1 snapshot)`.
fn counted(orphans: &[&Item]) -> String {
    let volumes = orphans.iter().filter(|item| matches!(item.id, ItemId::Volume(_))).count();
    let kinds = [(volumes, "volume"), (orphans.len() - volumes, "snapshot")];
    let kinds = kinds.iter().filter(|(count, _)| *count > 0);
    let kinds: Vec<String> = kinds.map(|(count, noun)| plural(*count, noun)).collect();
    format!("{} ({})", plural(orphans.len(), "orphan"), kinds.join(", "))
}

fn plural(count: usize, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A duration in words: `3 days`.
pub(super) fn ago(duration: SignedDuration) -> String {
    let (count, (_, noun)) = scaled(duration);
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// A duration as kubectl shows it: `3d`.
fn short(duration: SignedDuration) -> String {
    let (count, (letter, _)) = scaled(duration);
    format!("{count}{letter}")
}

/// A duration in the largest unit of which it has two or more. What is in the future has no age.
fn scaled(duration: SignedDuration) -> (u64, (char, &'static str)) {
    let seconds = u64::try_from(duration.as_secs()).unwrap_or_default();
    let units = [
        (31_536_000, ('y', "year")),
        (86_400, ('d', "day")),
        (3600, ('h', "hour")),
        (60, ('m', "minute")),
    ];
    let unit = units.iter().find(|(unit, _)| seconds >= 2 * unit);
    unit.map_or((seconds, ('s', "second")), |(unit, names)| (seconds / unit, *names))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_told_in_the_unit_that_suits_them() {
        let minute = 60;
        let day = 86_400;
        for (seconds, long, brief) in [
            (-5, "0 seconds", "0s"),
            (1, "1 second", "1s"),
            (119, "119 seconds", "119s"),
            (10 * minute, "10 minutes", "10m"),
            (day, "24 hours", "24h"),
            (3 * day + 5, "3 days", "3d"),
            (400 * day, "400 days", "400d"),
            (731 * day, "2 years", "2y"),
        ] {
            let duration = SignedDuration::from_secs(seconds);
            assert_eq!((ago(duration), short(duration)), (long.to_owned(), brief.to_owned()));
        }
    }
}
