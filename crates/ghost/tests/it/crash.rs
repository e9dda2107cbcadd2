//! The driver is killed before and after each change of the world, and started again: the same
//! calls then end as if nothing had happened, and nothing is left over or doubled.

use std::fs;
use std::io::Write;

use ghost::mark::NAMES;
use xtask::volume_life::{Answer, Volume, mounted};

use crate::world::{World, is_root};

const SIGKILL: i32 = 9;

/// The marks that the controller passes; all others are the node's.
const CONTROLLER: [&str; 5] = ["create", "delete", "attach", "detach", "grow_volume"];

/// The controller's marks that are passed elsewhere: see `snapshots_cut_off.rs`.
const SNAPSHOT: [&str; 2] = ["create_snapshot", "delete_snapshot"];

/// How far a life has come.
#[derive(Default)]
struct Progress {
    volume: Option<Volume>,
    has_data: bool,
}

/// Every step of a life, each so that it can be asked for again. Growth is on xfs, which this
/// machine can grow while it is mounted.
async fn life(world: &World, progress: &mut Progress, mark: &str) -> Answer<()> {
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    let created = controller.create("pvc-crash", 1, mounted("xfs")).await?;
    let volume = progress.volume.insert(created);
    controller.attach(volume, 101).await?;
    if mark == "erase" {
        spoil(world, volume);
    }
    node.stage(volume, &staging).await?;
    node.publish(volume, &staging, &target).await?;
    fs::write(target.join("data"), b"kept").unwrap();
    progress.has_data = true;
    controller.grow(volume, 2).await?;
    node.grow(volume, &target, 2).await?;
    node.unpublish(volume, &target).await?;
    node.unstage(volume, &staging).await?;
    // A disk with a filesystem is checked when it is staged again.
    node.stage(volume, &staging).await?;
    node.publish(volume, &staging, &target).await?;
    assert_eq!(fs::read(target.join("data")).unwrap(), b"kept");
    node.unpublish(volume, &target).await?;
    node.unstage(volume, &staging).await?;
    controller.detach(volume, 101).await?;
    controller.delete(volume).await
}

/// Makes the disk one whose format was cut short: the node's own note, and rubbish at its head.
fn spoil(world: &World, volume: &Volume) {
    let notes = world.path("notes-101");
    let device = world.device(volume, 101);
    let note = fs::read_dir(notes).unwrap().next();
    assert!(note.is_some(), "the format that was cut short has left its note");
    let mut device = fs::OpenOptions::new().write(true).open(device).unwrap();
    device.write_all(&[0xa5; 4096]).unwrap();
    device.sync_all().unwrap();
}

async fn dies_and_converges(mark: &str, when: &str) {
    let mut world = World::empty("0ms", true, "debug");
    world.parts.start_simulator(&[]).unwrap();
    let kill_at = format!("--kill-at={mark}:{when}");
    let on_controller = CONTROLLER.contains(&mark);
    let (controller_args, node_args) =
        if on_controller { (vec![&*kill_at], vec![]) } else { (vec![], vec![&*kill_at]) };
    let mut progress = Progress::default();
    if mark == "erase" {
        // A node that is killed in the middle of a format leaves the note that erasing needs.
        world.parts.start_controller(&[]).unwrap();
        world.parts.start_node(101, &["--kill-at=format:before"]).unwrap();
        world.parts.start_node(102, &[]).unwrap();
        life(&world, &mut progress, "format").await.expect_err("it is killed");
        assert_eq!(world.parts.node_death(101).unwrap(), Some(SIGKILL));
        world.parts.start_node(101, &node_args).unwrap();
    } else {
        world.parts.start_controller(&controller_args).unwrap();
        world.parts.start_node(101, &node_args).unwrap();
        world.parts.start_node(102, &[]).unwrap();
    }

    let cut = life(&world, &mut progress, mark).await;
    cut.expect_err(&format!("{mark}:{when} was never reached"));
    let death = if on_controller {
        let death = world.parts.controller_death().unwrap();
        world.parts.start_controller(&[]).unwrap();
        death
    } else {
        let death = world.parts.node_death(101).unwrap();
        world.parts.start_node(101, &[]).unwrap();
        death
    };
    assert_eq!(death, Some(SIGKILL), "{mark}:{when}");

    // The caller asks for the same again, and then goes on.
    retry(&world, &mut progress).await;
    assert!(world.layers("staging") <= 1 && world.layers("target") <= 1);
    world.assert_clean().await;
    let notes = fs::read_dir(world.path("notes-101")).unwrap().count();
    assert_eq!(notes, 0, "{mark}:{when} left a format note");
}

/// Takes away what the life has left by the very calls that Kubernetes would make, then lives it
/// once more.
async fn retry(world: &World, progress: &mut Progress) {
    if let Some(cut) = progress.volume.clone() {
        let mut controller = world.controller().await;
        let mut node = world.node(101).await;
        let (staging, target) = (world.path("staging"), world.path("target"));
        if world.volumes().await == 1 {
            let mut cut = cut;
            controller.attach(&mut cut, 101).await.unwrap();
            node.stage(&cut, &staging).await.unwrap();
            node.publish(&cut, &staging, &target).await.unwrap();
            assert_eq!((world.layers("staging"), world.layers("target")), (1, 1));
            if progress.has_data {
                assert_eq!(fs::read(target.join("data")).unwrap(), b"kept");
            }
            controller.grow(&cut, 2).await.unwrap();
            node.grow(&cut, &target, 2).await.unwrap();
            assert_eq!(world.volumes().await, 1, "the volume is not doubled");
            world.take_away(&cut).await;
        } else {
            node.unpublish(&cut, &target).await.unwrap();
            node.unstage(&cut, &staging).await.unwrap();
            controller.detach(&cut, 101).await.unwrap();
            controller.delete(&cut).await.unwrap();
        }
    } else {
        // Killed at the creation: the next one finds what it made.
        let mut controller = world.controller().await;
        let found = controller.create("pvc-crash", 1, mounted("xfs")).await.unwrap();
        assert_eq!(world.volumes().await, 1, "the volume is not doubled");
        controller.delete(&found).await.unwrap();
    }
    world.assert_clean().await;
    life(world, progress, "none").await.unwrap();
}

#[tokio::test]
async fn b51_the_controller_killed_at_each_mark_converges() {
    if !is_root() {
        return;
    }
    for mark in CONTROLLER {
        for when in ["before", "after"] {
            dies_and_converges(mark, when).await;
        }
    }
}

#[tokio::test]
async fn b57_the_node_killed_at_each_mark_converges() {
    if !is_root() {
        return;
    }
    let of_controller = |mark: &&str| CONTROLLER.contains(mark) || SNAPSHOT.contains(mark);
    for mark in NAMES.into_iter().filter(|mark| !of_controller(mark)) {
        for when in ["before", "after"] {
            dies_and_converges(mark, when).await;
        }
    }
}
