//! Links that lead to another disk than the one that they are named after, or to none.

use std::cell::Cell;
use std::fs::File;
use std::path::Path;

use ghost_qmp::disk::{Bus, Disk};
use xtask::guest::quoted;
use xtask::volume_life::{GIB, mounted};

use crate::world::{DROPLET, STAGING, World};

/// A blank disk that no cloud knows of, with the name that it gives itself.
fn strange_disk(world: &World, key: &str, bus: Bus, name: &str) -> Disk {
    let file = world.parts.path(key);
    File::create(&file).unwrap().set_len(GIB.unsigned_abs()).unwrap();
    Disk { key: key.to_owned(), file, bus, name: name.to_owned(), write_protected: false }
}

async fn assert_blank(world: &World, device: &str) {
    let found = world.guest.run(&format!("blkid -p {device}")).await.unwrap();
    assert_eq!((found.code, found.text()), (2, String::new()), "{device} was written to");
}

/// The link of the first volume leads to the second one's disk, then nowhere, then to a disk whose
/// name is the beginning of the right one, and at last to the right one.
async fn leads_astray(bus: Bus) {
    let Some(mut world) = World::start(bus).await else { return };
    let mut controller = world.controller().await;
    let mut first = world.attached("pvc-first", mounted("ext4")).await;
    let second = world.attached("pvc-second", mounted("ext4")).await;
    let (link, others) = (world.link(&first), world.device(&second).await);
    controller.detach(&first, DROPLET).await.unwrap();
    world.assert_absent(&first).await;
    let lead = |to: &str| format!("ln -sfn {to} {}", quoted(&link));
    world.guest.succeed(&lead(&others)).await.unwrap();

    let mut node = world.node().await;
    let is_staged = Cell::new(false);
    let staged = first.clone();
    let stage = async {
        node.stage(&staged, Path::new(STAGING)).await.unwrap();
        is_staged.set(true);
    };
    let correct = async {
        world.node_says(0, &format!("{others} is another disk")).await;
        assert!(!is_staged.get(), "the link leads to the disk of another volume");

        let mark = world.guest.node_log().len();
        world.guest.succeed(&lead("/dev/nowhere")).await.unwrap();
        world.node_says(mark, "a link to /dev/nowhere").await;
        assert!(!is_staged.get(), "the link dangles");

        let short = &world.name(&first)[..6];
        let disk = strange_disk(&world, "short", bus, short);
        world.guest.plug(&disk).await.unwrap();
        let short = world.device_named(short).await;
        let mark = world.guest.node_log().len();
        world.guest.succeed(&lead(&short)).await.unwrap();
        world.node_says(mark, &format!("{short} is another disk")).await;
        assert!(!is_staged.get(), "only the beginning of the name is right");
        assert_eq!(world.mounts().await, "");

        controller.attach(&mut first, DROPLET).await.unwrap();
        short
    };
    let ((), short) = tokio::join!(stage, correct);
    assert_eq!(world.source_of(STAGING).await, world.device(&first).await);
    assert_blank(&world, &others).await;
    assert_blank(&world, &short).await;
    let made = world.guest.succeed("find /dev -xdev -type f").await.unwrap();
    assert_eq!(made, "", "a file was made where devices are");
    world.take_away(&first).await;
}

#[tokio::test]
async fn b08_b12_the_link_of_a_scsi_disk_leads_astray_until_udev_mends_it() {
    leads_astray(Bus::Scsi).await;
}

#[tokio::test]
async fn b08_b12_the_link_of_a_virtio_disk_leads_astray_until_udev_mends_it() {
    leads_astray(Bus::Virtio).await;
}

#[tokio::test]
async fn b08_b12_the_link_of_an_nvme_disk_leads_astray_until_udev_mends_it() {
    leads_astray(Bus::Nvme).await;
}

/// Another disk gives itself the very name of the volume's.
async fn has_a_twin(bus: Bus) {
    let Some(mut world) = World::start(bus).await else { return };
    let volume = world.published("pvc-doubled", "ext4").await;
    world.unpublish_and_unstage(&volume).await.unwrap();
    let own = world.device(&volume).await;
    let twin = strange_disk(&world, "twin", bus, world.name(&volume));
    world.guest.plug(&twin).await.unwrap();
    let others = format!("ls -d /dev/[sv]d[a-z] | grep -vE '/vda|{own}' | grep .");
    world.guest.until(&others).await.unwrap();
    let other = world.guest.succeed(&others).await.unwrap();

    let mut node = world.node().await;
    let is_staged = Cell::new(false);
    let mark = world.guest.node_log().len();
    let stage = async {
        node.stage(&volume, Path::new(STAGING)).await.unwrap();
        is_staged.set(true);
    };
    let correct = async {
        world.node_says(mark, "so do others").await;
        // The rest of that line may come a moment later.
        for disk in [&own, &other] {
            world.node_says(mark, disk.trim_start_matches("/dev/")).await;
        }
        assert!(!is_staged.get(), "nobody can tell which of the two it is");
        assert_eq!(world.mounts().await, "");
        assert_blank(&world, &other).await;
        world.guest.unplug("twin").await.unwrap();
    };
    tokio::join!(stage, correct);
    world.stage_and_publish(&volume).await.unwrap();
    world.assert_data().await;
    world.take_away(&volume).await;
}

#[tokio::test]
async fn b10_a_scsi_disk_with_a_twin_is_not_taken_until_the_twin_is_gone() {
    has_a_twin(Bus::Scsi).await;
}

#[tokio::test]
async fn b10_a_virtio_disk_with_a_twin_is_not_taken_until_the_twin_is_gone() {
    has_a_twin(Bus::Virtio).await;
}
