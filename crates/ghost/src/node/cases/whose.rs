//! Cases of staging: whose the disk is, and who else uses it.

use std::path::PathBuf;

use ghost_host::{Content, DeviceNumber, FakeDisk, Identity, Partition};

use super::{kind_of, stranger};
use crate::error::ErrorKind;
use crate::node::fixture::{Fixture, SECOND, SIZE, STAGING, TARGET, ext4};
use crate::volume::Bytes;

/// The number of a partition of the disk.
const PARTITION: DeviceNumber = DeviceNumber { major: 8, minor: 17 };

#[tokio::test]
async fn b08_a_link_to_another_volumes_disk_mounts_and_formats_nothing() {
    let fixture = Fixture::new(Content::Blank);
    let other = fixture.host.plug(FakeDisk::blank("pvc-2", SIZE));
    fixture.host.set_link("disk/by-id/pvc-1", Some(other));
    let before = fixture.host.table();
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Unavailable);
    fixture.assert_untouched(&before, &Content::Blank);
    assert_eq!(fixture.host.content(other), Content::Blank);
    fixture.host.set_link("disk/by-id/pvc-1", Some(fixture.number));
    fixture.stage().await.expect("the link is mended");
    assert_eq!(fixture.mounted(STAGING)[0].device, Some(fixture.number));
}

#[tokio::test]
async fn b08_a_disk_that_is_smaller_than_the_volume_is_not_taken() {
    let mut fixture = Fixture::new(Content::Blank);
    fixture.disk().minimum_size = Bytes::new(SIZE + 1);
    let before = fixture.host.table();
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Unavailable);
    fixture.assert_untouched(&before, &Content::Blank);
}

#[tokio::test]
async fn b09_a_disk_that_others_build_on_is_refused() {
    let fixture = Fixture::new(Content::Blank);
    fixture.host.unplug(fixture.number);
    let partitions = vec![Partition { name: "sdb1".to_owned(), number: PARTITION }];
    let disk = FakeDisk { partitions, ..FakeDisk::blank("pvc-1", SIZE) };
    let number = fixture.host.plug(disk);
    let error = fixture.stage().await.expect_err("it has a partition");
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.chain().contains("partition sdb1"), "{}", error.chain());
    assert_eq!(fixture.host.content(number), Content::Blank);
    assert_eq!(fixture.mounted(STAGING), []);
}

#[tokio::test]
async fn b09_partitions_in_a_block_volume_are_its_users_affair_unless_the_machine_uses_them() {
    let fixture = Fixture::block(Content::Foreign("a partition table (gpt)".to_owned()));
    fixture.host.unplug(fixture.number);
    let plug = |users: &[&str]| {
        fixture.host.plug(FakeDisk {
            partitions: vec![Partition { name: "sdb1".to_owned(), number: PARTITION }],
            users: users.iter().map(|user| (*user).to_owned()).collect(),
            ..FakeDisk::blank("pvc-1", SIZE)
        })
    };
    let number = plug(&[]);
    fixture.stage().await.expect("as a virtual machine leaves it");
    fixture.publish(TARGET).await.expect("to the next one");
    fixture.unpublish(TARGET).await.expect("published");
    fixture.host.push_mount(stranger("/mnt", Some(PARTITION), "ext4"));
    for refused in [fixture.stage().await.map(drop), fixture.publish(TARGET).await.map(drop)] {
        let error = refused.expect_err("it is mounted");
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.chain().contains("sdb1") && error.chain().contains("/mnt"), "{error:?}");
    }
    fixture.host.unplug(number);
    plug(&["holder dm-3"]);
    let error = fixture.stage().await.expect_err("it is built upon");
    assert!(error.chain().contains("holder dm-3"), "{}", error.chain());
}

#[tokio::test]
async fn b09_a_disk_that_is_mounted_as_something_else_is_refused() {
    for (target, kind) in [("/", "ext4"), ("/mnt", "xfs")] {
        let fixture = Fixture::new(ext4());
        fixture.host.push_mount(stranger(target, Some(fixture.number), kind));
        let before = fixture.host.table();
        assert_eq!(kind_of(fixture.stage().await), ErrorKind::Failed, "{target}");
        fixture.assert_untouched(&before, &ext4());
    }
}

#[tokio::test]
async fn b10_a_serial_that_was_cut_short_is_told_by_the_link() {
    let long = "pvc-0123456789-0123456789";
    let mut fixture = Fixture::new(ext4());
    fixture.disk().name = long.to_owned();
    let disk = FakeDisk {
        identity: Identity::Virtio(long[..20].to_owned()),
        ..FakeDisk::blank(long, SIZE).with_content(ext4())
    };
    let number = fixture.host.plug(disk);
    for _ in 0..2 {
        fixture.stage().await.expect("the only one with that serial");
        fixture.publish(TARGET).await.expect("published");
        assert_eq!(fixture.mounted(STAGING).len(), 1);
        assert_eq!(fixture.mounted(TARGET)[0].device, Some(number));
    }
    // A second disk with the same beginning makes it uncertain whose the mount is.
    let twin = FakeDisk {
        identity: Identity::Virtio(long[..20].to_owned()),
        link: PathBuf::from("disk/by-id/twin"),
        ..FakeDisk::blank(long, SIZE)
    };
    fixture.host.plug(twin);
    assert_eq!(kind_of(fixture.publish(SECOND).await), ErrorKind::Precondition);
    assert_eq!(fixture.mounted(SECOND), []);
}
