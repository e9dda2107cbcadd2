//! What counts as blank, and what never does.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use ghost_host::{Content, Error, FilesystemKind, Format, Host};

use crate::support::{GIB, Lab, MIB, is_root, run};
use crate::{disk, folder, formatted, plain, text, writes};

/// Asserts that the disk is neither blank nor a filesystem, is not formatted, and is not written to.
async fn assert_foreign(lab: &Lab, name: &str, expected: &str) {
    let host = lab.host();
    let device = host.find_disk(&lab.address(name, 0), crate::PATIENCE).await.unwrap();
    let before = writes(&device);
    match host.probe(&device).await.unwrap() {
        Content::Foreign(what) => assert!(what.contains(expected), "{name}: {what}"),
        other => panic!("{name}: {other:?}"),
    }
    for kind in FilesystemKind::ALL {
        let error = host.format(&device, &Format::of(kind)).await.unwrap_err();
        assert!(matches!(error, Error::NotBlank { .. }), "{name}: {error:?}");
    }
    assert_eq!(writes(&device), before, "{name} was written to");
}

/// Writes into the disk as a stranger would.
fn write(node: &Path, offset: u64, bytes: &[u8]) {
    let device = File::options().write(true).open(node).unwrap();
    device.write_all_at(bytes, offset).unwrap();
    device.sync_all().unwrap();
}

fn zero_head(node: &Path, length: u64) {
    write(node, 0, &vec![0; usize::try_from(length).unwrap()]);
}

#[tokio::test]
async fn a_filesystem_that_lost_its_head_is_found_by_its_spare_copies() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    for kind in FilesystemKind::ALL {
        let name = format!("pvc-{kind}");
        let device = formatted(&lab, &name, GIB, kind).await;
        zero_head(device.path(), 8 * MIB);
        assert_foreign(&lab, &name, "data without a known signature").await;
    }
}

#[tokio::test]
async fn an_ext_filesystem_of_every_block_size_is_found_by_its_spare_copies() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    for block in ["1024", "2048", "4096"] {
        let name = format!("pvc-{block}");
        let device = disk(&lab, &name, GIB).await;
        // Without a journal and bitmaps in the way there is little but the copies left.
        run("mkfs.ext4", &["-q", "-b", block, "-O", "^has_journal", text(device.path())]);
        zero_head(device.path(), 2 * MIB);
        assert_foreign(&lab, &name, "data without a known signature").await;
    }
}

#[tokio::test]
async fn b13_partition_tables_and_other_users_of_disks_are_named_and_kept() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let node = disk(&lab, "mbr", 64 * MIB).await.path().to_owned();
    let mut sector = [0; 512];
    sector[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 2, 0, 0, 8, 0, 0, 0, 0x80, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    write(&node, 0, &sector);
    assert_foreign(&lab, "mbr", "a partition table (dos)").await;

    let node = disk(&lab, "lvm", 64 * MIB).await.path().to_owned();
    let mut label = [0; 512];
    label[..8].copy_from_slice(b"LABELONE");
    label[8] = 1; // the sector in which the label stands
    label[20] = 32;
    label[24..32].copy_from_slice(b"LVM2 001");
    label[32..64].copy_from_slice(b"abcdefghijklmnopqrstuvwxyz012345");
    let sum = lvm_checksum(&label[20..]);
    label[16..20].copy_from_slice(&sum.to_le_bytes());
    write(&node, 512, &label);
    assert_foreign(&lab, "lvm", "LVM2_member").await;

    for version in [1, 2] {
        let name = format!("luks{version}");
        let node = disk(&lab, &name, 64 * MIB).await.path().to_owned();
        let mut header = [0; 592];
        header[..6].copy_from_slice(b"LUKS\xba\xbe");
        header[7] = version;
        header[168..204].copy_from_slice(b"2f1e0c0a-1111-2222-3333-444455556666");
        write(&node, 0, &header);
        assert_foreign(&lab, &name, "crypto_LUKS").await;
    }

    let node = disk(&lab, "swap", 64 * MIB).await.path().to_owned();
    run("mkswap", &[text(&node)]);
    assert_foreign(&lab, "swap", "swap").await;

    let node = disk(&lab, "ext2", 64 * MIB).await.path().to_owned();
    run("mkfs.ext2", &["-q", text(&node)]);
    assert_foreign(&lab, "ext2", "ext2").await;
}

/// The checksum that LVM puts into its labels: a CRC-32 with a start of its own.
fn lvm_checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0xf597_a6cf, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| {
            (sum >> 1) ^ (0xedb8_8320 & (sum & 1).wrapping_neg())
        })
    })
}

#[tokio::test]
async fn b13_a_partition_table_of_which_only_the_tail_is_left_is_found() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let node = disk(&lab, "gpt", GIB).await.path().to_owned();
    write_gpt_tail(&node, GIB);
    let device = lab.host().find_disk(&lab.address("gpt", 0), crate::PATIENCE).await.unwrap();
    assert!(matches!(lab.host().probe(&device).await.unwrap(), Content::Foreign(_)));
    assert_foreign(&lab, "gpt", "").await;
}

/// The spare header of a partition table, as it stands in the last sector.
fn write_gpt_tail(node: &Path, size: u64) {
    let mut header = [0; 512];
    header[..8].copy_from_slice(b"EFI PART");
    header[8..12].copy_from_slice(&[0, 0, 1, 0]);
    header[12] = 92;
    header[24..32].copy_from_slice(&(size / 512 - 1).to_le_bytes());
    write(node, size - 512, &header);
}

#[tokio::test]
async fn b13_bytes_without_a_meaning_are_data_too() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let mut noise = [0; 4096];
    File::open("/dev/urandom").unwrap().read_exact(&mut noise).unwrap();
    noise[0] |= 1;
    for (name, offset) in [("head", 0), ("middle", 256 * MIB), ("tail", GIB - 4096)] {
        let node = disk(&lab, name, GIB).await.path().to_owned();
        write(&node, offset, &noise);
        assert_foreign(&lab, name, &format!("first at byte {offset}")).await;
    }
    for (name, offset) in [("first", 0), ("last", GIB - 1)] {
        let node = disk(&lab, name, GIB).await.path().to_owned();
        write(&node, offset, &[1]);
        assert_foreign(&lab, name, &format!("first at byte {offset}")).await;
    }
}

#[tokio::test]
async fn a_filesystem_beside_a_partition_table_is_not_one_of_ours() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let device = formatted(&lab, "pvc-1", 512 * MIB, FilesystemKind::Btrfs).await;
    let mut sector = [0; 512];
    sector[446..462].copy_from_slice(&[0, 0, 2, 0, 0x83, 0, 2, 0, 0, 8, 0, 0, 0, 0x80, 0, 0]);
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    write(device.path(), 0, &sector);
    assert_foreign(&lab, "pvc-1", "").await;
}

#[tokio::test]
async fn two_filesystems_on_one_disk_are_too_many() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    // XFS begins at byte 0, ext4 names itself at 1 KiB, and neither tool wipes the other's mark
    // when the marks are copied by hand.
    let xfs = formatted(&lab, "xfs", 512 * MIB, FilesystemKind::Xfs).await;
    let device = formatted(&lab, "pvc-1", 512 * MIB, FilesystemKind::Ext4).await;
    let mut head = [0; 512];
    File::open(xfs.path()).unwrap().read_exact(&mut head).unwrap();
    write(device.path(), 0, &head);
    assert_foreign(&lab, "pvc-1", "contradictory").await;
}

#[tokio::test]
async fn b11_a_disk_that_cannot_be_read_is_an_error_until_it_can_be_read_again() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    // The disk is a file in a filesystem whose own disk can be cut off, so that reads truly fail.
    let outer = formatted(&lab, "outer", 256 * MIB, FilesystemKind::Ext4).await;
    let stage = folder(&lab, "stage").await;
    host.mount(&outer, &plain(&stage, FilesystemKind::Ext4)).await.unwrap();
    let mut disks = Vec::new();
    for (name, kind) in [("blank", None), ("ext4", Some(FilesystemKind::Ext4))] {
        let inner = stage.join(name);
        fs::write(&inner, vec![0; 64 << 20]).unwrap();
        File::open(&inner).unwrap().sync_all().unwrap();
        // Direct, so that no cache of the outer filesystem answers instead.
        run("losetup", &["--find", "--direct-io=on", text(&inner)]);
        std::os::unix::fs::symlink(&inner, lab.image(name)).unwrap();
        lab.plug(name).await;
        // The disk's name is that of the file, here and in `images`.
        let device = crate::open(&lab, name).await;
        if let Some(kind) = kind {
            host.format(&device, &Format::of(kind)).await.unwrap();
        }
        let wanted = kind.map_or(Content::Blank, Content::Filesystem);
        assert_eq!(host.probe(&device).await.unwrap(), wanted);
        disks.push((device, wanted));
    }
    run("sync", &["--file-system", text(&stage)]);

    resize(&lab, "outer", 8 * MIB, outer.path());
    for (device, _) in &disks {
        let error = host.probe(device).await.unwrap_err();
        assert!(matches!(error, Error::Io { action: "read", .. }), "{error:?}");
        for kind in FilesystemKind::ALL {
            let error = host.format(device, &Format::of(kind)).await.unwrap_err();
            assert!(matches!(error, Error::Io { action: "read", .. }), "{error:?}");
        }
    }
    resize(&lab, "outer", 256 * MIB, outer.path());
    for (device, wanted) in &disks {
        assert_eq!(host.probe(device).await.unwrap(), *wanted);
    }
}

/// Cuts a disk off and gives it back. What was cut off is kept aside, as a file of its own.
fn resize(lab: &Lab, name: &str, size: u64, node: &Path) {
    let (image, rest) = (lab.image(name), lab.image("rest"));
    let file = File::options().read(true).write(true).open(&image).unwrap();
    let present = file.metadata().unwrap().len();
    if size < present {
        run("cp", &["--sparse=always", text(&image), text(&rest)]);
        file.set_len(size).unwrap();
    } else {
        run("cp", &["--sparse=always", "--no-preserve=all", text(&rest), text(&image)]);
    }
    run("losetup", &["--set-capacity", text(node)]);
}
