//! Failures that users of such drivers really hit on a node, each named after its id.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use ghost_csi as pb;
use rustix::mount::mount_bind;
use tonic::Code;
use xtask::command::program;
use xtask::playground::{connect, probe};
use xtask::volume_life::{Answer, GIB, Node, Volume, block, mounted};

use crate::world::{World, is_root, within};

fn publish_request(world: &World, volume: &Volume) -> pb::NodePublishVolumeRequest {
    pb::NodePublishVolumeRequest {
        volume_id: volume.id.clone(),
        publish_context: volume.attachment.clone(),
        volume_context: volume.context.clone(),
        staging_target_path: world.path("staging").display().to_string(),
        target_path: world.path("target").display().to_string(),
        volume_capability: Some(volume.capability.clone()),
        ..Default::default()
    }
}

/// A node half that is set up otherwise than those of the world; it ends with the test.
pub(crate) struct OtherNode {
    pub(crate) process: Child,
    pub(crate) socket: PathBuf,
}

impl OtherNode {
    /// With the tools of one folder and no others.
    pub(crate) fn with_tools(world: &World, tools: &Path) -> Self {
        let mut command = program(env!("CARGO_BIN_EXE_ghost"));
        command.env("PATH", tools).args(["node", "--node-id=101", "--region=ams1"]);
        Self::start(world, command)
    }

    /// With a metadata service of its own, which alone knows who it is.
    fn with_metadata(world: &World, url: &str) -> Self {
        let mut command = program(env!("CARGO_BIN_EXE_ghost"));
        command.args(["node", "--metadata-url", url]);
        Self::start(world, command)
    }

    fn start(world: &World, mut command: Command) -> Self {
        let socket = world.path("other.sock");
        let log = fs::File::create(world.path("other.log")).unwrap();
        let process = command
            .arg("--log=debug")
            .arg(format!("--endpoint=unix://{}", socket.display()))
            .arg(format!("--dev-root={}", world.parts.dev_root(101).display()))
            .arg(format!("--format-notes-dir={}", world.path("other-notes").display()))
            .env("GHOST_KUBELET_DIR", world.path("no-kubelet"))
            .stderr(Stdio::from(log))
            .spawn()
            .unwrap();
        let started = Self { process, socket };
        let begun = Instant::now();
        while UnixStream::connect(&started.socket).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it does not listen");
            std::thread::yield_now();
        }
        started
    }

    pub(crate) async fn client(&self) -> Node {
        Node(pb::node_client::NodeClient::new(connect(&self.socket).await.unwrap()))
    }
}

impl Drop for OtherNode {
    fn drop(&mut self) {
        let ended = self.process.kill().and_then(|()| self.process.wait());
        if let Err(error) = ended {
            eprintln!("the node {} was not ended: {error}", self.process.id());
        }
    }
}

pub(crate) fn tool(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[tokio::test]
async fn b11_a_probe_that_fails_or_sees_nothing_never_leads_to_a_format() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-probe", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    let staging = world.path("staging");
    let tools = world.path("tools");
    fs::create_dir(&tools).unwrap();
    let ran = world.path("mkfs-ran");
    for name in ["mkfs.ext4", "mke2fs"] {
        tool(&tools, name, &format!(": > {}; exit 1", ran.display()));
    }
    let other = OtherNode::with_tools(&world, &tools);
    let mut node = other.client().await;

    // The disk is blank, and nobody says so: no blkid, one that is killed, one that fails.
    let status = node.stage(&volume, &staging).await.unwrap_err();
    assert!(status.message().contains("blkid"), "{status}");
    for script in ["kill -9 $$", "exit 4", "exit 77"] {
        tool(&tools, "blkid", script);
        let status = node.stage(&volume, &staging).await.unwrap_err();
        assert!(status.message().contains("blkid"), "{script}: {status}");
    }
    assert!(!ran.exists(), "mkfs was run on a disk that nobody called blank");

    // The disk has data, and blkid says that it found nothing, as for one that it cannot read.
    let mut real = world.node(101).await;
    real.stage(&volume, &staging).await.unwrap();
    fs::write(staging.join("data"), b"kept").unwrap();
    real.unstage(&volume, &staging).await.unwrap();
    tool(&tools, "blkid", "exit 2");
    let status = node.stage(&volume, &staging).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(!ran.exists(), "mkfs was run on a disk with data");
    assert_eq!(world.layers("staging"), 0);

    real.stage(&volume, &staging).await.unwrap();
    assert_eq!(fs::read(staging.join("data")).unwrap(), b"kept");
    // That mkfs would have been seen: of a blank disk, with the blkid that says so.
    let mut blank = controller.create("pvc-blank", 1, mounted("ext4")).await.unwrap();
    controller.attach(&mut blank, 101).await.unwrap();
    node.stage(&blank, &world.path("other")).await.unwrap_err();
    assert!(ran.exists(), "the mkfs of this test is not the one that the node runs");
    controller.detach(&blank, 101).await.unwrap();
    controller.delete(&blank).await.unwrap();
    world.take_away(&volume).await;
    world.assert_clean().await;
}

fn is_ok_or_aborted(answer: &Answer<()>) -> bool {
    answer.as_ref().map_or_else(|status| status.code() == Code::Aborted, |()| true)
}

#[tokio::test]
async fn b23_publishing_twice_at_once_mounts_once_and_unpublishing_takes_off_every_layer() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = world.published("pvc-stacked", "ext4").await;
    let mut node = world.node(101).await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    node.unpublish(&volume, &target).await.unwrap();
    for _ in 0..10 {
        let mut other = node.clone();
        let (first, second) = tokio::join!(
            node.publish(&volume, &staging, &target),
            other.publish(&volume, &staging, &target)
        );
        assert!(is_ok_or_aborted(&first) && is_ok_or_aborted(&second), "{first:?} {second:?}");
        assert!(first.is_ok() || second.is_ok());
        assert_eq!(world.layers("target"), 1);
        let (first, second) =
            tokio::join!(node.unpublish(&volume, &target), other.unpublish(&volume, &target));
        assert!(is_ok_or_aborted(&first) && is_ok_or_aborted(&second), "{first:?} {second:?}");
        assert_eq!(world.layers("target"), 0);
        assert!(!target.exists());
    }
    fs::create_dir(&target).unwrap();
    for _ in 0..3 {
        mount_bind(&staging, &target).unwrap();
    }
    assert_eq!(world.layers("target"), 3);
    node.unpublish(&volume, &target).await.unwrap();
    assert_eq!(world.layers("target"), 0);
    assert!(!target.exists());
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b24_staging_again_while_it_is_in_use_changes_nothing() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let volume = world.published("pvc-again", "xfs").await;
    let mut node = world.node(101).await;
    let target = world.path("target");
    let mut open = fs::File::create(target.join("data")).unwrap();
    open.write_all(b"one ").unwrap();
    let mount = fs::metadata(&target).unwrap().dev();
    // Also while the disk's link is missing: a mount that is in order wins.
    let link = world.parts.dev_root(101).join("disk/by-id/scsi-0DO_Volume_pvc-again");
    let led_to = fs::read_link(&link).unwrap();
    node.stage(&volume, &world.path("staging")).await.unwrap();
    fs::remove_file(&link).unwrap();
    node.stage(&volume, &world.path("staging")).await.unwrap();
    symlink(&led_to, &link).unwrap();
    assert_eq!((world.layers("staging"), world.layers("target")), (1, 1));
    assert_eq!(fs::metadata(&target).unwrap().dev(), mount);
    open.write_all(b"two").unwrap();
    drop(open);
    assert_eq!(fs::read(target.join("data")).unwrap(), b"one two");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b30_a_device_that_is_missing_never_becomes_a_regular_file() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let mut controller = world.controller().await;
    let mut node = world.node(101).await;
    let target = world.path("target");
    let mut volume = controller.create("pvc-device", 1, block()).await.unwrap();
    controller.attach(&mut volume, 101).await.unwrap();
    node.stage(&volume, &world.path("staging")).await.unwrap();
    let right = world.device(&volume, 101);
    let link = world.parts.dev_root(101).join("disk/by-id/scsi-0DO_Volume_pvc-device");
    let file = world.path("plain-file");
    fs::File::create(&file).unwrap().set_len(1 << 30).unwrap();
    for wrong in [world.path("nowhere"), file.clone()] {
        fs::remove_file(&link).unwrap();
        symlink(&wrong, &link).unwrap();
        let request = within(1, publish_request(&world, &volume));
        let status = node.0.node_publish_volume(request).await.unwrap_err();
        let code = status.code();
        assert!(matches!(code, Code::DeadlineExceeded | Code::Unavailable), "{status}");
        assert!(!target.exists() && world.layers("target") == 0, "{wrong:?} was published");
        assert!(!world.path("nowhere").exists(), "a file was made in place of the device");
    }
    fs::remove_file(&link).unwrap();
    symlink(&right, &link).unwrap();
    node.0.node_publish_volume(publish_request(&world, &volume)).await.unwrap();
    let seen = fs::metadata(&target).unwrap();
    assert!(seen.file_type().is_block_device());
    assert_eq!(seen.rdev(), fs::metadata(&right).unwrap().rdev());
    assert!(fs::read(&file).unwrap().iter().all(|byte| *byte == 0), "the file was written to");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b57_a_node_that_is_killed_leaves_its_mounts_and_its_successor_takes_them_over() {
    if !is_root() {
        return;
    }
    let mut world = World::start();
    let volume = world.published("pvc-survives", "xfs").await;
    let (staging, target) = (world.path("staging"), world.path("target"));
    let mut open = fs::File::create(target.join("data")).unwrap();
    open.write_all(b"before ").unwrap();
    world.parts.kill_node(101).unwrap();
    open.write_all(b"meanwhile ").unwrap();
    open.sync_all().unwrap();
    world.parts.start_node(101, &[]).unwrap();
    let mut node = world.node(101).await;
    open.write_all(b"after").unwrap();
    node.stage(&volume, &staging).await.unwrap();
    node.publish(&volume, &staging, &target).await.unwrap();
    assert_eq!((world.layers("staging"), world.layers("target")), (1, 1));
    world.controller().await.grow(&volume, 2).await.unwrap();
    node.grow(&volume, &target, 2).await.unwrap();
    assert!(node.total(&volume, &target).await.unwrap() > GIB);
    drop(open);
    assert_eq!(fs::read(target.join("data")).unwrap(), b"before meanwhile after");
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b58_whatever_the_metadata_service_says_first_the_node_is_never_somebody_else() {
    let world = World::empty("0ms", false, "info");
    fs::create_dir_all(world.parts.dev_root(101)).unwrap();
    // Bound but not listening: whoever connects is refused.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    let other = OtherNode::with_metadata(&world, &url);
    let mut node = other.client().await;
    let refused = async {
        while !fs::read_to_string(world.path("other.log")).unwrap().contains("is asked again") {
            tokio::task::yield_now().await;
        }
    };
    let limit = Duration::from_secs(20);
    tokio::time::timeout(limit, refused).await.unwrap();
    let status = node.0.node_get_info(pb::NodeGetInfoRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(!probe(&other.socket).await.unwrap(), "it is not ready");

    let answers =
        [(500, "102"), (200, ""), (200, "two words"), (200, "<html></html>"), (200, "101\n")];
    let answers = Arc::new(Mutex::new(VecDeque::from(answers)));
    let script = answers.clone();
    let router = axum::Router::new()
        .route("/metadata/v1/region", axum::routing::get(async || "ams1\n"))
        .route(
            "/metadata/v1/id",
            axum::routing::get(async move || {
                let (status, text) = script.lock().unwrap().pop_front().unwrap();
                (StatusCode::from_u16(status).unwrap(), text)
            }),
        );
    let listener = socket.listen(16).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the service ends with the test")]
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let known = async {
        loop {
            match node.0.node_get_info(pb::NodeGetInfoRequest {}).await {
                Ok(known) => return known.into_inner(),
                Err(status) => assert_eq!(status.code(), Code::Unavailable, "{status}"),
            }
            tokio::task::yield_now().await;
        }
    };
    let known = tokio::time::timeout(limit, known).await.unwrap();
    assert_eq!(known.node_id, "101");
    assert!(answers.lock().unwrap().is_empty(), "it was known too early");
    assert!(probe(&other.socket).await.unwrap());
    server.abort();
}

/// Starts a controller at a socket path where it must not start, and answers what it says.
fn refusal(world: &World, socket: &Path) -> String {
    // `timeout` only bounds the test: a driver that did start would be ended by it.
    let output = program("timeout")
        .args(["--signal=KILL", "20", env!("CARGO_BIN_EXE_ghost"), "controller"])
        .arg(format!("--endpoint=unix://{}", socket.display()))
        .args(["--cosmos-url", world.parts.url(), "--region", "ams1", "--cosmos-token-file"])
        .arg(world.path("token"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

#[tokio::test]
async fn b56_a_socket_that_was_left_is_replaced_and_nothing_else_is() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&[]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let socket = world.parts.controller_socket();

    let said = refusal(&world, &socket);
    assert!(said.contains("another process listens"), "{said}");
    assert_eq!(world.volumes().await, 0, "the first one still answers");

    world.parts.kill_controller().unwrap();
    assert!(fs::symlink_metadata(&socket).unwrap().file_type().is_socket(), "it was left");
    world.parts.start_controller(&[]).unwrap();
    assert_eq!(world.volumes().await, 0);

    let (file, folder) = (world.path("file.sock"), world.path("folder.sock"));
    fs::write(&file, "keep").unwrap();
    fs::create_dir(&folder).unwrap();
    for path in [&file, &folder] {
        let said = refusal(&world, path);
        assert!(said.contains(&path.display().to_string()), "{said}");
    }
    assert_eq!(fs::read(&file).unwrap(), b"keep");
    assert!(folder.is_dir());
}
