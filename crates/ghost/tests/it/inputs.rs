//! Wrong inputs: each is refused with a message that names the field, the value and what is
//! allowed, and nothing is asked of the cloud or changed on the machine.

use std::collections::HashMap;

use ghost_csi as pb;
use pb::volume_capability::access_mode::Mode;
use tonic::{Code, Status};
use xtask::volume_life::{Controller, GIB, Node, Volume, block, mounted};

use crate::world::World;

/// What was wrong, the code, and what the message must contain.
type Row = (&'static str, Code, &'static [&'static str], Result<(), Status>);

/// Given where none is taken; no answer may have it.
const SECRET: &str = "CANARY-of-a-request";
const NAME: &str = "topology.ghost.csi.greenhost.net/region";

fn creation() -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest {
        name: "pvc-wrong".to_owned(),
        volume_capabilities: vec![mounted("ext4")],
        ..Default::default()
    }
}

fn sized(required_bytes: i64, limit_bytes: i64) -> pb::CreateVolumeRequest {
    let range = pb::CapacityRange { required_bytes, limit_bytes };
    pb::CreateVolumeRequest { capacity_range: Some(range), ..creation() }
}

fn with(parameters: &[(&str, &str)]) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest { parameters: map(parameters), ..creation() }
}

fn map(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn of(filesystem: &str, parameters: &[(&str, &str)]) -> pb::CreateVolumeRequest {
    let capability = if filesystem == "block" { block() } else { mounted(filesystem) };
    pb::CreateVolumeRequest { volume_capabilities: vec![capability], ..with(parameters) }
}

/// The same with a size in GiB.
fn large(gib: i64, request: pb::CreateVolumeRequest) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest { capacity_range: sized(gib * GIB, 0).capacity_range, ..request }
}

fn at(segments: &[(&str, &str)]) -> pb::CreateVolumeRequest {
    let topology = pb::Topology { segments: map(segments) };
    let requirement = pb::TopologyRequirement { requisite: vec![topology], preferred: vec![] };
    pb::CreateVolumeRequest { accessibility_requirements: Some(requirement), ..creation() }
}

fn of_snapshot(id: &str) -> pb::VolumeContentSource {
    use pb::volume_content_source::{SnapshotSource, Type};
    let source = SnapshotSource { snapshot_id: id.to_owned() };
    pb::VolumeContentSource { r#type: Some(Type::Snapshot(source)) }
}

fn used_as(mode: i32) -> pb::VolumeCapability {
    pb::VolumeCapability {
        access_mode: Some(pb::volume_capability::AccessMode { mode }),
        ..mounted("ext4")
    }
}

fn of_group(group: &str) -> pb::VolumeCapability {
    let mut capability = mounted("ext4");
    if let Some(pb::volume_capability::AccessType::Mount(mount)) = &mut capability.access_type {
        mount.volume_mount_group = group.to_owned();
    }
    capability
}

fn capable(capabilities: Vec<pb::VolumeCapability>) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest { volume_capabilities: capabilities, ..creation() }
}

async fn create(controller: &Controller, request: pb::CreateVolumeRequest) -> Result<(), Status> {
    controller.clone().0.create_volume(request).await.map(|_| ())
}

async fn of_creation(controller: &Controller) -> Vec<Row> {
    use Code::{InvalidArgument as Invalid, OutOfRange};
    let mut rows: Vec<Row> = Vec::new();
    macro_rules! row {
        ($what:literal, $code:expr, $words:expr, $request:expr) => {
            rows.push(($what, $code, $words, create(controller, $request).await));
        };
    }
    row!(
        "no name",
        Invalid,
        &["volume name", "missing"],
        pb::CreateVolumeRequest { name: String::new(), ..creation() }
    );
    row!(
        "a long name",
        Invalid,
        &["volume name", "129", "128"],
        pb::CreateVolumeRequest { name: "x".repeat(129), ..creation() }
    );
    row!("no capability", Invalid, &["volume capabilities", "missing"], capable(vec![]));
    row!("a negative size", Invalid, &["required_bytes", "-1", "expected 0"], sized(-1, 0));
    row!("a negative limit", Invalid, &["limit_bytes", "-5", "expected 0"], sized(0, -5));
    row!("an empty range", Invalid, &["required_bytes", "limit_bytes"], sized(0, 0));
    row!(
        "a limit below",
        OutOfRange,
        &["limit_bytes (1 bytes)", "required_bytes (2 bytes)"],
        sized(2, 1)
    );
    row!(
        "no size fits",
        OutOfRange,
        &["1073741825", "multiples of 1 GiB", "16384 GiB"],
        sized(GIB + 1, GIB + 1)
    );
    row!("too large", OutOfRange, &["20000 GiB", "16384 GiB"], sized(20_000 * GIB, 0));
    row!(
        "the largest number",
        OutOfRange,
        &["9223372036854775807", "16384 GiB"],
        sized(i64::MAX, 0)
    );
    row!("too small a limit", OutOfRange, &["at most 5 bytes", "from 1 GiB"], sized(0, 5));
    row!(
        "an unknown parameter",
        Invalid,
        &["\"iops\"", "known are", "blockSize"],
        with(&[("iops", "100")])
    );
    row!(
        "a typing error",
        Invalid,
        &["\"inodesize\"", "\"inodeSize\""],
        with(&[("inodesize", "256")])
    );
    row!(
        "the old key",
        Invalid,
        &["\"fsType\"", "csi.storage.k8s.io/fstype"],
        with(&[("fsType", "xfs")])
    );
    row!(
        "a policy",
        Invalid,
        &["formatPolicy", "\"always\"", "\"blank\" or \"never\""],
        with(&[("formatPolicy", "always")])
    );
    row!(
        "no number",
        Invalid,
        &["blockSize", "\"4Ki\"", "number of bytes"],
        with(&[("blockSize", "4Ki")])
    );
    row!(
        "a block size",
        Invalid,
        &["blockSize", "3000", "1024, 2048, 4096"],
        with(&[("blockSize", "3000")])
    );
    row!(
        "an inode size",
        Invalid,
        &["inodeSize", "128", "256, 512"],
        with(&[("inodeSize", "128")])
    );
    row!(
        "inodes above blocks",
        Invalid,
        &["inodeSize", "2048", "0 to 1024"],
        with(&[("blockSize", "1024"), ("inodeSize", "2048")])
    );
    row!(
        "too many inodes",
        Invalid,
        &["bytesPerInode", "512", "4096 to 67108864"],
        with(&[("bytesPerInode", "512")])
    );
    row!(
        "nothing but inodes",
        Invalid,
        &["bytesPerInode", "4096", "8192 to 67108864"],
        with(&[("inodeSize", "4096"), ("bytesPerInode", "4096")])
    );
    row!(
        "little but inodes",
        Invalid,
        &["bytesPerInode", "1100", "2048 to 67108864"],
        with(&[("blockSize", "1024"), ("inodeSize", "1024"), ("bytesPerInode", "1100")])
    );
    row!(
        "more blocks than can be counted",
        OutOfRange,
        &["4096 GiB", "blockSize", "1024", "smaller than 4096 GiB", "ext3"],
        large(4096, of("ext3", &[("blockSize", "1024")]))
    );
    row!(
        "the largest as ext3",
        OutOfRange,
        &["16384 GiB", "blockSize", "4096", "ext3"],
        large(16_384, of("ext3", &[]))
    );
    row!(
        "many inodes in many small groups",
        OutOfRange,
        &["600 GiB", "bytesPerInode", "larger blocks", "ext4"],
        large(
            600,
            of("ext4", &[("blockSize", "1024"), ("inodeSize", "512"), ("bytesPerInode", "1024")])
        )
    );
    row!(
        "a copy that is to be too large",
        OutOfRange,
        &["16384 GiB", "smaller than 16384 GiB", "ext3"],
        pb::CreateVolumeRequest {
            volume_content_source: Some(of_snapshot("s-1")),
            ..large(16_384, of("ext3", &[]))
        }
    );
    row!(
        "kept back",
        Invalid,
        &["reservedBlocksPercent", "60", "0 to 50"],
        with(&[("reservedBlocksPercent", "60")])
    );
    row!("not of ext4", Invalid, &["reflink", "ext4"], of("ext4", &[("reflink", "true")]));
    row!("not of xfs", Invalid, &["bytesPerInode", "xfs"], of("xfs", &[("bytesPerInode", "8192")]));
    row!("not of btrfs", Invalid, &["blockSize", "btrfs"], of("btrfs", &[("blockSize", "4096")]));
    row!(
        "no filesystem",
        Invalid,
        &["inodeSize", "block volume"],
        of("block", &[("inodeSize", "256")])
    );
    row!(
        "yes or no",
        Invalid,
        &["reflink", "\"yes\"", "\"true\" or \"false\""],
        of("xfs", &[("reflink", "yes")])
    );
    row!("a tag", Invalid, &["tags", "\"team a\"", "letters, digits"], with(&[("tags", "team a")]));
    row!("our own tag", Invalid, &["tags", "\"ghost:blank\""], with(&[("tags", "ghost:blank")]));
    row!("a description", Invalid, &["description", "one line"], with(&[("description", "a\nb")]));
    row!(
        "a mutable parameter",
        Invalid,
        &["mutable parameter", "\"iops\"", "expected none"],
        pb::CreateVolumeRequest { mutable_parameters: map(&[("iops", "1")]), ..creation() }
    );
    row!(
        "a foreign topology",
        Invalid,
        &["topology.kubernetes.io/zone", NAME],
        at(&[("topology.kubernetes.io/zone", "a")])
    );
    row!("an empty topology", Invalid, &[NAME, "a region"], at(&[]));
    row!("no region", Invalid, &["\"a b\"", "region", "ams1"], at(&[(NAME, "a b")]));
    row!(
        "many nodes",
        Invalid,
        &["MULTI_NODE_MULTI_WRITER", "SINGLE_NODE_WRITER"],
        capable(vec![used_as(Mode::MultiNodeMultiWriter.into())])
    );
    row!(
        "many readers",
        Invalid,
        &["MULTI_NODE_READER_ONLY", "SINGLE_NODE_WRITER"],
        capable(vec![used_as(Mode::MultiNodeReaderOnly.into())])
    );
    row!(
        "no mode",
        Invalid,
        &["access_mode", "is 0", "SINGLE_NODE_WRITER"],
        capable(vec![used_as(0)])
    );
    row!(
        "an unknown mode",
        Invalid,
        &["access_mode", "is 99", "SINGLE_NODE_WRITER"],
        capable(vec![used_as(99)])
    );
    row!(
        "no mode, and a secret where none is taken",
        Invalid,
        &["access_mode", "is 0"],
        pb::CreateVolumeRequest { secrets: map(&[("key", SECRET)]), ..capable(vec![used_as(0)]) }
    );
    row!(
        "a group",
        Invalid,
        &["volume_mount_group", "\"1000\"", "expected none", "fsGroup"],
        capable(vec![of_group("1000")])
    );
    row!(
        "no type",
        Invalid,
        &["access_type", "mount or block"],
        capable(vec![pb::VolumeCapability { access_type: None, ..mounted("ext4") }])
    );
    row!(
        "a filesystem",
        Invalid,
        &["fs_type", "\"ntfs\"", "ext4, ext3, xfs, btrfs"],
        capable(vec![mounted("ntfs")])
    );
    row!(
        "two filesystems",
        Invalid,
        &["ext4", "xfs", "one filesystem"],
        capable(vec![mounted("ext4"), mounted("xfs")])
    );
    row!(
        "an empty source",
        Invalid,
        &["volume_content_source", "a snapshot or a volume"],
        pb::CreateVolumeRequest {
            volume_content_source: Some(pb::VolumeContentSource { r#type: None }),
            ..creation()
        }
    );
    rows
}

async fn of_the_controller(controller: &Controller) -> Vec<Row> {
    use Code::InvalidArgument as Invalid;
    let client = || controller.clone().0;
    let publish = |volume_id: &str, node_id: &str, readonly| pb::ControllerPublishVolumeRequest {
        volume_id: volume_id.to_owned(),
        node_id: node_id.to_owned(),
        volume_capability: Some(mounted("ext4")),
        readonly,
        ..Default::default()
    };
    let expand =
        pb::ControllerExpandVolumeRequest { volume_id: "v-1".to_owned(), ..Default::default() };
    let expand_ext3 = pb::ControllerExpandVolumeRequest {
        capacity_range: sized(16_384 * GIB, 0).capacity_range,
        volume_capability: Some(mounted("ext3")),
        ..expand.clone()
    };
    let snapshot = |name: &str, source: &str, key: &str| pb::CreateSnapshotRequest {
        name: name.to_owned(),
        source_volume_id: source.to_owned(),
        parameters: map(&[(key, "x")]),
        ..Default::default()
    };
    let list = pb::ListSnapshotsRequest { max_entries: -3, ..Default::default() };
    macro_rules! done {
        ($call:expr) => {
            $call.await.map(|_| ())
        };
    }
    vec![
        (
            "no volume",
            Invalid,
            &["volume_id", "missing"],
            done!(client().controller_publish_volume(publish("", "101", false))),
        ),
        (
            "no node",
            Invalid,
            &["node_id", "missing"],
            done!(client().controller_publish_volume(publish("v-1", "", false))),
        ),
        (
            "a long node",
            Invalid,
            &["node id", "300", "256"],
            done!(client().controller_publish_volume(publish("v-1", &"n".repeat(300), false))),
        ),
        (
            "read-only",
            Invalid,
            &["readonly is true", "expected false"],
            done!(client().controller_publish_volume(publish("v-1", "101", true))),
        ),
        (
            "no range",
            Invalid,
            &["capacity_range", "missing"],
            done!(client().controller_expand_volume(expand)),
        ),
        (
            "growth beyond what ext3 can count",
            Code::OutOfRange,
            &["16384 GiB", "ext3"],
            done!(client().controller_expand_volume(expand_ext3)),
        ),
        (
            "no snapshot name",
            Invalid,
            &["snapshot name", "missing"],
            done!(client().create_snapshot(snapshot("", "v-1", "tags"))),
        ),
        (
            "no source",
            Invalid,
            &["source_volume_id", "missing"],
            done!(client().create_snapshot(snapshot("s", "", "tags"))),
        ),
        (
            "a snapshot parameter",
            Invalid,
            &["\"tag\"", "\"tags\""],
            done!(client().create_snapshot(snapshot("s", "v-1", "tag"))),
        ),
        (
            "a negative page",
            Invalid,
            &["max_entries", "-3", "expected 0"],
            done!(client().list_snapshots(list)),
        ),
        (
            "a token",
            Code::Aborted,
            &["\"17\"", "start the list again"],
            done!(client().list_volumes(pb::ListVolumesRequest {
                starting_token: "17".to_owned(),
                ..Default::default()
            })),
        ),
    ]
}

async fn of_the_node(world: &World, node: &Node) -> Vec<Row> {
    use Code::InvalidArgument as Invalid;
    let volume = Volume {
        id: "v-1".to_owned(),
        context: map(&[("volumeName", "pvc-1"), ("region", "ams1"), ("madeBlank", "true")]),
        attachment: HashMap::new(),
        capability: mounted("ext4"),
    };
    let changed = |key: &str, value: &str| {
        let mut other = volume.clone();
        other.context.insert(key.to_owned(), value.to_owned());
        other
    };
    let staging = world.path("staging");
    let mut node = node.clone();
    let mut rows: Vec<Row> = Vec::new();
    for (what, words, volume) in [
        ("another volume", &["volume context", "\"v-2\"", "v-1"][..], changed("volumeId", "v-2")),
        (
            "made blank?",
            &["madeBlank", "\"maybe\"", "\"true\" or \"false\""],
            changed("madeBlank", "maybe"),
        ),
        ("a policy", &["formatPolicy", "\"x\"", "never"], changed("formatPolicy", "x")),
        ("an option", &["inodeSize", "1", "256"], changed("inodeSize", "1")),
        ("no region", &["region", "\"?\""], changed("region", "?")),
    ] {
        rows.push((what, Invalid, words, node.stage(&volume, &staging).await));
    }
    let attachment = map(&[("volumeName", "pvc-1"), ("region", "ams1"), ("sizeBytes", "1Gi")]);
    let sized = Volume { attachment, ..volume.clone() };
    let words = &["sizeBytes", "\"1Gi\"", "number of bytes"];
    rows.push(("no size", Invalid, words, node.stage(&sized, &staging).await));
    let nameless = Volume { context: HashMap::new(), ..volume.clone() };
    rows.push(("no context", Invalid, &["volumeName"], node.stage(&nameless, &staging).await));
    for (what, path, words) in [
        ("no path", "", &["staging_target_path", "missing"][..]),
        ("a relative path", "a/b", &["staging_target_path", "\"a/b\"", "absolute"]),
        ("a climbing path", "/a/../b", &["staging_target_path", "\"/a/../b\"", "\"..\""]),
    ] {
        rows.push((what, Invalid, words, node.stage(&volume, path.as_ref()).await));
    }
    rows
}

#[tokio::test]
async fn a_wrong_input_is_told_with_its_field_its_value_and_what_is_allowed() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let (controller, node) = (world.controller().await, world.node(101).await);
    let ask = async {
        let mut rows = of_creation(&controller).await;
        rows.extend(of_the_controller(&controller).await);
        rows.extend(of_the_node(&world, &node).await);
        rows
    };
    let (requests, rows) = world.requests_during(ask).await;
    assert!(rows.len() >= 69, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for (what, code, words, answer) in rows {
        let Err(status) = answer else {
            wrong.push(format!("{what}: accepted"));
            continue;
        };
        assert!(!status.message().contains(SECRET), "{what}");
        let missing: Vec<_> =
            words.iter().filter(|word| !status.message().contains(**word)).collect();
        if status.code() != code || !missing.is_empty() {
            wrong.push(format!("{what}: {status:?} lacks {missing:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(requests, Vec::<String>::new(), "nothing is asked of the cloud");
    assert!(!world.path("staging").exists());
}
