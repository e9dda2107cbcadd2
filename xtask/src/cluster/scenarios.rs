//! The tests that need a cluster.

use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use xtask::interrupt;
use xtask::leftover::loops_below;

use super::wait::{Limit, until};
use super::{Cluster, Which};

mod interruptions;
mod life;
mod objects;

/// A test, and whether CI runs it.
struct Scenario {
    name: &'static str,
    which: Which,
    run: fn(&Cluster) -> Result<()>,
}

const fn short(name: &'static str, run: fn(&Cluster) -> Result<()>) -> Scenario {
    Scenario { name, which: Which::Short, run }
}

const fn long(name: &'static str, run: fn(&Cluster) -> Result<()>) -> Scenario {
    Scenario { name, which: Which::All, run }
}

const SCENARIOS: &[Scenario] = &[
    short("a_volume_moves_to_another_node_with_its_content", life::moves),
    short("pods_and_disks_survive_a_power_cut_of_the_node", interruptions::node_reboots),
    long("a_raw_block_volume_moves_to_another_node", life::block_moves),
    long("pods_run_on_while_the_kubelet_restarts", interruptions::kubelet_restarts),
];

/// Runs those that are wanted, on the cluster that is up or on one for this.
pub(super) fn run(names: &[String], which: Which) -> Result<()> {
    let is_wanted = |scenario: &&Scenario| {
        (names.is_empty() || names.iter().any(|name| scenario.name.contains(name.as_str())))
            && (which == Which::All || scenario.which == Which::Short)
    };
    let wanted: Vec<&Scenario> = SCENARIOS.iter().filter(is_wanted).collect();
    ensure!(!wanted.is_empty(), "no test has such a name");
    let begun = Instant::now();
    let cluster = match Cluster::find()? {
        Some(cluster) => cluster,
        None => Cluster::start()?,
    };
    println!("\nrunning {} tests", wanted.len());
    let mut failed = Vec::new();
    for scenario in &wanted {
        let begun = Instant::now();
        let outcome = (scenario.run)(&cluster);
        interrupt::check()?;
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(()) => println!("ok     {:<64}{seconds:>7.1} s", scenario.name),
            Err(error) => {
                println!("FAILED {:<64}{seconds:>7.1} s\n       {error:#}", scenario.name);
                failed.push(scenario.name);
            }
        }
    }
    println!(
        "\n{} passed, {} failed in {:.1} s",
        wanted.len() - failed.len(),
        failed.len(),
        begun.elapsed().as_secs_f64()
    );
    if failed.is_empty() { Ok(()) } else { bail!("failed: {}", failed.join(", ")) }
}

impl Cluster {
    /// Waits until a test's volumes are gone, at the cloud too and from the nodes.
    fn nothing_is_left(&self) -> Result<()> {
        until("everything of the test to be gone", Limit::LONG, || {
            let objects = self.kubectl(&["get", "pv,volumeattachment", "--output=name"])?;
            let state = self.cloud_state()?;
            let volumes = state["volumes"].as_array().context("the cloud tells its volumes")?;
            let devices = loops_below(&self.folder);
            Ok((objects.is_empty() && volumes.is_empty() && devices.is_empty()).then_some(()))
        })
    }
}
