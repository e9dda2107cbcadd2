//! Real loop devices: a volume appears on a droplet, is written to, and is taken away from a writer.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{SeekFrom, seek};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::program::{Folder, command, eventually, may_use_devices, run};

/// A filesystem that is mounted until this is dropped.
struct Mounted(PathBuf);

impl Mounted {
    fn new(device: &Path, target: PathBuf) -> Self {
        Self::with_options(device, target, "defaults")
    }

    fn with_options(device: &Path, target: PathBuf, options: &str) -> Self {
        fs::create_dir_all(&target).unwrap();
        run("mount", &["-o", options, device.to_str().unwrap(), target.to_str().unwrap()]);
        Self(target)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let unmounted = command("umount").arg(&self.0).output();
        if !unmounted.is_ok_and(|output| output.status.success()) {
            command("umount").arg("--lazy").arg(&self.0).status().ok();
        }
    }
}

/// Everything in a sparse file that is not zero, by its place. Holes are not read.
fn content(file: &Path) -> BTreeMap<u64, Vec<u8>> {
    const BLOCK: u64 = 4096;
    let file = File::open(file).unwrap();
    let size = file.metadata().unwrap().len();
    let mut content = BTreeMap::new();
    let mut place = 0;
    while place < size {
        let Ok(data) = seek(&file, SeekFrom::Data(place)) else { break };
        let hole = seek(&file, SeekFrom::Hole(data)).unwrap();
        for start in (data / BLOCK..hole.div_ceil(BLOCK)).map(|block| block * BLOCK) {
            let mut block = vec![0; usize::try_from(BLOCK.min(size - start)).unwrap()];
            file.read_exact_at(&mut block, start).unwrap();
            if block.iter().any(|byte| *byte != 0) {
                content.insert(start, block);
            }
        }
        place = hole;
    }
    assert!(!content.is_empty(), "there is something to compare");
    content
}

fn size_of(device: &Path) -> u64 {
    run("blockdev", &["--getsize64", device.to_str().unwrap()]).trim().parse().unwrap()
}

#[test]
fn what_is_written_on_one_droplet_is_there_on_the_next() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let program = folder.start(&[]);
    let volume = program.volume("moving");
    let file = folder.volume(&volume);
    assert_eq!(fs::metadata(&file).unwrap().len(), 1 << 30);
    assert!(folder.devices().is_empty(), "a volume that is nowhere has no device");
    program.attach(&volume, 101);
    let link = folder.link(101, "moving");
    let device = fs::read_link(&link).unwrap();
    let over = file.canonicalize().unwrap().to_str().unwrap().to_owned();
    assert_eq!(folder.devices(), [(device.clone(), over)], "its identity is the volume's id");
    assert_eq!(size_of(&device), 1 << 30);
    run("mkfs.ext4", &["-q", link.to_str().unwrap()]);
    let mounted = Mounted::new(&link, folder.path("mount"));
    fs::write(folder.path("mount/file"), "content").unwrap();
    drop(mounted);
    program.detach(&volume, 101);
    assert!(fs::symlink_metadata(&link).is_err());
    eventually("the device is gone", || folder.devices().is_empty());

    program.attach(&volume, 102);
    let link = folder.link(102, "moving");
    let mounted = Mounted::new(&link, folder.path("mount"));
    assert_eq!(fs::read_to_string(folder.path("mount/file")).unwrap(), "content");
    program.act(&volume, &json!({ "type": "resize", "size_gigabytes": 3 }));
    assert_eq!(size_of(&link), 3 << 30, "also while it is mounted");
    drop(mounted);
    program.detach(&volume, 102);
    program.act(&volume, &json!({ "type": "resize", "size_gigabytes": 4 }));
    program.attach(&volume, 103);
    assert_eq!(size_of(&folder.link(103, "moving")), 4 << 30);
    let blocks = fs::metadata(&file).unwrap().blocks();
    assert!(blocks * 512 < 200 << 20, "the file is sparse: {blocks} blocks");
    program.detach(&volume, 103);
    program.succeed("DELETE", &format!("/v2/volumes/{volume}"), &Value::Null);
    assert!(!file.exists());
}

#[test]
fn a_droplet_can_have_device_nodes_of_its_own() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let program = folder.start(&["--devices=droplet-loop"]);
    let (one, two) = (program.volume("one"), program.volume("two"));
    program.attach(&one, 101);
    program.attach(&two, 102);
    let nodes = |droplet: u64| {
        let entries = fs::read_dir(folder.path(&format!("state/droplets/{droplet}/dev"))).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths.filter(|path| !path.is_dir()).collect::<Vec<_>>()
    };
    let number = |path: &Path| rustix::fs::stat(path).unwrap().st_rdev;
    for (droplet, volume, name) in [(101, &one, "one"), (102, &two, "two")] {
        let [node] = &nodes(droplet)[..] else { panic!("one node: {:?}", nodes(droplet)) };
        assert_eq!(
            folder.link(droplet, name).canonicalize().unwrap(),
            node.canonicalize().unwrap()
        );
        assert_eq!(size_of(node), 1 << 30);
        let over = |(_, file): &(PathBuf, String)| file.ends_with(volume);
        let (device, _) = folder.devices().into_iter().find(over).unwrap();
        assert_eq!(number(node), number(&device));
    }
    program.detach(&one, 101);
    assert_eq!((nodes(101).len(), nodes(102).len()), (0, 1));
    program.attach(&one, 102);
    assert_eq!((nodes(101).len(), nodes(102).len()), (0, 2));
    assert!(program.end(Signal::TERM).success());
    assert_eq!(nodes(102), [] as [PathBuf; 0], "what is taken away at the end has no node");
}

#[test]
fn nothing_that_is_written_after_a_detach_reaches_the_volume() {
    if !may_use_devices() {
        return;
    }
    for filesystem in ["ext4", "xfs"] {
        taken_away_while_mounted(filesystem);
    }
}

fn taken_away_while_mounted(filesystem: &str) {
    let folder = Folder::new();
    let program = folder.start(&[]);
    let volume = program.volume("taken");
    program.attach(&volume, 101);
    let link = folder.link(101, "taken");
    let old = fs::read_link(&link).unwrap();
    run(&format!("mkfs.{filesystem}"), &["-q", link.to_str().unwrap()]);
    let mounted = Mounted::new(&link, folder.path("mount"));
    let raw = OpenOptions::new().read(true).write(true).open(&old).unwrap();

    let synced = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let log = File::create(folder.path("mount/log")).unwrap();
    std::thread::scope(|scope| {
        let _stop_at_the_end = StopWhenDropped(&stop);
        // A writer that never gives up, as a frozen program that wakes up again would not.
        scope.spawn(|| {
            let (mut healthy, mut number) = (true, 0_u64);
            while !stop.load(Ordering::Relaxed) {
                let line = format!("{number}\n");
                healthy &= (&log).write_all(line.as_bytes()).is_ok() && log.sync_data().is_ok();
                if healthy {
                    number += 1;
                    synced.store(number, Ordering::Relaxed);
                }
            }
        });
        eventually("the writer writes", || synced.load(Ordering::Relaxed) >= 20);
        program.detach(&volume, 101);
        let file = folder.volume(&volume);
        let after = content(&file);
        let reached = synced.load(Ordering::Relaxed);
        // The raw device too, and its first sector, which the kernel still lets be written.
        for offset in [0, 512, 4096, (1 << 30) - 512] {
            let _refused = raw.write_all_at(&[0xAA; 512], offset).and_then(|()| raw.sync_all());
        }
        run("sync", &[]);
        assert!(content(&file) == after, "{filesystem}: the old device reaches it");

        program.attach(&volume, 102);
        let new = fs::read_link(folder.link(102, "taken")).unwrap();
        assert_ne!(new, old, "the lingering device is not taken for the volume's");
        assert_eq!(size_of(&old), 512);
        assert_eq!(size_of(&new), 1 << 30);
        // One machine plays both droplets here, and xfs notices that it has this one mounted.
        let options = if filesystem == "xfs" { "nouuid" } else { "defaults" };
        let repaired = Mounted::with_options(&new, folder.path("elsewhere"), options);
        let kept = fs::read_to_string(folder.path("elsewhere/log")).unwrap();
        assert!(kept.lines().count() as u64 >= reached.min(20), "what was synced is there");
        fs::write(folder.path("elsewhere/new"), "new").unwrap();
        drop(repaired);
        let moved = content(&file);
        stop.store(true, Ordering::Relaxed);
        let _refused = raw.write_all_at(&[0xAA; 512], 0).and_then(|()| raw.sync_all());
        run("sync", &[]);
        assert!(content(&file) == moved, "{filesystem}: the old device reaches it still");
    });
    drop((raw, log));
    drop(mounted);
    eventually("the lingering device goes with its last user", || {
        folder.devices().iter().all(|(device, _)| *device != old)
    });
    // The last flush of the old mount is over; the volume is what the new droplet made of it.
    let mounted = Mounted::new(&folder.link(102, "taken"), folder.path("mount"));
    assert_eq!(fs::read_to_string(folder.path("mount/new")).unwrap(), "new");
    drop(mounted);
}

/// Ends the writer also when the test fails, so that the failure is seen.
struct StopWhenDropped<'flag>(&'flag AtomicBool);

impl Drop for StopWhenDropped<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_orderly_end_takes_devices_away_from_those_who_use_them() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let program = folder.start(&[]);
    let volume = program.volume("used");
    program.attach(&volume, 101);
    let link = folder.link(101, "used");
    run("mkfs.ext4", &["-q", link.to_str().unwrap()]);
    let mounted = Mounted::new(&link, folder.path("mount"));
    fs::write(folder.path("mount/file"), "content").unwrap();
    run("sync", &[]);
    assert!(program.end(Signal::INT).success());
    let after = content(&folder.volume(&volume));
    let mut file = OpenOptions::new().append(true).open(folder.path("mount/file")).unwrap();
    assert!(file.write_all(b"late").and_then(|()| file.sync_all()).is_err());
    drop(file);
    drop(mounted);
    eventually("no device is left", || folder.devices().is_empty());
    assert!(content(&folder.volume(&volume)) == after);
    let _program = folder.start(&[]);
    let _mounted = Mounted::new(&folder.link(101, "used"), folder.path("mount"));
    assert_eq!(fs::read_to_string(folder.path("mount/file")).unwrap(), "content");
}

#[test]
fn a_snapshot_and_its_copy_have_the_content_and_the_holes() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let program = folder.start(&[]);
    let volume = program.volume("source");
    program.attach(&volume, 101);
    let device = OpenOptions::new().write(true).open(folder.link(101, "source")).unwrap();
    let places = [0_u64, 5 << 20, (1 << 30) - 4096];
    for place in places {
        device.write_all_at(b"first", place).unwrap();
    }
    device.sync_all().unwrap();
    let path = format!("/v2/volumes/{volume}/snapshots");
    let made = program.succeed("POST", &path, &json!({ "name": "s" }));
    let snapshot = made["snapshot"]["id"].as_str().unwrap();
    for place in places {
        device.write_all_at(b"later", place).unwrap();
    }
    device.sync_all().unwrap();
    drop(device);
    let body =
        json!({ "name": "copy", "region": "ams1", "size_gigabytes": 9, "snapshot_id": snapshot });
    let copy = program.succeed("POST", "/v2/volumes", &body)["volume"]["id"].clone();
    let copy = copy.as_str().unwrap();
    program.attach(copy, 101);
    let device = File::open(folder.link(101, "copy")).unwrap();
    for place in places {
        let mut content = [0; 5];
        device.read_exact_at(&mut content, place).unwrap();
        assert_eq!(&content, b"first", "at {place}");
    }
    for file in [folder.volume(copy), folder.path("state/snapshots").join(snapshot)] {
        let data = fs::metadata(&file).unwrap();
        assert_eq!(data.len(), 1 << 30);
        assert!(data.blocks() * 512 < 1 << 20, "{}: {} blocks", file.display(), data.blocks());
    }
    program.succeed("DELETE", &format!("/v2/snapshots/{snapshot}"), &Value::Null);
    assert!(!folder.path("state/snapshots").join(snapshot).exists());
    program.succeed("DELETE", "/sim/v1/everything", &Value::Null);
    drop(device);
    eventually("no device is left", || folder.devices().is_empty());
    assert_eq!(fs::read_dir(folder.path("state/volumes")).unwrap().count(), 0);
}

#[test]
fn a_device_comes_when_its_action_ends_by_itself() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let program = folder.start(&["--action-time", "50ms"]);
    let volume = program.volume("slow");
    let path = format!("/v2/volumes/{volume}/actions");
    let body = json!({ "type": "attach", "droplet_id": 101 });
    let started = program.succeed("POST", &path, &body);
    assert_eq!(started["action"]["status"], "in-progress");
    // No request moves it on.
    eventually("the link is there", || fs::metadata(folder.link(101, "slow")).is_ok());
    let mut first = [1; 512];
    File::open(folder.link(101, "slow")).unwrap().read_exact(&mut first).unwrap();
    assert_eq!(first, [0; 512]);
}

#[test]
fn an_action_errs_and_the_volume_stays_if_the_disk_does_not_follow() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let program = folder.start(&["--action-time", "1ms"]);
    let volume = program.volume("broken");
    fs::rename(folder.volume(&volume), folder.path("away")).unwrap();
    let path = format!("/v2/volumes/{volume}/actions");
    let body = json!({ "type": "attach", "droplet_id": 101 });
    let started = program.succeed("POST", &path, &body);
    let action = format!("/v2/actions/{}", started["action"]["id"]);
    let status = || program.succeed("GET", &action, &Value::Null)["action"]["status"].take();
    eventually("the action is over", || status() != "in-progress");
    assert_eq!(status(), "errored");
    assert_eq!(program.read(&volume)["droplet_ids"], json!([]));
    fs::rename(folder.path("away"), folder.volume(&volume)).unwrap();
}

#[test]
fn a_request_that_the_disk_cannot_follow_is_taken_back_and_leaves_nothing() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let program = folder.start(&[]);
    let volume = program.volume("source");
    let path = format!("/v2/volumes/{volume}/snapshots");
    let made = program.succeed("POST", &path, &json!({ "name": "s" }));
    let snapshot = folder.path("state/snapshots").join(made["snapshot"]["id"].as_str().unwrap());
    fs::rename(&snapshot, folder.path("away")).unwrap();
    let id = &made["snapshot"]["id"];
    let body = json!({ "name": "copy", "region": "ams1", "size_gigabytes": 1, "snapshot_id": id });
    let (status, answer) = program.send("POST", "/v2/volumes", &body);
    assert_eq!((status, &answer["id"]), (500, &json!("server_error")), "{answer}");
    let found = program.succeed("GET", "/v2/volumes?name=copy", &Value::Null);
    assert_eq!(found["meta"]["total"], 0);
    assert_eq!(fs::read_dir(folder.path("state/volumes")).unwrap().count(), 1);
    fs::rename(folder.path("away"), &snapshot).unwrap();
    program.succeed("POST", "/v2/volumes", &body);
}
