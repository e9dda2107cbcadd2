//! A tool of the host that does not end.

use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tonic::Code;
use xtask::command::{output, program};
use xtask::volume_life::mounted;

use crate::node_cases::{OtherNode, tool};
use crate::world::{World, is_root, stage_request, within};

/// A folder with the machine's own tools, of which the check of filesystems waits at its first run
/// until something is written to the FIFO that is answered too.
fn tools_of_which_one_hangs(world: &World) -> (PathBuf, PathBuf) {
    let (tools, fifo) = (world.path("tools"), world.path("fifo"));
    fs::create_dir(&tools).unwrap();
    for name in ["blkid", "mkfs.ext4", "mke2fs", "resize2fs", "dumpe2fs"] {
        symlink(real(name), tools.join(name)).unwrap();
    }
    output(program("mkfifo").arg(&fifo)).unwrap();
    let once = world.path("hung");
    let (once, fifo_name, e2fsck) = (once.display(), fifo.display(), real("e2fsck"));
    let [mkdir, head] = ["mkdir", "head"].map(real);
    let wait = format!("{} -c 1 {fifo_name} >/dev/null", head.display());
    let script = format!(
        "if {} {once} 2>/dev/null; then {wait}; fi\nexec {} \"$@\"",
        mkdir.display(),
        e2fsck.display()
    );
    tool(&tools, "e2fsck", &script);
    (tools, fifo)
}

fn real(name: &str) -> PathBuf {
    let folders = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
    let places = folders.map(|folder| Path::new(folder).join(name));
    places.into_iter().find(|place| place.is_file()).unwrap_or_else(|| panic!("no {name} here"))
}

#[tokio::test]
async fn b14_b59_a_tool_that_hangs_holds_its_own_volume_and_only_while_it_lives() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut volumes = Vec::new();
    for name in ["pvc-hung", "pvc-free"] {
        let mut volume = controller.create(name, 1, mounted("ext4")).await.unwrap();
        controller.attach(&mut volume, 101).await.unwrap();
        // They have filesystems, so that there is something to be checked.
        output(program("mkfs.ext4").arg("-q").arg(world.device(&volume, 101))).unwrap();
        volumes.push(volume);
    }
    let (tools, fifo) = tools_of_which_one_hangs(&world);
    let other = OtherNode::with_tools(&world, &tools);
    let mut node = other.client().await;
    let (staging, free) = (world.path("staging"), world.path("staging-free"));

    // The call's time is over and the check goes on: a check that is ended half way is worse.
    for _ in 0..2 {
        let late = within(1, stage_request(&volumes[0], &world.path("staging")));
        let status = node.0.node_stage_volume(late).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    }
    let log = fs::read_to_string(world.path("other.log")).unwrap();
    let started = log.lines().filter(|line| line.contains("program=\"e2fsck\""));
    let pids: Vec<&str> =
        started.map(|line| line.split("pid=").nth(1).unwrap().split(' ').next().unwrap()).collect();
    let [pid] = pids[..] else { panic!("one check was started, not {pids:?}") };
    assert!(Path::new("/proc").join(pid).exists(), "it was ended");
    // Something else with the same volume is refused, with what holds it and for how long.
    let status = node.unstage(&volumes[0], &staging).await.unwrap_err();
    assert_eq!(status.code(), Code::Aborted, "{status}");
    let words = status.message();
    assert!(words.contains("stage_volume has been running"), "{words}");
    assert_eq!(world.layers("staging"), 0);
    // Another volume is none the worse.
    node.stage(&volumes[1], &free).await.unwrap();
    assert_eq!(world.layers("staging-free"), 1);
    node.unstage(&volumes[1], &free).await.unwrap();

    // It ends, and the volume is free.
    let mut end = fs::OpenOptions::new().write(true).open(&fifo).unwrap();
    end.write_all(b"x").unwrap();
    node.stage(&volumes[0], &staging).await.unwrap();
    assert_eq!(world.layers("staging"), 1);
    node.unstage(&volumes[0], &staging).await.unwrap();
    for volume in &volumes {
        world.take_away(volume).await;
    }
    world.assert_clean().await;
}
