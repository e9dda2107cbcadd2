//! The images of a cluster besides the driver's: the sandbox of every pod, a shell for test pods, and
//! the stock sidecars under the names by which the chart asks for them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use xtask::command::{output, program, root};

use crate::image::archive::{Effort, Image};
use crate::image::tree::Tree;

/// The sandbox of every pod.
pub(super) const PAUSE: &str = "ghost.greenhost.net/cluster/pause:1";
/// A shell, for test pods.
pub(super) const SHELL: &str = "ghost.greenhost.net/cluster/shell:1";
/// What the names of the stock sidecars begin with.
const SIDECARS: &str = "registry.k8s.io/sig-storage/";

/// Writes the archives that are older than what is in them.
pub(super) fn make(programs: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let busybox = Path::new("/bin/busybox");
    write(folder, "pause", PAUSE, "/bin/pause", busybox, || {
        let mut tree = Tree::default();
        tree.file("bin/busybox", 0o755, read(busybox)?);
        // For ever, and gone at once when told.
        let script = b"#!/bin/busybox sh\ntrap 'exit 0' TERM INT\nwhile :; do /bin/busybox sleep 3600 & wait; done\n";
        tree.file("bin/pause", 0o755, script.to_vec());
        Ok(tree)
    })?;
    write(folder, "shell", SHELL, "/usr/bin/sh", busybox, || {
        let mut tree = Tree::default();
        tree.file("usr/bin/busybox", 0o755, read(busybox)?);
        for applet in output(program(busybox).arg("--list"))?.lines() {
            if applet != "busybox" {
                tree.link(&format!("usr/bin/{applet}"), "busybox");
            }
        }
        tree.folder("tmp", 0o1777);
        Ok(tree)
    })?;
    for reference in sidecars()? {
        let name = sidecar(&reference).context("a sidecar has a name and a tag")?;
        let from = programs.join(name);
        write(folder, name, &reference, &format!("/{name}"), &from, || {
            let mut tree = Tree::default();
            tree.file(name, 0o755, read(&from)?);
            Ok(tree)
        })?;
    }
    Ok(())
}

/// The sidecars that the chart asks for.
fn sidecars() -> Result<Vec<String>> {
    let values = fs::read_to_string(root().join("charts/ghost/values.yaml"))?;
    let images = values.lines().filter_map(|line| line.trim().strip_prefix("image: "));
    Ok(images.filter(|image| image.starts_with(SIDECARS)).map(str::to_owned).collect())
}

/// The program of a sidecar, by the name of its image.
fn sidecar(reference: &str) -> Option<&str> {
    Some(reference.strip_prefix(SIDECARS)?.split_once(':')?.0)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(
    folder: &Path,
    name: &str,
    reference: &str,
    entry_point: &str,
    from: &Path,
    tree: impl Fn() -> Result<Tree>,
) -> Result<()> {
    let archive = folder.join(format!("{name}.tar"));
    let changed = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified());
    // How it is made may have changed with this program.
    let sources = [changed(from)?, changed(Path::new("/proc/self/exe"))?];
    if changed(&archive).is_ok_and(|made| sources.iter().all(|source| *source < made)) {
        return Ok(());
    }
    // As root, as busybox's mount and the like expect it; a pod may say otherwise.
    let image = Image { reference, user: 0, entry_point, layers: &[("its program", tree()?)] };
    let (bytes, _) = image.archive(Effort::Quick)?;
    fs::write(&archive, bytes)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sidecars_of_the_chart_are_those_that_are_built() {
        let module =
            fs::read_to_string(root().join("tools/kubernetes/go.mod")).expect("it is there");
        let sidecars = sidecars().expect("the chart has them");
        assert_eq!(sidecars.len(), 4, "{sidecars:?}");
        for reference in sidecars {
            let (name, version) = reference.rsplit_once(':').expect("a tag");
            let project = sidecar(&reference).expect("a name").replace("csi-", "external-");
            let pinned = |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                words.first().is_some_and(|module| module.contains(&format!("/{project}/v")))
                    && words.get(1) == Some(&version)
            };
            assert!(module.lines().any(pinned), "{name} {version} is not what go.mod pins");
        }
    }
}
