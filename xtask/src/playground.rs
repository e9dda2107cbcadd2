//! A small world on this machine: the simulated cloud, one controller, two nodes, in one temporary
//! folder. It goes away with its last mount, device and process, however the command ends.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};
use ghost_csi as pb;
use hyper_util::rt::TokioIo;
use pb::controller_client::ControllerClient;
use pb::identity_client::IdentityClient;
use pb::node_client::NodeClient;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::command::program;
use crate::interrupt;
use crate::leftover::{detach_below, unmount_below};

mod process;

use process::{death, kill, listens, stop};

/// The simulated machines that the two nodes run on.
pub const NODES: [u64; 2] = [101, 102];
/// The token of the simulated cloud.
pub const TOKEN: &str = "token-of-the-playground-CANARY";

/// What world is wanted.
#[derive(Clone, Debug)]
pub struct Options {
    /// The folder with the built programs.
    pub programs: PathBuf,
    /// How long the cloud takes for an action, such as `150ms`.
    pub action_time: &'static str,
    /// Whether the cloud has real devices.
    pub devices: bool,
    /// The driver's log filter.
    pub log: &'static str,
}

/// The running world.
#[derive(Debug)]
pub struct Playground {
    folder: TempDir,
    token: String,
    options: Options,
    simulator: Option<Child>,
    controller: Option<Child>,
    nodes: BTreeMap<u64, Child>,
    url: String,
}

impl Playground {
    /// An empty world, in which nothing runs yet.
    ///
    /// # Errors
    /// When there is no room for its folder.
    pub fn empty(options: Options) -> Result<Self> {
        // A short name: the paths of sockets are limited.
        let folder = tempfile::Builder::new().prefix("ghost-").tempdir()?;
        fs::write(folder.path().join("token"), format!("{TOKEN}\n"))?;
        Ok(Self {
            folder,
            token: TOKEN.to_owned(),
            options,
            simulator: None,
            controller: None,
            nodes: BTreeMap::new(),
            url: String::new(),
        })
    }

    /// A world in which everything runs.
    ///
    /// # Errors
    /// When a part does not start; it says why.
    pub fn start(options: Options) -> Result<Self> {
        let mut playground = Self::empty(options)?;
        playground.start_parts()?;
        Ok(playground)
    }

    /// Starts whatever does not run.
    ///
    /// # Errors
    /// When a part does not start; it says why.
    pub fn start_parts(&mut self) -> Result<()> {
        if self.simulator.is_none() {
            self.start_simulator(&[])?;
        }
        if self.controller.is_none() {
            self.start_controller(&[])?;
        }
        for node in NODES {
            if !self.nodes.contains_key(&node) {
                self.start_node(node, &[])?;
            }
        }
        Ok(())
    }

    /// Starts the simulated cloud.
    ///
    /// # Errors
    /// When it does not start; it says why.
    pub fn start_simulator(&mut self, more: &[&str]) -> Result<()> {
        interrupt::check()?;
        let mut command = program(self.options.programs.join("ghost-sim"));
        command
            .args(["serve", "--action-time", self.options.action_time])
            .args(unless_given(more, "--listen", "127.0.0.1:0"))
            .args(unless_given(more, "--requests-per-hour", "1000000000"))
            .arg("--state-dir")
            .arg(self.path("cloud"))
            .arg("--token-file")
            .arg(self.path("token"))
            .args(more);
        if !self.options.devices {
            command.arg("--no-devices");
        }
        let mut child = command.stdout(Stdio::piped()).stderr(self.log("simulator")?).spawn()?;
        let stdout = child.stdout.take().context("its output was asked for")?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        self.simulator = Some(child);
        match line.trim().strip_prefix("listening on ") {
            Some(url) => url.clone_into(&mut self.url),
            None => bail!("the simulator did not start:\n{}", self.tail("simulator")),
        }
        Ok(())
    }

    /// The cloud's token.
    #[must_use]
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Gives the cloud another token, for the parts that are started from now on.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn set_token(&mut self, token: &str) -> Result<()> {
        token.trim().clone_into(&mut self.token);
        Ok(fs::write(self.path("token"), token)?)
    }

    /// Starts the controller with `more` options, which may not repeat those that it gets anyway.
    ///
    /// # Errors
    /// When it does not start; it says why.
    pub fn start_controller(&mut self, more: &[&str]) -> Result<()> {
        let url = self.url.clone();
        self.start_controller_at(&url, more)
    }

    /// Starts the controller against a cloud at another address.
    ///
    /// # Errors
    /// When it does not start; it says why.
    pub fn start_controller_at(&mut self, url: &str, more: &[&str]) -> Result<()> {
        let mut command = program(self.options.programs.join("ghost"));
        command
            .arg("controller")
            .arg(format!("--endpoint=unix://{}", self.controller_socket().display()))
            .args(["--log", self.options.log, "--cosmos-url", url, "--cosmos-token-file"])
            .arg(self.path("token"))
            .args(["--region", "ams1"])
            .args(unless_given(more, "--cosmos-requests-per-minute", "4000000000"))
            .args(more);
        interrupt::check()?;
        let mut child = command.stderr(self.log("controller")?).spawn()?;
        let listens = listens(&mut child, &self.controller_socket());
        self.controller = Some(child);
        self.started("controller", listens)
    }

    /// Starts the node half on a simulated machine.
    ///
    /// # Errors
    /// When it does not start; it says why.
    pub fn start_node(&mut self, id: u64, more: &[&str]) -> Result<()> {
        if !self.options.devices {
            fs::create_dir_all(self.dev_root(id))?;
        }
        self.start_node_at(id, &self.dev_root(id), more)
    }

    /// The same with another device folder.
    ///
    /// # Errors
    /// When it does not start; it says why.
    pub fn start_node_at(&mut self, id: u64, dev_root: &Path, more: &[&str]) -> Result<()> {
        let name = format!("node-{id}");
        let mut command = program(self.options.programs.join("ghost"));
        command
            .arg("node")
            .arg(format!("--endpoint=unix://{}", self.node_socket(id).display()))
            .args(["--log", self.options.log])
            .args(["--metadata-url", &format!("{}/droplets/{id}", self.url), "--dev-root"])
            .arg(dev_root)
            .arg("--format-notes-dir")
            .arg(self.path(&format!("notes-{id}")))
            // There is no kubelet: nothing has to reach one, whatever there is on this machine.
            .env("GHOST_KUBELET_DIR", self.path("no-kubelet"))
            .args(more);
        interrupt::check()?;
        let mut child = command.stderr(self.log(&name)?).spawn()?;
        let is_there = listens(&mut child, &self.node_socket(id));
        self.nodes.insert(id, child);
        self.started(&name, is_there)
    }

    /// Ends every process as a power cut would.
    ///
    /// # Errors
    /// When one cannot be ended.
    pub fn kill_all(&mut self) -> Result<()> {
        self.kill_controller()?;
        for node in NODES {
            self.kill_node(node)?;
        }
        self.simulator.take().map_or(Ok(()), kill)
    }

    /// Ends the controller by SIGKILL, if it runs.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn kill_controller(&mut self) -> Result<()> {
        self.controller.take().map_or(Ok(()), kill)
    }

    /// Ends the node half on a machine by SIGKILL, if it runs.
    ///
    /// # Errors
    /// When it cannot be ended.
    pub fn kill_node(&mut self, id: u64) -> Result<()> {
        self.nodes.remove(&id).map_or(Ok(()), kill)
    }

    /// Waits until the controller has ended by itself, and answers the signal that ended it.
    ///
    /// # Errors
    /// When it has not ended in time.
    pub fn controller_death(&mut self) -> Result<Option<i32>> {
        death(self.controller.take().context("no controller runs")?)
    }

    /// The same of the node half on a machine.
    ///
    /// # Errors
    /// When it has not ended in time.
    pub fn node_death(&mut self, id: u64) -> Result<Option<i32>> {
        death(self.nodes.remove(&id).context("no such node runs")?)
    }

    /// The controller's process, to be measured.
    pub fn controller_pid(&self) -> Option<u32> {
        self.controller.as_ref().map(Child::id)
    }

    /// The process of the node half on a machine, to be measured.
    pub fn node_pid(&self, id: u64) -> Option<u32> {
        self.nodes.get(&id).map(Child::id)
    }

    /// The processes that run, to be looked for afterwards.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.values().chain(&self.controller).chain(&self.simulator).map(Child::id).collect()
    }

    /// The cloud's address.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A path in this world's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The device folder of a simulated machine.
    pub fn dev_root(&self, node: u64) -> PathBuf {
        self.path(&format!("cloud/droplets/{node}/dev"))
    }

    /// Where the controller listens.
    pub fn controller_socket(&self) -> PathBuf {
        self.path("controller.sock")
    }

    /// Where the node half on a machine listens.
    pub fn node_socket(&self, node: u64) -> PathBuf {
        self.path(&format!("node-{node}.sock"))
    }

    /// A client of the controller.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn controller(&self) -> Result<ControllerClient<Channel>> {
        Ok(ControllerClient::new(connect(&self.controller_socket()).await?))
    }

    /// A client of a node.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn node(&self, node: u64) -> Result<NodeClient<Channel>> {
        Ok(NodeClient::new(connect(&self.node_socket(node)).await?))
    }

    fn log(&self, part: &str) -> Result<File> {
        let path = self.path(&format!("{part}.log"));
        Ok(fs::OpenOptions::new().create(true).append(true).open(path)?)
    }

    fn tail(&self, part: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("{part}.log"))).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn started(&self, part: &str, listens: bool) -> Result<()> {
        interrupt::check()?;
        if listens { Ok(()) } else { bail!("the {part} did not start:\n{}", self.tail(part)) }
    }

    /// Takes everything away and answers what could not be.
    fn take_away(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for child in self.nodes.values_mut().chain(&mut self.controller) {
            stop(child, &mut left);
        }
        left.extend(unmount_below(self.folder.path()));
        if let Some(simulator) = &mut self.simulator {
            stop(simulator, &mut left);
        }
        left.extend(detach_below(self.folder.path()));
        left
    }
}

impl Drop for Playground {
    fn drop(&mut self) {
        for command in self.take_away() {
            eprintln!("left behind; run: {command}");
        }
    }
}

/// The option with its default, if it is not among those that are given.
fn unless_given<'a>(given: &[&str], option: &'a str, default: &'a str) -> Vec<&'a str> {
    if given.contains(&option) { Vec::new() } else { vec![option, default] }
}

/// A channel over the socket.
pub async fn connect(socket: &Path) -> Result<Channel> {
    let path = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    endpoint
        .connect_with_connector(connector)
        .await
        .with_context(|| format!("cannot connect to {}", socket.display()))
}

/// Asks the plugin at the socket for its Probe.
pub async fn probe(socket: &Path) -> Result<bool> {
    let mut identity = IdentityClient::new(connect(socket).await?);
    let answer = identity.probe(pb::ProbeRequest {}).await?.into_inner();
    Ok(answer.ready.unwrap_or(true))
}
