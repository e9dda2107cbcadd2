//! What only a real kernel and real tools can show. All of it needs root.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

#[path = "../support/mod.rs"]
mod support;

mod content;
mod damage;
mod devices;
mod journals;
mod loops;
mod mounts;
mod options;
mod twins;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_host::{Access, BlockDevice, FilesystemKind, Format, Host, Mount, TargetKind};
use support::{Lab, run};

/// Long enough for everything that should happen on its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// A disk of this name, plugged in and opened.
async fn disk(lab: &Lab, name: &str, size: u64) -> BlockDevice {
    let address = lab.disk(name, size).await;
    lab.host().find_disk(&address, PATIENCE).await.unwrap()
}

/// The same with a filesystem on it.
async fn formatted(lab: &Lab, name: &str, size: u64, kind: FilesystemKind) -> BlockDevice {
    let device = disk(lab, name, size).await;
    lab.host().format(&device, &Format::of(kind)).await.unwrap();
    device
}

/// Opens a disk that is plugged in.
async fn open(lab: &Lab, name: &str) -> BlockDevice {
    lab.host().find_disk(&lab.address(name, 0), PATIENCE).await.unwrap()
}

/// The disk again, now refusing writes. The caller holds it no more.
async fn write_protected(lab: &Lab, name: &str, held: BlockDevice) -> BlockDevice {
    drop(held);
    lab.replug_write_protected(name).await;
    open(lab, name).await
}

/// How many sectors were written to the device since the machine started: the seventh figure of
/// the kernel's account. What waits in its cache is written first.
fn writes(device: &BlockDevice) -> u64 {
    run("sync", &[text(device.path())]);
    let name = device.path().file_name().unwrap();
    let account = fs::read_to_string(Path::new("/sys/class/block").join(name).join("stat"));
    account.unwrap().split_whitespace().nth(6).unwrap().parse().unwrap()
}

/// An empty folder to mount on.
async fn folder(lab: &Lab, name: &str) -> PathBuf {
    let target = lab.target(name);
    lab.host().create_target(&target, TargetKind::Directory).await.unwrap();
    target
}

fn plain(target: &Path, kind: FilesystemKind) -> Mount {
    let target = target.to_owned();
    Mount { target, kind, access: Access::ReadWrite, options: Vec::new() }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("the tests use plain names")
}
