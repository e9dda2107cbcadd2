//! The simulator as the cloud: over TLS, its droplets the nodes, told apart by their addresses.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use reqwest::{Certificate, Method};
use serde_json::Value;
use xtask::command::{output, target};

use super::{Cluster, NODES, certificates, network};

/// The first droplet; node 1 is it.
const FIRST_DROPLET: u64 = 101;
/// How long an action takes.
const ACTION_TIME: &str = "300ms";
const TOKEN: &str = "token-of-the-cluster-CANARY";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// The droplet that a node is.
pub(super) fn droplet(node: u8) -> u64 {
    FIRST_DROPLET - 1 + u64::from(node)
}

/// The same from the cluster's folder.
pub(super) fn devices(folder: &Path, node: u8) -> PathBuf {
    folder.join(format!("cloud/droplets/{}/dev", droplet(node)))
}

/// Where the API is.
pub(super) fn url() -> String {
    format!("https://{}:8443", network::CONTROL_PLANE)
}

/// What a token file has at first.
pub(super) fn token() -> &'static str {
    TOKEN
}

impl Cluster {
    /// Starts the cloud, and the droplets' device folders before it.
    pub(super) fn start_cloud(&self) -> Result<()> {
        for node in 1..=NODES {
            // Kept over a node's reboots, as disks are.
            let devices = self.devices(node);
            fs::create_dir_all(&devices)?;
            let options = ["--types", "tmpfs", "--options", "mode=755", "devices"];
            output(self.inside("mount").args(options).arg(devices))?;
        }
        if !self.path("token").exists() {
            fs::write(self.path("token"), TOKEN)?;
        }
        let mut command = self.inside(target().join("debug/ghost-sim"));
        command
            .args(["serve", "--devices", "droplet-loop", "--region", "ams1"])
            .args(["--listen", &format!("{}:8443", network::CONTROL_PLANE)])
            .args(["--metadata-listen", &format!("{}:80", network::METADATA)])
            .args(["--droplets", &NODES.to_string()])
            .args(["--first-droplet", &FIRST_DROPLET.to_string()])
            .args(["--action-time", ACTION_TIME, "--requests-per-hour", "100000000"]);
        for node in 1..=NODES {
            let droplet = droplet(node);
            command.args(["--metadata-of", &format!("{}={droplet}", network::node(node))]);
            command.args(["--metadata-of", &format!("{}={droplet}", network::pods(node))]);
        }
        for (option, file) in [
            ("--state-dir", "cloud"),
            ("--token-file", "token"),
            ("--tls-cert-file", "pki/cloud.crt"),
            ("--tls-key-file", "pki/cloud.key"),
        ] {
            command.arg(option).arg(self.path(file));
        }
        let mut child = command.stdout(Stdio::piped()).stderr(self.log("cloud")?).spawn()?;
        let output = child.stdout.take().context("its output was asked for")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(line.starts_with("listening on "), "the simulator did not start");
        Ok(())
    }

    /// The device folder of a node, which is mounted within the cluster only.
    pub(super) fn devices(&self, node: u8) -> PathBuf {
        devices(&self.folder, node)
    }

    /// Asks the cloud, past the driver.
    pub(super) fn ask_cloud(&self, method: &Method, path: &str) -> Result<Value> {
        let authority = Certificate::from_pem(&fs::read(self.path(certificates::AUTHORITY))?)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let what = format!("{method} {path}");
        runtime.block_on(async {
            let client =
                reqwest::Client::builder().tls_certs_only([authority]).timeout(PATIENCE).build()?;
            let request = client
                .request(method.clone(), format!("{}{path}", url()))
                .bearer_auth(fs::read_to_string(self.path("token"))?.trim());
            let answer = request.send().await.with_context(|| what.clone())?;
            let status = answer.status();
            let text = answer.text().await?;
            ensure!(status.is_success(), "{what}: {status} {text}");
            Ok(serde_json::from_str(&text).unwrap_or(Value::Null))
        })
    }

    /// What the cloud has, without a request that counts.
    pub(super) fn cloud_state(&self) -> Result<Value> {
        self.ask_cloud(&Method::GET, "/sim/v1/state")
    }

    /// Forgets the requests that were made so far.
    pub(super) fn forget_requests(&self) -> Result<()> {
        self.ask_cloud(&Method::DELETE, "/sim/v1/requests").map(drop)
    }

    /// The requests for actions that were made since.
    pub(super) fn actions_asked_for(&self) -> Result<Vec<Value>> {
        let log = self.ask_cloud(&Method::GET, "/sim/v1/requests")?;
        let requests = log["requests"].as_array().cloned().unwrap_or_default();
        let is_action = |request: &Value| {
            request["method"] == "POST"
                && request["path"].as_str().is_some_and(|path| path.ends_with("/actions"))
        };
        Ok(requests.into_iter().filter(is_action).collect())
    }
}
