//! The project's own commands; `cargo xtask --help` lists them.
#![forbid(unsafe_code)]
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "these commands report to the person who typed them"
)]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::{interrupt, setup};

mod bench;
mod chart;
mod ci;
mod cluster;
mod conformance;
mod demo;
mod foreign;
mod image;
mod sanity;
mod simulate;
mod soak;
mod test;
mod tidy;

/// The project's own commands.
#[derive(Parser)]
#[command(name = "cargo xtask", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Follows one volume through its life on simulated disks of the real kernel
    Demo,
    /// Runs all tests, the foreign clients of the API, csi-sanity and our conformance suite
    Test,
    /// Runs csi-sanity for mount and for block volumes
    Sanity,
    /// Runs our own conformance suite for mount and for block volumes
    Conformance,
    /// Measures a static release build, each figure beside its floor
    Bench {
        /// Measure with the programs of this folder, beside this very program
        #[arg(long, hide = true)]
        measure: Option<PathBuf>,
        #[command(subcommand)]
        which: Option<bench::Which>,
    },
    /// Runs the controller half through random schedules of calls, faults and deaths
    Simulate {
        /// How many schedules
        #[arg(long, default_value_t = 100_000)]
        schedules: u64,
        /// Only the schedule of this seed
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Lets many volumes live on real loop devices, with faults on, and looks for what is left
    Soak {
        /// How many volumes; at least two thousand, since the first and the last thousand are compared
        #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2000..))]
        lives: u64,
    },
    /// Writes the container image as an OCI archive, without a container engine
    Image {
        /// With the quick build that tests use
        #[arg(long)]
        debug: bool,
        /// Unpack its file system into this folder too
        #[arg(long, value_name = "FOLDER")]
        root: Option<PathBuf>,
    },
    /// Checks the Helm chart and the plain manifests
    Chart {
        /// Writes the plain manifests anew
        #[arg(long)]
        write: bool,
    },
    /// A real Kubernetes on this machine, with the driver installed
    #[command(subcommand)]
    Cluster(cluster::Command),
    /// Checks the house rules that no compiler knows
    Tidy,
    /// Runs what CI runs
    Ci,
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    let done = interrupt::watch().and_then(|()| match command {
        Command::Demo => demo::run(),
        Command::Test => test::run(),
        Command::Sanity => sanity::run(),
        Command::Conformance => conformance::run(),
        Command::Bench { measure: None, .. } => bench::run(),
        Command::Bench { measure: Some(programs), which } => {
            bench::measure(&programs, which.as_ref())
        }
        Command::Simulate { schedules, seed } => simulate::simulate(schedules, seed),
        Command::Soak { lives } => soak::run(lives),
        Command::Image { debug, root } => {
            let build = if debug { image::Build::Debug } else { image::Build::Release };
            image::run(build, root.as_deref())
        }
        Command::Chart { write } => {
            chart::run(if write { chart::Deploy::Write } else { chart::Deploy::Check })
        }
        Command::Cluster(command) => cluster::run(&command),
        Command::Tidy => tidy::run(),
        Command::Ci => ci::run(),
    });
    match done {
        _ if interrupt::seen() => {
            eprintln!("\ninterrupted; what was there is taken away");
            ExitCode::from(130) // as a shell says of SIGINT
        }
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("\nerror: {error:#}");
            ExitCode::FAILURE
        }
    }
}
