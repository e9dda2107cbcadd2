//! A world for one test, and the simulator's control surface.

use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use ghost_csi as pb;
use serde_json::{Value, json};
use tonic::{Code, Status};
use xtask::leftover::{loops_below, mounts_below};
use xtask::playground::{Options, Playground, TOKEN};
use xtask::volume_life::{Controller, Node, Volume, mounted};

/// What a test runs in.
pub(crate) struct World {
    pub(crate) parts: Playground,
    http: reqwest::Client,
}

/// Whether the tests can run at all.
pub(crate) fn is_root() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        eprintln!("NOT RUN: this test needs root, for loop devices and mounts");
        #[expect(clippy::disallowed_methods, reason = "a test asks whether it runs in CI")]
        let in_ci = std::env::var_os("CI").is_some();
        assert!(!in_ci, "in CI no test may be left out");
    }
    root
}

fn options(action_time: &'static str, devices: bool, log: &'static str) -> Options {
    let programs = Path::new(env!("CARGO_BIN_EXE_ghost")).parent().unwrap().to_owned();
    let simulator = programs.join("ghost-sim");
    assert!(simulator.is_file(), "no simulator is built; run: cargo build --workspace");
    Options { programs, action_time, devices, log }
}

impl World {
    /// A world in which everything runs, with devices, and actions that are done at once.
    pub(crate) fn start() -> Self {
        Self::of(Playground::start(options("0ms", true, "debug")).unwrap())
    }

    /// A world in which nothing runs yet.
    pub(crate) fn empty(action_time: &'static str, devices: bool, log: &'static str) -> Self {
        Self::of(Playground::empty(options(action_time, devices, log)).unwrap())
    }

    fn of(parts: Playground) -> Self {
        Self { parts, http: reqwest::Client::builder().tls_certs_only([]).build().unwrap() }
    }

    pub(crate) async fn controller(&self) -> Controller {
        Controller(self.parts.controller().await.unwrap())
    }

    pub(crate) async fn node(&self, id: u64) -> Node {
        Node(self.parts.node(id).await.unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.parts.path(name)
    }

    async fn control(&self, method: reqwest::Method, path: &str, body: Option<Value>) -> Value {
        let mut request = self.http.request(method, format!("{}{path}", self.parts.url()));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let response = request.send().await.unwrap().error_for_status().unwrap();
        serde_json::from_slice(&response.bytes().await.unwrap()).unwrap_or(Value::Null)
    }

    /// Everything that the cloud knows.
    pub(crate) async fn cloud(&self) -> Value {
        self.control(reqwest::Method::GET, "/sim/v1/state", None).await
    }

    /// Waits until the cloud has an action under way.
    pub(crate) async fn action_begun(&self) {
        while !self.cloud().await.to_string().contains("\"in-progress\"") {
            tokio::task::yield_now().await;
        }
    }

    /// How many volumes there are at the cloud.
    pub(crate) async fn volumes(&self) -> usize {
        let mut controller = self.controller().await;
        controller.count().await.unwrap()
    }

    /// Makes requests of this method and route template go wrong, `times` times.
    pub(crate) async fn fault(&self, method: &str, route: &str, times: u64, effect: &Value) {
        let rule = json!([{"method": method, "route": route, "times": times, "effect": effect}]);
        self.control(reqwest::Method::PUT, "/sim/v1/faults", Some(rule)).await;
    }

    /// Makes requests of this method and route template go wrong for ever, but not the first ones.
    pub(crate) async fn fault_after(&self, method: &str, route: &str, spared: u64, effect: &Value) {
        let rule = json!([{"method": method, "route": route, "after": spared, "effect": effect}]);
        self.control(reqwest::Method::PUT, "/sim/v1/faults", Some(rule)).await;
    }

    /// Makes a snapshot of a machine, with these tags; its id.
    pub(crate) async fn machine_snapshot(&self, name: &str, tags: &[&str]) -> String {
        let body = json!({ "name": name, "tags": tags });
        let path = "/sim/v1/droplets/101/snapshots";
        let made = self.control(reqwest::Method::POST, path, Some(body)).await;
        made["snapshot"]["id"].as_str().unwrap().to_owned()
    }

    /// Has every snapshot made long ago, so that the cloud is done with it.
    pub(crate) async fn age_snapshots(&self) {
        for snapshot in self.cloud().await["snapshots"].as_array().unwrap() {
            let path = format!("/sim/v1/snapshots/{}", snapshot["id"].as_str().unwrap());
            let body = json!({ "created_at": "2020-01-01T00:00:00Z" });
            self.control(reqwest::Method::PUT, &path, Some(body)).await;
        }
    }

    /// What the API itself answers to a read with the world's first token, lag included.
    pub(crate) async fn read_from_cloud(&self, path: &str) -> Value {
        let url = format!("{}{path}", self.parts.url());
        let answer = self.http.get(url).bearer_auth(TOKEN).send().await.unwrap();
        let answer = answer.error_for_status().unwrap();
        serde_json::from_slice(&answer.bytes().await.unwrap()).unwrap()
    }

    /// Does something at the cloud as a person would, behind the driver's back.
    pub(crate) async fn by_hand(&self, method: reqwest::Method, path: &str, body: Option<Value>) {
        let url = format!("{}{path}", self.parts.url());
        let mut request = self.http.request(method, url).bearer_auth(TOKEN);
        if let Some(body) = body {
            request = request.json(&body);
        }
        request.send().await.unwrap().error_for_status().unwrap();
    }

    pub(crate) async fn no_faults(&self) {
        self.control(reqwest::Method::PUT, "/sim/v1/faults", Some(json!([]))).await;
    }

    /// The requests that the cloud got while `work` ran, as `METHOD route`.
    pub(crate) async fn requests_during<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> (Vec<String>, T) {
        self.control(reqwest::Method::DELETE, "/sim/v1/requests", None).await;
        let done = work.await;
        let log = self.control(reqwest::Method::GET, "/sim/v1/requests", None).await;
        let text = |entry: &Value, key: &str| entry[key].as_str().unwrap().to_owned();
        let requests = log["requests"].as_array().unwrap().iter();
        let requests = requests
            .map(|entry| format!("{} {}", text(entry, "method"), text(entry, "route")))
            .filter(|request| request.contains(" /v2/"));
        (requests.collect(), done)
    }

    /// Makes a volume, attaches it to node 101, stages and publishes it at `staging` and `target`.
    pub(crate) async fn published(&self, name: &str, filesystem: &str) -> Volume {
        let mut controller = self.controller().await;
        let mut node = self.node(101).await;
        let mut volume = controller.create(name, 1, mounted(filesystem)).await.unwrap();
        controller.attach(&mut volume, 101).await.unwrap();
        node.stage(&volume, &self.path("staging")).await.unwrap();
        node.publish(&volume, &self.path("staging"), &self.path("target")).await.unwrap();
        volume
    }

    /// Takes a volume away again, from wherever it is.
    pub(crate) async fn take_away(&self, volume: &Volume) {
        let mut controller = self.controller().await;
        for id in [101, 102] {
            let mut node = self.node(id).await;
            node.unpublish(volume, &self.path("target")).await.unwrap();
            node.unstage(volume, &self.path("staging")).await.unwrap();
            controller.detach(volume, id).await.unwrap();
        }
        controller.delete(volume).await.unwrap();
    }

    /// Checks that nothing is left: no mount, no loop device, no volume.
    pub(crate) async fn assert_clean(&self) {
        assert_eq!(mounts_below(&self.path("")), Vec::<PathBuf>::new());
        // The kernel lets go of a loop device when its last user closes it, which may be whoever
        // happened to look at it; only one that stays is left over.
        let gone = async {
            while !loops_below(&self.path("")).is_empty() {
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(std::time::Duration::from_secs(10), gone).await;
        assert_eq!(loops_below(&self.path("")), Vec::<String>::new());
        assert_eq!(self.volumes().await, 0, "{}", self.cloud().await);
    }

    /// How many mounts are at this path.
    pub(crate) fn layers(&self, path: &str) -> usize {
        let path = self.path(path);
        mounts_below(&path).iter().filter(|target| **target == path).count()
    }

    /// The device that the link of the volume on a node leads to.
    pub(crate) fn device(&self, volume: &Volume, node: u64) -> PathBuf {
        let name = format!("disk/by-id/scsi-0DO_Volume_{}", volume.context["volumeName"]);
        let device = fs::canonicalize(self.parts.dev_root(node).join(name)).unwrap();
        assert!(fs::metadata(&device).unwrap().file_type().is_block_device());
        device
    }
}

/// Whether the answer is a success or says that the outcome is open.
pub(crate) fn is_not_final<T>(answer: &Result<T, Status>) -> bool {
    matches!(
        answer.as_ref().map_err(Status::code),
        Ok(_) | Err(Code::Unavailable | Code::Aborted | Code::DeadlineExceeded)
    )
}

/// A request with a time limit, as a sidecar gives one.
pub(crate) fn within<T>(seconds: u64, request: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(std::time::Duration::from_secs(seconds));
    request
}

/// The request of an attachment.
pub(crate) fn attach_request(volume: &Volume, node: &str) -> pb::ControllerPublishVolumeRequest {
    pb::ControllerPublishVolumeRequest {
        volume_id: volume.id.clone(),
        node_id: node.to_owned(),
        volume_capability: Some(volume.capability.clone()),
        volume_context: volume.context.clone(),
        ..Default::default()
    }
}

/// The request of a stage there.
pub(crate) fn stage_request(volume: &Volume, staging: &Path) -> pb::NodeStageVolumeRequest {
    pb::NodeStageVolumeRequest {
        volume_id: volume.id.clone(),
        publish_context: volume.attachment.clone(),
        volume_context: volume.context.clone(),
        staging_target_path: staging.display().to_string(),
        volume_capability: Some(volume.capability.clone()),
        ..Default::default()
    }
}
