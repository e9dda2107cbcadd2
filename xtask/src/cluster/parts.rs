//! The programs of a cluster: Kubernetes, etcd and the sidecars built from the versions that the
//! project pins, containerd out of Debian's packages, the driver's image out of this checkout.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xtask::command::{output, program, root, run, target};
use xtask::setup;

use super::images;
use crate::image;

/// The parts that are one program, by the name that it is called by.
const NAMES: [&str; 6] =
    ["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kubectl"];
/// Debian's, unpacked and not installed: an installed one would be started, and be the machine's.
const PACKAGES: [&str; 3] = ["containerd", "containernetworking-plugins", "runc"];
/// The module with the kinds of snapshots.
const SNAPSHOT_KINDS: &str = "github.com/kubernetes-csi/external-snapshotter/client/v8";

/// Programs that are there.
pub(super) struct Parts {
    /// The parts of Kubernetes and the sidecars.
    pub(super) programs: PathBuf,
    /// Debian's packages, unpacked.
    pub(super) debian: PathBuf,
    /// The archives of images that every node has.
    pub(super) images: PathBuf,
    /// Helm.
    pub(super) helm: PathBuf,
    /// The manifests of the kinds of snapshots.
    pub(super) snapshot_kinds: PathBuf,
}

impl Parts {
    /// Builds what is not there yet.
    pub(super) fn ready() -> Result<Self> {
        let kubernetes = kubernetes()?;
        let debian = debian()?;
        let helm = setup::go_tool("helm", "helm.sh/helm/v4/cmd/helm")?;
        let built = image::write(image::Build::Debug, None)?;
        let images = target().join("kubernetes/images");
        images::make(&kubernetes.programs, &images)?;
        // One file for one digest, so that a node knows which it has.
        fs::copy(&built.archive, images.join("ghost.tar"))?;
        Ok(Self { debian, images, helm, ..kubernetes })
    }
}

/// Builds Kubernetes and the sidecars, unless that has been done for these pins.
fn kubernetes() -> Result<Parts> {
    setup::need_programs(&["go"])?;
    let module = root().join("tools/kubernetes");
    let folder = target().join("kubernetes");
    let programs = folder.join("bin");
    let read = |name: &str| fs::read_to_string(module.join(name));
    let pins = read("go.mod")? + &read("go.sum")? + &read("cmd/kubernetes/main.go")?;
    let version = pin(&pins, "k8s.io/kubernetes").context("go.mod pins k8s.io/kubernetes")?;
    let kinds = pin(&pins, SNAPSHOT_KINDS).context("go.mod pins the kinds of snapshots")?;
    let stamp = folder.join("pins");
    if !fs::read_to_string(&stamp).is_ok_and(|last| last == pins) {
        println!("building Kubernetes {version} (once; 8 to 20 minutes)");
        fs::create_dir_all(&programs)?;
        let mut parts = version.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let at = "k8s.io/component-base/version";
        let flags = format!(
            "-s -w -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor}"
        );
        run(program("go")
            .current_dir(&module)
            .args(["build", "-mod=readonly", "-trimpath", "-ldflags", &flags, "-o"])
            .arg(&programs)
            .args(["./cmd/kubernetes", "tool"])
            // Static, and with a quarter of the work for the garbage collector.
            .envs([("CGO_ENABLED", "0"), ("GOGC", "400")]))?;
        for name in NAMES {
            let link = programs.join(name);
            fs::remove_file(&link).or_else(not_there)?;
            std::os::unix::fs::symlink("kubernetes", link)?;
        }
        fs::write(&stamp, &pins)?;
    }
    let mut list = program("go");
    list.current_dir(&module).args(["list", "-m", "-f", "{{.Dir}}", SNAPSHOT_KINDS]);
    let snapshot_kinds =
        output(&mut list).with_context(|| format!("there is no {SNAPSHOT_KINDS} {kinds}"))?;
    let snapshot_kinds = Path::new(snapshot_kinds.trim()).join("config/crd");
    Ok(Parts {
        programs,
        snapshot_kinds,
        debian: PathBuf::new(),
        images: PathBuf::new(),
        helm: PathBuf::new(),
    })
}

/// The version of a module that is pinned.
fn pin(text: &str, module: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    lines.find_map(|line| {
        let version = line.strip_prefix(module)?.strip_prefix(' ')?;
        Some(version.split(' ').next()?.to_owned())
    })
}

fn debian() -> Result<PathBuf> {
    let folder = target().join("tools/containerd");
    let root = folder.join("root");
    if !root.join("usr/bin/containerd").is_file() {
        println!("getting containerd (once)");
        setup::debian_packages(&folder, &PACKAGES)?;
        for name in PACKAGES {
            let package = setup::debian_package(&folder, name)?;
            output(program("dpkg-deb").arg("--extract").arg(package).arg(&root))?;
        }
    }
    Ok(root)
}

fn not_there(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_of_the_very_module() {
        let text = "\tk8s.io/kubernetes-not v1.0.0\n\tk8s.io/kubernetes v1.37.2 // indirect\n";
        assert_eq!(pin(text, "k8s.io/kubernetes").as_deref(), Some("v1.37.2"));
        assert_eq!(pin(text, "k8s.io/other"), None);
    }
}
