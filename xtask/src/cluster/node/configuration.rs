//! What containerd, the kubelet and the pod network of a node are told.

use std::path::Path;

use crate::cluster::{cgroup, images, network};

/// containerd 1.6, Debian's; its state and socket are in `/run`, which is the node's own.
pub(super) fn containerd(debian: &Path) -> String {
    format!(
        r#"version = 2
root = "/var/lib/containerd"
state = "/run/containerd"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# A machine without CAP_SYS_RESOURCE can lower nobody's score.
restrict_oom_score_adj = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "{debian}/usr/lib/cni"
conf_dir = "/var/lib/cni/net.d"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#,
        pause = images::PAUSE,
        debian = debian.display(),
    )
}

/// The kubelet of a small test node, on a machine with version 1 control groups.
pub(super) fn kubelet(number: u8) -> String {
    let (root, address) = (cgroup::of_node(number), network::node(number));
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: {root}
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
failSwapOn: false
# Both need CAP_SYS_RESOURCE beyond these.
oomScoreAdj: 0
maxOpenFiles: 20000
address: {address}
authentication: {{ anonymous: {{ enabled: true }}, webhook: {{ enabled: false }} }}
authorization: {{ mode: AlwaysAllow }}
resolvConf: ''
evictionHard: {{ memory.available: 50Mi, nodefs.available: 1%, imagefs.available: 1% }}
imageGCHighThresholdPercent: 100
# How soon changes of volumes are seen; a minute by default.
syncFrequency: 10s
nodeStatusUpdateFrequency: 4s
volumePluginDir: /var/lib/kubelet/volumeplugins
"
    )
}

/// A bridge for each node's pods, reached by routes and without translation of addresses.
pub(super) fn pod_network(number: u8) -> String {
    let pods = network::pods(number);
    format!(
        r#"{{"cniVersion":"1.0.0","name":"ghost","plugins":[{{"type":"bridge","bridge":"pods","isGateway":true,"ipMasq":false,
"ipam":{{"type":"host-local","dataDir":"/var/lib/cni/networks","ranges":[[{{"subnet":"{pods}"}}]],"routes":[{{"dst":"0.0.0.0/0"}}]}}}}]}}
"#
    )
}

/// The kubelet keeps a loop device over each raw block volume. The kernel makes its node among the
/// machine's devices only, so this makes it among the node's before, and takes it away after. Another
/// may take the number meanwhile: then it is tried again with the next.
pub(super) const LOSETUP: &str = r#"#!/bin/sh
case "$1" in
-f)
    for attempt in 1 2 3 4 5 6 7 8 9 10; do
        device=$(/usr/sbin/losetup --find) || exit
        number=${device#/dev/loop}
        made=
        [ -e "$device" ] || { mknod "$device" b 7 "$number"; made=yes; }
        /usr/sbin/losetup "$device" "$2" && exit
        [ -z "$made" ] || rm "$device"
    done
    exit 1 ;;
-d)
    /usr/sbin/losetup "$@" && rm -f "$2" ;;
*)
    exec /usr/sbin/losetup "$@" ;;
esac
"#;
