//! Disks that begin to fail, by the device mapper's targets `error` and `flakey`.
//!
//! A mapped device says nothing of who it is. The node is therefore led to a loop device over it,
//! which says the name of its file: here a node of the mapped device, named after the volume.

use std::path::Path;

use ghost_qmp::disk::Bus;
use tonic::Code;
use xtask::volume_life::{Volume, mounted};

use crate::world::{STAGING, TARGET, World, answered};

/// The device that can be made to fail.
pub(crate) struct Mapped {
    /// What it is on.
    disk: String,
    sectors: String,
}

/// How the device behaves.
#[derive(Clone, Copy)]
pub(crate) enum Behaviour {
    Sound,
    /// Every access fails at once.
    Error,
    /// Every access fails, as that of a disk that is away for an hour.
    Away,
    /// All but its first MiB fails, where its filesystem tells what it is.
    MostFails,
}

impl Mapped {
    pub(crate) async fn over(world: &World, volume: &Volume) -> Self {
        let disk = world.device(volume).await;
        let sectors = world.guest.succeed(&format!("blockdev --getsz {disk}")).await.unwrap();
        let mapped = Self { disk, sectors };
        let script = format!(
            "set -e; modprobe loop; mkdir -p /run/mapped /dev/disk/by-mapper\n\
             dmsetup create mapped --table '{table}'; udevadm settle\n\
             mknod /run/mapped/{id} b $(stat -Lc '0x%t 0x%T' /dev/mapper/mapped)\n\
             loop=$(losetup --find --show --direct-io=on /run/mapped/{id})\n\
             ln -s $loop /dev/disk/by-mapper/{name}",
            table = mapped.table(Behaviour::Sound),
            id = volume.id,
            name = volume.context["volumeName"],
        );
        world.guest.succeed(&script).await.unwrap();
        mapped
    }

    pub(crate) async fn behave(&self, world: &World, behaviour: Behaviour) {
        let script = format!(
            "dmsetup suspend --noflush --nolockfs mapped && printf '%s\\n' '{}' | \
             dmsetup load mapped && dmsetup resume mapped",
            self.table(behaviour)
        );
        world.guest.succeed(&script).await.unwrap();
    }

    /// Makes every access wait until it behaves in some way again.
    pub(crate) async fn hang(&self, world: &World) {
        world.guest.succeed("dmsetup suspend --noflush --nolockfs mapped").await.unwrap();
    }

    fn table(&self, behaviour: Behaviour) -> String {
        let Self { disk, sectors } = self;
        match behaviour {
            Behaviour::Sound => format!("0 {sectors} linear {disk} 0"),
            Behaviour::Error => format!("0 {sectors} error"),
            Behaviour::Away => format!("0 {sectors} flakey {disk} 0 0 3600"),
            Behaviour::MostFails => {
                let rest: u64 = sectors.trim().parse::<u64>().unwrap() - 2048;
                format!("0 2048 linear {disk} 0\n2048 {rest} error")
            }
        }
    }

    pub(crate) async fn take_away(self, world: &mut World, volume: &Volume) {
        let script = "losetup --detach-all; until dmsetup remove mapped; do sleep 0.05; done";
        world.unpublish_and_unstage(volume).await.unwrap();
        world.guest.succeed(script).await.unwrap();
        world.take_away(volume).await;
    }
}

pub(crate) async fn world_with_mapper() -> Option<World> {
    let mut world = World::start(Bus::Scsi).await?;
    world.start_node_at("disk/by-mapper/{name}").await;
    Some(world)
}

fn formats(world: &World) -> usize {
    world.guest.node_log().matches("formatting").count()
}

#[tokio::test]
async fn b11_a_disk_whose_reads_fail_for_a_while_is_never_formatted() {
    let Some(mut world) = world_with_mapper().await else { return };
    let volume = world.attached("pvc-reads", mounted("ext4")).await;
    let mapped = Mapped::over(&world, &volume).await;
    let mut node = world.node().await;
    let staging = Path::new(STAGING);
    // Blank, and it cannot be read.
    for behaviour in [Behaviour::Error, Behaviour::Away] {
        mapped.behave(&world, behaviour).await;
        let status = answered(node.stage(&volume, staging)).await.unwrap_err();
        assert!(matches!(status.code(), Code::Internal | Code::Unavailable), "{status}");
        assert_eq!((formats(&world), world.mounts().await), (0, String::new()), "{status}");
    }
    mapped.behave(&world, Behaviour::Sound).await;
    node.stage(&volume, staging).await.unwrap();
    assert_eq!(formats(&world), 1);
    world.stage_and_publish(&volume).await.unwrap();
    world.guest.write(&format!("{TARGET}/data"), "kept").await.unwrap();
    world.unpublish_and_unstage(&volume).await.unwrap();
    // Full of data, and it cannot be read.
    for behaviour in [Behaviour::Away, Behaviour::Error] {
        mapped.behave(&world, behaviour).await;
        let status = answered(node.stage(&volume, staging)).await.unwrap_err();
        assert!(matches!(status.code(), Code::Internal | Code::Unavailable), "{status}");
        assert_eq!((formats(&world), world.mounts().await), (1, String::new()), "{status}");
    }
    mapped.behave(&world, Behaviour::Sound).await;
    world.stage_and_publish(&volume).await.unwrap();
    world.assert_data().await;
    assert_eq!(formats(&world), 1);
    mapped.take_away(&mut world, &volume).await;
}

async fn dies_while_mounted(filesystem: &str, behaviour: Behaviour) {
    let Some(mut world) = world_with_mapper().await else { return };
    let volume = world.attached("pvc-dies", mounted(filesystem)).await;
    let mapped = Mapped::over(&world, &volume).await;
    world.stage_and_publish(&volume).await.unwrap();
    world.guest.write(&format!("{TARGET}/data"), "kept").await.unwrap();
    let mut node = world.node().await;

    mapped.behave(&world, behaviour).await;
    let write = format!("echo more >{TARGET}/more && sync -f {TARGET}");
    assert_ne!(world.guest.run(&write).await.unwrap().code, 0, "the disk takes no writes");
    // A filesystem would answer from memory what it knows, so it is the disk that is asked.
    match (behaviour, answered(node.total(&volume, Path::new(TARGET))).await) {
        (Behaviour::MostFails, answer) => drop(answer),
        (_, answer) => assert_eq!(answer.unwrap_err().code(), Code::Internal),
    }
    // What is dead is taken off, and cannot be had again as long as it is.
    answered(world.unpublish_and_unstage(&volume)).await.unwrap();
    assert_eq!(world.mounts().await, "");
    if matches!(behaviour, Behaviour::Error) {
        answered(node.stage(&volume, Path::new(STAGING))).await.unwrap_err();
        assert_eq!(world.mounts().await, "");
    }
    mapped.behave(&world, Behaviour::Sound).await;
    world.stage_and_publish(&volume).await.unwrap();
    world.assert_data().await;
    assert_eq!(formats(&world), 1);
    mapped.take_away(&mut world, &volume).await;
}

#[tokio::test]
async fn b27_an_ext4_whose_disk_fails_is_measured_and_taken_off_and_comes_back() {
    dies_while_mounted("ext4", Behaviour::Error).await;
}

#[tokio::test]
async fn b27_an_xfs_whose_disk_fails_is_measured_and_taken_off_and_comes_back() {
    dies_while_mounted("xfs", Behaviour::Error).await;
}

#[tokio::test]
async fn b27_an_ext4_whose_disk_takes_no_writes_is_measured_and_taken_off_and_comes_back() {
    dies_while_mounted("ext4", Behaviour::MostFails).await;
}
