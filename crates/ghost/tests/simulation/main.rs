//! Deterministic simulation: two controllers, whole from their gRPC services down to the requests
//! that they send, against `ghost-sim`'s state machine, in one thread under virtual time.
//!
//! A seed decides everything: the cloud's nature, which requests are lost or refused, when which
//! controller dies, and what the sidecars ask for. After each answer it is checked that it is true,
//! and in the end that nothing is left, doubled or still running. A seed that fails is printed with
//! its course of events, and replays exactly.
//!
//! [`storm`] and [`quiet`] hold by the same means how long many attachments take within the cloud's
//! budget, and what a cluster costs in which nothing happens.
//!
//! `GHOST_SCHEDULES` says how many, `GHOST_SEED` which one is run alone; `cargo xtask simulate`
//! sets them.
#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_types, reason = "these tests compare the codes that are answered")]
#![allow(clippy::disallowed_methods, reason = "a broken connection is a status too; settings")]
#![allow(clippy::print_stderr, reason = "how many there were is for people")]

mod calm;
mod claim;
mod cloud;
mod panics;
mod quiet;
mod schedule;
mod storm;
mod world;
mod wrong;

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;

use crate::claim::Known;
use crate::cloud::Outcome;
use crate::schedule::{Schedule, Variant};
use crate::world::World;

/// How many schedules run in the test command.
const SCHEDULES: u64 = 300;
/// How many schedules a wrong driver gets to be found out.
const ENOUGH: u64 = 2000;
/// How long everything may take once the faults are over. Ten thousand requests at the smallest
/// budget would not take so long.
const AFTER_FAULTS: Duration = Duration::from_secs(3 * 3600);

fn setting(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| panic!("{name}={text:?}: {error}")))
}

/// Does something in one thread under virtual time, with the file of a token.
fn in_virtual_time<T>(work: impl AsyncFnOnce(&Path) -> T) -> T {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "t").unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(work(&token))
}

/// Runs one schedule.
fn run(schedule: &Schedule) -> Outcome {
    in_virtual_time(async |token| {
        let world = World::new(schedule, token);
        let known = Known::default();
        let claims = (0..schedule.volumes).map(|number| claim::live(&world, &known, number));
        let all = async { tokio::join!(biased; world.trouble(), join_all(claims)) };
        match tokio::time::timeout(schedule.faults_for + AFTER_FAULTS, all).await {
            Ok(_) => {
                // What was hung up on may still be running.
                tokio::time::sleep(AFTER_FAULTS).await;
                known.check(&world);
            }
            Err(_) => world.cloud.violated("something never ends".to_owned()),
        }
        world.cloud.outcome()
    })
}

/// Fails with the course of events if the schedule has violations.
fn check(seed: u64) -> Outcome {
    let outcome = run(&Schedule::new(seed, Variant::Right, false));
    if !outcome.violations.is_empty() {
        let traced = run(&Schedule::new(seed, Variant::Right, true));
        panic!(
            "{}\nseed {seed} violates: {:#?}\nit replays with GHOST_SEED={seed}",
            traced.trace.join("\n"),
            outcome.violations
        );
    }
    outcome
}

#[test]
fn schedules_keep_every_promise() {
    if let Some(seed) = setting("GHOST_SEED") {
        check(seed);
        return;
    }
    let schedules = setting("GHOST_SCHEDULES").unwrap_or(SCHEDULES);
    let next = AtomicU64::new(0);
    let requests = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= schedules {
                        break;
                    }
                    requests.fetch_add(check(seed).requests, Ordering::Relaxed);
                    if (seed + 1).is_multiple_of(10_000) {
                        eprintln!("{} schedules", seed + 1);
                    }
                }
            });
        }
    });
    eprintln!("{schedules} schedules, {} requests, no violation", requests.into_inner());
}

#[test]
fn a_seed_replays_exactly() {
    for seed in 0..20 {
        let one = run(&Schedule::new(seed, Variant::Right, true));
        let again = run(&Schedule::new(seed, Variant::Right, true));
        assert_eq!(one.trace, again.trace, "seed {seed}");
        assert_eq!(one.fingerprint, run(&Schedule::new(seed, Variant::Right, false)).fingerprint);
    }
}

/// How many schedules it takes until a wrong driver is found out.
fn found_out(variant: Variant) {
    for seed in 0..ENOUGH {
        let outcome = run(&Schedule::new(seed, variant, false));
        if let Some(violation) = outcome.violations.first() {
            eprintln!("{variant:?} is found out by schedule {}: {violation}", seed + 1);
            return;
        }
    }
    panic!("{variant:?} kept every promise in {ENOUGH} schedules");
}

#[test]
fn operations_side_by_side_on_one_volume_are_found_out() {
    found_out(Variant::NoLock);
}

#[test]
fn trust_in_a_refusal_is_found_out() {
    found_out(Variant::TrustsRefusal);
}

#[test]
fn a_forgotten_action_is_found_out() {
    found_out(Variant::ForgetsAction);
}

#[test]
fn a_server_error_as_the_final_word_is_found_out() {
    found_out(Variant::FinalOnServerError);
}

#[test]
fn requests_without_a_budget_are_found_out() {
    found_out(Variant::NoBudget);
}
