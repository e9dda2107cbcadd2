//! A small world on this machine: the simulated cloud, one controller, two nodes, in one temporary
//! folder. It goes away with its last mount, device and process, however the command ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ghost_csi as pb;
use hyper_util::rt::TokioIo;
use pb::controller_client::ControllerClient;
use pb::identity_client::IdentityClient;
use pb::node_client::NodeClient;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::command::{output, program};

/// The simulated machines that the two nodes run on.
pub(crate) const NODES: [u64; 2] = [101, 102];
/// How long a part may take to answer after its start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// What world is wanted.
pub(crate) struct Options {
    /// The folder with the built programs.
    pub(crate) programs: PathBuf,
    /// How long the cloud takes for an action.
    pub(crate) action_time: &'static str,
    /// Whether the cloud has real devices.
    pub(crate) devices: bool,
}

/// The running world.
pub(crate) struct Playground {
    folder: TempDir,
    options: Options,
    simulator: Option<Child>,
    controller: Option<Child>,
    nodes: Vec<Child>,
    url: String,
}

impl Playground {
    /// Starts everything.
    pub(crate) fn start(options: Options) -> Result<Self> {
        // A short name: the paths of sockets are limited.
        let folder = tempfile::Builder::new().prefix("ghost-").tempdir()?;
        fs::write(folder.path().join("token"), "token-of-the-playground\n")?;
        let mut playground = Self {
            folder,
            options,
            simulator: None,
            controller: None,
            nodes: Vec::new(),
            url: String::new(),
        };
        playground.start_parts()?;
        Ok(playground)
    }

    /// Starts whatever does not run.
    pub(crate) fn start_parts(&mut self) -> Result<()> {
        self.start_simulator()?;
        self.start_controller()?;
        self.start_nodes()
    }

    fn start_simulator(&mut self) -> Result<()> {
        let mut command = program(self.options.programs.join("ghost-sim"));
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--action-time", self.options.action_time])
            .args(["--requests-per-hour", "1000000000", "--state-dir"])
            .arg(self.path("cloud"))
            .arg("--token-file")
            .arg(self.path("token"));
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

    fn start_controller(&mut self) -> Result<()> {
        let mut command = program(self.options.programs.join("ghost"));
        command
            .arg("controller")
            .arg(format!("--endpoint=unix://{}", self.controller_socket().display()))
            .args(["--cosmos-url", &self.url, "--cosmos-token-file"])
            .arg(self.path("token"))
            .args(["--region", "ams1", "--cosmos-requests-per-minute", "4000000000"]);
        let child = command.stderr(self.log("controller")?).spawn()?;
        self.controller = Some(child);
        self.wait_for("controller", &self.controller_socket())
    }

    fn start_nodes(&mut self) -> Result<()> {
        for id in NODES {
            let name = format!("node-{id}");
            if !self.options.devices {
                fs::create_dir_all(self.dev_root(id))?;
            }
            let mut command = program(self.options.programs.join("ghost"));
            command
                .arg("node")
                .arg(format!("--endpoint=unix://{}", self.node_socket(id).display()))
                .args(["--metadata-url", &format!("{}/droplets/{id}", self.url), "--dev-root"])
                .arg(self.dev_root(id))
                .arg("--format-notes-dir")
                .arg(self.path(&format!("notes-{id}")));
            let child = command.stderr(self.log(&name)?).spawn()?;
            self.nodes.push(child);
            self.wait_for(&name, &self.node_socket(id))?;
        }
        Ok(())
    }

    /// Ends every process as a power cut would.
    pub(crate) fn kill_all(&mut self) -> Result<()> {
        let all = self.nodes.drain(..).chain(self.controller.take()).chain(self.simulator.take());
        for mut child in all.collect::<Vec<_>>() {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }

    /// The controller's process, to be measured.
    pub(crate) fn controller_pid(&self) -> Option<u32> {
        self.controller.as_ref().map(Child::id)
    }

    /// The processes that run, to be looked for afterwards.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.nodes.iter().chain(&self.controller).chain(&self.simulator).map(Child::id).collect()
    }

    /// The cloud's address.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// A path in this world's folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The device folder of a simulated machine.
    pub(crate) fn dev_root(&self, node: u64) -> PathBuf {
        self.path(&format!("cloud/droplets/{node}/dev"))
    }

    pub(crate) fn controller_socket(&self) -> PathBuf {
        self.path("controller.sock")
    }

    pub(crate) fn node_socket(&self, node: u64) -> PathBuf {
        self.path(&format!("node-{node}.sock"))
    }

    /// A client of the controller.
    pub(crate) async fn controller(&self) -> Result<ControllerClient<Channel>> {
        Ok(ControllerClient::new(connect(&self.controller_socket()).await?))
    }

    /// A client of a node.
    pub(crate) async fn node(&self, node: u64) -> Result<NodeClient<Channel>> {
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

    fn wait_for(&self, part: &str, socket: &Path) -> Result<()> {
        let begun = Instant::now();
        while std::os::unix::net::UnixStream::connect(socket).is_err() {
            if begun.elapsed() > START_LIMIT {
                bail!("the {part} did not start:\n{}", self.tail(part));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    /// Takes everything away and answers what could not be.
    fn take_away(&mut self) -> Vec<String> {
        let mut left = Vec::new();
        for child in self.nodes.iter_mut().chain(&mut self.controller) {
            stop(child, &mut left);
        }
        for target in mounts_below(self.folder.path()).into_iter().rev() {
            if output(program("umount").arg("--lazy").arg(&target)).is_err() {
                left.push(format!("umount {}", target.display()));
            }
        }
        if let Some(simulator) = &mut self.simulator {
            stop(simulator, &mut left);
        }
        for device in loops_below(self.folder.path()) {
            if output(program("losetup").arg("--detach").arg(&device)).is_err() {
                left.push(format!("losetup --detach {device}"));
            }
        }
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

fn stop(child: &mut Child, left: &mut Vec<String>) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if child.try_wait().is_ok_and(|ended| ended.is_some()) {
        return;
    }
    let told = pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
    let begun = Instant::now();
    while told && begun.elapsed() < START_LIMIT {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    if child.kill().and_then(|()| child.wait()).is_err() {
        left.push(format!("kill -9 {}", child.id()));
    }
}

/// A channel over the socket.
pub(crate) async fn connect(socket: &Path) -> Result<Channel> {
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
pub(crate) async fn probe(socket: &Path) -> Result<bool> {
    let mut identity = IdentityClient::new(connect(socket).await?);
    let answer = identity.probe(pb::ProbeRequest {}).await?.into_inner();
    Ok(answer.ready.unwrap_or(true))
}

/// The mount points at or below a folder, outermost first.
pub(crate) fn mounts_below(folder: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let targets = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    targets.filter(|target| target.starts_with(folder)).collect()
}

/// The loop devices whose files are below a folder.
pub(crate) fn loops_below(folder: &Path) -> Vec<String> {
    let mut devices = Vec::new();
    for entry in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
        let backing = fs::read_to_string(entry.path().join("loop/backing_file"));
        if backing.is_ok_and(|file| Path::new(file.trim_end()).starts_with(folder)) {
            devices.push(format!("/dev/{}", entry.file_name().to_string_lossy()));
        }
    }
    devices
}
