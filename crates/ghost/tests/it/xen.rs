//! Disks of a Xen host: no serial and no link, known by their slot. The kernel's account of them is
//! a recorded tree; the disks behind it are loop devices of this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tonic::Code;
use xtask::volume_life::{Volume, mounted};

use crate::world::{World, is_root};

/// A recorded tree: what `/sys` and `/dev` of a Xen guest have of its disks.
struct Tree {
    sysfs: PathBuf,
    dev: PathBuf,
}

impl Tree {
    fn new(world: &World) -> Self {
        let tree = Self { sysfs: world.path("sysfs"), dev: world.path("xen-dev") };
        for folder in [tree.sysfs.join("block"), tree.sysfs.join("dev/block"), tree.dev.clone()] {
            fs::create_dir_all(folder).unwrap();
        }
        tree
    }

    /// A front-end in the slot of this number, over the disk that the volume has on node 101.
    fn plug(&self, world: &World, volume: &Volume, name: &str, vbd: u32) {
        let real = world.device(volume, 101);
        let number = fs::read_to_string(
            Path::new("/sys/class/block").join(real.file_name().unwrap()).join("dev"),
        );
        let number = number.unwrap().trim().to_owned();
        let folder = self.sysfs.join("block").join(name);
        fs::create_dir_all(folder.join("device")).unwrap();
        symlink("../../../../bus/xen", folder.join("device/subsystem")).unwrap();
        fs::write(folder.join("device/nodename"), format!("device/vbd/{vbd}\n")).unwrap();
        fs::write(folder.join("dev"), format!("{number}\n")).unwrap();
        fs::write(folder.join("uevent"), format!("DEVNAME={name}\nDEVTYPE=disk\n")).unwrap();
        symlink(&folder, self.sysfs.join("dev/block").join(&number)).unwrap();
        symlink(real, self.dev.join(name)).unwrap();
        // The kernel's node itself: a link is no node of a device folder.
        fs::remove_file(self.dev.join(name)).unwrap();
        let (major, minor) = number.split_once(':').unwrap();
        let device = rustix::fs::makedev(major.parse().unwrap(), minor.parse().unwrap());
        rustix::fs::mknodat(
            rustix::fs::CWD,
            self.dev.join(name),
            rustix::fs::FileType::BlockDevice,
            rustix::fs::Mode::from_raw_mode(0o600),
            device,
        )
        .unwrap();
    }

    /// The options of a node that looks here.
    fn options(&self) -> Vec<String> {
        vec![format!("--sysfs-root={}", self.sysfs.display())]
    }
}

/// A world whose cloud tells slots or not, and two volumes on node 101, whose half looks at a tree.
async fn world(slots: Option<&str>, more: &[&str]) -> (World, Tree, [Volume; 2]) {
    let mut world = World::empty("0ms", true, "debug");
    let slots = slots.map(|told| format!("--device-slots={told}"));
    world.parts.start_simulator(slots.as_deref().as_slice()).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let mut volumes = Vec::new();
    for name in ["pvc-one", "pvc-two"] {
        let mut volume = controller.create(name, 1, mounted("ext4")).await.unwrap();
        controller.attach(&mut volume, 101).await.unwrap();
        volumes.push(volume);
    }
    let tree = Tree::new(&world);
    let mut options = tree.options();
    options.extend(more.iter().map(|option| (*option).to_owned()));
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    world.parts.start_node_at(101, &tree.dev, &options).unwrap();
    world.parts.start_node(102, &[]).unwrap();
    let volumes = volumes.try_into().unwrap_or_else(|_| unreachable!("there are two"));
    (world, tree, volumes)
}

#[tokio::test]
async fn a_xen_disk_is_found_by_the_slot_that_the_cloud_tells() {
    if !is_root() {
        return;
    }
    for told in ["everywhere", "actions"] {
        finds_by_slot(told).await;
    }
}

async fn finds_by_slot(told: &str) {
    let (world, tree, [one, mut two]) = world(Some(told), &[]).await;
    assert_eq!(one.attachment["deviceSlot"], "xvdf");
    // A publication that is repeated, or follows one that was given up, tells it too.
    two.attachment.clear();
    world.controller().await.attach(&mut two, 101).await.unwrap();
    assert_eq!(two.attachment["deviceSlot"], "xvdg");
    let mut node = world.node(101).await;
    // The kernel may give them other names than their slots.
    tree.plug(&world, &one, "xvdj", 51_792);
    tree.plug(&world, &two, "xvdk", 51_808);
    for (volume, text) in [(&one, "one"), (&two, "two")] {
        let (staging, target) = (world.path("staging"), world.path("target"));
        for _ in 0..2 {
            node.stage(volume, &staging).await.unwrap();
            node.publish(volume, &staging, &target).await.unwrap();
        }
        fs::write(target.join("data"), text).unwrap();
        node.unpublish(volume, &target).await.unwrap();
        node.unstage(volume, &staging).await.unwrap();
    }
    node.stage(&one, &world.path("staging")).await.unwrap();
    assert_eq!(fs::read_to_string(world.path("staging").join("data")).unwrap(), "one");
    world.take_away(&one).await;
    world.take_away(&two).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn a_xen_disk_without_a_slot_is_refused_unless_it_is_allowed_and_never_chosen_between_two() {
    if !is_root() {
        return;
    }
    let staged = async |world: &World, volume: &Volume| {
        let mut node = world.node(101).await;
        let request = ghost_csi::NodeStageVolumeRequest {
            volume_id: volume.id.clone(),
            publish_context: volume.attachment.clone(),
            staging_target_path: world.path("staging").to_string_lossy().into_owned(),
            volume_capability: Some(volume.capability.clone()),
            volume_context: volume.context.clone(),
            ..Default::default()
        };
        node.0.node_stage_volume(crate::world::within(3, request)).await
    };
    let (mut refusing, tree, [one, _]) = world(None, &[]).await;
    tree.plug(&refusing, &one, "xvdf", 51_792);
    let status = staged(&refusing, &one).await.unwrap_err();
    assert!(matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded), "{status}");
    assert_eq!(refusing.layers("staging"), 0);
    // It would wait on.
    refusing.parts.kill_node(101).unwrap();
    drop(refusing);

    let (mut world, tree, [one, two]) = world(None, &["--allow-unidentified"]).await;
    assert!(!one.attachment.contains_key("deviceSlot"));
    tree.plug(&world, &one, "xvdf", 51_792);
    staged(&world, &one).await.unwrap();
    staged(&world, &one).await.expect("again: what is there is believed");
    let mut node = world.node(101).await;
    node.publish(&one, &world.path("staging"), &world.path("target")).await.unwrap();
    fs::write(world.path("target").join("data"), "one").unwrap();
    node.unpublish(&one, &world.path("target")).await.unwrap();
    node.unstage(&one, &world.path("staging")).await.unwrap();
    // Two of one size: it is not known which.
    tree.plug(&world, &two, "xvdg", 51_808);
    let status = staged(&world, &one).await.unwrap_err();
    assert!(!matches!(status.code(), Code::Ok), "{status}");
    assert_eq!(world.layers("staging"), 0);
    world.parts.kill_node(101).unwrap();
    world.parts.start_node(101, &[]).unwrap();
    world.take_away(&one).await;
    world.take_away(&two).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn a_note_never_costs_the_content_of_a_disk_that_nothing_proves() {
    if !is_root() {
        return;
    }
    let more = ["--allow-unidentified", "--kill-at=format:before"];
    let (mut world, tree, [one, _]) = world(None, &more).await;
    tree.plug(&world, &one, "xvdf", 51_792);
    world.node(101).await.stage(&one, &world.path("staging")).await.unwrap_err();
    assert_eq!(world.parts.node_death(101).unwrap(), Some(9));
    assert_eq!(fs::read_dir(world.path("notes-101")).unwrap().count(), 1, "its note is there");
    // In the slot is a disk of the same size, with something on it.
    let device = world.device(&one, 101);
    let mut content = fs::OpenOptions::new().write(true).open(&device).unwrap();
    std::io::Write::write_all(&mut content, &[0xa5; 4096]).unwrap();
    content.sync_all().unwrap();
    drop(content);
    let options = [tree.options(), vec!["--allow-unidentified".to_owned()]].concat();
    let options: Vec<&str> = options.iter().map(String::as_str).collect();
    world.parts.start_node_at(101, &tree.dev, &options).unwrap();
    let status = world.node(101).await.stage(&one, &world.path("staging")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    let mut head = [0; 4096];
    std::io::Read::read_exact(&mut fs::File::open(&device).unwrap(), &mut head).unwrap();
    assert_eq!(head, [0xa5; 4096], "nothing was erased");
    // And as a block device it is not used at all.
    let as_device = Volume { capability: xtask::volume_life::block(), ..one.clone() };
    let staged = world.node(101).await.stage(&as_device, &world.path("staging")).await;
    assert_eq!(staged.unwrap_err().code(), Code::FailedPrecondition);
}
