//! The objects that tests make.

use super::super::images::SHELL;

/// A claim for so many GiB of a class.
pub(super) fn claim(name: &str, class: &str, gib: u32) -> String {
    claim_with(name, class, gib, "")
}

/// The same with more fields of its `spec`, in YAML's flow style and each with a comma before it.
pub(super) fn claim_with(name: &str, class: &str, gib: u32, more: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {{name: {name}}}, spec: {{accessModes: [ReadWriteOnce], \
         storageClassName: {class}, resources: {{requests: {{storage: {gib}Gi}}}}{more}}}}}\n"
    )
}

/// A pod on a node that sleeps, with a claim at `/data`.
pub(super) fn pod(name: &str, claim: &str, node: &str) -> String {
    pod_of(name, node, &format!("persistentVolumeClaim: {{claimName: {claim}}}"), MOUNTED)
}

/// How a pod has its volume: mounted.
const MOUNTED: &str = "volumeMounts: [{name: data, mountPath: /data}]";
/// How a pod has its volume: as a device.
pub(super) const BLOCK: &str = "volumeDevices: [{name: data, devicePath: /dev/data}]";

/// The same with whichever volume, in whichever way.
pub(super) fn pod_of(name: &str, node: &str, volume: &str, used: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{\
         nodeSelector: {{kubernetes.io/hostname: {node}}}, terminationGracePeriodSeconds: 1, \
         automountServiceAccountToken: false, containers: [{{name: shell, image: {SHELL}, \
         imagePullPolicy: Never, command: [sh, -c, 'trap \"exit 0\" TERM; while :; do sleep 1; done'], \
         {used}}}], volumes: [{{name: data, {volume}}}]}}}}\n"
    )
}
