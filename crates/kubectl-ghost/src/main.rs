//! The operator's commands, as a plugin of kubectl: `kubectl ghost orphans`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use ghost::error::{Error, Result};

mod cli;
mod orphans;

use cli::{Cli, Command};
use orphans::{Left, Orphans};

/// Something failed or was refused.
const FAILED: u8 = 1;
/// What was typed is no use, as clap's own.
const BAD_SETTING: u8 = 2;
/// There are orphans that could be deleted.
const ORPHANS_LEFT: u8 = 3;

fn main() -> ExitCode {
    let Command::Orphans(arguments) = Cli::parse().command;
    let orphans = match Orphans::new(*arguments) {
        Ok(orphans) => orphans,
        Err(error) => return failed(&error, BAD_SETTING),
    };
    match start(orphans) {
        Ok(Left::Nothing) => ExitCode::SUCCESS,
        Ok(Left::Orphans) => ExitCode::from(ORPHANS_LEFT),
        Ok(Left::Refusals) => ExitCode::from(FAILED),
        Err(error) => failed(&error, FAILED),
    }
}

fn start(orphans: Orphans) -> Result<Left> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Error::failed("cannot start the runtime").with_source(error))?;
    runtime.block_on(orphans.run())
}

#[expect(clippy::print_stderr, reason = "a command that fails tells whoever typed it")]
fn failed(error: &Error, code: u8) -> ExitCode {
    eprintln!("error: {}", error.chain());
    ExitCode::from(code)
}
