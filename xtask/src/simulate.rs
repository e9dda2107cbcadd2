//! The deterministic simulation, many more schedules than the test command has time for.

use anyhow::Result;
use xtask::command::{cargo, run};

/// Runs so many schedules, or the one of that seed, with the driver optimised.
pub(crate) fn simulate(schedules: u64, seed: Option<u64>) -> Result<()> {
    let mut command = cargo();
    command
        .args(["test", "--quiet", "--profile", "simulation", "--package", "ghost"])
        .args(["--test", "simulation", "schedules_keep_every_promise", "--", "--nocapture"])
        .env("GHOST_SCHEDULES", schedules.to_string());
    if let Some(seed) = seed {
        command.env("GHOST_SEED", seed.to_string());
    }
    run(&mut command)
}
