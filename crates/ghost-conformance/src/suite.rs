//! The run: which checks apply, what became of each, what is left behind.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::check::{Check, checks};
use crate::driver::Driver;
use crate::options::Options;
use crate::trial::{Seen, Trial};
use crate::verdict::{Ended, Failure};

/// What became of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The driver did what is demanded.
    Ok,
    /// It did not.
    Failed(Failure),
    /// The check does not apply, for this reason.
    Skipped(String),
}

/// One check and what became of it.
#[derive(Clone, Debug)]
pub struct Result {
    /// The check's name.
    pub name: &'static str,
    /// What is demanded, in one sentence.
    pub about: &'static str,
    /// What became of it.
    pub outcome: Outcome,
    /// What it could not take away again.
    pub left: Vec<String>,
    /// How long it took.
    pub took: Duration,
}

/// What became of all.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The checks in the order in which they were made.
    pub results: Vec<Result>,
    /// Whether the run was ended early.
    pub interrupted: bool,
}

impl Report {
    /// The names of the checks that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        let failed = |one: &&Result| matches!(one.outcome, Outcome::Failed(_));
        self.results.iter().filter(failed).map(|one| one.name).collect()
    }

    /// The names of the checks that did not apply, and why.
    #[must_use]
    pub fn skipped(&self) -> Vec<(&'static str, &str)> {
        self.results.iter().filter_map(skip).collect()
    }

    /// How many went well.
    #[must_use]
    pub fn passed(&self) -> usize {
        self.results.iter().filter(|one| one.outcome == Outcome::Ok).count()
    }

    /// What could not be taken away again.
    #[must_use]
    pub fn left(&self) -> Vec<&str> {
        self.results.iter().flat_map(|one| &one.left).map(String::as_str).collect()
    }
}

fn skip(one: &Result) -> Option<(&'static str, &str)> {
    match &one.outcome {
        Outcome::Skipped(why) => Some((one.name, why)),
        _ => None,
    }
}

/// Makes the checks that `wanted` picks, one after the other, and tells each result as soon as it
/// is there. When `stop` is done, the check that runs ends with its present call, what it made
/// is taken away, and no other begins.
pub async fn run(
    driver: Driver,
    options: Options,
    wanted: impl Fn(&Check) -> bool,
    mut tell: impl FnMut(&Result),
    stop: impl Future<Output = ()>,
) -> Report {
    let (driver, options) = (Arc::new(driver), Arc::new(options));
    let seen = Arc::new(Mutex::new(Seen::default()));
    let run = fastrand::u32(..);
    let mut report = Report::default();
    let mut stop = std::pin::pin!(stop);
    for check in checks().filter(|check| wanted(check)) {
        let begun = Instant::now();
        let prefix = format!("conformance-{run:08x}-{}", report.results.len());
        let trial = Trial::new(driver.clone(), options.clone(), seen.clone(), prefix);
        let outcome = match check.missing(&driver, &options) {
            Some(why) => Outcome::Skipped(why),
            None => {
                let mut running = check.make(&trial);
                let verdict = tokio::select! {
                    verdict = &mut running => verdict,
                    () = &mut stop => {
                        report.interrupted = true;
                        trial.stop();
                        running.await
                    }
                };
                match verdict {
                    _ if report.interrupted => Outcome::Skipped("interrupted".to_owned()),
                    Ok(()) => Outcome::Ok,
                    Err(Ended::Failed(failure)) => Outcome::Failed(failure),
                    Err(Ended::Skipped(why)) => Outcome::Skipped(why),
                }
            }
        };
        let left = trial.clean().await;
        let (name, about) = (check.name, check.about);
        let result = Result { name, about, outcome, left, took: begun.elapsed() };
        tell(&result);
        report.results.push(result);
        if report.interrupted {
            break;
        }
    }
    report
}
