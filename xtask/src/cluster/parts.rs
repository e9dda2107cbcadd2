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

/// Where the programs are, once they are [built](Parts::build).
pub(super) struct Parts {
    /// The parts of Kubernetes and the sidecars.
    pub(super) programs: PathBuf,
    /// Debian's packages, unpacked.
    pub(super) debian: PathBuf,
    /// The archives of images that every node has.
    pub(super) images: PathBuf,
}

impl Parts {
    /// All places are below the folder of build results.
    pub(super) fn places() -> Self {
        Self {
            programs: target().join("kubernetes/bin"),
            debian: target().join("tools/containerd/root"),
            images: target().join("kubernetes/images"),
        }
    }

    /// Builds what is not there yet.
    pub(super) fn build(&self) -> Result<()> {
        self.build_kubernetes()?;
        self.unpack_debian()?;
        helm()?;
        let built = image::write(image::Build::Debug, None)?;
        images::make(&self.programs, &self.images)?;
        fs::copy(&built.archive, self.images.join("ghost.tar"))?;
        Ok(())
    }

    /// Builds Kubernetes and the sidecars, unless that has been done for these pins.
    fn build_kubernetes(&self) -> Result<()> {
        setup::need_programs(&["go"])?;
        let module = module();
        let read = |name: &str| fs::read_to_string(module.join(name));
        let pins = read("go.mod")? + &read("go.sum")? + &read("cmd/kubernetes/main.go")?;
        let stamp = self.programs.with_extension("pins");
        if fs::read_to_string(&stamp).is_ok_and(|last| last == pins) {
            return Ok(());
        }
        let version = pin(&pins, "k8s.io/kubernetes").context("go.mod pins k8s.io/kubernetes")?;
        println!("building Kubernetes {version} (once; 8 to 20 minutes)");
        fs::create_dir_all(&self.programs)?;
        let mut parts = version.trim_start_matches('v').split('.');
        let (major, minor) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let at = "k8s.io/component-base/version";
        let flags = format!(
            "-s -w -X {at}.gitVersion={version} -X {at}.gitMajor={major} -X {at}.gitMinor={minor}"
        );
        run(program("go")
            .current_dir(&module)
            .args(["build", "-mod=readonly", "-trimpath", "-ldflags", &flags, "-o"])
            .arg(&self.programs)
            .args(["./cmd/kubernetes", "tool"])
            // Static, and with a quarter of the work for the garbage collector.
            .envs([("CGO_ENABLED", "0"), ("GOGC", "400")]))?;
        for name in NAMES {
            let link = self.programs.join(name);
            fs::remove_file(&link).or_else(not_there)?;
            std::os::unix::fs::symlink("kubernetes", link)?;
        }
        Ok(fs::write(stamp, pins)?)
    }

    fn unpack_debian(&self) -> Result<()> {
        if self.debian.join("usr/bin/containerd").is_file() {
            return Ok(());
        }
        println!("getting containerd (once)");
        let packages = target().join("tools/containerd");
        setup::debian_packages(&packages, &PACKAGES)?;
        for name in PACKAGES {
            let package = setup::debian_package(&packages, name)?;
            output(program("dpkg-deb").arg("--extract").arg(package).arg(&self.debian))?;
        }
        Ok(())
    }
}

/// Helm, which is built if it is not there.
pub(super) fn helm() -> Result<PathBuf> {
    setup::go_tool("helm", "helm.sh/helm/v4/cmd/helm")
}

/// The folder with the manifests of the kinds of snapshots.
pub(super) fn snapshot_kinds() -> Result<PathBuf> {
    let mut list = program("go");
    list.current_dir(module()).args(["list", "-m", "-f", "{{.Dir}}", SNAPSHOT_KINDS]);
    Ok(Path::new(output(&mut list)?.trim()).join("config/crd"))
}

fn module() -> PathBuf {
    root().join("tools/kubernetes")
}

/// The version of a module that is pinned.
fn pin(text: &str, module: &str) -> Option<String> {
    let mut lines = text.lines().map(str::trim);
    lines.find_map(|line| {
        let version = line.strip_prefix(module)?.strip_prefix(' ')?;
        Some(version.split(' ').next()?.to_owned())
    })
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
