//! Failures that users of such drivers met, by the number that the project gives them, over a
//! machine in memory. Each looks at the state, not only at the answer.

use std::path::{Path, PathBuf};

use ghost_host::{
    Access, Content, FakeDisk, FilesystemKind, Identity, Moment, MountEntry, TargetKind,
};

use super::fixture::{Fixture, SECOND, SIZE, STAGING, TARGET, ext4, id, io_error, mount};
use super::{GrowRequest, Stats, StatsRequest, UnpublishRequest, grow, publish, stats, unpublish};
use crate::error::{ErrorKind, Result};
use crate::volume::{AccessMode, AccessType, Bytes, SizeRange};

fn kind_of<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorKind {
    outcome.expect_err("must be refused").kind()
}

fn stranger(target: &str, device: Option<ghost_host::DeviceNumber>, kind: &str) -> MountEntry {
    MountEntry {
        device,
        root: PathBuf::from("/"),
        target: PathBuf::from(target),
        access: Access::ReadWrite,
        shared: true,
        filesystem: kind.to_owned(),
        source: PathBuf::from("/dev/stranger"),
        super_options: vec!["rw".to_owned()],
    }
}

#[tokio::test]
async fn b07_a_dead_mount_is_taken_off_and_the_present_disk_mounted() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.host.unplug(fixture.number);
    // As long as the disk is not back, nothing claims that the volume is staged.
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Unavailable);
    let second = fixture.host.plug(FakeDisk::blank("pvc-1", SIZE).with_content(ext4()));
    fixture.stage().await.expect("staged anew");
    let mounted = fixture.mounted(STAGING);
    assert_eq!(mounted.len(), 1);
    assert_eq!(mounted[0].device, Some(second));
    // Unstaging needs no device.
    fixture.host.unplug(second);
    fixture.unstage().await.expect("by the table alone");
    assert_eq!(fixture.mounted(STAGING), []);
    assert_eq!(fixture.host.target(STAGING), None);
}

#[tokio::test]
async fn b07_a_disk_that_was_cut_off_counts_as_dead_although_its_filesystem_still_answers() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.host.set_readable(fixture.number, false);
    let second = fixture.host.plug(FakeDisk::blank("pvc-1", SIZE).with_content(ext4()));
    fixture.stage().await.expect("staged anew");
    let mounted = fixture.mounted(STAGING);
    assert_eq!(mounted.len(), 1);
    assert_eq!(mounted[0].device, Some(second));
}

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
    let users = vec!["partition sdb1".to_owned()];
    let disk = FakeDisk { users, ..FakeDisk::blank("pvc-1", SIZE) };
    let number = fixture.host.plug(disk);
    let error = fixture.stage().await.expect_err("it has a partition");
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.chain().contains("partition sdb1"), "{}", error.chain());
    assert_eq!(fixture.host.content(number), Content::Blank);
    assert_eq!(fixture.mounted(STAGING), []);
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
async fn b11_a_disk_that_cannot_be_read_is_not_blank() {
    let fixture = Fixture::new(Content::Blank);
    fixture.host.set_readable(fixture.number, false);
    let before = fixture.host.table();
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Failed);
    fixture.assert_untouched(&before, &Content::Blank);
    fixture.host.set_readable(fixture.number, true);
    fixture.stage().await.expect("it can be read again");
    assert_eq!(fixture.host.content(fixture.number), ext4());
}

#[tokio::test]
async fn b11_a_blank_disk_that_is_not_known_to_be_ours_is_not_formatted() {
    let mut fixture = Fixture::new(Content::Blank);
    fixture.disk().made_blank = false;
    let before = fixture.host.table();
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition);
    fixture.assert_untouched(&before, &Content::Blank);
}

#[tokio::test]
async fn b12_a_disk_that_never_comes_leaves_nothing_behind() {
    let fixture = Fixture::new(Content::Blank);
    fixture.host.set_link("disk/by-id/pvc-1", None);
    let before = fixture.host.table();
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Unavailable);
    fixture.assert_untouched(&before, &Content::Blank);
    assert_eq!(fixture.host.target(STAGING), None);
}

#[tokio::test]
async fn b13_content_of_another_kind_is_named_and_stays() {
    let contents = [
        Content::Foreign("a partition table (dos)".to_owned()),
        Content::Foreign("LUKS".to_owned()),
        Content::Filesystem(FilesystemKind::Xfs),
    ];
    for content in contents {
        let fixture = Fixture::new(content.clone());
        let before = fixture.host.table();
        let error = fixture.stage().await.expect_err("foreign");
        assert_eq!(error.kind(), ErrorKind::Precondition);
        let named = match &content {
            Content::Filesystem(kind) => kind.name(),
            Content::Foreign(what) => what,
            Content::Blank => "nothing",
        };
        assert!(error.to_string().contains(named), "{error}");
        fixture.assert_untouched(&before, &content);
    }
}

#[tokio::test]
async fn b14_a_damaged_filesystem_is_neither_mounted_nor_made_again() {
    let fixture = Fixture::new(ext4());
    fixture.host.set_damaged(fixture.number, true);
    let before = fixture.host.table();
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition);
    fixture.assert_untouched(&before, &ext4());
    assert_eq!(fixture.calls("check"), 1);
}

#[tokio::test]
async fn a_format_cut_short_is_made_again_here_but_not_on_another_node() {
    let fixture = Fixture::new(Content::Blank);
    let format_call = {
        let probe = Fixture::new(Content::Blank);
        probe.stage().await.expect("staged");
        probe.host.calls().iter().position(|call| call.starts_with("format")).expect("formatted")
            + 1
    };
    fixture.host.fail_at(format_call, Moment::Midway, io_error());
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Failed);
    assert!(matches!(fixture.host.content(fixture.number), Content::Foreign(_)));
    assert_eq!(fixture.notes_left(), 1);

    // The same disk on a node without the note.
    let elsewhere = Fixture::new(fixture.host.content(fixture.number));
    assert_eq!(kind_of(elsewhere.stage().await), ErrorKind::Precondition);
    assert_eq!(elsewhere.calls("erase"), 0);

    fixture.stage().await.expect("made again");
    assert_eq!(fixture.host.content(fixture.number), ext4());
    assert_eq!(fixture.notes_left(), 0);
    assert_eq!(fixture.calls("erase"), 1);
}

#[tokio::test]
async fn a_note_never_costs_a_whole_filesystem_which_may_have_been_in_use_elsewhere_since() {
    let fixture = Fixture::new(Content::Blank);
    let text = format!("scsi {:?}", ["pvc-1"]);
    fixture.node.notes.write(&id(), &text).await.expect("noted");
    assert!(fixture.node.notes.is_for(&id(), &text).await.expect("read"));
    fixture.host.set_content(fixture.number, ext4());
    fixture.stage().await.expect("checked and mounted");
    assert_eq!(fixture.calls("format") + fixture.calls("erase"), 0);
    assert_eq!(fixture.calls("check"), 1);
    assert_eq!(fixture.notes_left(), 0);
}

#[tokio::test]
async fn a_note_of_another_device_permits_nothing() {
    let half = Content::Foreign("a half-made filesystem".to_owned());
    let fixture = Fixture::new(half.clone());
    fixture.node.notes.write(&id(), "scsi [\"pvc-2\"]").await.expect("noted");
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition);
    assert_eq!(fixture.host.content(fixture.number), half);
    assert_eq!(fixture.calls("erase"), 0);
}

#[tokio::test]
async fn b22_what_is_not_there_is_unpublished_and_unstaged_twice() {
    let fixture = Fixture::new(ext4());
    let before = fixture.host.table();
    for path in ["/kubelet/pods/one/absent", "/kubelet/pods/nobody/absent/mount"] {
        for _ in 0..2 {
            fixture.unpublish(path).await.expect(path);
        }
    }
    fixture.host.make_folder("/kubelet/pods/one/folder");
    fixture.publish("/kubelet/pods/one/folder").await.expect_err("not staged");
    for _ in 0..2 {
        fixture.unpublish("/kubelet/pods/one/folder").await.expect("an empty folder");
        assert_eq!(fixture.host.target("/kubelet/pods/one/folder"), None);
    }
    ghost_host::Host::create_target(&fixture.host, Path::new(TARGET), TargetKind::File)
        .await
        .expect("made");
    for _ in 0..2 {
        fixture.unpublish(TARGET).await.expect("an empty file");
        assert_eq!(fixture.host.target(TARGET), None);
    }
    fixture.host.make_folder(STAGING);
    for _ in 0..2 {
        fixture.unstage().await.expect("an empty folder");
        assert_eq!(fixture.host.target(STAGING), None);
    }
    assert_eq!(fixture.host.table(), before);
    for bad in ["relative", "/kubelet/../etc"] {
        assert_eq!(kind_of(fixture.unpublish(bad).await), ErrorKind::Invalid, "{bad}");
    }
}

#[tokio::test]
async fn b23_publishing_twice_leaves_one_mount_and_unpublishing_takes_off_all() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    for _ in 0..2 {
        fixture.publish(TARGET).await.expect("published");
        assert_eq!(fixture.mounted(TARGET).len(), 1);
    }
    assert_eq!(fixture.calls("bind"), 1);
    let entry = fixture.mounted(TARGET)[0].clone();
    for _ in 0..2 {
        fixture.host.push_mount(entry.clone());
    }
    fixture.publish(TARGET).await.expect("published afresh");
    assert_eq!(fixture.mounted(TARGET), std::slice::from_ref(&entry));
    for _ in 0..2 {
        fixture.host.push_mount(entry.clone());
    }
    fixture.unpublish(TARGET).await.expect("unpublished");
    assert_eq!(fixture.mounted(TARGET), []);
    assert_eq!(fixture.mounted(STAGING).len(), 1);
}

#[tokio::test]
async fn b23_a_target_that_is_taken_is_a_conflict_and_stays() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.host.make_folder(TARGET);
    fixture.host.push_mount(stranger(TARGET, None, "tmpfs"));
    let before = fixture.host.table();
    assert_eq!(kind_of(fixture.publish(TARGET).await), ErrorKind::Conflict);
    assert_eq!(fixture.host.table(), before);

    fixture.publish(SECOND).await.expect("published");
    let before = fixture.host.table();
    let mut other = fixture.publish_at(SECOND);
    other.access = Access::ReadOnly;
    assert_eq!(kind_of(publish(&fixture.node, &other).await), ErrorKind::Conflict);
    assert_eq!(fixture.host.table(), before);
}

#[tokio::test]
async fn b24_a_live_and_right_mount_is_enough_even_without_its_link() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.host.hold(STAGING);
    fixture.host.remove_link("disk/by-id/pvc-1");
    let before = fixture.host.table();
    let checks = fixture.calls("check");
    fixture.stage().await.expect("staged already");
    assert_eq!(fixture.host.table(), before);
    assert_eq!(fixture.calls("mount"), 1);
    assert_eq!(fixture.calls("check"), checks);
    assert_eq!(fixture.calls("format"), 0);
}

#[tokio::test]
async fn b24_staged_in_another_way_is_a_conflict() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    let before = fixture.host.table();
    let mut other = fixture.request.clone();
    other.capability = mount(AccessMode::SingleNodeReaderOnly, &[]);
    assert_eq!(kind_of(super::stage(&fixture.node, &other).await), ErrorKind::Conflict);
    let xfs = AccessType::Mount { filesystem: FilesystemKind::Xfs, options: Vec::new() };
    for access in [xfs, AccessType::Block] {
        other.capability.access = access;
        other.capability.mode = AccessMode::SingleNodeWriter;
        assert_eq!(kind_of(super::stage(&fixture.node, &other).await), ErrorKind::Conflict);
    }
    assert_eq!(fixture.host.table(), before);
}

#[tokio::test]
async fn a_live_mount_of_something_else_at_the_staging_path_stays() {
    let fixture = Fixture::new(ext4());
    let other = fixture.host.plug(FakeDisk::blank("pvc-2", SIZE).with_content(ext4()));
    for (device, kind) in [(Some(other), "ext4"), (None, "tmpfs")] {
        fixture.host.make_folder(STAGING);
        fixture.host.push_mount(stranger(STAGING, device, kind));
        let before = fixture.host.table();
        assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition, "{kind}");
        fixture.assert_untouched(&before, &ext4());
        fixture.unstage().await.expect("taken off by hand");
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

#[tokio::test]
async fn b25_what_is_not_staged_is_not_published() {
    let fixture = Fixture::new(ext4());
    let assert_refused = async |what: &str| {
        let before = fixture.host.table();
        assert_eq!(kind_of(fixture.publish(TARGET).await), ErrorKind::Precondition, "{what}");
        assert_eq!(fixture.host.table(), before, "{what}");
        assert_eq!(fixture.host.target(TARGET), None, "{what}");
        assert_eq!(fixture.calls("bind"), 0, "{what}");
    };
    assert_refused("the staging path is missing").await;
    fixture.host.make_folder(STAGING);
    assert_refused("the staging path is an empty folder").await;
    let other = fixture.host.plug(FakeDisk::blank("pvc-2", SIZE).with_content(ext4()));
    fixture.host.push_mount(stranger(STAGING, Some(other), "ext4"));
    assert_refused("another disk is staged there").await;
    fixture.host.unplug(other);
    assert_refused("what is staged there is dead").await;
    let mut request = fixture.publish_at(TARGET);
    request.staging = PathBuf::from("/nowhere/at/all");
    assert_eq!(kind_of(publish(&fixture.node, &request).await), ErrorKind::Precondition);
    assert_eq!(fixture.host.target(TARGET), None);
}

#[tokio::test]
async fn b26_a_busy_mount_and_a_stray_file_are_left_as_they_are() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    let before = fixture.host.table();
    for path in [TARGET, STAGING] {
        fixture.host.hold(path);
    }
    assert_eq!(kind_of(fixture.unpublish(TARGET).await), ErrorKind::Failed);
    assert_eq!(kind_of(fixture.unstage().await), ErrorKind::Failed);
    assert_eq!(fixture.host.table(), before);
    assert_eq!(fixture.calls("remove_target"), 0, "nothing is removed before it is unmounted");
    for path in [TARGET, STAGING] {
        fixture.host.release(path);
    }
    fixture.unpublish(TARGET).await.expect("unpublished");
    fixture.unstage().await.expect("unstaged");

    for path in [TARGET, STAGING] {
        fixture.host.write_file(Path::new(path).join("stray"));
    }
    assert_eq!(kind_of(fixture.unpublish(TARGET).await), ErrorKind::Failed);
    let error = fixture.unstage().await.expect_err("it is not empty");
    assert_eq!(error.kind(), ErrorKind::Failed);
    assert!(error.to_string().contains("not empty"), "{error}");
    for path in [TARGET, STAGING] {
        assert!(fixture.host.target(Path::new(path).join("stray")).is_some(), "{path}");
    }
}

#[test]
fn b26_nothing_in_the_node_or_the_host_removes_recursively() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the folder of crates");
    let mut folders = vec![crates.join("ghost/src/node"), crates.join("ghost-host/src")];
    let mut looked_at = 0;
    while let Some(folder) = folders.pop() {
        for entry in folder.read_dir().expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source");
            let forbidden = concat!("remove_dir", "_all");
            assert!(!text.contains(forbidden), "{} has {forbidden}", path.display());
            looked_at += 1;
        }
    }
    assert!(looked_at > 30, "only {looked_at} sources were found");
}

#[tokio::test]
async fn b27_a_corpse_is_taken_off_by_the_table_alone() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    fixture.host.unplug(fixture.number);
    let request = StatsRequest { id: id(), path: PathBuf::from(TARGET), staging: None };
    assert_eq!(kind_of(stats(&fixture.node, &request).await), ErrorKind::Failed);

    // Published again after the disk came back, over the corpse.
    let second = fixture.host.plug(FakeDisk::blank("pvc-1", SIZE).with_content(ext4()));
    fixture.stage().await.expect("staged anew");
    fixture.publish(TARGET).await.expect("over the corpse");
    let mounted = fixture.mounted(TARGET);
    assert_eq!(mounted.len(), 1);
    assert_eq!(mounted[0].device, Some(second));

    fixture.host.unplug(second);
    let looks = |fixture: &Fixture| {
        ["open_device", "find_disk", "probe", "usage"].map(|method| fixture.calls(method))
    };
    let before = looks(&fixture);
    fixture.unpublish(TARGET).await.expect("by the table alone");
    fixture.unstage().await.expect("by the table alone");
    assert_eq!(looks(&fixture), before, "nothing dead is looked at");
    assert_eq!(fixture.host.table().of_device(second).count(), 0);
}

#[tokio::test]
async fn b28_one_target_less_leaves_the_other_as_it_was() {
    let fixture = Fixture::new(ext4());
    let start = fixture.host.table();
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    fixture.publish(SECOND).await.expect("published for a second pod");
    fixture.unpublish(TARGET).await.expect("unpublished");
    assert_eq!(fixture.mounted(TARGET), []);
    let second = fixture.mounted(SECOND);
    assert_eq!(second.len(), 1);

    fixture.unstage().await.expect("only the staging mount");
    assert_eq!(fixture.mounted(STAGING), []);
    assert_eq!(fixture.mounted(SECOND), second);

    // Staged again while the second pod still runs: no check of what is in use.
    let checks = fixture.calls("check");
    fixture.stage().await.expect("beside the second pod");
    assert_eq!(fixture.calls("check"), checks);
    assert_eq!(fixture.mounted(SECOND), second);

    fixture.unpublish(SECOND).await.expect("unpublished");
    fixture.unstage().await.expect("unstaged");
    assert_eq!(fixture.host.table(), start);
}

#[tokio::test]
async fn b28_a_single_writer_has_one_target_and_the_other_modes_have_many() {
    for block in [false, true] {
        let mut fixture = if block { Fixture::block(ext4()) } else { Fixture::new(ext4()) };
        fixture.request.capability.mode = AccessMode::SingleNodeSingleWriter;
        fixture.stage().await.expect("staged");
        fixture.publish(TARGET).await.expect("the first");
        fixture.publish(TARGET).await.expect("the first again");
        let error = fixture.publish(SECOND).await.expect_err("a second one");
        assert_eq!(error.kind(), ErrorKind::Precondition);
        assert!(error.to_string().contains(TARGET), "{error}");
        assert_eq!(fixture.mounted(SECOND), []);
        assert_eq!(fixture.host.target(SECOND), None);
        for mode in [AccessMode::SingleNodeWriter, AccessMode::SingleNodeMultiWriter] {
            fixture.request.capability.mode = mode;
            fixture.publish(SECOND).await.expect("many pods");
            assert_eq!(fixture.mounted(SECOND).len(), 1);
            fixture.unpublish(SECOND).await.expect("unpublished");
        }
    }
}

#[tokio::test]
async fn b29_a_block_volume_is_the_device_and_keeps_its_content() {
    for content in [Content::Blank, Content::Foreign("random bytes".to_owned()), ext4()] {
        let fixture = Fixture::block(content.clone());
        let start = fixture.host.table();
        for _ in 0..2 {
            fixture.stage().await.expect("staged");
            assert_eq!(fixture.host.table(), start, "nothing is mounted");
        }
        for _ in 0..2 {
            fixture.publish(TARGET).await.expect("published");
            assert_eq!(fixture.mounted(TARGET).len(), 1);
        }
        assert_eq!(fixture.calls("bind"), 1);
        let device = ghost_host::Host::device_at(&fixture.host, Path::new(TARGET)).await;
        assert_eq!(device.expect("looked at"), Some(fixture.number));
        let request = StatsRequest { id: id(), path: PathBuf::from(TARGET), staging: None };
        let answer = stats(&fixture.node, &request).await.expect("published");
        assert_eq!(answer, Stats::Block { total: Bytes::new(SIZE) });
        fixture.unpublish(TARGET).await.expect("unpublished");
        fixture.unstage().await.expect("unstaged");
        assert_eq!(fixture.host.table(), start);
        assert_eq!(fixture.host.target(TARGET), None);
        assert_eq!(fixture.host.content(fixture.number), content);
        assert_eq!(fixture.calls("format") + fixture.calls("erase") + fixture.calls("check"), 0);
    }
}

#[tokio::test]
async fn a_device_is_not_used_as_a_filesystem_and_as_itself_at_once() {
    let mut fixture = Fixture::block(ext4());
    fixture.publish(TARGET).await.expect("published as a device");
    let before = fixture.host.table();
    fixture.request.capability = mount(AccessMode::SingleNodeWriter, &[]);
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition);
    assert_eq!(fixture.host.table(), before);
    fixture.unpublish(TARGET).await.expect("unpublished");
    fixture.stage().await.expect("staged as a filesystem");
    let before = fixture.host.table();
    fixture.request.capability.access = AccessType::Block;
    assert_eq!(kind_of(fixture.publish(TARGET).await), ErrorKind::Failed);
    assert_eq!(fixture.host.table(), before);
    assert_eq!(fixture.host.target(TARGET), None);
}

#[tokio::test]
async fn b30_a_missing_device_makes_no_file() {
    let fixture = Fixture::block(Content::Blank);
    fixture.host.set_link("disk/by-id/pvc-1", None);
    assert_eq!(kind_of(fixture.publish(TARGET).await), ErrorKind::Unavailable);
    assert_eq!(fixture.host.target(TARGET), None);
    fixture.host.set_link("disk/by-id/pvc-1", Some(fixture.number));
    // The bind is refused after the file was made.
    let calls = fixture.host.calls().len();
    fixture.publish(TARGET).await.expect("published");
    let bind = fixture.host.calls()[calls..].iter().position(|call| call.starts_with("bind "));
    fixture.unpublish(TARGET).await.expect("unpublished");
    for moment in [Moment::Before, Moment::After] {
        fixture.host.fail_at(bind.expect("bound") + 1, moment, io_error());
        assert_eq!(kind_of(fixture.publish(TARGET).await), ErrorKind::Failed);
        assert_eq!(fixture.host.clear_faults(), 0, "the bind failed");
        assert_eq!(fixture.mounted(TARGET), []);
        assert_eq!(fixture.host.target(TARGET), None);
    }
}

#[tokio::test]
async fn b32_reading_only_wins_wherever_it_was_said() {
    // By the call: the staging mount stays writable for others.
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    let mut request = fixture.publish_at(TARGET);
    request.access = Access::ReadOnly;
    publish(&fixture.node, &request).await.expect("published");
    assert_eq!(fixture.mounted(TARGET)[0].access, Access::ReadOnly);
    assert_eq!(fixture.mounted(STAGING)[0].access, Access::ReadWrite);

    // By the mode, and by an option.
    for capability in [
        mount(AccessMode::MultiNodeReaderOnly, &[]),
        mount(AccessMode::SingleNodeWriter, &["noatime", "ro"]),
    ] {
        let mut fixture = Fixture::new(ext4());
        fixture.request.capability = capability;
        fixture.stage().await.expect("staged");
        fixture.publish(TARGET).await.expect("published");
        for path in [STAGING, TARGET] {
            assert_eq!(fixture.mounted(path)[0].access, Access::ReadOnly, "{path}");
        }
        assert_eq!(fixture.calls("check"), 0);
        // What is staged for reading is not published for writing.
        fixture.request.capability = mount(AccessMode::SingleNodeWriter, &[]);
        assert_eq!(kind_of(fixture.publish(SECOND).await), ErrorKind::Precondition);
        assert_eq!(fixture.mounted(SECOND), []);
    }
}

#[tokio::test]
async fn b32_a_device_is_not_published_for_reading_only() {
    let fixture = Fixture::block(Content::Blank);
    let mut request = fixture.publish_at(TARGET);
    request.access = Access::ReadOnly;
    let error = publish(&fixture.node, &request).await.expect_err("it cannot be kept");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("writing to the device"), "{error}");
    let mut request = fixture.publish_at(TARGET);
    request.capability.mode = AccessMode::MultiNodeReaderOnly;
    assert_eq!(kind_of(publish(&fixture.node, &request).await), ErrorKind::Invalid);
    assert_eq!(fixture.host.target(TARGET), None);
}

#[tokio::test]
async fn b32_a_bind_that_fails_leaves_no_target() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    let calls = fixture.host.calls().len();
    fixture.publish(TARGET).await.expect("published");
    let bind = fixture.host.calls()[calls..].iter().position(|call| call.starts_with("bind "));
    fixture.unpublish(TARGET).await.expect("unpublished");
    for moment in [Moment::Before, Moment::After] {
        fixture.host.fail_at(bind.expect("bound") + 1, moment, io_error());
        assert_eq!(kind_of(fixture.publish(TARGET).await), ErrorKind::Failed);
        assert_eq!(fixture.host.clear_faults(), 0, "the bind failed");
        assert_eq!(fixture.mounted(TARGET), []);
        assert_eq!(fixture.host.target(TARGET), None);
    }
}

#[tokio::test]
async fn b33_a_write_protected_disk_is_mounted_for_reading_without_a_check() {
    let mut fixture = Fixture::new(ext4());
    fixture.host.set_write_protected(fixture.number, true);
    // For writing it cannot be had.
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition);
    assert_eq!(fixture.mounted(STAGING), []);
    fixture.request.capability = mount(AccessMode::SingleNodeReaderOnly, &[]);
    let checks = fixture.calls("check");
    fixture.stage().await.expect("for reading");
    let mounted = fixture.mounted(STAGING);
    assert_eq!(mounted[0].access, Access::ReadOnly);
    assert!(mounted[0].super_options.contains(&"noload".to_owned()), "{mounted:?}");
    assert_eq!(fixture.calls("check"), checks);
}

#[tokio::test]
async fn a_filesystem_that_stopped_writing_is_mounted_afresh_only_when_nobody_uses_it() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    let sick = MountEntry {
        super_options: vec!["ro".to_owned(), "emergency_ro".to_owned()],
        ..fixture.mounted(STAGING)[0].clone()
    };
    fixture.unstage().await.expect("unstaged");
    fixture.host.make_folder(STAGING);
    fixture.host.push_mount(sick.clone());
    assert_eq!(kind_of(fixture.publish(TARGET).await), ErrorKind::Precondition);
    let pod = MountEntry { target: PathBuf::from(SECOND), ..sick };
    fixture.host.push_mount(pod);
    let before = fixture.host.table();
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition);
    assert_eq!(fixture.host.table(), before);
    fixture.unpublish(SECOND).await.expect("the pod has ended");
    let checks = fixture.calls("check");
    fixture.stage().await.expect("mounted afresh");
    assert_eq!(fixture.calls("check"), checks + 1);
    assert_eq!(fixture.mounted(STAGING).len(), 1);
    assert_eq!(fixture.mounted(STAGING)[0].super_options, ["rw"]);
}

#[tokio::test]
async fn b60_an_option_with_commas_arrives_as_one() {
    let context = "context=\"system_u:object_r:container_file_t:s0:c1,c2\"";
    let mut fixture = Fixture::new(ext4());
    fixture.request.capability = mount(AccessMode::SingleNodeWriter, &[context]);
    fixture.stage().await.expect("staged");
    let options = fixture.mounted(STAGING)[0].super_options.clone();
    assert!(
        options.contains(&"context=system_u:object_r:container_file_t:s0:c1,c2".to_owned()),
        "{options:?}"
    );
    fixture.publish(TARGET).await.expect("published");
    assert_eq!(fixture.mounted(TARGET)[0].super_options, options);
}

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

#[tokio::test]
async fn paths_that_could_mean_another_place_are_refused() {
    for bad in ["", "kubelet/x", "/kubelet/../etc", "/"] {
        let mut fixture = Fixture::new(ext4());
        let request = UnpublishRequest { id: id(), target: PathBuf::from(bad) };
        assert_eq!(
            kind_of(unpublish(&fixture.node, &request).await),
            ErrorKind::Invalid,
            "{bad:?}"
        );
        assert_eq!(kind_of(fixture.publish(bad).await), ErrorKind::Invalid, "{bad:?}");
        fixture.request.staging = PathBuf::from(bad);
        assert_eq!(kind_of(fixture.stage().await), ErrorKind::Invalid, "{bad:?}");
        fixture.request.capability.access = AccessType::Block;
        assert_eq!(kind_of(fixture.stage().await), ErrorKind::Invalid, "{bad:?}");
    }
}
