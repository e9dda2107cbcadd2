//! Volumes and the pods that use them.

use anyhow::{Result, ensure};

use super::super::Cluster;
use super::objects::{BLOCK, claim, claim_with, pod, pod_of};

/// A claim, a pod that writes, and another on another node that reads.
pub(super) fn moves(cluster: &Cluster) -> Result<()> {
    cluster.apply(&(claim("moves", "ghost", 1) + "---\n" + &pod("writer", "moves", "node1")))?;
    cluster.await_state("pod/writer", "condition=Ready")?;
    cluster.in_pod("writer", "echo kept >/data/file && sync")?;
    cluster.delete(&["pod/writer"])?;
    cluster.apply(&pod("reader", "moves", "node2"))?;
    cluster.await_state("pod/reader", "condition=Ready")?;
    let read = cluster.in_pod("reader", "cat /data/file")?;
    ensure!(read == "kept\n", "the other node reads {read:?}");
    cluster.delete(&["pod/reader", "pvc/moves"])?;
    cluster.nothing_is_left()
}

/// The same with a volume that is a device in the pod.
pub(super) fn block_moves(cluster: &Cluster) -> Result<()> {
    let volume = "persistentVolumeClaim: {claimName: raw}";
    let pod = |name, node| pod_of(name, node, volume, BLOCK);
    let claim = claim_with("raw", "ghost", 1, ", volumeMode: Block");
    cluster.apply(&(claim + "---\n" + &pod("writer", "node1")))?;
    cluster.await_state("pod/writer", "condition=Ready")?;
    cluster.in_pod("writer", "echo kept | dd of=/dev/data bs=512 conv=sync,fsync 2>/dev/null")?;
    cluster.delete(&["pod/writer"])?;
    cluster.apply(&pod("reader", "node2"))?;
    cluster.await_state("pod/reader", "condition=Ready")?;
    let read = cluster.in_pod("reader", "head -c 5 /dev/data")?;
    ensure!(read == "kept\n", "the other node reads {read:?}");
    cluster.delete(&["pod/reader", "pvc/raw"])?;
    cluster.nothing_is_left()
}
