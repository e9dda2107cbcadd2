//! Cases of growth, of statistics, and of how a disk is known.

use std::path::PathBuf;

use ghost_host::{Access, FakeDisk, Identity};

use super::{kind_of, stranger};
use crate::error::ErrorKind;
use crate::node::fixture::{Fixture, SECOND, SIZE, STAGING, TARGET, ext4, id, mount};
use crate::node::{GrowRequest, Stats, StatsRequest, grow, publish, stats};
use crate::volume::{AccessMode, Bytes, SizeRange};

#[tokio::test]
async fn statistics_are_of_volumes_that_are_there() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    let of = |path: &str, staging: Option<&str>| StatsRequest {
        id: id(),
        path: PathBuf::from(path),
        staging: staging.map(PathBuf::from),
    };
    for staging in [None, Some(STAGING), Some("/kubelet/plugins/unknown")] {
        match stats(&fixture.node, &of(TARGET, staging)).await.expect("published") {
            Stats::Filesystem(usage) => assert_eq!(usage.total_bytes, SIZE),
            Stats::Block { .. } => panic!("it is a filesystem"),
        }
    }
    let paths = ["some/path", "/", "/kubelet/../x", "/kubelet/pods/one", "/a/b/c", SECOND, "/dev"];
    for path in paths {
        assert_eq!(
            kind_of(stats(&fixture.node, &of(path, None)).await),
            ErrorKind::NotFound,
            "{path}"
        );
    }
    // The path of one volume with the staging path of another.
    let other = fixture.host.plug(FakeDisk::blank("pvc-2", SIZE).with_content(ext4()));
    fixture.host.push_mount(stranger("/kubelet/plugins/v-2", Some(other), "ext4"));
    let request = of(TARGET, Some("/kubelet/plugins/v-2"));
    assert_eq!(kind_of(stats(&fixture.node, &request).await), ErrorKind::NotFound);
    // A filesystem that still answers, of a disk that was cut off.
    fixture.host.resize(fixture.number, 512);
    assert_eq!(kind_of(stats(&fixture.node, &of(TARGET, None)).await), ErrorKind::Failed);
}

fn growth(path: &str, block: bool, required: i64, limit: i64) -> GrowRequest {
    GrowRequest {
        id: id(),
        path: PathBuf::from(path),
        staging: Some(PathBuf::from(STAGING)),
        block,
        size: (required > 0 || limit > 0)
            .then(|| SizeRange::from_csi(required, limit).expect("a range")),
    }
}

#[tokio::test]
async fn a_filesystem_grows_to_the_size_of_its_disk_and_not_before_it() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    let wanted = growth(TARGET, false, 2 << 30, 0);
    assert_eq!(kind_of(grow(&fixture.node, &wanted).await), ErrorKind::Unavailable);
    assert_eq!(fixture.host.filesystem_size(fixture.number), SIZE);
    fixture.host.resize(fixture.number, 2 * SIZE);
    let limited = growth(TARGET, false, 0, 1 << 30);
    assert_eq!(kind_of(grow(&fixture.node, &limited).await), ErrorKind::OutOfRange);
    assert_eq!(fixture.host.filesystem_size(fixture.number), SIZE);
    for _ in 0..2 {
        let size = grow(&fixture.node, &wanted).await.expect("grown");
        assert_eq!(size, Bytes::new(2 * SIZE));
        assert_eq!(fixture.host.filesystem_size(fixture.number), 2 * SIZE);
    }
    let any = growth(STAGING, false, 0, 0);
    assert_eq!(grow(&fixture.node, &any).await.expect("as large"), Bytes::new(2 * SIZE));
    let nowhere = GrowRequest { staging: None, ..growth("some/path", false, 0, 0) };
    assert_eq!(kind_of(grow(&fixture.node, &nowhere).await), ErrorKind::NotFound);
    fixture.host.unplug(fixture.number);
    assert_eq!(kind_of(grow(&fixture.node, &any).await), ErrorKind::Failed);
}

#[tokio::test]
async fn a_read_only_volume_is_neither_grown_nor_refused() {
    let mut fixture = Fixture::new(ext4());
    fixture.request.capability = mount(AccessMode::SingleNodeReaderOnly, &[]);
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    fixture.host.resize(fixture.number, 2 * SIZE);
    let size = grow(&fixture.node, &growth(TARGET, false, 2 << 30, 0)).await.expect("left alone");
    assert_eq!(size, Bytes::new(2 * SIZE));
    assert_eq!(fixture.calls("grow"), 0);

    // A bind for reading of a volume that others write to: it is grown where it can be written.
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    let mut request = fixture.publish_at(TARGET);
    request.access = Access::ReadOnly;
    publish(&fixture.node, &request).await.expect("published");
    fixture.host.resize(fixture.number, 2 * SIZE);
    grow(&fixture.node, &growth(TARGET, false, 2 << 30, 0)).await.expect("grown");
    assert_eq!(fixture.host.filesystem_size(fixture.number), 2 * SIZE);
    assert!(
        fixture
            .host
            .calls()
            .iter()
            .any(|call| call.starts_with("grow ") && call.ends_with(STAGING))
    );
}

#[tokio::test]
async fn b19_the_filesystem_inside_a_block_volume_is_its_users_affair() {
    let fixture = Fixture::block(ext4());
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    fixture.host.resize(fixture.number, 2 * SIZE);
    for block in [true, false] {
        let size = grow(&fixture.node, &growth(TARGET, block, 2 << 30, 0)).await.expect("no work");
        assert_eq!(size, Bytes::new(2 * SIZE));
    }
    assert_eq!(fixture.calls("grow"), 0);
    assert_eq!(fixture.host.filesystem_size(fixture.number), SIZE);
}

#[tokio::test]
async fn b31_a_loop_device_is_known_by_its_file() {
    let fixture = Fixture::new(ext4());
    fixture.host.unplug(fixture.number);
    let disk = FakeDisk {
        identity: Identity::Loop(PathBuf::from("/a/very/long/path/with/the/file/v-1")),
        ..FakeDisk::blank("pvc-1", SIZE).with_content(ext4())
    };
    let number = fixture.host.plug(disk);
    for _ in 0..2 {
        fixture.stage().await.expect("staged");
        assert_eq!(fixture.mounted(STAGING).len(), 1);
        assert_eq!(fixture.mounted(STAGING)[0].device, Some(number));
    }
}
