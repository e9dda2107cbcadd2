//! What is on a restored disk: a filesystem that is smaller than it, a copy of one in use, and a
//! log that waits to be replayed.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ghost_csi as pb;
use tonic::Code;
use xtask::command::{output, program};
use xtask::volume_life::{Answer, Controller, GIB, Node, Volume, mounted, of_snapshot};

use crate::world::{World, is_root};

const KINDS: [&str; 4] = ["ext4", "ext3", "xfs", "btrfs"];

/// A volume on node 101 with places of its own.
struct Used {
    volume: Volume,
    staging: PathBuf,
    target: PathBuf,
}

impl Used {
    /// Makes it, of a snapshot if one is given, and attaches it.
    async fn attached(
        world: &World,
        name: &str,
        gib: i64,
        filesystem: &str,
        snapshot: Option<&str>,
    ) -> Self {
        let mut controller = world.controller().await;
        let capability = mounted(filesystem);
        let made = match snapshot {
            None => controller.create(name, gib, capability).await,
            Some(id) => controller.create_of(name, gib, capability, of_snapshot(id)).await,
        };
        let mut volume = made.unwrap();
        controller.attach(&mut volume, 101).await.unwrap();
        let place = |what: &str| world.path(&format!("{what}-{name}"));
        Self { volume, staging: place("staging"), target: place("target") }
    }

    async fn stage(&self, node: &mut Node) -> Answer<()> {
        node.stage(&self.volume, &self.staging).await
    }

    async fn publish(&self, node: &mut Node) {
        node.publish(&self.volume, &self.staging, &self.target).await.unwrap();
    }

    async fn total(&self, node: &mut Node) -> i64 {
        node.total(&self.volume, &self.target).await.unwrap()
    }

    /// Takes it from the node's folders.
    async fn put_down(&self, node: &mut Node) {
        node.unpublish(&self.volume, &self.target).await.unwrap();
        node.unstage(&self.volume, &self.staging).await.unwrap();
    }

    async fn delete(&self, node: &mut Node, controller: &mut Controller) {
        self.put_down(node).await;
        controller.detach(&self.volume, 101).await.unwrap();
        controller.delete(&self.volume).await.unwrap();
    }

    fn device(&self, world: &World) -> PathBuf {
        world.device(&self.volume, 101)
    }

    /// From now on it is asked for with this mode alone.
    fn ask_for_reading(&mut self) {
        use pb::volume_capability::access_mode::Mode;
        let mode = Mode::SingleNodeReaderOnly.into();
        self.volume.capability.access_mode = Some(pb::volume_capability::AccessMode { mode });
    }
}

/// A volume that is in use, with `marker` on its disk, and one restored from a snapshot that was
/// made meanwhile.
async fn original_and_copy(world: &World, filesystem: &str, gib: i64) -> (Used, Used) {
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let name = format!("pvc-{filesystem}");
    let original = Used::attached(world, &name, 1, filesystem, None).await;
    original.stage(&mut node).await.unwrap();
    original.publish(&mut node).await;
    let mut marker = File::create(original.target.join("marker")).unwrap();
    marker.write_all(b"marked").unwrap();
    marker.sync_all().unwrap();
    let snapshot =
        controller.snapshot(&format!("snapshot-{name}"), &original.volume).await.unwrap();
    let id = snapshot.snapshot_id;
    let copy = Used::attached(world, &format!("{name}-copy"), gib, filesystem, Some(&id)).await;
    controller.delete_snapshot(&id).await.unwrap();
    assert!(is_dirty(&copy.device(world), filesystem), "{filesystem}: nothing is to be replayed");
    (original, copy)
}

/// Whether the log on the device waits to be replayed.
fn is_dirty(device: &Path, filesystem: &str) -> bool {
    // What is in the device's cache is not what a filesystem last wrote to it.
    output(program("blockdev").arg("--flushbufs").arg(device)).unwrap();
    let word = |offset: u64| {
        let mut word = [0; 8];
        File::open(device).unwrap().read_exact_at(&mut word, offset).unwrap();
        u64::from_le_bytes(word)
    };
    match filesystem {
        // The flag "needs recovery" of `s_feature_incompat`.
        "ext4" | "ext3" => word(1024 + 0x60) & 0x4 != 0,
        "btrfs" => word((64 << 10) + 0x60) != 0,
        _ => {
            let said = output(program("xfs_logprint").arg("-t").arg(device)).unwrap();
            assert!(said.contains("state: <"), "{said}");
            said.contains("<DIRTY>")
        }
    }
}

fn uuid(device: &Path) -> String {
    output(program("blkid").args(["-p", "-o", "value", "-s", "UUID"]).arg(device)).unwrap()
}

fn marker(used: &Used) -> String {
    fs::read_to_string(used.target.join("marker")).unwrap()
}

/// Whether the kernel can have two copies of a filesystem of this kind mounted.
fn can_have_twins(filesystem: &str) -> bool {
    filesystem != "btrfs" || Path::new("/sys/fs/btrfs/features/temp_fsid").exists()
}

#[tokio::test]
async fn b15_b16_b17_b18_a_larger_copy_with_a_dirty_log_lives_beside_its_original() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    for filesystem in KINDS {
        let (original, copy) = original_and_copy(&world, filesystem, 2).await;
        let device = copy.device(&world);
        let before = uuid(&device);
        assert_eq!(uuid(&original.device(&world)), before);
        if !can_have_twins(filesystem) {
            let status = copy.stage(&mut node).await.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
            original.put_down(&mut node).await;
        }
        for _ in 0..2 {
            copy.stage(&mut node).await.unwrap();
        }
        copy.publish(&mut node).await;
        assert_eq!(marker(&copy), "marked", "{filesystem}");
        let total = copy.total(&mut node).await;
        assert!(total > GIB * 17 / 10 && total <= 2 * GIB, "{filesystem}: {total}");
        if can_have_twins(filesystem) {
            for used in [&original, &copy] {
                fs::write(used.target.join(&used.volume.id), "own").unwrap();
            }
            assert!(!original.target.join(&copy.volume.id).exists(), "{filesystem}");
            assert!(!copy.target.join(&original.volume.id).exists(), "{filesystem}");
            let total = original.total(&mut node).await;
            assert!(total <= GIB, "{filesystem}: {total}");
            // Taken down and up again in the other order.
            for used in [&original, &copy] {
                used.put_down(&mut node).await;
            }
            for used in [&copy, &original] {
                used.stage(&mut node).await.unwrap();
                used.publish(&mut node).await;
                assert_eq!(marker(used), "marked", "{filesystem}");
                assert!(used.target.join(&used.volume.id).exists(), "{filesystem}");
            }
        }
        copy.put_down(&mut node).await;
        assert_eq!(uuid(&device), before, "{filesystem}");
        original.delete(&mut node, &mut controller).await;
        copy.delete(&mut node, &mut controller).await;
    }
    world.assert_clean().await;
}

#[tokio::test]
async fn b18_a_disk_that_grew_behind_its_filesystem_is_filled_when_it_is_staged() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    for filesystem in KINDS {
        let name = format!("pvc-{filesystem}");
        let mut used = Used::attached(&world, &name, 1, filesystem, None).await;
        used.stage(&mut node).await.unwrap();
        fs::write(used.staging.join("marker"), "marked").unwrap();
        controller.grow(&used.volume, 2).await.unwrap();
        // Whoever only reads gets what is there.
        let writer = used.volume.capability.clone();
        used.put_down(&mut node).await;
        used.ask_for_reading();
        used.stage(&mut node).await.unwrap();
        used.publish(&mut node).await;
        let total = used.total(&mut node).await;
        assert!(total <= GIB, "{filesystem}: {total}");
        used.put_down(&mut node).await;
        used.volume.capability = writer;
        // Also the second time, when the first has mounted it already.
        for gib in [2, 3] {
            controller.grow(&used.volume, gib).await.unwrap();
            used.stage(&mut node).await.unwrap();
            let stat = rustix::fs::statvfs(&used.staging).unwrap();
            let total = i64::try_from(stat.f_blocks * stat.f_frsize).unwrap();
            assert!(total > GIB * (gib * 10 - 3) / 10, "{filesystem}: {total} of {gib} GiB");
        }
        used.publish(&mut node).await;
        node.grow(&used.volume, &used.target, 3).await.unwrap();
        assert_eq!(marker(&used), "marked");
        used.delete(&mut node, &mut controller).await;
    }
    world.assert_clean().await;
}

/// Makes a device refuse writes. Dropping it lets it take them again, since the kernel would keep
/// that for whoever gets the loop device next.
struct WriteProtected(PathBuf);

impl WriteProtected {
    fn new(device: PathBuf) -> Self {
        output(program("blockdev").arg("--setro").arg(&device)).unwrap();
        Self(device)
    }
}

impl Drop for WriteProtected {
    fn drop(&mut self) {
        if let Err(error) = output(program("blockdev").arg("--setrw").arg(&self.0)) {
            eprintln!("{} still refuses writes: {error}", self.0.display());
        }
    }
}

#[tokio::test]
async fn b33_a_dirty_copy_for_reading_is_replayed_where_it_can_be_and_else_left_as_it_is() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    for filesystem in KINDS {
        let (original, mut copy) = original_and_copy(&world, filesystem, 2).await;
        original.put_down(&mut node).await;
        let device = copy.device(&world);
        let before = uuid(&device);
        {
            let _protected = WriteProtected::new(device.clone());
            let status = copy.stage(&mut node).await.unwrap_err();
            assert_eq!(status.code(), Code::FailedPrecondition, "{filesystem}: {status}");
            assert_eq!(world.layers(&format!("staging-pvc-{filesystem}-copy")), 0);
            copy.ask_for_reading();
            for _ in 0..2 {
                copy.stage(&mut node).await.unwrap();
            }
            copy.publish(&mut node).await;
            assert!(fs::read_dir(&copy.target).is_ok());
            copy.put_down(&mut node).await;
        }
        assert!(is_dirty(&device, filesystem), "{filesystem}: it was written to");
        copy.stage(&mut node).await.unwrap();
        copy.publish(&mut node).await;
        assert_eq!(marker(&copy), "marked", "{filesystem}");
        let refused = fs::write(copy.target.join("more"), "1").unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        let total = copy.total(&mut node).await;
        assert!(total <= GIB, "{filesystem}: it was grown to {total}");
        copy.put_down(&mut node).await;
        assert!(!is_dirty(&device, filesystem), "{filesystem}: it was not replayed");
        assert_eq!(uuid(&device), before, "{filesystem}");
        original.delete(&mut node, &mut controller).await;
        copy.delete(&mut node, &mut controller).await;
    }
    world.assert_clean().await;
}

#[tokio::test]
async fn b16_a_copy_of_a_seed_is_refused_while_its_original_is_mounted_and_named() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let mut original = Used::attached(&world, "pvc-seed", 1, "btrfs", None).await;
    original.stage(&mut node).await.unwrap();
    fs::write(original.staging.join("marker"), "marked").unwrap();
    original.put_down(&mut node).await;
    let device = original.device(&world);
    output(program("btrfstune").args(["-f", "-S", "1"]).arg(&device)).unwrap();
    let snapshot = controller.snapshot("snapshot-seed", &original.volume).await.unwrap();
    let id = snapshot.snapshot_id;
    let mut copy = Used::attached(&world, "pvc-seed-copy", 1, "btrfs", Some(&id)).await;
    controller.delete_snapshot(&id).await.unwrap();
    for used in [&mut original, &mut copy] {
        used.ask_for_reading();
    }
    original.stage(&mut node).await.unwrap();
    original.publish(&mut node).await;
    for _ in 0..2 {
        let status = copy.stage(&mut node).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        let name = device.file_name().unwrap().to_str().unwrap();
        for word in [name, original.staging.to_str().unwrap(), "another node"] {
            assert!(status.message().contains(word), "{status}");
        }
        assert_eq!(world.layers("staging-pvc-seed-copy"), 0);
    }
    assert_eq!(marker(&original), "marked");
    original.put_down(&mut node).await;
    copy.stage(&mut node).await.unwrap();
    copy.publish(&mut node).await;
    assert_eq!(marker(&copy), "marked");
    original.delete(&mut node, &mut controller).await;
    copy.delete(&mut node, &mut controller).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b57_a_node_killed_while_it_grows_a_restored_disk_converges() {
    const SIGKILL: i32 = 9;
    if !is_root() {
        return;
    }
    let mut world = World::start();
    let mut controller = world.controller().await;
    for filesystem in ["ext4", "xfs"] {
        // What is grown while it is mounted is never unmounted for it.
        let marks = ["mount:after", "grow_filesystem:before", "grow_filesystem:after"];
        let unmounting = ["unmount:before", "unmount:after"];
        let unmounts = filesystem == "ext4" && !may_grow_mounted_ext();
        for mark in marks.iter().chain(unmounting.iter().filter(|_| unmounts)) {
            let context = format!("{filesystem}, {mark}");
            let (original, copy) = original_and_copy(&world, filesystem, 2).await;
            world.parts.kill_node(101).unwrap();
            world.parts.start_node(101, &[&format!("--kill-at={mark}")]).unwrap();
            let mut node = world.node(101).await;
            copy.stage(&mut node).await.expect_err(&context);
            assert_eq!(world.parts.node_death(101).unwrap(), Some(SIGKILL), "{context}");
            world.parts.start_node(101, &[]).unwrap();
            let mut node = world.node(101).await;
            for _ in 0..2 {
                copy.stage(&mut node).await.expect(&context);
            }
            copy.publish(&mut node).await;
            let place = format!("staging-pvc-{filesystem}-copy");
            assert_eq!(world.layers(&place), 1, "{context}");
            assert_eq!(marker(&copy), "marked", "{context}");
            let total = copy.total(&mut node).await;
            assert!(total > GIB * 17 / 10, "{context}: {total}");
            copy.delete(&mut node, &mut controller).await;
            original.delete(&mut node, &mut controller).await;
        }
    }
    world.assert_clean().await;
}

fn may_grow_mounted_ext() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let hex = status.lines().find_map(|line| line.strip_prefix("CapEff:")).unwrap();
    u64::from_str_radix(hex.trim(), 16).unwrap() >> 24 & 1 == 1
}
