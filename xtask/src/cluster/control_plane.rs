//! etcd, the API server, the controller manager and the scheduler, as processes.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Child;

use anyhow::{Result, bail};

use super::wait::{Limit, until};
use super::{Cluster, NODES, certificates, network};

const ETCD: &str = "http://127.0.0.1:2379";
const ADMINISTRATOR: &str = "administrator-of-the-cluster";
/// How long a node may be silent before it counts as lost; Kubernetes' default is 50 s.
const NODE_GRACE: &str = "20s";

/// The token of a node's kubelet.
fn node_token(number: u8) -> String {
    format!("kubelet-of-node{number}")
}

impl Cluster {
    /// The administrator's configuration for kubectl and helm.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.path("kubeconfig")
    }

    /// Starts all four, and waits until the API server is ready.
    pub(super) fn start_control_plane(&mut self) -> Result<()> {
        self.write_credentials()?;
        let mut etcd = self.part(
            "etcd",
            &[
                &format!("--data-dir={}", self.path("etcd").display()),
                "--unsafe-no-fsync",
                "--log-level=warn",
                &format!("--listen-client-urls={ETCD}"),
                &format!("--advertise-client-urls={ETCD}"),
                "--listen-peer-urls=http://127.0.0.1:2380",
                "--initial-advertise-peer-urls=http://127.0.0.1:2380",
                "--initial-cluster=default=http://127.0.0.1:2380",
            ],
        )?;
        let mut server = self.start_api_server()?;
        until("the API server", Limit::SHORT, || {
            for (name, part) in [("etcd", &mut etcd), ("kube-apiserver", &mut server)] {
                if part.try_wait()?.is_some() {
                    bail!("{name} ended; see its log");
                }
            }
            Ok(self.kubectl(&["get", "--raw", "/readyz"]).ok())
        })?;
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig().display());
        let key = self.path(certificates::ACCOUNT_KEY);
        let authority = self.path(certificates::AUTHORITY);
        self.part(
            "kube-controller-manager",
            &[
                &kubeconfig,
                "--leader-elect=false",
                "--bind-address=127.0.0.1",
                &format!("--service-account-private-key-file={}", key.display()),
                &format!("--root-ca-file={}", authority.display()),
                "--node-monitor-period=2s",
                &format!("--node-monitor-grace-period={NODE_GRACE}"),
                "--v=2",
            ],
        )?;
        self.part(
            "kube-scheduler",
            &[&kubeconfig, "--leader-elect=false", "--bind-address=127.0.0.1"],
        )?;
        until("the default service account", Limit::SHORT, || {
            Ok(self.kubectl(&["get", "serviceaccount", "default"]).ok())
        })?;
        Ok(())
    }

    /// Starts the API server.
    pub(super) fn start_api_server(&self) -> Result<Child> {
        let pki = |name: &str| self.path("pki").join(name).display().to_string();
        let key = self.path(certificates::ACCOUNT_KEY).display().to_string();
        self.part(
            "kube-apiserver",
            &[
                &format!("--etcd-servers={ETCD}"),
                "--bind-address=0.0.0.0",
                &format!("--advertise-address={}", network::CONTROL_PLANE),
                "--secure-port=6443",
                &format!("--tls-cert-file={}", pki("api-server.crt")),
                &format!("--tls-private-key-file={}", pki("api-server.key")),
                &format!("--token-auth-file={}", pki("tokens.csv")),
                "--authorization-mode=Node,RBAC",
                "--enable-admission-plugins=NodeRestriction",
                "--allow-privileged",
                "--service-account-issuer=https://kubernetes.default.svc",
                &format!("--service-account-key-file={}", pki("accounts.pub")),
                &format!("--service-account-signing-key-file={key}"),
                "--service-cluster-ip-range=10.96.0.0/16",
                // Nobody resolves the nodes' names.
                "--kubelet-preferred-address-types=InternalIP",
                "--v=1",
            ],
        )
    }

    /// A part of the control plane, running, with a log of its name.
    pub(super) fn part(&self, name: &str, arguments: &[&str]) -> Result<Child> {
        let mut command = self.inside(self.parts.programs.join(name));
        command.args(arguments).stdout(self.log(name)?).stderr(self.log(name)?);
        // Not in the way of a Ctrl-C: it ends with the cluster.
        Ok(command.process_group(0).stdin(std::process::Stdio::null()).spawn()?)
    }

    fn write_credentials(&self) -> Result<()> {
        let mut tokens = format!("{ADMINISTRATOR},administrator,administrator,system:masters\n");
        for number in 1..=NODES {
            let token = node_token(number);
            writeln!(tokens, "{token},system:node:node{number},node{number},system:nodes")?;
            fs::create_dir_all(self.node_folder(number))?;
            fs::write(self.node_folder(number).join("kubeconfig"), self.credentials(&token))?;
        }
        fs::write(self.path("pki/tokens.csv"), tokens)?;
        fs::write(self.kubeconfig(), self.credentials(ADMINISTRATOR))?;
        Ok(())
    }

    fn credentials(&self, token: &str) -> String {
        let server = format!("https://{}:6443", network::CONTROL_PLANE);
        let authority = self.path(certificates::AUTHORITY);
        let authority = authority.display();
        format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: ghost\n\
             clusters: [{{name: ghost, cluster: {{server: \"{server}\", certificate-authority: \"{authority}\"}}}}]\n\
             users: [{{name: ghost, user: {{token: {token}}}}}]\n\
             contexts: [{{name: ghost, context: {{cluster: ghost, user: ghost}}}}]\n"
        )
    }
}
