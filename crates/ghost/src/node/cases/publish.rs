//! Cases of publishing and of taking away: targets, binds, what lies in the way.

use std::path::{Path, PathBuf};

use ghost_host::{Access, Content, FakeDisk, Moment, TargetKind};

use super::{kind_of, stranger};
use crate::error::ErrorKind;
use crate::node::fixture::{Fixture, SECOND, SIZE, STAGING, TARGET, ext4, id, io_error, mount};
use crate::node::{Stats, StatsRequest, UnpublishRequest, publish, stats, unpublish};
use crate::volume::{AccessMode, AccessType, Bytes};

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

/// A bind that is refused after its target was made leaves no target.
async fn a_failed_bind_leaves_nothing(fixture: &Fixture) {
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
async fn b30_a_missing_device_makes_no_file() {
    let fixture = Fixture::block(Content::Blank);
    fixture.host.set_link("disk/by-id/pvc-1", None);
    assert_eq!(kind_of(fixture.publish(TARGET).await), ErrorKind::Unavailable);
    assert_eq!(fixture.host.target(TARGET), None);
    fixture.host.set_link("disk/by-id/pvc-1", Some(fixture.number));
    a_failed_bind_leaves_nothing(&fixture).await;
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
    a_failed_bind_leaves_nothing(&fixture).await;
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
