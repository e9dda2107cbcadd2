//! What can be on a disk, on the real kernel: failures that users of such drivers really hit, each
//! named after its id.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ghost_csi as pb;
use tonic::Code;
use xtask::command::{output, program};
use xtask::volume_life::{GIB, Volume, block, mounted};

use crate::world::{World, is_root};

/// Makes a volume and attaches it to node 101.
async fn attached(world: &World, name: &str, capability: pb::VolumeCapability) -> Volume {
    let mut controller = world.controller().await;
    let mut volume = controller.create(name, 1, capability).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    volume
}

/// A volume with a filesystem that was in use, with `keep` in it, and is on no node's folder now.
async fn used_before(world: &World, name: &str, filesystem: &str) -> Volume {
    let volume = attached(world, name, mounted(filesystem)).await;
    let (mut node, staging) = (world.node(101).await, world.path("staging"));
    node.stage(&volume, &staging).await.unwrap();
    fs::write(staging.join("keep"), "kept").unwrap();
    node.unstage(&volume, &staging).await.unwrap();
    volume
}

fn tool(name: &str, arguments: &[&str], device: &Path) -> String {
    output(program(name).args(arguments).arg(device)).unwrap()
}

/// What the mount table of this machine says of the mounts at a path: kind and options.
fn shown(path: &Path) -> Vec<(String, String)> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = path.display().to_string();
    let lines = table.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let there = lines.filter(|words| words[4] == path);
    there
        .map(|words| {
            let end = words.iter().position(|word| *word == "-").unwrap();
            (words[end + 1].to_owned(), words[end + 3].to_owned())
        })
        .collect()
}

#[tokio::test]
async fn b09_a_disk_that_is_mounted_as_something_else_is_not_taken() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = used_before(&world, "pvc-host", "ext4").await;
    let (mut node, staging) = (world.node(101).await, world.path("staging"));
    let (device, elsewhere) = (world.device(&volume, 101), world.path("elsewhere"));
    fs::create_dir(&elsewhere).unwrap();
    output(program("mount").arg(&device).arg(&elsewhere)).unwrap();
    // As a device it would be written to under that mount; as an xfs it cannot be one of ours.
    for capability in [block(), mounted("xfs")] {
        let other = Volume { capability, ..volume.clone() };
        let status = node.stage(&other, &staging).await.unwrap_err();
        assert_eq!(status.code(), Code::Internal, "{status}");
        assert!(status.message().contains(&elsewhere.display().to_string()), "{status}");
        assert_eq!((world.layers("staging"), world.layers("elsewhere")), (0, 1));
        assert_eq!(fs::read(elsewhere.join("keep")).unwrap(), b"kept");
    }
    output(program("umount").arg(&elsewhere)).unwrap();
    node.stage(&volume, &staging).await.unwrap();
    assert_eq!(fs::read(staging.join("keep")).unwrap(), b"kept");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b13_another_filesystem_than_the_wanted_one_is_named_and_kept() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut volume = used_before(&world, "pvc-other", "xfs").await;
    let (mut node, staging) = (world.node(101).await, world.path("staging"));
    volume.capability = mounted("ext4");
    let status = node.stage(&volume, &staging).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("xfs"), "{status}");
    assert_eq!(world.layers("staging"), 0);
    volume.capability = mounted("xfs");
    node.stage(&volume, &staging).await.unwrap();
    assert_eq!(fs::read(staging.join("keep")).unwrap(), b"kept");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b14_small_damage_is_repaired_and_great_damage_is_left_to_a_person() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = used_before(&world, "pvc-damaged", "ext4").await;
    let (mut node, staging) = (world.node(101).await, world.path("staging"));
    let device = world.device(&volume, 101);
    // Blocks that are marked as used and belong to nothing.
    tool("debugfs", &["-w", "-R", "setb 5000 3"], &device);
    tool("debugfs", &["-w", "-R", "ssv state 0"], &device);
    node.stage(&volume, &staging).await.unwrap();
    assert_eq!(fs::read(staging.join("keep")).unwrap(), b"kept");
    node.unstage(&volume, &staging).await.unwrap();
    tool("e2fsck", &["-n", "-f"], &device);

    // The root folder becomes a plain file.
    tool("debugfs", &["-w", "-R", "sif <2> mode 0100644"], &device);
    tool("debugfs", &["-w", "-R", "ssv state 2"], &device);
    for _ in 0..2 {
        let status = node.stage(&volume, &staging).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        let name = device.file_name().unwrap().to_str().unwrap();
        for word in ["status 4", name] {
            assert!(status.message().contains(word), "{word}: {status}");
        }
        assert_eq!(world.layers("staging"), 0);
    }
    // A person can still save what there is.
    assert_eq!(tool("debugfs", &["-R", "cat <12>"], &device), "kept");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b15_an_xfs_that_the_kernel_refuses_is_neither_repaired_nor_made_again() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = used_before(&world, "pvc-xfs", "xfs").await;
    let (mut node, staging) = (world.node(101).await, world.path("staging"));
    let device = world.device(&volume, 101);
    // The root folder's inode: 64 to a cluster of 32 KiB, the first is number 128.
    let place = 128 * 512;
    let disk = fs::OpenOptions::new().read(true).write(true).open(&device).unwrap();
    let mut inode = [0; 512];
    disk.read_exact_at(&mut inode, place).unwrap();
    assert_eq!(&inode[..2], b"IN", "this is where an inode is");
    disk.write_all_at(&[0xff; 512], place).unwrap();
    disk.sync_all().unwrap();
    let status = node.stage(&volume, &staging).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("xfs_repair"), "no advice: {status}");
    assert_eq!(world.layers("staging"), 0);
    let mut after = [0; 512];
    disk.read_exact_at(&mut after, place).unwrap();
    assert!(after == [0xff; 512], "it was written to");
    disk.write_all_at(&inode, place).unwrap();
    disk.sync_all().unwrap();
    drop(disk);
    node.stage(&volume, &staging).await.unwrap();
    assert_eq!(fs::read(staging.join("keep")).unwrap(), b"kept");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b19_the_filesystem_that_a_guest_made_in_a_block_volume_is_not_grown() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = attached(&world, "pvc-guest", block()).await;
    let (mut node, mut controller) = (world.node(101).await, world.controller().await);
    let (staging, target) = (world.path("staging"), world.path("target"));
    node.stage(&volume, &staging).await.unwrap();
    node.publish(&volume, &staging, &target).await.unwrap();
    tool("mkfs.ext4", &["-q"], &target);
    let before = tool("dumpe2fs", &["-h"], &target);
    controller.grow(&volume, 2).await.unwrap();
    for volume_capability in [Some(block()), None] {
        let request = pb::NodeExpandVolumeRequest {
            volume_id: volume.id.clone(),
            volume_path: target.display().to_string(),
            capacity_range: Some(pb::CapacityRange { required_bytes: 2 * GIB, limit_bytes: 0 }),
            volume_capability,
            ..Default::default()
        };
        let told = node.0.node_expand_volume(request).await.unwrap().into_inner();
        assert_eq!(told.capacity_bytes, 2 * GIB);
    }
    assert_eq!(tool("dumpe2fs", &["-h"], &target), before);
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b34_no_filesystem_means_ext4_and_an_unknown_one_is_refused_everywhere() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut volume = attached(&world, "pvc-none", mounted("")).await;
    let (mut node, staging) = (world.node(101).await, world.path("staging"));
    node.stage(&volume, &staging).await.unwrap();
    assert_eq!(shown(&staging)[0].0, "ext4");
    volume.capability = mounted("ntfs");
    let status = node.stage(&volume, &world.path("other")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    let status = world.controller().await.create("pvc-b", 1, mounted("ntfs")).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    volume.capability = mounted("");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b60_a_context_is_one_option_of_the_filesystem_or_the_call_is_refused() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut volume = attached(&world, "pvc-label", mounted("ext4")).await;
    let (mut node, staging) = (world.node(101).await, world.path("staging"));
    let label = "system_u:object_r:container_file_t:s0:c1,c2";
    if let Some(pb::volume_capability::AccessType::Mount(mount)) =
        &mut volume.capability.access_type
    {
        mount.mount_flags = vec![format!("context=\"{label}\"")];
    }
    match node.stage(&volume, &staging).await {
        // A kernel with SELinux keeps it whole.
        Ok(()) => {
            assert!(shown(&staging)[0].1.contains(label), "{:?}", shown(&staging));
            node.publish(&volume, &staging, &world.path("target")).await.unwrap();
        }
        // One without does not mount as if nothing had been asked for.
        Err(status) => {
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().contains("\"context\""), "{status}");
            assert_eq!(world.layers("staging"), 0);
        }
    }
    world.take_away(&volume).await;
    world.assert_clean().await;
}
