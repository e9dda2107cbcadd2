//! What the commands need on a machine, installed where that is possible and named where not.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::command::{output, program, root, run, target};

/// The programs that are needed, and the Debian packages that have them.
const PROGRAMS: [(&str, &str); 23] = [
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("losetup", "mount"),
    ("blkid", "util-linux"),
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("mmdebstrap", "mmdebstrap"),
    ("busybox", "busybox-static"),
    ("depmod", "kmod"),
    ("cpio", "cpio"),
    ("lz4", "lz4"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("mke2fs", "e2fsprogs"),
    ("strip", "binutils"),
    ("readelf", "binutils"),
    ("apt-get", "apt"),
    ("dpkg-deb", "dpkg"),
    ("python3", "python3-venv"),
    ("go", "golang-go (1.26 or later)"),
];

/// Whether this process may make block devices and mounts.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether the kernel lets this process grow a mounted ext4.
pub fn has_resource_capability() -> bool {
    const CAP_SYS_RESOURCE: u32 = 24; // include/uapi/linux/capability.h
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).unwrap_or(0);
    bits >> CAP_SYS_RESOURCE & 1 == 1
}

/// Fails with what to do when this is not root.
///
/// # Errors
/// When this is not root.
pub fn need_root(what: &str) -> Result<()> {
    if is_root() {
        return Ok(());
    }
    bail!(
        "{what} needs root, because its block devices and mounts are real ones of this kernel.\n\
         Run it as root on a machine that you can throw away: sudo -E cargo xtask …"
    )
}

/// Makes sure that these programs are there, by installing their packages where that is possible.
///
/// # Errors
/// When one is missing and cannot be installed; it names the packages.
pub fn need_programs(wanted: &[&str]) -> Result<()> {
    let missing: Vec<&(&str, &str)> =
        PROGRAMS.iter().filter(|(name, _)| wanted.contains(name) && !works(name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let mut packages: Vec<&str> = missing.iter().map(|(_, package)| *package).collect();
    packages.dedup();
    if !is_root() || find("apt-get").is_none() || packages.iter().any(|name| name.contains(' ')) {
        bail!("missing on this machine: {}; install it and try again", packages.join(", "));
    }
    println!("installing {}", packages.join(", "));
    output(program("apt-get").args(["-qq", "update"]))?;
    let install = ["-qq", "install", "-y", "--no-install-recommends"];
    output(
        program("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(install).args(packages),
    )?;
    Ok(())
}

/// Whether a program is there, with what it needs to be of use here.
fn works(name: &str) -> bool {
    // Debian has Python's environments in a package of their own.
    let complete = match name {
        "python3" => output(program(name).args(["-c", "import ensurepip, venv"])).is_ok(),
        _ => true,
    };
    complete && find(name).is_some()
}

/// A program on the path; administrators' folders count although they may not be on it.
fn find(name: &str) -> Option<PathBuf> {
    let path = output(program("sh").args(["-c", "echo \"$PATH\""])).ok()?;
    path.trim()
        .split(':')
        .chain(["/usr/sbin", "/sbin"])
        .map(|folder| PathBuf::from(folder).join(name))
        .find(|file| file.is_file())
}

/// Builds a pinned Go tool from its folder below `tools/`, unless that has been done, and answers
/// where it is.
///
/// # Errors
/// When it cannot be built.
pub fn go_tool(name: &str, package: &str) -> Result<PathBuf> {
    need_programs(&["go"])?;
    let folder = root().join("tools").join(name);
    let pins = ["go.mod", "go.sum"].map(|name| std::fs::read_to_string(folder.join(name)));
    let [module, sums] = pins;
    let pins = module? + &sums?;
    let built = target().join("tools").join(name);
    let stamp = target().join("tools").join(format!("{name}.pins"));
    if built.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|last| last == pins) {
        return Ok(built);
    }
    println!("building {name} (once)");
    std::fs::create_dir_all(target().join("tools"))?;
    run(program("go")
        .current_dir(folder)
        .args(["build", "-mod=readonly", "-o"])
        .arg(&built)
        .arg(package))?;
    std::fs::write(stamp, pins)?;
    Ok(built)
}

/// Installs a Python tool with the very requirements that its folder below `tools/` names, unless
/// that has been done, and answers where it is.
///
/// # Errors
/// When it cannot be installed.
pub fn python_tool(name: &str) -> Result<PathBuf> {
    need_programs(&["python3"])?;
    let requirements = root().join("tools").join(name).join("requirements.txt");
    let pins = std::fs::read_to_string(&requirements)?;
    let environment = target().join("tools/python").join(name);
    let stamp = environment.join("pins");
    if std::fs::read_to_string(&stamp).ok().as_ref() != Some(&pins) {
        println!("installing {name} (once)");
        output(program("python3").args(["-m", "venv"]).arg(&environment))?;
        let pip = environment.join("bin/pip");
        output(program(pip).args(["install", "-q", "-r"]).arg(requirements))?;
        std::fs::write(stamp, pins)?;
    }
    Ok(environment.join("bin").join(name))
}

/// Gets packages of Debian into a folder, by the machine's own apt sources, without installing them.
///
/// # Errors
/// When apt does not know one of them, or cannot get it.
pub fn debian_packages(folder: &Path, names: &[&str]) -> Result<()> {
    need_programs(&["apt-get", "dpkg-deb"])?;
    std::fs::create_dir_all(folder)?;
    let apt = |arguments: &[&str]| {
        // As whoever runs this, since apt's own user may not write there.
        let plain = ["-qq", "-o", "APT::Sandbox::User=root"];
        output(program("apt-get").current_dir(folder).args(plain).args(arguments))
    };
    let download = [&["download"], names].concat();
    if apt(&download).is_err() {
        // A new machine has no lists yet, and old lists name what has been replaced since.
        apt(&["update"])?;
        apt(&download)?;
    }
    Ok(())
}

/// The file of a package in such a folder; the newest, when there are several versions.
///
/// # Errors
/// When there is none.
pub fn debian_package(folder: &Path, name: &str) -> Result<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&format!("{name}_")) {
            found.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    let (_, path) = found.into_iter().max().with_context(|| format!("apt got no {name}"))?;
    Ok(path)
}
