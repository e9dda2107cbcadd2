//! The real program, started on a folder of its own, and what it takes to leave nothing behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const TOKEN: &str = "program";

/// How long anything here may take before the test gives up.
const LIMIT: Duration = Duration::from_secs(30);

/// Whether this may make loop devices. Without root the test is passed over loudly, but in CI
/// that is a failure.
pub(crate) fn may_use_devices() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        assert!(!is_ci(), "this test needs root, and CI has to run it");
        #[expect(clippy::print_stderr, reason = "whoever runs the tests has to see this")]
        {
            eprintln!("NOT TESTED: loop devices need root");
        }
    }
    root
}

#[expect(clippy::disallowed_methods, reason = "a test has no configuration to read it")]
fn is_ci() -> bool {
    std::env::var_os("CI").is_some()
}

/// Waits until this is so.
pub(crate) fn eventually(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: not within {} s", LIMIT.as_secs());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a tool of the system that has to succeed.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = command(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// A tool of the system.
#[expect(clippy::disallowed_methods, reason = "tests start programs themselves")]
pub(crate) fn command(program: &str) -> Command {
    Command::new(program)
}

/// A folder for state that outlives the programs started on it.
pub(crate) struct Folder {
    folder: TempDir,
}

/// A running program.
pub(crate) struct Program {
    child: Child,
    pub(crate) url: String,
    output: BufReader<ChildStdout>,
    client: reqwest::blocking::Client,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        Self { folder }
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.folder.path().join(below)
    }

    /// The link under which a droplet finds a disk.
    pub(crate) fn link(&self, droplet: u64, name: &str) -> PathBuf {
        self.path(&format!("state/droplets/{droplet}/dev/disk/by-id/scsi-0DO_Volume_{name}"))
    }

    /// Where a volume's content is.
    pub(crate) fn volume(&self, id: &str) -> PathBuf {
        self.path("state/volumes").join(id)
    }

    /// The loop devices over files of this folder, with those files.
    pub(crate) fn devices(&self) -> Vec<(PathBuf, String)> {
        let folder = self.folder.path().canonicalize().unwrap();
        let mut devices = Vec::new();
        for entry in fs::read_dir("/sys/block").unwrap() {
            let name = entry.unwrap().file_name();
            let file = Path::new("/sys/block").join(&name).join("loop/backing_file");
            let Ok(file) = fs::read_to_string(file) else { continue };
            if Path::new(&file).starts_with(&folder) {
                devices.push((Path::new("/dev").join(name), file.trim().to_owned()));
            }
        }
        devices
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Program {
        self.try_start(arguments).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts the program and waits until it listens; what it said if it ended instead.
    pub(crate) fn try_start(&self, arguments: &[&str]) -> Result<Program, String> {
        let mut child = command(env!("CARGO_BIN_EXE_ghost-sim"))
            .args(["serve", "--requests-per-hour", "1000000", "--state-dir"])
            .arg(self.path("state"))
            .arg("--token-file")
            .arg(self.path("token"))
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(fs::File::create(self.path("stderr")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let client = reqwest::blocking::Client::builder().timeout(LIMIT).build().unwrap();
        match line.trim_end().strip_prefix("listening on ") {
            Some(url) => Ok(Program { child, url: url.to_owned(), output, client }),
            None => {
                child.wait().unwrap();
                Err(fs::read_to_string(self.path("stderr")).unwrap())
            }
        }
    }
}

impl Drop for Folder {
    /// Devices that a killed or failed program has left.
    fn drop(&mut self) {
        for (device, _) in self.devices() {
            let detached = command("losetup").arg("--detach").arg(&device).status();
            if !detached.is_ok_and(|status| status.success()) {
                #[expect(clippy::print_stderr, reason = "someone has to clean up by hand")]
                {
                    eprintln!("left behind: losetup --detach {}", device.display());
                }
            }
        }
    }
}

impl Program {
    /// The address without the scheme.
    pub(crate) fn authority(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    /// Where the metadata service listens, which is said in the second line.
    pub(crate) fn metadata_url(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().strip_prefix("telling droplets at ").unwrap().to_owned()
    }

    /// Sends a request with the right token; the status and the body.
    pub(crate) fn send(&self, method: &str, path: &str, body: &Value) -> (u16, Value) {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let url = format!("{}{path}", self.url);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = self.client.request(method, url).bearer_auth(TOKEN).body(body);
        let answer = request.send().unwrap();
        let status = answer.status().as_u16();
        (status, serde_json::from_slice(&answer.bytes().unwrap()).unwrap_or(Value::Null))
    }

    /// Sends a request that has to succeed; the body.
    pub(crate) fn succeed(&self, method: &str, path: &str, body: &Value) -> Value {
        let (status, answer) = self.send(method, path, body);
        assert!((200..300).contains(&status), "{method} {path} {body}: {status} {answer}");
        answer
    }

    /// Makes a volume of 1 GiB in ams1; its id.
    pub(crate) fn volume(&self, name: &str) -> String {
        let body = json!({ "name": name, "region": "ams1", "size_gigabytes": 1 });
        let made = self.succeed("POST", "/v2/volumes", &body);
        made["volume"]["id"].as_str().unwrap().to_owned()
    }

    /// Does an action that has to be over when it is answered.
    pub(crate) fn act(&self, volume: &str, body: &Value) {
        let path = format!("/v2/volumes/{volume}/actions");
        let done = self.succeed("POST", &path, body);
        assert_eq!(done["action"]["status"], "completed", "{done}");
    }

    pub(crate) fn attach(&self, volume: &str, droplet: u64) {
        self.act(volume, &json!({ "type": "attach", "droplet_id": droplet }));
    }

    pub(crate) fn detach(&self, volume: &str, droplet: u64) {
        self.act(volume, &json!({ "type": "detach", "droplet_id": droplet }));
    }

    /// The volume as it is read.
    pub(crate) fn read(&self, volume: &str) -> Value {
        self.succeed("GET", &format!("/v2/volumes/{volume}"), &Value::Null)["volume"].take()
    }

    /// Sends a signal and waits for the end.
    pub(crate) fn end(mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.child.wait().unwrap()
    }

    fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.signal(Signal::TERM);
            let deadline = Instant::now() + LIMIT;
            while matches!(self.child.try_wait(), Ok(None)) {
                if Instant::now() >= deadline {
                    // What it leaves is taken away with its folder.
                    self.child.kill().and_then(|()| self.child.wait()).ok();
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
