//! What the tests need of a machine: root, a folder of their own with disks in it, and the clean-up
//! of mounts and loop devices also when a test fails.

#![allow(dead_code, reason = "each test binary uses a part of this")]

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use ghost_host::{DiskAddress, Linux, loop_device};
use rustix::mount::UnmountFlags;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// Whether this process may mount. Without it a privileged test passes with a loud word, but fails
/// where the results are relied upon (`CI` is set).
#[expect(
    clippy::disallowed_methods,
    reason = "CI is a word to the tests, no setting of the program"
)]
pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    assert!(is_root || std::env::var_os("CI").is_none(), "this test needs root");
    if !is_root {
        shout("NOT TESTED: this test needs root");
    }
    is_root
}

/// Whether this process has `CAP_SYS_RESOURCE`, bit 24.
pub(crate) fn has_sys_resource() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("the process's own account");
    let set = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("its sets");
    u64::from_str_radix(set.trim(), 16).expect("hexadecimal digits") >> 24 & 1 == 1
}

/// Tells people of something that the result of a test does not show.
#[expect(clippy::print_stderr, reason = "it is for the people who run the tests")]
pub(crate) fn shout(what: &str) {
    eprintln!("{what}");
}

/// Waits for what happens on its own but not at once: whoever looks at all loop devices, as
/// `losetup --find` does, holds each for a moment, and it is let go of only after that.
pub(crate) async fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), wait).await.expect(what);
}

/// Runs a tool to prepare or to look at something, and demands success.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let output = try_run(program, arguments);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{program} {arguments:?}: {said}{complained}");
    said
}

/// Runs a tool whatever comes of it.
#[expect(clippy::disallowed_methods, reason = "tests start tools to look from outside")]
pub(crate) fn try_run(program: &str, arguments: &[&str]) -> Output {
    Command::new(program).args(arguments).stdin(Stdio::null()).output().expect(program)
}

/// A folder with backing files, a device folder and mount points. Dropping it takes off every mount
/// beneath it and lets go of every loop device over a file in it.
pub(crate) struct Lab {
    folder: TempDir,
}

impl Lab {
    pub(crate) fn new() -> Self {
        let folder = TempDir::with_prefix("ghost-host-").expect("a temporary folder");
        for name in ["images", "dev/disk/by-id", "targets"] {
            fs::create_dir_all(folder.path().join(name)).expect("a folder in it");
        }
        Self { folder }
    }

    /// The folder by the path that the mount table shows.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().expect("the folder is there")
    }

    pub(crate) fn host(&self) -> Linux {
        Linux::new(self.root().join("dev"))
    }

    /// A place for a mount point; nothing is there yet.
    pub(crate) fn target(&self, name: &str) -> PathBuf {
        self.root().join("targets").join(name)
    }

    pub(crate) fn image(&self, name: &str) -> PathBuf {
        self.root().join("images").join(name)
    }

    pub(crate) fn link(&self, name: &str) -> PathBuf {
        self.root().join("dev/disk/by-id").join(name)
    }

    /// How the disk of this name is looked for.
    pub(crate) fn address(&self, name: &str, minimum_size: u64) -> DiskAddress {
        DiskAddress {
            link: Path::new("disk/by-id").join(name),
            names: vec![name.to_owned()],
            minimum_size,
        }
    }

    /// Makes a sparse backing file.
    pub(crate) fn make_image(&self, name: &str, size: u64) -> PathBuf {
        let path = self.image(name);
        File::create(&path).and_then(|file| file.set_len(size)).expect("a backing file");
        path
    }

    /// Attaches the backing file and makes the link that leads to it.
    pub(crate) async fn plug(&self, name: &str) -> PathBuf {
        let device = loop_device::attach(&self.image(name)).await.expect("a loop device");
        let link = self.link(name);
        drop(fs::remove_file(&link));
        symlink(device.path(), &link).expect("a link");
        device.path().to_owned()
    }

    /// Plugs the disk in anew, now refusing writes. Nothing may hold it open. (`blockdev --setro`
    /// would stay with the loop device and strike whoever uses it next.)
    pub(crate) async fn replug_write_protected(&self, name: &str) {
        let image = self.image(name);
        if let Some(device) = loop_device::find(&image).await.expect("a look at loop devices") {
            loop_device::detach(&device).await.expect("it is let go of");
        }
        until("the disk is let go of", || self.attached().iter().all(|file| *file != image)).await;
        run("losetup", &["--find", "--read-only", image.to_str().expect("a plain name")]);
        self.plug(name).await;
    }

    /// The backing files of all loop devices over files of this lab.
    pub(crate) fn attached(&self) -> Vec<PathBuf> {
        let root = self.root();
        let blocks = fs::read_dir("/sys/block").expect("the kernel's list of devices");
        blocks
            .filter_map(|entry| {
                fs::read_to_string(entry.ok()?.path().join("loop/backing_file")).ok()
            })
            .map(|file| PathBuf::from(file.trim_end_matches('\n')))
            .filter(|file| file.starts_with(&root))
            .collect()
    }

    /// A blank disk that is plugged in.
    pub(crate) async fn disk(&self, name: &str, size: u64) -> DiskAddress {
        self.make_image(name, size);
        self.plug(name).await;
        self.address(name, size)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        let root = self.root();
        let root = root.to_str().expect("temporary folders have plain names");
        // First the loop devices: those in use are let go of when their mounts are gone, and one
        // over a file in a mount can no longer be told once that mount is gone.
        for name in fs::read_dir("/sys/block").into_iter().flatten().flatten() {
            let backing = fs::read_to_string(name.path().join("loop/backing_file"));
            if backing.is_ok_and(|file| file.starts_with(root)) {
                let node = Path::new("/dev").join(name.file_name());
                try_run("losetup", &["--detach", node.to_str().expect("a plain name")]);
            }
        }
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        let beneath: Vec<&[u8]> = table
            .split(|byte| *byte == b'\n')
            .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
            .filter(|target| target.starts_with(root.as_bytes()))
            .collect();
        for target in beneath.iter().rev() {
            let target = unescape(target);
            // A mount that is gone by itself is as good.
            let _ = rustix::mount::unmount(target.as_slice(), UnmountFlags::DETACH);
        }
    }
}

/// The mount table. Other tests, and others, may have mounted at names that are no text.
pub(crate) fn mount_lines() -> String {
    let table = fs::read("/proc/self/mountinfo").expect("the mount table");
    String::from_utf8_lossy(&table).into_owned()
}

/// Undoes the octal escapes of a mount table; written apart from the crate's own.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut bytes = parts.next().unwrap_or_default().to_vec();
    for part in parts {
        let digits = std::str::from_utf8(&part[..3]).expect("three octal digits");
        bytes.push(u8::from_str_radix(digits, 8).expect("three octal digits"));
        bytes.extend_from_slice(&part[3..]);
    }
    bytes
}
