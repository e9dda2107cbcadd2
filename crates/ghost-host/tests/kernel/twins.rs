//! Copies of one btrfs on one machine: what the kernel can tell apart, and what it must not be given.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use ghost_host::{Access, Error, FilesystemKind, Host, Linux, Mount};

use crate::journals::{cloned, is_dirty, uuid};
use crate::support::{GIB, Lab, MIB, is_root, run, shout, try_run};
use crate::{disk, folder, formatted, open, plain, text, writes};

const BTRFS: FilesystemKind = FilesystemKind::Btrfs;
const SIZE: u64 = 512 * MIB;

fn has_temp_fsid() -> bool {
    let has = Path::new("/sys/fs/btrfs/features/temp_fsid").exists();
    if !has {
        shout("NOT TESTED: this kernel cannot have two copies of a btrfs mounted");
    }
    has
}

/// Expects the refusal, and that it says all of this.
fn refused(outcome: Result<(), Error>, words: &[&str]) {
    let error = outcome.expect_err("it must be refused");
    assert!(matches!(error, Error::Indistinct { .. }), "{error:?}");
    let said = error.to_string();
    assert!(words.iter().all(|word| said.contains(word)), "{said}: {words:?}");
}

/// Writes another text to each of the places and looks that each has its own and no other's.
fn assert_apart(places: &[&Path], round: &str) {
    for (index, place) in places.iter().enumerate() {
        let mut file = File::create(place.join(format!("{round}-{index}"))).unwrap();
        file.write_all(&vec![u8::try_from(index).unwrap(); 3 << 20]).unwrap();
        file.sync_all().unwrap();
    }
    for (index, place) in places.iter().enumerate() {
        for other in 0..places.len() {
            let there = fs::read(place.join(format!("{round}-{other}")));
            if other == index {
                assert_eq!(there.unwrap(), vec![u8::try_from(index).unwrap(); 3 << 20]);
            } else {
                assert_eq!(there.unwrap_err().kind(), std::io::ErrorKind::NotFound);
            }
        }
    }
}

#[tokio::test]
async fn b16_a_dirty_copy_of_a_btrfs_lives_beside_its_original_in_either_order() {
    if !is_root() || !has_temp_fsid() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let clone = cloned(&lab, BTRFS).await;
    let original = open(&lab, "pvc-original").await;
    assert!(is_dirty(&clone, BTRFS), "there is nothing to replay");
    let before = uuid(&clone);
    assert_eq!(uuid(&original), before);
    let (origin, target) = (lab.target("origin"), folder(&lab, "clone").await);
    host.mount(&clone, &plain(&target, BTRFS)).await.unwrap();
    assert_eq!(fs::read_to_string(target.join("marker")).unwrap(), "marked");
    assert_apart(&[&origin, &target], "first");
    for (device, place) in [(&original, &origin), (&clone, &target)] {
        let table = host.mounts().await.unwrap();
        assert_eq!(table.at(place).next_back().unwrap().device, Some(device.number()));
        assert_eq!(table.of_device(device.number()).count(), 1);
    }
    // Mounted once more it is still itself.
    let again = folder(&lab, "again").await;
    host.mount(&clone, &plain(&again, BTRFS)).await.unwrap();
    assert!(again.join("first-1").exists() && !again.join("first-0").exists());
    host.unmount(&again).await.unwrap();

    // The copy is the first, and the original was scanned before, with what is now older.
    host.unmount(&origin).await.unwrap();
    host.unmount(&target).await.unwrap();
    run("btrfs", &["device", "scan", text(original.path())]);
    host.mount(&clone, &plain(&target, BTRFS)).await.unwrap();
    host.mount(&original, &plain(&origin, BTRFS)).await.unwrap();
    assert!(origin.join("first-0").exists() && target.join("first-1").exists());
    assert_apart(&[&origin, &target], "second");

    // Only the copy grows.
    let size = |place: &Path| rustix::fs::statvfs(place).unwrap().f_blocks * 4096;
    let image = lab.image("pvc-clone");
    File::options().write(true).open(image).unwrap().set_len(GIB).unwrap();
    ghost_host::loop_device::refresh(&clone).await.unwrap();
    host.grow(&clone, &target, BTRFS).await.unwrap();
    host.grow(&original, &origin, BTRFS).await.unwrap();
    assert_eq!((size(&origin), size(&target)), (SIZE, GIB));
    assert_apart(&[&origin, &target], "third");
    for place in [&origin, &target] {
        host.unmount(place).await.unwrap();
    }
    assert_eq!((uuid(&original), uuid(&clone)), (before.clone(), before));
    for device in [&original, &clone] {
        run("btrfs", &["check", "--readonly", text(device.path())]);
    }
}

#[tokio::test]
async fn b33_a_write_protected_copy_of_a_btrfs_is_read_beside_its_original() {
    if !is_root() || !has_temp_fsid() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let clone = cloned(&lab, BTRFS).await;
    let clone = crate::write_protected(&lab, "pvc-clone", clone).await;
    let before = writes(&clone);
    let target = folder(&lab, "clone").await;
    let mount = Mount { access: Access::ReadOnly, ..plain(&target, BTRFS) };
    host.mount(&clone, &mount).await.unwrap();
    fs::write(lab.target("origin").join("of-original"), "1").unwrap();
    assert!(
        fs::read_dir(&target).unwrap().all(|entry| entry.unwrap().file_name() != "of-original")
    );
    host.unmount(&target).await.unwrap();
    assert_eq!(writes(&clone), before);
}

#[tokio::test]
async fn a_seed_whose_copy_is_mounted_is_refused_with_the_place_of_that_one() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let original = formatted(&lab, "pvc-original", SIZE, BTRFS).await;
    run("btrfstune", &["-f", "-S", "1", text(original.path())]);
    let (from, to) = (lab.image("pvc-original"), lab.image("pvc-clone"));
    run("cp", &["--sparse=always", text(&from), text(&to)]);
    lab.plug("pvc-clone").await;
    let clone = open(&lab, "pvc-clone").await;
    let (origin, target) = (folder(&lab, "origin").await, folder(&lab, "clone").await);
    let reading = |target: &PathBuf| Mount { access: Access::ReadOnly, ..plain(target, BTRFS) };
    host.mount(&original, &reading(&origin)).await.unwrap();
    let name = original.path().file_name().unwrap().to_str().unwrap();
    let place = format!("{name} at {}", text(&origin));
    refused(host.mount(&clone, &reading(&target)).await, &[&place, "unmount", "another node"]);
    assert_eq!(host.mounts().await.unwrap().at(&target).count(), 0);
    // The original itself may be mounted twice, and the copy after it.
    host.mount(&original, &reading(&target)).await.unwrap();
    for place in [&target, &origin] {
        host.unmount(place).await.unwrap();
    }
    host.mount(&clone, &reading(&target)).await.unwrap();
    refused(host.mount(&original, &reading(&origin)).await, &[text(&target)]);
}

/// A device that the kernel has scanned. Dropping it makes the kernel forget it.
struct Scanned(PathBuf);

impl Drop for Scanned {
    fn drop(&mut self) {
        try_run("btrfs", &["device", "scan", "--forget", text(&self.0)]);
    }
}

#[tokio::test]
async fn a_btrfs_of_several_devices_is_refused_whatever_is_mounted() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let one = disk(&lab, "pvc-1", SIZE).await;
    let two = disk(&lab, "pvc-2", SIZE).await;
    run("mkfs.btrfs", &["--quiet", text(one.path()), text(two.path())]);
    // The tool has made the kernel know them.
    let _forgotten = [Scanned(one.path().to_owned()), Scanned(two.path().to_owned())];
    let before = (writes(&one), writes(&two));
    let target = folder(&lab, "target").await;
    for device in [&one, &two] {
        refused(host.mount(device, &plain(&target, BTRFS)).await, &["2 devices"]);
    }
    assert_eq!(host.mounts().await.unwrap().at(&target).count(), 0);
    assert_eq!((writes(&one), writes(&two)), before);
}

/// A machine whose kernel lacks the feature, by an account that is otherwise the real one.
fn of_an_older_kernel(lab: &Lab, fsid: &str) -> Linux {
    let sysfs = lab.root().join("sys");
    fs::create_dir_all(sysfs.join("fs/btrfs/features")).unwrap();
    for name in ["block", "bus", "class", "dev", "devices"] {
        symlink(Path::new("/sys").join(name), sysfs.join(name)).unwrap();
    }
    symlink(Path::new("/sys/fs/btrfs").join(fsid), sysfs.join("fs/btrfs").join(fsid)).unwrap();
    lab.host().with_sysfs(sysfs)
}

#[tokio::test]
async fn on_an_older_kernel_a_copy_of_a_mounted_btrfs_is_refused_before_anything_is_mounted() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let clone = cloned(&lab, BTRFS).await;
    let original = open(&lab, "pvc-original").await;
    let host = of_an_older_kernel(&lab, uuid(&clone).trim());
    let (origin, target) = (lab.target("origin"), folder(&lab, "clone").await);
    let before = writes(&clone);
    let name = original.path().file_name().unwrap().to_str().unwrap();
    let place = format!("{name} at {}", text(&origin));
    refused(host.mount(&clone, &plain(&target, BTRFS)).await, &[&place, "another node"]);
    assert_eq!(host.mounts().await.unwrap().at(&target).count(), 0);
    assert_eq!(writes(&clone), before);
    // What is mounted may be mounted again, and the copy when the original is gone.
    host.mount(&original, &plain(&target, BTRFS)).await.unwrap();
    for place in [&target, &origin] {
        host.unmount(place).await.unwrap();
    }
    host.mount(&clone, &plain(&target, BTRFS)).await.unwrap();
    assert_eq!(fs::read_to_string(target.join("marker")).unwrap(), "marked");
    refused(host.mount(&original, &plain(&origin, BTRFS)).await, &[text(&target)]);
}

#[tokio::test]
async fn a_btrfs_whose_first_device_was_taken_away_grows_on_the_one_that_is_left() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let first = formatted(&lab, "pvc-1", SIZE, BTRFS).await;
    let second = disk(&lab, "pvc-2", SIZE).await;
    let target = folder(&lab, "target").await;
    host.mount(&first, &plain(&target, BTRFS)).await.unwrap();
    run("btrfs", &["device", "add", "-K", text(second.path()), text(&target)]);
    run("btrfs", &["device", "remove", text(first.path()), text(&target)]);
    host.unmount(&target).await.unwrap();
    host.mount(&second, &plain(&target, BTRFS)).await.unwrap();
    let image = lab.image("pvc-2");
    File::options().write(true).open(image).unwrap().set_len(GIB).unwrap();
    ghost_host::loop_device::refresh(&second).await.unwrap();
    host.grow(&second, &target, BTRFS).await.unwrap();
    assert_eq!(rustix::fs::statvfs(&target).unwrap().f_blocks * 4096, GIB);
}
