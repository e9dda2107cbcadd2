//! Cases of staging: what is on the disk, what is mounted already.

use std::path::PathBuf;

use ghost_host::{Access, Content, FakeDisk, FilesystemKind, Moment, MountEntry};

use super::{kind_of, stranger};
use crate::error::ErrorKind;
use crate::node::fixture::{Fixture, SECOND, SIZE, STAGING, TARGET, ext4, id, io_error, mount};
use crate::node::{HealthRequest, PublishRequest, health, publish};
use crate::volume::{AccessMode, AccessType, VolumeProblem};

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
    assert_eq!(kind_of(crate::node::stage(&fixture.node, &other).await), ErrorKind::Conflict);
    let xfs = AccessType::Mount { filesystem: FilesystemKind::Xfs, options: Vec::new() };
    for access in [xfs, AccessType::Block] {
        other.capability.access = access;
        other.capability.mode = AccessMode::SingleNodeWriter;
        assert_eq!(kind_of(crate::node::stage(&fixture.node, &other).await), ErrorKind::Conflict);
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
async fn a_filesystem_that_shut_down_is_told_published_to_nobody_and_mounted_afresh() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    let told = async |path: &str| {
        let request = HealthRequest { id: id(), paths: vec![PathBuf::from(path)] };
        health(&fixture.node, &request).await.expect("an answer").problems
    };
    assert_eq!(told(TARGET).await, []);
    fixture.host.shut_down(fixture.number);
    for path in [STAGING, TARGET] {
        assert_eq!(told(path).await, [VolumeProblem::FilesystemShutDown]);
    }
    // No pod gets it, be it for reading, and the one that has it keeps it from being mounted anew:
    // at the staging path, and where the pod outlives the staging.
    let before = fixture.host.table();
    for access in [Access::ReadWrite, Access::ReadOnly] {
        let request = PublishRequest { access, ..fixture.publish_at(SECOND) };
        assert_eq!(kind_of(publish(&fixture.node, &request).await), ErrorKind::Precondition);
    }
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition);
    assert_eq!(fixture.host.table(), before);
    fixture.unstage().await.expect("unstaged");
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Precondition);
    assert_eq!(fixture.mounted(STAGING), []);
    fixture.unpublish(TARGET).await.expect("the pod has ended");
    fixture.stage().await.expect("mounted afresh");

    // Without a pod it is taken off and mounted anew.
    fixture.host.shut_down(fixture.number);
    let mounts = fixture.calls("mount");
    fixture.stage().await.expect("mounted afresh");
    assert_eq!(fixture.calls("mount"), mounts + 1);
    fixture.publish(TARGET).await.expect("published");
    assert_eq!(told(TARGET).await, []);
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
async fn a_note_goes_when_its_volume_is_unstaged_or_used_as_a_device() {
    for block in [false, true] {
        let fixture = if block { Fixture::block(ext4()) } else { Fixture::new(ext4()) };
        fixture.node.notes.write(&id(), "scsi [\"pvc-1\"]").await.expect("noted");
        if block {
            fixture.stage().await.expect("staged");
        } else {
            fixture.unstage().await.expect("nothing is staged");
        }
        assert_eq!(fixture.notes_left(), 0, "block: {block}");
    }
}

#[tokio::test]
async fn a_format_that_wrote_nothing_leaves_no_note() {
    let fixture = Fixture::new(Content::Blank);
    let staged = Fixture::new(Content::Blank);
    staged.stage().await.expect("staged");
    let calls = staged.host.calls();
    let format = calls.iter().position(|call| call.starts_with("format")).expect("formatted");
    fixture.host.fail_at(format + 1, Moment::Before, io_error());
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Failed);
    assert_eq!(fixture.host.content(fixture.number), Content::Blank);
    assert_eq!(fixture.notes_left(), 0);
}
