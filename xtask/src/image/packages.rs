//! The lower layer: the tools that ghost starts, the libraries that they need, and the certificates,
//! out of Debian's packages.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use xtask::command::{output, program};
use xtask::setup;

use super::tree::Tree;

/// What ghost starts; `ghost-host` has the list of what it starts for which filesystem.
pub(super) const TOOLS: [&str; 9] = [
    "blkid",
    "btrfs",
    "e2fsck",
    "mkfs.btrfs",
    "mkfs.ext3",
    "mkfs.ext4",
    "mkfs.xfs",
    "resize2fs",
    "xfs_growfs",
];
/// The packages of Debian 12 that these and their libraries are in. What is taken of them is found
/// by what the programs need, so that one too many does no harm.
const PACKAGES: [&str; 18] = [
    "base-files",
    "btrfs-progs",
    "ca-certificates",
    "e2fsprogs",
    "libblkid1",
    "libc6",
    "libcom-err2",
    "libext2fs2",
    "libgcc-s1",
    "libinih1",
    "liblzo2-2",
    "libudev1",
    "liburcu8",
    "libuuid1",
    "libzstd1",
    "util-linux",
    "xfsprogs",
    "zlib1g",
];
/// Where programs and libraries are in a package, whichever way it is merged.
const PROGRAM_FOLDERS: [&str; 4] = ["usr/sbin", "usr/bin", "sbin", "bin"];
const LIBRARY_FOLDERS: [&str; 4] =
    ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib64", "lib64"];
/// What starts a program that needs libraries: its path is part of every such program.
const LOADER: &str = "ld-linux-x86-64.so.2";

/// Packages that are there, each unpacked into one folder.
pub(super) struct Packages {
    root: PathBuf,
    /// The name of each, with the fields that describe it.
    described: Vec<(&'static str, String)>,
}

/// Gets the packages by the machine's own apt sources, and unpacks them.
pub(super) fn fetch(folder: &Path) -> Result<Packages> {
    let (files, root) = (folder.join("packages"), folder.join("debian"));
    setup::debian_packages(&files, &PACKAGES)
        .context("these packages are of Debian 12 and come from its apt sources")?;
    if root.exists() {
        fs::remove_dir_all(&root)?;
    }
    let mut described = Vec::new();
    for name in PACKAGES {
        let file = setup::debian_package(&files, name)?;
        output(program("dpkg-deb").arg("--extract").arg(&file).arg(&root))?;
        described.push((name, output(program("dpkg-deb").arg("--field").arg(&file))?));
    }
    Ok(Packages { root, described })
}

/// The layer with the tools, and with what they and the project's own programs need.
pub(super) fn tools(packages: &Packages, own: &[PathBuf]) -> Result<Tree> {
    let mut tree = Tree::default();
    for name in ["bin", "lib", "lib64", "sbin"] {
        tree.link(name, &format!("usr/{name}"));
    }
    for (name, mode) in [("dev", 0o755), ("proc", 0o555), ("run", 0o755), ("sys", 0o555)] {
        tree.folder(name, mode);
    }
    tree.folder("tmp", 0o1777);
    let mut needy = own.to_vec();
    for name in TOOLS {
        let path = packages.find(&PROGRAM_FOLDERS, name)?;
        tree.file(&format!("usr/sbin/{name}"), 0o755, fs::read(&path)?);
        needy.push(path);
    }
    libraries(packages, needy, &mut tree)?;
    // Which features an ext4 has that nothing else was said of.
    let settings = "etc/mke2fs.conf";
    tree.file(settings, 0o644, packages.read(settings)?);
    // By these two a scanner knows what the files are of.
    tree.file("etc/os-release", 0o644, packages.read("usr/lib/os-release")?);
    for (name, fields) in &packages.described {
        tree.file(&format!("var/lib/dpkg/status.d/{name}"), 0o644, fields.clone().into_bytes());
        let copyright = format!("usr/share/doc/{name}/copyright");
        // Some packages of one source share the folder of one of them.
        if let Ok(text) = packages.read(&copyright) {
            tree.file(&copyright, 0o644, text);
        }
    }
    tree.file("etc/ssl/certs/ca-certificates.crt", 0o644, packages.certificates()?);
    Ok(tree)
}

/// Adds the libraries that these programs need, and those that these need.
fn libraries(packages: &Packages, mut needy: Vec<PathBuf>, tree: &mut Tree) -> Result<()> {
    while let Some(path) = needy.pop() {
        let said = output(program("readelf").args(["--dynamic", "--wide"]).arg(&path))?;
        for name in needed(&said) {
            let place = if name == LOADER {
                format!("usr/lib64/{name}")
            } else {
                format!("usr/lib/x86_64-linux-gnu/{name}")
            };
            if tree.has(&place) {
                continue;
            }
            let library = packages
                .find(&LIBRARY_FOLDERS, name)
                .with_context(|| format!("{} needs {name}", path.display()))?;
            let mode = fs::metadata(&library)?.permissions().mode() & 0o777;
            tree.file(&place, mode, fs::read(&library)?);
            needy.push(library);
        }
    }
    Ok(())
}

/// The names of the libraries that a program says that it needs, of what readelf tells.
fn needed(said: &str) -> impl Iterator<Item = &str> {
    said.lines()
        .filter(|line| line.contains("(NEEDED)"))
        .filter_map(|line| Some(line.split_once('[')?.1.split_once(']')?.0))
}

impl Packages {
    fn find(&self, folders: &[&str], name: &str) -> Result<PathBuf> {
        let paths = folders.iter().map(|folder| self.root.join(folder).join(name));
        let found =
            paths.filter_map(|path| fs::canonicalize(path).ok()).find(|path| path.is_file());
        let Some(path) = found else {
            bail!("no package of the list has {name}");
        };
        ensure!(
            path.starts_with(fs::canonicalize(&self.root)?),
            "{name} leads out of the packages"
        );
        Ok(path)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>> {
        fs::read(self.root.join(path)).with_context(|| format!("no package has /{path}"))
    }

    /// All certificates in one file, as the package's own script puts them there.
    fn certificates(&self) -> Result<Vec<u8>> {
        let folder = self.root.join("usr/share/ca-certificates/mozilla");
        let mut paths = Vec::new();
        for entry in fs::read_dir(folder)? {
            paths.push(entry?.path());
        }
        paths.sort();
        let mut bundle = Vec::new();
        for path in paths {
            bundle.extend(fs::read(path)?);
        }
        ensure!(!bundle.is_empty(), "there are no certificates in the package");
        Ok(bundle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_needs_is_read_from_what_readelf_says() {
        let said = " 0x01 (NEEDED)   Shared library: [libblkid.so.1]\n \
                    0x01 (NEEDED)   Shared library: [libc.so.6]\n \
                    0x0e (SONAME)   Library soname: [libext2fs.so.2]\n";
        assert_eq!(needed(said).collect::<Vec<_>>(), ["libblkid.so.1", "libc.so.6"]);
        assert_eq!(needed("There is no dynamic section in this file.\n").count(), 0);
    }
}
