//! What happens to running pods when something below them goes away and comes back.

use anyhow::{Result, ensure};

use super::super::Cluster;
use super::super::wait::{Limit, until};
use super::objects::{claim, pod};

/// A power cut of the node: the pod comes back with its data, and the disk is left where it is.
pub(super) fn node_reboots(cluster: &Cluster) -> Result<()> {
    cluster
        .apply(&(claim("reboots", "ghost", 1) + "---\n" + &pod("survivor", "reboots", "node1")))?;
    cluster.await_state("pod/survivor", "condition=Ready")?;
    cluster.in_pod("survivor", "echo kept >/data/file && sync")?;
    let restarts = restarts(cluster, "survivor")?;
    cluster.forget_requests()?;
    cluster.cut(1)?;
    cluster.boot(1)?;
    until("the pod to run again", Limit::LONG, || {
        let again = self::restarts(cluster, "survivor")? > restarts;
        Ok(again.then(|| cluster.in_pod("survivor", "cat /data/file").ok()).flatten())
    })
    .and_then(|read| {
        ensure!(read == "kept\n", "after the reboot the pod reads {read:?}");
        Ok(())
    })?;
    let actions = cluster.actions_asked_for()?;
    ensure!(actions.is_empty(), "the disk had stayed, and was moved: {actions:?}");
    cluster.delete(&["pod/survivor", "pvc/reboots"])?;
    cluster.nothing_is_left()
}

/// Another kubelet: the pod runs on.
pub(super) fn kubelet_restarts(cluster: &Cluster) -> Result<()> {
    cluster
        .apply(&(claim("goes-on", "ghost", 1) + "---\n" + &pod("goes-on", "goes-on", "node2")))?;
    cluster.await_state("pod/goes-on", "condition=Ready")?;
    cluster.in_pod("goes-on", "echo $$ >/data/before && sync")?;
    let before = cluster.field("pod/goes-on", ".status.containerStatuses[0].containerID")?;
    cluster.restart_kubelet(2)?;
    cluster.node_is_ready(2)?;
    cluster.driver_is_registered(2)?;
    cluster.await_state("pod/goes-on", "condition=Ready")?;
    cluster.in_pod("goes-on", "echo after >/data/after && sync")?;
    let after = cluster.field("pod/goes-on", ".status.containerStatuses[0].containerID")?;
    ensure!(before == after, "the container was started again: {before}, {after}");
    cluster.delete(&["pod/goes-on", "pvc/goes-on"])?;
    cluster.nothing_is_left()
}

/// How often the pod's container has been started again.
fn restarts(cluster: &Cluster, pod: &str) -> Result<u32> {
    let path = ".status.containerStatuses[0].restartCount";
    Ok(cluster.field(&format!("pod/{pod}"), path)?.parse().unwrap_or(0))
}
