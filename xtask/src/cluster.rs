//! A real Kubernetes on this machine, with the driver installed as an operator installs it: etcd,
//! API server, controller manager and scheduler, three nodes with containerd and kubelet, the stock
//! sidecars, and the simulator as the cloud whose droplets the nodes are.
//!
//! Everything of it lives in one pid namespace, whose first process holds it ([`hold`]): when that
//! ends, all of it has ended, however the command did that started it. Nothing listens in the
//! machine's own network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command as Program;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use clap::Subcommand;
use xtask::command::{program, target};
use xtask::setup;

use self::hold::Holder;
use self::parts::Parts;

mod certificates;
mod cgroup;
mod cloud;
mod control_plane;
mod hold;
mod images;
mod install;
mod kubectl;
mod machine;
mod network;
mod node;
mod parts;
mod scenarios;
mod wait;

/// How many nodes there are.
const NODES: u8 = 3;

/// What can be done with a cluster.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Starts a cluster and installs the driver; it stays until `down`
    Up,
    /// Ends the cluster and takes away what is left of it
    Down,
    /// A prompt with kubectl and helm, which know the cluster
    Shell {
        /// Run this instead of a prompt
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Runs the tests that need a cluster, on a new one unless one is up
    Test {
        /// Only those whose name contains one of these
        names: Vec<String>,
        /// Only those that CI runs
        #[arg(long)]
        short: bool,
    },
    /// The first process of a cluster
    #[command(hide = true)]
    Hold,
    /// The first process of a node
    #[command(hide = true)]
    Node {
        /// Which one
        number: u8,
    },
}

/// Does it.
pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Up => up(),
        Command::Down => down(),
        Command::Shell { command } => shell(command),
        Command::Test { names, short } => {
            scenarios::run(names, if *short { Which::Short } else { Which::All })
        }
        Command::Hold => hold::run(&folder()),
        Command::Node { number } => node::run(*number, &folder()),
    }
}

/// Which tests are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    /// Those of CI.
    Short,
}

/// A cluster that is up, entered by this thread and by what it starts from now on.
struct Cluster {
    folder: PathBuf,
    parts: Parts,
    holder: Holder,
}

impl Cluster {
    /// Starts one, which ends with this process unless it is [kept](Holder::keep).
    fn start() -> Result<Self> {
        let begun = Instant::now();
        let folder = folder();
        ensure!(
            Holder::find(&folder).is_none(),
            "a cluster is up already: cargo xtask cluster shell, or cargo xtask cluster down"
        );
        setup::need_root("a cluster")?;
        setup::need_programs(&[
            "nsenter",
            "ip",
            "losetup",
            "mkfs.ext4",
            "mkfs.xfs",
            "blkid",
            "busybox",
        ])?;
        cgroup::check()?;
        let parts = Parts::places();
        parts.build()?;
        remove(&folder)?;
        fs::create_dir_all(folder.join("logs"))?;
        said(begun, "everything is built");
        let holder = Holder::start(&folder)?;
        holder.enter()?;
        let mut cluster = Self { folder, parts, holder };
        let started = cluster.start_parts(begun);
        started.with_context(|| format!("the logs are in {}", cluster.logs().display()))?;
        Ok(cluster)
    }

    /// The one that is up.
    fn find() -> Result<Option<Self>> {
        let folder = folder();
        let Some(holder) = Holder::find(&folder) else { return Ok(None) };
        holder.enter()?;
        Ok(Some(Self { folder, parts: Parts::places(), holder }))
    }

    fn start_parts(&mut self, begun: Instant) -> Result<()> {
        network::make_bridge()?;
        certificates::make(&self.folder)?;
        self.start_cloud()?;
        self.start_control_plane()?;
        said(begun, "the API server is ready");
        for number in 1..=NODES {
            self.boot(number)?;
        }
        for number in 1..=NODES {
            self.node_is_ready(number)?;
        }
        said(begun, &format!("{NODES} nodes are ready"));
        self.install_snapshots()?;
        self.install_driver()?;
        said(begun, "the driver is installed and registered on every node");
        Ok(())
    }

    /// A program that is started within the cluster: seen by it, and ended with it.
    fn inside(&self, name: impl AsRef<Path>) -> Program {
        let mut command = program("nsenter");
        command.args([
            "--target",
            &self.holder.pid().to_string(),
            "--pid",
            "--mount",
            "--net",
            "--",
        ]);
        command.arg(name.as_ref());
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    fn logs(&self) -> PathBuf {
        self.path("logs")
    }

    fn log(&self, part: &str) -> Result<fs::File> {
        let path = self.logs().join(format!("{part}.log"));
        Ok(fs::OpenOptions::new().create(true).append(true).open(path)?)
    }
}

/// Where a cluster keeps what it has.
fn folder() -> PathBuf {
    target().join("cluster")
}

/// One line of progress.
fn said(begun: Instant, what: &str) {
    println!("{:>7.1} s  {what}", begun.elapsed().as_secs_f64());
}

fn up() -> Result<()> {
    let cluster = Cluster::start()?;
    let logs = cluster.logs();
    cluster.holder.keep()?;
    println!("\nThe cluster stays until: cargo xtask cluster down");
    println!("A prompt with kubectl and helm: cargo xtask cluster shell");
    println!("Logs: {}", logs.display());
    Ok(())
}

fn down() -> Result<()> {
    let folder = folder();
    let was_up = Holder::find(&folder).map(|holder| holder.end()).transpose()?.is_some();
    remove(&folder)?;
    println!("{}", if was_up { "the cluster is gone" } else { "no cluster was up" });
    Ok(())
}

/// Takes away what is left of a cluster that has ended: its logs, and what it could not take away
/// itself when it was killed.
fn remove(folder: &Path) -> Result<()> {
    let left = hold::take_away(folder);
    if folder.exists() {
        fs::remove_dir_all(folder)
            .with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    if left.is_empty() { Ok(()) } else { bail!("left behind; run: {}", left.join("; ")) }
}

fn shell(command: &[String]) -> Result<()> {
    let Some(cluster) = Cluster::find()? else {
        bail!("no cluster is up: cargo xtask cluster up");
    };
    let mut shell = if let [name, arguments @ ..] = command {
        let mut shell = program(name);
        shell.args(arguments);
        shell
    } else {
        println!("kubectl and helm know the cluster; the driver is in the namespace ghost-system");
        let mut shell = program("bash");
        shell.arg("--norc").env("PS1", "ghost cluster $ ");
        shell
    };
    let status = shell
        .env("KUBECONFIG", cluster.kubeconfig())
        .env("PATH", cluster.path_with_tools()?)
        .status()?;
    ensure!(status.success(), "the command failed ({status})");
    Ok(())
}
