//! `kubectl ghost orphans`: what a cluster made at the cloud and has forgotten.
//!
//! The cloud is listed first and Kubernetes after it ([`names`]), because a volume is made before
//! its PersistentVolume: what is made meanwhile is in neither list, or in the second only.
//! [`standing`] decides, without any I/O, and [`delete`] asks and deletes.

use std::io::{self, Write};

use ghost::backend::cosmos::{ClusterId, Cosmos, Http, Item, ItemId, Options};
use ghost::config::Account;
use ghost::error::{Error, Result};
use jiff::{SignedDuration, Timestamp};

use crate::cli::{OrphansArgs, Output};

mod delete;
mod handles;
mod kubernetes;
mod names;
mod report;
mod standing;

use names::{Names, Source};
use report::Report;
use standing::{Rule, Standing};

/// The least `--minimum-age`. The provisioner repeats a creation whose answer was lost within five
/// minutes (its default); until then the volume has no PersistentVolume.
const LEAST_MINIMUM_AGE: SignedDuration = SignedDuration::from_mins(10);

/// What the command leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// No orphan that could be deleted.
    Nothing,
    /// Some.
    Orphans,
    /// Something that was asked for by name or agreed to, and could not be done.
    Refusals,
}

/// The command, ready to run.
pub(crate) struct Orphans {
    cosmos: Cosmos<Http>,
    cluster: ClusterId,
    source: Source,
    minimum_age: SignedDuration,
    wanted: Vec<String>,
    task: Task,
}

/// What is to be done with the orphans.
#[derive(Clone, Copy)]
enum Task {
    List(Output),
    Delete,
}

/// Something at the cloud, and where it stands.
#[derive(Clone, Debug)]
struct Found {
    item: Item,
    standing: Standing,
}

impl Orphans {
    /// Checks what was typed.
    ///
    /// # Errors
    /// `Invalid` naming the option and its value.
    pub(crate) fn new(args: OrphansArgs) -> Result<Self> {
        let cluster = ClusterId::new(args.cluster_id).map_err(|e| e.context("--cluster-id"))?;
        if args.minimum_age < LEAST_MINIMUM_AGE {
            return Err(Error::invalid(format!(
                "--minimum-age {:#}: at least {LEAST_MINIMUM_AGE:#}, because a volume that was \
                 just made has no PersistentVolume yet",
                args.minimum_age
            )));
        }
        let source = Source::new(args.handles, args.kubernetes)?;
        let account = Account::new(&args.cosmos)?;
        let options = Options {
            cluster_id: Some(cluster.clone()),
            requests_per_minute: account.requests_per_minute,
            // Nothing is attached here.
            attach_limit: 0,
            seed: fastrand::u64(..),
        };
        let cosmos = Cosmos::new(account.exchange, account.token, options, Box::new(()));
        let task = if args.delete { Task::Delete } else { Task::List(args.output) };
        let (wanted, minimum_age) = (args.names, args.minimum_age);
        Ok(Self { cosmos, cluster, source, minimum_age, wanted, task })
    }

    /// Finds the orphans, and does with them what was asked for.
    ///
    /// # Errors
    /// When either list could not be read whole: nothing is then listed or deleted.
    pub(crate) async fn run(self) -> Result<Left> {
        let items = self.cosmos.inventory(&self.cluster).await;
        let items = items.map_err(|error| {
            error.context("the cloud's volumes and snapshots could not be read whole")
        })?;
        let names = self.source.read().await?;
        let mut found = self.judge(items, &names);
        let unknown_cluster = !names.is_of_the_maker(&found);
        let missing = select(&mut found, &self.wanted);
        let report = Report::new(
            &self.cluster,
            self.minimum_age,
            self.now(),
            &found,
            !self.wanted.is_empty(),
        );
        match self.task {
            Task::List(output) => print(&report.list(output))?,
            Task::Delete => print(&report.list(Output::Table))?,
        }
        let some = report.orphans() > 0;
        let mut left = if some { Left::Orphans } else { Left::Nothing };
        match self.task {
            Task::Delete if some && unknown_cluster => {
                return Err(Error::precondition(format!(
                    "nothing is deleted: {}",
                    names::another_cluster(&self.cluster)
                )));
            }
            Task::Delete if some => left = self.delete(&found).await?,
            _ => tell(&report.summary()),
        }
        if unknown_cluster {
            tell(&format!("warning: {}", names::another_cluster(&self.cluster)));
        }
        if matches!(self.task, Task::Delete) && !self.wanted.is_empty() {
            for Found { item, standing } in &found {
                if let Some(refusal) = standing.refusal(item) {
                    tell(&format!("refused: {} {}: {refusal}", item.id.kind(), item.name));
                    left = Left::Refusals;
                }
            }
        }
        for name in missing {
            tell(&format!("refused: there is no volume or snapshot {name:?} at the cloud"));
            left = Left::Refusals;
        }
        Ok(left)
    }

    fn judge(&self, items: Vec<Item>, names: &Names) -> Vec<Found> {
        let rule = self.rule();
        let judge = |item: Item| Found { standing: rule.decide(&item, names), item };
        let mut found: Vec<Found> = items.into_iter().map(judge).collect();
        // Orphans before what is kept, volumes before snapshots.
        found.sort_by_cached_key(|Found { item, standing }| {
            let is_snapshot = matches!(item.id, ItemId::Snapshot(_));
            (*standing != Standing::Orphan, is_snapshot, item.name.clone())
        });
        found
    }

    fn rule(&self) -> Rule {
        Rule { now: self.now(), minimum_age: self.minimum_age }
    }

    /// The earlier of this machine's time and the cloud's: a clock that is ahead must not make
    /// anything look old.
    fn now(&self) -> Timestamp {
        let own = Timestamp::now();
        self.cosmos.time().map_or(own, |cloud| cloud.min(own))
    }
}

/// Leaves those that are asked for, by name or id, and answers what is not there.
fn select(found: &mut Vec<Found>, wanted: &[String]) -> Vec<String> {
    if wanted.is_empty() {
        return Vec::new();
    }
    let is = |item: &Item, wanted: &String| {
        let kind = format!("{}/", item.id.kind());
        let wanted = wanted.strip_prefix(&kind).unwrap_or(wanted);
        item.name == wanted || item.id.as_str() == wanted
    };
    let missing = |wanted: &&String| !found.iter().any(|found| is(&found.item, wanted));
    let missing = wanted.iter().filter(missing).cloned().collect();
    found.retain(|found| wanted.iter().any(|wanted| is(&found.item, wanted)));
    missing
}

/// Prints to the standard output.
fn print(text: &str) -> Result<()> {
    let mut output = io::stdout().lock();
    output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush())
        .map_err(|error| Error::failed("cannot write to the standard output").with_source(error))
}

/// Tells whoever typed the command. When nobody can read it, that is no reason to stop.
fn tell(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}
