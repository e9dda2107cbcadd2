//! The driver's binary: what was typed is checked, and then runs until it is told to stop.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use ghost::cli::{Cli, Command};
use ghost::config::{ControllerConfig, NodeConfig, Shared};
use ghost::error::{Error, Result};
use ghost::{run, telemetry};
use tokio::runtime::Runtime;

/// The exit code of a bad setting, as clap's own.
const BAD_SETTING: u8 = 2;

fn main() -> ExitCode {
    let (outcome, code) = match prepare(Cli::parse()) {
        Err(error) => (Err(error), ExitCode::from(BAD_SETTING)),
        Ok(half) => (start(half), ExitCode::FAILURE),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "a start that fails is told to whoever typed")]
            {
                eprintln!("ghost: {}", error.chain());
            }
            code
        }
    }
}

enum Half {
    Controller(Box<ControllerConfig>),
    Node(Box<NodeConfig>),
}

fn prepare(cli: Cli) -> Result<Half> {
    match cli.command {
        Command::Controller(args) => {
            let config = ControllerConfig::new(&args, fastrand::u64(..))?;
            Ok(Half::Controller(Box::new(config)))
        }
        Command::Node(args) => Ok(Half::Node(Box::new(NodeConfig::new(&args)?))),
    }
}

fn start(half: Half) -> Result<()> {
    let shared: &Shared = match &half {
        Half::Controller(config) => &config.shared,
        Half::Node(config) => &config.shared,
    };
    telemetry::start_log(shared.log_format, shared.log.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| Error::failed("cannot start the runtime").with_source(error))?;
    let outcome = block(&runtime, half);
    // A system call that hangs must not keep the process: its thread is left behind.
    runtime.shutdown_background();
    outcome
}

fn block(runtime: &Runtime, half: Half) -> Result<()> {
    match half {
        Half::Controller(config) => runtime.block_on(run::controller(*config)),
        Half::Node(config) => runtime.block_on(run::node(*config)),
    }
}
