//! A cloud, the driver of more than one cluster, and the program that is tested.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};
use xtask::command::program;
use xtask::playground::{Options, Playground, TOKEN};
use xtask::volume_life::Controller;

/// The program.
const KUBECTL_GHOST: &str = env!("CARGO_BIN_EXE_kubectl-ghost");

/// What a test runs in.
pub(crate) struct World {
    pub(crate) parts: Playground,
    http: reqwest::Client,
    cluster: Option<String>,
}

/// What a run of the program came to.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl World {
    /// A world with a cloud, and nothing else yet.
    pub(crate) fn start() -> Self {
        let programs = Path::new(KUBECTL_GHOST).parent().unwrap().to_owned();
        for name in ["ghost", "ghost-sim"] {
            let built = programs.join(name).is_file();
            assert!(built, "{name} is not built; run: cargo build --workspace");
        }
        let options = Options { programs, action_time: "0ms", devices: false, log: "warn" };
        let mut parts = Playground::empty(options).unwrap();
        parts.start_simulator(&[]).unwrap();
        let http = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
        Self { parts, http, cluster: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.parts.path(name)
    }

    /// The driver of this cluster; without an id, of one that has none.
    pub(crate) async fn driver(&mut self, cluster: Option<&str>) -> Controller {
        let running = self.parts.controller_pid().is_some();
        if !running || self.cluster.as_deref() != cluster {
            self.parts.kill_controller().unwrap();
            let options: Vec<&str> = cluster.iter().flat_map(|id| ["--cluster-id", *id]).collect();
            self.parts.start_controller(&options).unwrap();
            self.cluster = cluster.map(str::to_owned);
        }
        Controller(self.parts.controller().await.unwrap())
    }

    /// Asks the cloud for something, as a person would.
    pub(crate) async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        let url = format!("{}{path}", self.parts.url());
        let mut request = self.http.request(method, url).bearer_auth(TOKEN);
        if !body.is_null() {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap().error_for_status().unwrap();
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap_or(Value::Null)
    }

    /// Makes a volume at the cloud by hand, and answers its id.
    pub(crate) async fn volume_by_hand(&self, name: &str, tags: &[&str]) -> String {
        let body = json!({ "name": name, "region": "ams1", "size_gigabytes": 1, "tags": tags });
        let made = self.ask(Method::POST, "/v2/volumes", body).await;
        made["volume"]["id"].as_str().unwrap().to_owned()
    }

    /// Makes a snapshot of a machine by hand.
    pub(crate) async fn machine_snapshot(&self, name: &str, tags: &[&str]) {
        let body = json!({ "name": name, "tags": tags });
        self.ask(Method::POST, "/sim/v1/droplets/101/snapshots", body).await;
    }

    /// Attaches a volume by its id.
    pub(crate) async fn attach(&self, id: &str) {
        let body = json!({ "type": "attach", "droplet_id": 101 });
        self.ask(Method::POST, &format!("/v2/volumes/{id}/actions"), body).await;
    }

    /// Has a volume or snapshot made this many hours ago.
    pub(crate) async fn age(&self, kind: &str, id: &str, hours: i64) {
        let made = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(hours);
        let body = json!({ "created_at": made.to_string() });
        self.ask(Method::PUT, &format!("/sim/v1/{kind}s/{id}"), body).await;
    }

    /// Has everything that is there made three days ago.
    pub(crate) async fn age_all(&self) {
        let state = self.state().await;
        for kind in ["volume", "snapshot"] {
            for made in state[format!("{kind}s")].as_array().unwrap() {
                self.age(kind, made["id"].as_str().unwrap(), 72).await;
            }
        }
    }

    async fn state(&self) -> Value {
        self.ask(Method::GET, "/sim/v1/state", Value::Null).await
    }

    /// What there is at the cloud: `volume NAME`, `snapshot NAME`.
    pub(crate) async fn there(&self) -> BTreeSet<String> {
        let state = self.state().await;
        let named = |kind: &str| {
            let all = state[format!("{kind}s")].as_array().unwrap().clone();
            let kind = kind.to_owned();
            all.into_iter().map(move |made| format!("{kind} {}", made["name"].as_str().unwrap()))
        };
        named("volume").chain(named("snapshot")).collect()
    }

    /// The id of the volume or snapshot of this name.
    pub(crate) async fn id(&self, kind: &str, name: &str) -> String {
        let state = self.state().await;
        let all = state[format!("{kind}s")].as_array().unwrap();
        let found = all.iter().find(|made| made["name"] == name);
        found.unwrap_or_else(|| panic!("no {kind} {name}"))["id"].as_str().unwrap().to_owned()
    }

    /// Makes requests of this method and route go wrong for ever, but not the first ones.
    pub(crate) async fn fault(&self, method: &str, route: &str, spared: u64, effect: Value) {
        let rule = json!([{"method": method, "route": route, "after": spared, "effect": effect}]);
        self.ask(Method::PUT, "/sim/v1/faults", rule).await;
    }

    pub(crate) async fn no_faults(&self) {
        self.ask(Method::PUT, "/sim/v1/faults", json!([])).await;
    }

    /// How many requests to delete something the cloud has got.
    pub(crate) async fn deletions(&self) -> usize {
        let log = self.ask(Method::GET, "/sim/v1/requests", Value::Null).await;
        let requests = log["requests"].as_array().unwrap().iter();
        let api = |entry: &Value| entry["route"].as_str().unwrap().starts_with("/v2/");
        requests.filter(|entry| entry["method"] == "DELETE" && api(entry)).count()
    }

    /// A file of handles.
    pub(crate) fn handles(&self, volumes: &[&str], snapshots: &[&str]) -> String {
        let path = self.path("handles");
        let (volumes, snapshots) = (volumes.join("\n"), snapshots.join("\n"));
        let text = format!("{volumes}\n# end of volumes\n{snapshots}\n# end of snapshots\n");
        fs::write(&path, text).unwrap();
        format!("--handles={}", path.display())
    }

    fn command(&self, options: &[&str]) -> Command {
        let mut command = program(KUBECTL_GHOST);
        command
            .args(["orphans", "--cosmos-url", self.parts.url(), "--cosmos-token-file"])
            .arg(self.path("token"))
            .args(options)
            .env_remove("KUBECONFIG")
            .env("HOME", self.path("home"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs `kubectl ghost orphans --cluster-id prod` with these options and answers.
    pub(crate) fn orphans(&self, options: &[&str], answers: &str) -> Run {
        self.run(&[&["--cluster-id", "prod"], options].concat(), answers)
    }

    /// Runs `kubectl ghost orphans` with these options and answers.
    pub(crate) fn run(&self, options: &[&str], answers: &str) -> Run {
        let mut child = self.command(options).spawn().unwrap();
        // It may end without reading them.
        let _ = child.stdin.take().unwrap().write_all(answers.as_bytes());
        Run::of(child, String::new())
    }

    /// Runs it, does something when the first question is asked, and then agrees.
    pub(crate) async fn orphans_meanwhile(
        &self,
        options: &[&str],
        meanwhile: impl Future<Output = ()>,
    ) -> Run {
        let options = [&["--cluster-id", "prod", "--delete"], options].concat();
        let mut child = self.command(&options).spawn().unwrap();
        let mut asked = Vec::new();
        let stderr = child.stderr.as_mut().unwrap();
        while !asked.ends_with(b"[y/N] ") {
            let mut byte = [0];
            let read = stderr.read(&mut byte).unwrap();
            assert_eq!(read, 1, "no question: {}", String::from_utf8_lossy(&asked));
            asked.push(byte[0]);
        }
        meanwhile.await;
        child.stdin.take().unwrap().write_all(b"y\ny\ny\n").unwrap();
        Run::of(child, String::from_utf8(asked).unwrap())
    }
}

impl Run {
    fn of(child: Child, asked: String) -> Self {
        let output = child.wait_with_output().unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let run = Self {
            code: output.status.code().unwrap(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: asked + &stderr,
        };
        assert!(!format!("{run:?}").contains(TOKEN), "the token is shown: {run:?}");
        run
    }

    /// Checks the exit code and a text that it told.
    #[track_caller]
    pub(crate) fn told(&self, code: i32, text: &str) {
        assert_eq!(self.code, code, "{self:?}");
        assert!(self.stderr.contains(text), "{text:?} is not in {}", self.stderr);
    }
}
