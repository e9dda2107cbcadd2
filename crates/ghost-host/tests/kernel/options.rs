//! What is accepted of options can be made: the corners of what is offered, by the real tools.

use std::time::Duration;

use ghost_host::{Content, FilesystemKind, Format, FormatOptions, Host};

use crate::disk;
use crate::support::{GIB, Lab, is_root, try_run};

/// The largest disk that the cloud has, in GiB.
const LARGEST: u64 = 16_384;

/// The block and inode sizes that go together, and the two ends of bytes per inode for each.
fn of_ext() -> Vec<FormatOptions> {
    let sizes = [None, Some(1024), Some(2048), Some(4096)];
    let mut corners = Vec::new();
    for block_size in sizes {
        for inode_size in sizes.into_iter().chain([Some(256), Some(512)]) {
            let usual = FormatOptions { block_size, inode_size, ..FormatOptions::default() };
            if usual.check(FilesystemKind::Ext4).is_err() {
                continue;
            }
            let with = |bytes_per_inode, reserved_percent| FormatOptions {
                bytes_per_inode: Some(bytes_per_inode),
                reserved_percent: Some(reserved_percent),
                ..usual.clone()
            };
            let accepted = |bytes: &u32| with(*bytes, 50).check(FilesystemKind::Ext4).is_ok();
            let least = (512..).find(accepted).unwrap();
            corners.extend([with(least, 50), with(64 << 20, 0), usual]);
        }
    }
    corners
}

fn of_xfs() -> Vec<FormatOptions> {
    let mut corners = Vec::new();
    for block_size in [1024, 2048, 4096] {
        for inode_size in [512, 1024, 2048] {
            for reflink in [false, true] {
                corners.push(FormatOptions {
                    block_size: Some(block_size),
                    inode_size: Some(inode_size),
                    reflink: Some(reflink),
                    ..FormatOptions::default()
                });
            }
        }
    }
    corners.retain(|options| options.check(FilesystemKind::Xfs).is_ok());
    corners
}

#[tokio::test]
async fn the_corners_of_what_is_accepted_are_made_on_the_smallest_disk() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = disk(&lab, "pvc-1", GIB).await;
    let ext = [FilesystemKind::Ext3, FilesystemKind::Ext4].map(|kind| (kind, of_ext()));
    let others =
        [(FilesystemKind::Xfs, of_xfs()), (FilesystemKind::Btrfs, vec![FormatOptions::default()])];
    for (kind, corners) in ext.into_iter().chain(others) {
        assert!(!corners.is_empty());
        for options in corners {
            options.check_size(kind, GIB).unwrap();
            let format = Format { kind, options };
            let made = host.format(&device, &format).await;
            assert!(made.is_ok(), "{format:?}: {made:?}");
            assert_eq!(host.probe(&device).await.unwrap(), Content::Filesystem(kind));
            host.erase(&device).await.unwrap();
        }
    }
}

/// Whether mke2fs would make this on a disk of so many GiB. It lays all out, and writes nothing.
fn is_laid_out(image: &str, kind: FilesystemKind, options: &FormatOptions, gib: u64) -> bool {
    let mut arguments = vec!["-n".to_owned(), "-F".to_owned(), "-t".to_owned(), kind.to_string()];
    let sizes =
        [("-b", options.block_size), ("-I", options.inode_size), ("-i", options.bytes_per_inode)];
    for (flag, size) in sizes {
        arguments.extend(size.iter().flat_map(|size| [flag.to_owned(), size.to_string()]));
    }
    arguments.extend([image.to_owned(), format!("{gib}g")]);
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    try_run("mke2fs", &arguments).status.success()
}

#[test]
fn what_is_accepted_for_a_larger_disk_is_laid_out_there() {
    let lab = Lab::new();
    let image = lab.make_image("pvc-1", GIB);
    let image = image.to_str().unwrap();
    // Where many inodes and many groups meet, and where blocks can no longer be counted.
    let sizes = [480, 1000, 4095, 4096, 8191, LARGEST - 1, LARGEST];
    let is_crowded = |options: &FormatOptions| options.reserved_percent == Some(50);
    for kind in [FilesystemKind::Ext3, FilesystemKind::Ext4] {
        for options in of_ext().iter().filter(|options| is_crowded(options)) {
            for gib in sizes {
                match options.check_size(kind, gib * GIB) {
                    Ok(()) => {
                        let made = is_laid_out(image, kind, options, gib);
                        assert!(made, "{kind} on {gib} GiB: {options:?}");
                    }
                    // Of inodes a few more are refused than mke2fs does.
                    Err(("block_size", why)) => {
                        let made = is_laid_out(image, kind, options, gib);
                        assert!(!made, "{kind} on {gib} GiB: {options:?}: {why}");
                    }
                    Err(_) => {}
                }
            }
        }
    }
    let plain = FormatOptions::default();
    for (kind, gib) in [(FilesystemKind::Ext3, LARGEST - 1), (FilesystemKind::Ext4, LARGEST)] {
        plain.check_size(kind, gib * GIB).unwrap();
        assert!(is_laid_out(image, kind, &plain, gib), "{kind} on {gib} GiB");
    }
}

#[test]
fn every_xfs_and_btrfs_that_is_accepted_is_made_on_the_largest_disk() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    // A file of this size can be on an xfs, whatever the lab itself is on.
    let host = lab.make_image("host", 4 * GIB);
    let mounted = lab.target("host");
    std::fs::create_dir_all(&mounted).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let output = try_run(program, arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{program} {arguments:?}: {said}");
    };
    run("mkfs.xfs", &["-q", host.to_str().unwrap()]);
    run("mount", &["-o", "loop", host.to_str().unwrap(), mounted.to_str().unwrap()]);
    let image = mounted.join("image");
    let path = image.to_str().unwrap();
    let fresh = || {
        let _ = std::fs::remove_file(&image);
        std::fs::File::create(&image).and_then(|file| file.set_len(LARGEST * GIB)).unwrap();
    };
    for options in of_xfs() {
        options.check_size(FilesystemKind::Xfs, LARGEST * GIB).unwrap();
        let size = |size: Option<u32>| format!("size={}", size.unwrap());
        let reflink = format!("reflink={}", u8::from(options.reflink.unwrap()));
        let (block, inode) = (size(options.block_size), size(options.inode_size));
        fresh();
        run("mkfs.xfs", &["-q", "-K", "-b", &block, "-i", &inode, "-m", &reflink, path]);
    }
    fresh();
    run("mkfs.btrfs", &["-q", "-K", path]);
}

#[tokio::test]
async fn a_tool_that_meets_a_claim_which_goes_is_run_again() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = disk(&lab, "pvc-1", GIB).await;
    let claimed = |millis| {
        let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::EXCL;
        let claim = rustix::fs::open(device.path(), flags, rustix::fs::Mode::empty()).unwrap();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(millis));
            drop(claim);
        })
    };
    for kind in [FilesystemKind::Ext4, FilesystemKind::Xfs, FilesystemKind::Btrfs] {
        // Longer than a claim is waited for before the tool begins.
        let claim = claimed(700);
        let format = Format { kind, options: FormatOptions::default() };
        host.format(&device, &format).await.unwrap();
        claim.join().unwrap();
        let claim = claimed(700);
        host.check(&device, kind).await.unwrap();
        claim.join().unwrap();
        host.erase(&device).await.unwrap();
    }
    // One that stays is told.
    let claim = claimed(5000);
    let format = Format { kind: FilesystemKind::Xfs, options: FormatOptions::default() };
    let error = host.format(&device, &format).await.unwrap_err();
    assert!(error.to_string().contains("busy"), "{error}");
    claim.join().unwrap();
}
