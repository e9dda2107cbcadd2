//! What a class says reaches the disk and the cloud's panel.

use std::collections::HashMap;
use std::path::Path;

use ghost_csi as pb;
use tonic::Code;
use xtask::command::{output, program};
use xtask::volume_life::{Volume, mounted};

use crate::world::{World, is_root};

async fn created(world: &World, filesystem: &str, parameters: &[(&str, &str)]) -> Volume {
    let parameters = parameters.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let capability = mounted(filesystem);
    let request = pb::CreateVolumeRequest {
        name: format!("pvc-{filesystem}"),
        volume_capabilities: vec![capability.clone()],
        capacity_range: Some(pb::CapacityRange { required_bytes: 1 << 30, limit_bytes: 0 }),
        parameters: parameters.collect(),
        ..Default::default()
    };
    let mut client = world.controller().await.0;
    let volume = client.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    Volume {
        id: volume.volume_id,
        context: volume.volume_context,
        attachment: HashMap::new(),
        capability,
    }
}

/// What the filesystem's own tool says of it.
fn told(tool: &str, arguments: &[&str], device: &Path) -> String {
    output(program(tool).args(arguments).arg(device)).unwrap()
}

#[tokio::test]
async fn a_filesystem_is_made_as_its_class_says() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let (mut controller, mut node) = (world.controller().await, world.node(101).await);
    let ext4 = [
        ("blockSize", "1024"),
        ("inodeSize", "512"),
        ("bytesPerInode", "65536"),
        ("reservedBlocksPercent", "5"),
    ];
    let xfs = [("blockSize", "2048"), ("inodeSize", "1024"), ("reflink", "false")];
    for (filesystem, parameters) in [("ext4", &ext4[..]), ("xfs", &xfs)] {
        let mut volume = created(&world, filesystem, parameters).await;
        controller.attach(&mut volume, 101).await.unwrap();
        let staging = world.path("staging");
        node.stage(&volume, &staging).await.unwrap();
        let device = world.device(&volume, 101);
        if filesystem == "ext4" {
            let words = told("dumpe2fs", &["-h"], &device);
            let value = |key: &str| {
                let line = words.lines().find_map(|line| line.strip_prefix(key)).unwrap();
                line.trim_start_matches(':').trim().parse::<u64>().unwrap()
            };
            assert_eq!((value("Block size"), value("Inode size")), (1024, 512));
            assert_eq!(value("Inode count"), (1 << 30) / 65_536);
            let reserved = value("Reserved block count") * 100 / value("Block count");
            assert!((4..=5).contains(&reserved), "{reserved} %");
        } else {
            let words = told("xfs_info", &[], &staging);
            for fact in ["isize=1024", "bsize=2048", "reflink=0"] {
                assert!(words.contains(fact), "{fact} in {words}");
            }
        }
        node.unstage(&volume, &staging).await.unwrap();
        controller.detach(&volume, 101).await.unwrap();
        controller.delete(&volume).await.unwrap();
    }
    world.assert_clean().await;
}

#[tokio::test]
async fn b11_a_class_that_says_never_leaves_a_blank_disk_blank() {
    if !is_root() {
        return;
    }
    let world = World::start();
    let (mut controller, mut node) = (world.controller().await, world.node(101).await);
    let mut volume = created(&world, "ext4", &[("formatPolicy", "never")]).await;
    controller.attach(&mut volume, 101).await.unwrap();
    let status = node.stage(&volume, &world.path("staging")).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("formatPolicy"), "{status}");
    let device = world.device(&volume, 101);
    let mut content = std::fs::File::open(device).unwrap();
    let mut head = vec![0_u8; 1 << 20];
    std::io::Read::read_exact(&mut content, &mut head).unwrap();
    assert!(head.iter().all(|byte| *byte == 0), "something was written");
    drop(content);
    // Made by hand, it is used.
    output(program("mkfs.ext4").arg("-q").arg(world.device(&volume, 101))).unwrap();
    node.stage(&volume, &world.path("staging")).await.unwrap();
    world.take_away(&volume).await;
    world.assert_clean().await;
}

#[tokio::test]
async fn b35_the_claim_is_shown_at_the_cloud_and_can_never_fail_a_creation() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let long = "x".repeat(300);
    let parameters = [
        ("csi.storage.k8s.io/pvc/name", "data/ü"),
        ("csi.storage.k8s.io/pvc/namespace", long.as_str()),
        ("csi.storage.k8s.io/pv/name", "pvc-1"),
        ("tags", "team-a"),
    ];
    created(&world, "ext4", &parameters).await;
    let cloud = world.cloud().await;
    let volume = &cloud["volumes"][0];
    let tags: Vec<&str> =
        volume["tags"].as_array().unwrap().iter().map(|tag| tag.as_str().unwrap()).collect();
    for tag in ["ghost", "ghost:blank", "k8s:claim:data--", "k8s:object:pvc-1", "team-a"] {
        assert!(tags.contains(&tag), "{tag} in {tags:?}");
    }
    assert!(tags.iter().all(|tag| tag.len() <= 255), "{tags:?}");
    assert!(volume["description"].as_str().unwrap().starts_with("claim xxx"), "{volume}");
}
