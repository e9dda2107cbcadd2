//! The images of a cluster besides the driver's: the sandbox of every pod, a shell for test pods, and
//! the stock sidecars under the names by which the chart asks for them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use xtask::command::{output, program};

use crate::image::archive::{Effort, Image};
use crate::image::tree::Tree;

/// The sandbox of every pod.
pub(super) const PAUSE: &str = "ghost.greenhost.net/cluster/pause:1";
/// A shell, for test pods.
pub(super) const SHELL: &str = "ghost.greenhost.net/cluster/shell:1";
/// The sidecars as the chart names them; `xtask chart` has no say in it, but a pod whose image is
/// not there does not start.
const SIDECARS: [(&str, &str); 4] = [
    ("csi-attacher", "v4.13.0"),
    ("csi-provisioner", "v6.4.0"),
    ("csi-resizer", "v2.3.0"),
    ("csi-snapshotter", "v8.7.0"),
];

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
    for (name, version) in SIDECARS {
        let from = programs.join(name);
        let reference = format!("registry.k8s.io/sig-storage/{name}:{version}");
        write(folder, name, &reference, &format!("/{name}"), &from, || {
            let mut tree = Tree::default();
            tree.file(name, 0o755, read(&from)?);
            Ok(tree)
        })?;
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("cannot read {}", path.display()))
}

fn write(
    folder: &Path,
    name: &'static str,
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
    let image = Image { reference, user: 0, entry_point, layers: &[(name, tree()?)] };
    let (bytes, _) = image.archive(Effort::Quick)?;
    fs::write(&archive, bytes)?;
    Ok(())
}
