//! The driver, installed as an operator does: by its chart, with the values that this cluster needs.

use std::fs;

use anyhow::Result;
use xtask::command::{output, program, root};

use super::{Cluster, NODES, certificates, cloud, network, parts};

/// Where the driver is.
pub(super) const NAMESPACE: &str = "ghost-system";
/// The driver's name.
pub(super) const DRIVER: &str = "ghost.csi.greenhost.net";

impl Cluster {
    /// Snapshots are the cluster's own affair: their kinds, and the controller that binds them.
    pub(super) fn install_snapshots(&self) -> Result<()> {
        let folder = parts::snapshot_kinds()?;
        for kind in ["volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots"] {
            let file = format!("snapshot.storage.k8s.io_{kind}.yaml");
            let file = folder.join(file).display().to_string();
            self.kubectl(&["apply", "--filename", &file])?;
            self.await_state(
                &format!("crd/{kind}.snapshot.storage.k8s.io"),
                "condition=Established",
            )?;
        }
        self.part(
            "snapshot-controller",
            &[
                &format!("--kubeconfig={}", self.kubeconfig().display()),
                "--leader-election=false",
                "--v=4",
            ],
        )?;
        Ok(())
    }

    /// Installs the chart and waits until every node has the driver.
    pub(super) fn install_driver(&self) -> Result<()> {
        self.apply(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}"
        ))?;
        self.write_token(cloud::token())?;
        fs::write(self.path("values.yaml"), self.values())?;
        self.helm_upgrade()?;
        for number in 1..=NODES {
            self.driver_is_registered(number)?;
        }
        Ok(())
    }

    /// Installs the chart and waits until it runs.
    fn helm_upgrade(&self) -> Result<()> {
        let mut helm = program(parts::helm()?);
        helm.env("KUBECONFIG", self.kubeconfig());
        helm.args(["upgrade", "--install", "ghost"]).arg(root().join("charts/ghost"));
        helm.args(["--namespace", NAMESPACE, "--values"]).arg(self.path("values.yaml"));
        output(helm.args(["--wait", "--timeout", "4m"])).map(drop)
    }

    /// Waits until a node's kubelet knows the driver.
    pub(super) fn driver_is_registered(&self, number: u8) -> Result<()> {
        self.await_state(
            &format!("csinode/node{number}"),
            &format!(
                "jsonpath={{.spec.drivers[?(@.name==\"{DRIVER}\")].nodeID}}={}",
                cloud::droplet(number)
            ),
        )
    }

    /// Puts a token into the driver's Secret.
    pub(super) fn write_token(&self, token: &str) -> Result<()> {
        self.apply(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: cosmos, namespace: {NAMESPACE}}}, \
             stringData: {{token: {token}}}}}"
        ))
    }

    fn values(&self) -> String {
        let authority = fs::read_to_string(self.path(certificates::AUTHORITY)).unwrap_or_default();
        let authority = authority.replace('\n', "\n    ");
        let (url, host) = (cloud::url(), network::CONTROL_PLANE);
        format!(
            "clusterId: test
region: ams1
cosmos:
  url: {url}
  existingSecret: cosmos
  # The cluster's tests are about Kubernetes; others are about the budget.
  requestsPerMinute: 6000
  requestsPerHour: 100000
  ca: |
    {authority}
image: {{ pullPolicy: Never }}
# There is no service network: the API server is reached where it is.
controller:
  env: [{{ name: KUBERNETES_SERVICE_HOST, value: {host} }}, {{ name: KUBERNETES_SERVICE_PORT, value: '6443' }}]
sidecars:
  attacher: {{ reconcileSync: 10s }}
"
        )
    }
}
