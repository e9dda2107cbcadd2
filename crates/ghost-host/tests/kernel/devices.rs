//! Disks as the kernel shows them: partitions, buses that this machine lacks, nodes that change.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use ghost_host::{
    BlockDevice, DeviceNumber, DiskAddress, Error, FilesystemKind, Host, Identity, Linux,
};

use crate::support::{Lab, MIB, is_root, run};
use crate::{disk, folder, formatted, plain, text};

#[tokio::test]
async fn b09_a_disk_with_partitions_tells_of_them_and_a_partition_is_no_disk() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let image = lab.make_image("pvc-1", 64 * MIB);
    run("losetup", &["--find", "--partscan", text(&image)]);
    let node = lab.plug("pvc-1").await;
    // Made by hand, since not every kernel reads partition tables.
    run("addpart", &[text(&node), "1", "2048", "4096"]);
    let host = lab.host();
    let device = host.find_disk(&lab.address("pvc-1", 0), crate::PATIENCE).await.unwrap();
    let name = format!("{}p1", node.file_name().unwrap().to_str().unwrap());
    let [partition] = device.partitions() else { panic!("{device:?}") };
    assert_eq!(partition.name, name);
    let at = host.device_at(&node.with_file_name(&name)).await.unwrap();
    assert_eq!(Some(partition.number), at);

    fs::remove_file(lab.link("pvc-1")).unwrap();
    symlink(node.with_file_name(&name), lab.link("pvc-1")).unwrap();
    let error = host.find_disk(&lab.address("pvc-1", 0), Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, Error::WrongDisk { found: Identity::Unreadable, .. }), "{error:?}");
    run("delpart", &[text(&node), "1"]);
    let device = host.open_device(device.number()).await.unwrap().unwrap();
    assert!(device.partitions().is_empty() && device.users().is_empty());
}

/// A lab whose loop devices look like virtio disks with these serials.
struct VirtioLab {
    lab: Lab,
    sysfs: PathBuf,
}

impl VirtioLab {
    fn new() -> Self {
        let lab = Lab::new();
        let sysfs = lab.root().join("sys");
        fs::create_dir_all(sysfs.join("dev/block")).unwrap();
        fs::create_dir_all(sysfs.join("block")).unwrap();
        Self { lab, sysfs }
    }

    async fn plug(&self, name: &str, kernel_name: &str, serial: &str) -> BlockDevice {
        let device = disk(&self.lab, name, MIB).await;
        let folder = self.sysfs.join("block").join(kernel_name);
        fs::create_dir_all(folder.join("device")).unwrap();
        symlink("../../../bus/virtio", folder.join("device/subsystem")).unwrap();
        fs::write(folder.join("serial"), serial).unwrap();
        let node = device.path().file_name().unwrap().to_str().unwrap();
        fs::write(folder.join("uevent"), format!("MAJOR=7\nDEVNAME={node}\n")).unwrap();
        symlink(&folder, self.sysfs.join("dev/block").join(device.number().to_string())).unwrap();
        device
    }

    fn host(&self) -> Linux {
        self.lab.host().with_sysfs(&self.sysfs)
    }
}

#[tokio::test]
async fn b10_a_serial_that_was_cut_counts_only_if_no_other_disk_has_it() {
    if !is_root() {
        return;
    }
    let lab = VirtioLab::new();
    let long = "pvc-2f1e0c0a-1111-2222-3333-444455556666";
    let device = lab.plug("first", "vdb", &long[..20]).await;
    lab.plug("other", "vdc", "pvc-other").await;
    let address = DiskAddress {
        link: PathBuf::from("disk/by-id/first"),
        names: vec![long.to_owned()],
        minimum_size: MIB,
    };
    let found = lab.host().find_disk(&address, Duration::ZERO).await.unwrap();
    assert_eq!(found.number(), device.number());
    assert_eq!(*found.identity(), Identity::Virtio(long[..20].to_owned()));
    // The only one, and yet not large enough to be the volume's.
    let larger = DiskAddress { minimum_size: 2 * MIB, ..address.clone() };
    let error = lab.host().find_disk(&larger, Duration::ZERO).await.unwrap_err();
    assert!(error.to_string().contains(&MIB.to_string()), "{error:?}");

    lab.plug("second", "vdd", &long[..20]).await;
    let error = lab.host().find_disk(&address, Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(&error, Error::Ambiguous { candidates, .. } if *candidates == ["vdb", "vdd"]),
        "{error:?}"
    );
    let whole = DiskAddress {
        link: PathBuf::from("disk/by-id/other"),
        names: vec!["pvc-other".to_owned()],
        minimum_size: MIB,
    };
    lab.host().find_disk(&whole, Duration::ZERO).await.unwrap();
}

/// The kernel's account of a disk that was swapped for another one of the same number, after the
/// disks had been listed and before it was opened: the list has the old one, the number the new one.
#[tokio::test]
async fn b08_a_xen_disk_that_is_swapped_before_it_is_opened_is_another_one() {
    if !is_root() {
        return;
    }
    let VirtioLab { lab, sysfs } = VirtioLab::new();
    let number = disk(&lab, "swapped", MIB).await.number().to_string();
    let show = |folder: PathBuf, node: &str| {
        fs::create_dir_all(folder.join("device")).unwrap();
        symlink("../../../bus/xen", folder.join("device/subsystem")).unwrap();
        fs::write(folder.join("device/nodename"), node).unwrap();
        fs::write(folder.join("dev"), &number).unwrap();
        fs::write(folder.join("uevent"), format!("DEVNAME=loop{}\n", &number[2..])).unwrap();
    };
    let now = sysfs.join("dev/block").join(&number);
    show(sysfs.join("block/xvdj"), "device/vbd/51792\n");
    show(now.clone(), "device/vbd/51808\n");
    let address = |names: &[&str]| DiskAddress {
        link: PathBuf::from("disk/by-id/absent"),
        names: names.iter().map(|name| (*name).to_owned()).collect(),
        minimum_size: MIB,
    };
    let slot = address(&["v-1", &Identity::name_of_slot("xvdf")]);
    let host = || lab.host().with_sysfs(&sysfs);
    let error = host().find_disk(&slot, Duration::ZERO).await.unwrap_err();
    let is_other = |found: &Identity| *found == Identity::Xen("xvdg".to_owned());
    assert!(matches!(&error, Error::WrongDisk { found, .. } if is_other(found)), "{error:?}");
    // One that is taken on trust is at least a Xen disk.
    fs::remove_dir_all(now.join("device")).unwrap();
    let trusting = || host().allowing_unidentified();
    let error = trusting().find_disk(&address(&["v-1"]), Duration::ZERO).await.unwrap_err();
    assert!(matches!(&error, Error::DiskAbsent { .. }), "{error:?}");
    fs::remove_dir_all(&now).unwrap();
    show(now, "device/vbd/51792\n");
    trusting().find_disk(&address(&["v-1"]), Duration::ZERO).await.unwrap();
    host().find_disk(&slot, Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn b08_udev_is_reminded_once_of_a_link_that_leads_to_another_disk() {
    if !is_root() {
        return;
    }
    let lab = VirtioLab::new();
    lab.plug("pvc-1", "vdb", "pvc-2").await;
    let event = lab.sysfs.join("block/vdb/uevent");
    let before = fs::read_to_string(&event).unwrap();
    let short = Duration::from_millis(50);
    let error = lab.host().find_disk(&lab.lab.address("pvc-1", 0), short).await.unwrap_err();
    assert!(matches!(error, Error::WrongDisk { .. }), "{error:?}");
    // A write replaces the beginning of what is a plain file here.
    assert_eq!(fs::read_to_string(&event).unwrap(), before.replacen(&before[..6], "change", 1));
}

#[tokio::test]
async fn b08_a_device_whose_node_was_replaced_is_not_mounted() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let kind = FilesystemKind::Ext4;
    let first = formatted(&lab, "pvc-1", 64 * MIB, kind).await;
    let second = formatted(&lab, "pvc-2", 64 * MIB, kind).await;
    // This device folder has nodes of its own.
    let node = lab.root().join("dev").join(first.path().file_name().unwrap());
    make_node(&node, first.number());
    let device = host.open_device(first.number()).await.unwrap().unwrap();
    assert_eq!(device.path(), node);
    fs::remove_file(&node).unwrap();
    make_node(&node, second.number());
    let target = folder(&lab, "stage").await;
    let error = host.mount(&device, &plain(&target, kind)).await.unwrap_err();
    assert!(
        matches!(&error, Error::Mount { detail, .. } if detail.contains("another's")),
        "{error:?}"
    );
    assert_eq!(host.mounts().await.unwrap().at(&target).count(), 0);
    // The kernel's own node is still right.
    let again = host.open_device(first.number()).await.unwrap().unwrap();
    assert_eq!(again.path(), first.path());
}

fn make_node(path: &std::path::Path, number: DeviceNumber) {
    let (major, minor) = (number.major.to_string(), number.minor.to_string());
    run("mknod", &[text(path), "b", &major, &minor]);
}

#[tokio::test]
async fn b12_what_is_no_block_device_is_waited_out_and_never_touched() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let file = lab.make_image("pvc-1", MIB);
    let pipe = lab.root().join("pipe");
    run("mkfifo", &[text(&pipe)]);
    for (index, target) in [file, pipe, PathBuf::from("/dev/null"), lab.root()].iter().enumerate() {
        let name = format!("link-{index}");
        symlink(target, lab.link(&name)).unwrap();
        let error = host.find_disk(&lab.address(&name, 0), Duration::ZERO).await.unwrap_err();
        assert!(
            matches!(&error, Error::DiskAbsent { seen, .. } if seen.contains("no block device")),
            "{error:?}"
        );
    }
    for link in ["../../dev/null", "/dev/null", "disk/../by-id/x"] {
        let address =
            DiskAddress { link: PathBuf::from(link), names: vec!["x".to_owned()], minimum_size: 0 };
        let error = host.find_disk(&address, Duration::ZERO).await.unwrap_err();
        assert!(
            matches!(&error, Error::DiskAbsent { seen, .. } if seen.contains("no path below")),
            "{error:?}"
        );
    }
    let names: Vec<_> = fs::read_dir(lab.root().join("dev")).unwrap().collect();
    assert_eq!(names.len(), 1, "nothing was made in the device folder: {names:?}");
}
