//! Cases of volumes that were made of snapshots: smaller than their disk, and copies of others.

use std::path::PathBuf;

use ghost_host::{Access, Content, Error as HostError, FilesystemKind, Moment};

use super::kind_of;
use crate::error::ErrorKind;
use crate::node::fixture::{Fixture, SIZE, STAGING, TARGET, ext4, io_error, mount};
use crate::volume::{AccessMode, AccessType};

/// A node with a filesystem of this kind on the volume's disk, which is twice as large.
fn restored(kind: FilesystemKind) -> Fixture {
    let mut fixture = Fixture::new(Content::Filesystem(kind));
    let filesystem = AccessType::Mount { filesystem: kind, options: Vec::new() };
    fixture.request.capability.access = filesystem;
    fixture.host.resize(fixture.number, 2 * SIZE);
    fixture
}

fn filesystem_size(fixture: &Fixture) -> u64 {
    fixture.host.filesystem_size(fixture.number)
}

#[tokio::test]
async fn b18_a_filesystem_smaller_than_its_disk_is_grown_when_it_is_staged() {
    for kind in FilesystemKind::ALL {
        let fixture = restored(kind);
        fixture.stage().await.expect("staged");
        assert_eq!(filesystem_size(&fixture), 2 * SIZE, "{kind}");
        assert_eq!((fixture.calls("mount"), fixture.calls("unmount")), (1, 0), "{kind}");
        // By hand, or by the half of an expansion that the cloud has done.
        fixture.publish(TARGET).await.expect("published");
        fixture.host.resize(fixture.number, 3 * SIZE);
        fixture.stage().await.expect("staged already");
        assert_eq!(filesystem_size(&fixture), 3 * SIZE, "{kind}");
        assert_eq!((fixture.calls("mount"), fixture.calls("unmount")), (1, 0), "{kind}");
    }
}

#[tokio::test]
async fn b18_without_the_capability_ext_is_grown_while_it_is_unmounted_and_others_as_ever() {
    for kind in FilesystemKind::ALL {
        let fixture = restored(kind);
        fixture.host.set_may_grow_mounted_ext(false);
        fixture.stage().await.expect("staged");
        let is_ext = kind.name().starts_with("ext");
        assert_eq!(fixture.calls("unmount"), usize::from(is_ext), "{kind}");
        for _ in 0..2 {
            assert_eq!(filesystem_size(&fixture), 2 * SIZE, "{kind}");
            let mounted = fixture.mounted(STAGING);
            assert_eq!(mounted.len(), 1, "{kind}");
            assert_eq!(
                (mounted[0].device, mounted[0].access),
                (Some(fixture.number), Access::ReadWrite)
            );
            fixture.stage().await.expect("staged already");
        }
        assert_eq!(fixture.calls("unmount"), usize::from(is_ext), "once is enough: {kind}");
    }
}

#[tokio::test]
async fn b18_what_pods_use_is_never_unmounted_to_be_grown() {
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    fixture.host.resize(fixture.number, 2 * SIZE);
    fixture.host.set_may_grow_mounted_ext(false);
    fixture.stage().await.expect("the pod goes on with it");
    // The target outlives the staging, and is there when it is staged anew.
    let staged = fixture.host.table();
    fixture.unstage().await.expect("unstaged");
    fixture.stage().await.expect("staged beside the target");
    assert_eq!(fixture.host.table().entries().len(), staged.entries().len());
    assert_eq!(fixture.mounted(TARGET).len(), 1);
    assert_eq!(fixture.calls("unmount"), 1, "that of the unstaging");
    assert_eq!(filesystem_size(&fixture), SIZE);
    // The pod ends, and the next one has it all.
    fixture.unpublish(TARGET).await.expect("unpublished");
    fixture.stage().await.expect("staged");
    assert_eq!(filesystem_size(&fixture), 2 * SIZE);
    assert_eq!(fixture.mounted(STAGING).len(), 1);
}

#[tokio::test]
async fn b18_b33_what_is_for_reading_only_is_not_grown() {
    let mut fixture = restored(FilesystemKind::Ext4);
    fixture.request.capability = mount(AccessMode::MultiNodeReaderOnly, &[]);
    for write_protected in [false, true] {
        fixture.host.set_write_protected(fixture.number, write_protected);
        for _ in 0..2 {
            fixture.stage().await.expect("staged");
        }
        let options = fixture.mounted(STAGING)[0].super_options.clone();
        assert_eq!(options.contains(&"noload".to_owned()), write_protected, "{options:?}");
        fixture.unstage().await.expect("unstaged");
    }
    assert_eq!((fixture.calls("grow"), fixture.calls("check")), (0, 0));
    assert_eq!(filesystem_size(&fixture), SIZE);
}

#[tokio::test]
async fn b18_a_growth_that_fails_leaves_nothing_mounted_that_was_not_before() {
    // The call that grows: after the mount, and again while it is unmounted.
    for (may_grow_mounted, growths) in [(true, 1), (false, 2)] {
        let fixture = restored(FilesystemKind::Ext4);
        fixture.host.set_may_grow_mounted_ext(may_grow_mounted);
        fixture.stage().await.expect("staged");
        let calls = fixture.host.calls();
        let growth = |call: &String| call.starts_with("grow ");
        let last = calls.iter().rposition(growth).expect("it grew") + 1;
        assert_eq!(calls.iter().filter(|call| growth(call)).count(), growths);

        let fixture = restored(FilesystemKind::Ext4);
        fixture.host.set_may_grow_mounted_ext(may_grow_mounted);
        let before = fixture.host.table();
        fixture.host.fail_at(last, Moment::Before, io_error());
        let error = fixture.stage().await.expect_err("it does not grow");
        assert_eq!(error.kind(), ErrorKind::Failed);
        assert!(error.chain().contains("cannot grow the filesystem"), "{}", error.chain());
        assert_eq!(fixture.host.table(), before);
        fixture.stage().await.expect("the next one does");
        assert_eq!(filesystem_size(&fixture), 2 * SIZE);
    }
    // What pods use stays, and the failure is told.
    let fixture = Fixture::new(ext4());
    fixture.stage().await.expect("staged");
    fixture.publish(TARGET).await.expect("published");
    fixture.host.resize(fixture.number, 2 * SIZE);
    let before = fixture.host.table();
    let count = fixture.host.calls().len();
    fixture.stage().await.expect("staged already");
    let calls = fixture.host.calls();
    let last = calls[count..].iter().position(|call| call.starts_with("grow ")).expect("it grew");
    fixture.host.resize(fixture.number, 3 * SIZE);
    fixture.host.fail_at(last + 1, Moment::Before, io_error());
    assert_eq!(kind_of(fixture.stage().await), ErrorKind::Failed);
    assert_eq!(fixture.host.table(), before);
}

#[tokio::test]
async fn b16_a_copy_that_the_kernel_cannot_tell_apart_is_refused_for_good() {
    let fixture = restored(FilesystemKind::Btrfs);
    fixture.stage().await.expect("staged");
    let calls = fixture.host.calls();
    let mounts = calls.iter().position(|call| call.starts_with("mount ")).expect("mounted") + 1;

    let fixture = restored(FilesystemKind::Btrfs);
    let before = fixture.host.table();
    let detail = "it is mounted from loop7 at /elsewhere".to_owned();
    let refusal = HostError::Indistinct { path: PathBuf::from("/dev/disk0"), detail };
    fixture.host.fail_at(mounts, Moment::Before, refusal);
    let error = fixture.stage().await.expect_err("a copy");
    assert_eq!(error.kind(), ErrorKind::Precondition);
    assert!(error.chain().contains("from loop7 at /elsewhere"), "{}", error.chain());
    assert_eq!(fixture.host.table(), before);
    assert_eq!(fixture.host.content(fixture.number), Content::Filesystem(FilesystemKind::Btrfs));
}
