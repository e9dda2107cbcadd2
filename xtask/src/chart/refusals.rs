//! Wrong values, and the words with which they are refused.

use std::path::Path;

use anyhow::{Result, bail, ensure};

use super::tools::Tools;
use super::{MINIMAL, template};

/// What is typed beside sound values, and what the refusal must say.
const REFUSED: [(&[&str], &str); 36] = [
    (&["clusterId="], "clusterId \"\" must begin with a small letter and have at most 20"),
    (&["clusterId=my-cluster"], "clusterId \"my-cluster\" must begin with a small letter"),
    (&["clusterId=1st"], "clusterId \"1st\" must begin with a small letter"),
    (&["clusterId=averyveryverylongname"], "at most 20 small letters and digits, no dash"),
    (&["clusterId=7"], "at '/clusterId': got number, want string"),
    (&["driverName=Ghost"], "driverName \"Ghost\" must be a domain name"),
    (&["driverName=-a.b"], "driverName \"-a.b\" must be a domain name"),
    (&["regoin=ams1"], "additional properties 'regoin' not allowed"),
    (&["cosmos.url="], "cosmos.url \"\" must be the https address of the disk API"),
    (&["cosmos.url=api.example.org"], "must be the https address of the disk API"),
    (&["cosmos.url=http://api.example.org"], "must be the https address of the disk API"),
    (&["cosmos.url=https://api.example.org/v2/"], "must not end in /v2, which ghost adds"),
    (&["cosmos.token=secret"], "cosmos.token and cosmos.existingSecret are both given"),
    (&["cosmos.existingSecret="], "there is no API token: give cosmos.existingSecret"),
    (&["cosmos.ca=/etc/ssl/ca.pem"], "cosmos.ca must be certificates in PEM"),
    (&["cosmos.requestsPerMinute=0"], "at '/cosmos/requestsPerMinute': minimum: got 0, want 1"),
    (&["cosmos.requestsPerMinute=15"], "leaves each of 2 replicas fewer than 8 requests"),
    (&["cosmos.requestPerHour=1"], "additional properties 'requestPerHour' not allowed"),
    (&["attachLimit=0"], "at '/attachLimit': minimum: got 0, want 1"),
    (&["kubeletDir=kubelet"], "at '/kubeletDir': 'kubelet' does not match pattern '^/"),
    (&["controller.replicas=0"], "at '/controller/replicas': minimum: got 0, want 1"),
    (&["controller.replicas=two"], "at '/controller/replicas': got string, want integer"),
    (&["controller.defaultSize=10G"], "controller.defaultSize \"10G\" must be a size such as 10Gi"),
    (
        &["controller.env[0].name=A", "controller.env[0].value=1"],
        "at '/controller/env/0/value': got number, want string",
    ),
    (&["image.pullPolicy=Sometimes"], "value must be one of 'Always', 'IfNotPresent', 'Never'"),
    (&["image.tag=a b"], "at '/image/tag': 'a b' does not match pattern"),
    (&["node.metadataUrl=169.254.169.254"], "must begin with http://HOST or https://HOST"),
    (&["node.maxUnavailable=0"], "node.maxUnavailable 0 must be a number of nodes or a part"),
    (&["node.maxUnavailable=0%"], "node.maxUnavailable 0% must be a number of nodes or a part"),
    (&["node.hostNetwork=yes"], "at '/node/hostNetwork': got string, want boolean"),
    (&["sidecars.attacher.reconcileSync=often"], "'often' does not match pattern"),
    (&["sidecars.resizer.workerThreads=3"], "additional properties 'workerThreads' not allowed"),
    (
        &["csiDriver.nodeAllocatableUpdatePeriodSeconds=5"],
        "nodeAllocatableUpdatePeriodSeconds 5 must be 0 or at least 10",
    ),
    (
        &["storageClasses[0].name=a", "storageClasses[0].fsType=zfs"],
        "value must be one of 'ext3', 'ext4', 'xfs', 'btrfs'",
    ),
    (
        &[
            "storageClasses[0].name=a",
            "storageClasses[0].default=true",
            "storageClasses[1].name=b",
            "storageClasses[1].default=true",
        ],
        "more than one of storageClasses is the default",
    ),
    (&["monitoring.podMonitor.interval=30"], "at '/monitoring/podMonitor/interval'"),
];

/// Tries all of them.
pub(super) fn check(tools: &Tools) -> Result<()> {
    for (typed, expected) in REFUSED {
        let mut helm = template(tools, Path::new(MINIMAL));
        for setting in typed {
            helm.args(["--set", setting]);
        }
        refused(&mut helm, &typed.join(" "), expected)?;
    }
    // What a cluster lacks is said before Kubernetes refuses half of the release.
    for (setting, expected) in [
        ("snapshots.enabled=true", "the cluster has no VolumeSnapshots"),
        ("monitoring.rules.enabled=true", "the cluster has no monitoring.coreos.com/v1"),
        ("monitoring.podMonitor.enabled=true", "the cluster has no monitoring.coreos.com/v1"),
    ] {
        let mut helm = xtask::command::program(&tools.helm);
        helm.args(["template", "ghost"]).arg(super::chart());
        helm.arg("--values").arg(xtask::command::root().join(MINIMAL));
        if !setting.starts_with("snapshots") {
            helm.args(["--set", "snapshots.enabled=false"]);
        }
        refused(helm.args(["--set", setting]), setting, expected)?;
    }
    println!("{} wrong values are refused in words that help", REFUSED.len() + 3);
    Ok(())
}

fn refused(helm: &mut std::process::Command, typed: &str, expected: &str) -> Result<()> {
    let ended = helm.output()?;
    let said = String::from_utf8_lossy(&ended.stderr);
    if ended.status.success() {
        bail!("{typed} is taken, and should be refused: {expected}");
    }
    ensure!(said.contains(expected), "{typed} is refused without saying {expected:?}:\n{said}");
    Ok(())
}
