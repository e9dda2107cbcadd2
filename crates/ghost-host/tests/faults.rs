//! The machine in memory fails, or falls silent, where it is told to.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_host::{
    Access, Content, Error, FakeDisk, FakeHost, FilesystemKind, Format, Host, Moment, Mount,
    TargetKind,
};

const EXT4: FilesystemKind = FilesystemKind::Ext4;

fn broken() -> Error {
    Error::Io {
        action: "test",
        path: PathBuf::from("/nowhere"),
        source: io::Error::other("told to fail"),
    }
}

/// A small operation: the disk is found, formatted if blank, and mounted if it is not.
async fn stage(host: &FakeHost) -> Result<(), Error> {
    let disk = FakeDisk::blank("pvc-1", 1 << 30).address("pvc-1");
    let target = Path::new("/stage");
    let device = host.find_disk(&disk, Duration::ZERO).await?;
    if host.mounts().await?.at(target).next().is_some() {
        return Ok(());
    }
    match host.probe(&device).await? {
        Content::Blank => host.format(&device, &Format::of(EXT4)).await?,
        Content::Filesystem(EXT4) => {}
        // What a note of a format under way would tell in earnest.
        _ => {
            host.erase(&device).await?;
            host.format(&device, &Format::of(EXT4)).await?;
        }
    }
    host.create_target(target, TargetKind::Directory).await?;
    let mount = Mount {
        target: target.to_owned(),
        kind: EXT4,
        access: Access::ReadWrite,
        options: Vec::new(),
    };
    host.mount(&device, &mount).await
}

#[tokio::test(start_paused = true)]
async fn an_operation_cut_short_at_any_call_and_moment_ends_the_same_when_repeated() {
    let mut cuts = 0;
    for moment in [Moment::Before, Moment::Midway, Moment::After] {
        for silent in [false, true] {
            for n in 1.. {
                let host = FakeHost::new();
                let number = host.plug(FakeDisk::blank("pvc-1", 1 << 30));
                if silent {
                    host.silence_at(n, moment);
                } else {
                    host.fail_at(n, moment, broken());
                }
                let limit = Duration::from_secs(60);
                let first = tokio::time::timeout(limit, stage(&host)).await;
                if host.clear_faults() == 1 {
                    first.unwrap().unwrap();
                    break;
                }
                cuts += 1;
                match first {
                    Err(_) => assert!(silent, "{n} {moment:?}"),
                    Ok(result) => assert!(!silent && result.is_err(), "{n} {moment:?}"),
                }
                stage(&host).await.unwrap();
                assert_eq!(host.content(number), Content::Filesystem(EXT4), "{n} {moment:?}");
                assert_eq!(host.table().of_device(number).count(), 1, "{n} {moment:?}");
            }
        }
    }
    // Six calls, three moments, two ways to fail.
    assert_eq!(cuts, 36);
}

#[tokio::test]
async fn the_log_tells_every_call_and_on_what() {
    let host = FakeHost::new();
    host.plug(FakeDisk::blank("pvc-1", 1 << 30));
    stage(&host).await.unwrap();
    assert_eq!(
        host.calls(),
        [
            "find_disk disk/by-id/pvc-1",
            "mounts",
            "probe 8:0",
            "format 8:0 ext4",
            "create_target /stage",
            "mount 8:0 /stage",
        ]
    );
}

#[tokio::test]
async fn a_disk_that_is_pulled_out_leaves_a_dead_mount_that_can_be_taken_off() {
    let host = FakeHost::new();
    let number = host.plug(FakeDisk::blank("pvc-1", 1 << 30));
    stage(&host).await.unwrap();
    let device = host.open_device(number).await.unwrap().unwrap();
    host.unplug(number);
    assert!(host.open_device(number).await.unwrap().is_none());
    host.probe(&device).await.unwrap_err();
    host.usage(Path::new("/stage")).await.unwrap_err();
    assert_eq!(host.mounts().await.unwrap().of_device(number).count(), 1);
    host.unmount(Path::new("/stage")).await.unwrap();
    let again = host.plug(FakeDisk::blank("pvc-1", 1 << 30));
    assert_ne!(again, number, "numbers are not used again");
}
