//! What every host promises: the same assertions over the kernel and over the machine in memory.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod support;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use ghost_host::{
    Access, Content, DeviceHealth, DeviceNumber, DiskAddress, Error, FakeDisk, FakeHost,
    FilesystemKind, Format, Host, Linux, Mount, TargetKind, loop_device,
};
use support::{GIB, Lab, MIB, has_sys_resource, is_root, run};

/// Long enough for everything that should happen on its own.
const PATIENCE: Duration = Duration::from_secs(20);

/// The least size with which every kind of filesystem can be made.
const SIZE: u64 = 512 * MIB;

/// A host, and the world around it that a test changes.
#[async_trait]
trait Machine: Sync {
    type Host: Host;
    fn host(&self) -> &Self::Host;
    /// Plugs in a blank disk of this name.
    async fn plug(&self, name: &str, size: u64) -> DiskAddress;
    /// Makes the link of one disk lead to the disk of another name; to nothing if that is `None`.
    async fn lead(&self, link: &str, to: Option<&str>);
    /// Gives the disk another size.
    async fn resize(&self, name: &str, size: u64);
    /// A folder for mount points.
    fn folder(&self) -> PathBuf;
    fn write_file(&self, path: &Path);
    fn exists(&self, path: &Path) -> bool;
    /// Keeps the mount busy until the answer is dropped.
    fn hold(&self, mounted: &Path) -> Box<dyn Send>;
    /// Makes the xfs of this disk, mounted there, shut down as after an error of its disk.
    fn shut_down(&self, name: &str, mounted: &Path);
    /// Whether a mounted ext4 can be grown here.
    fn may_grow_ext4(&self) -> bool;
}

struct OnLinux {
    lab: Lab,
    host: Linux,
}

#[async_trait]
impl Machine for OnLinux {
    type Host = Linux;
    fn host(&self) -> &Linux {
        &self.host
    }
    async fn plug(&self, name: &str, size: u64) -> DiskAddress {
        self.lab.disk(name, size).await
    }
    async fn lead(&self, link: &str, to: Option<&str>) {
        let target = match to {
            Some(name) => {
                loop_device::find(&self.lab.image(name)).await.unwrap().unwrap().path().to_owned()
            }
            None => PathBuf::from("../../no-such-node"),
        };
        // udev replaces links in the same way, by a rename.
        let fresh = self.lab.root().join("fresh-link");
        std::os::unix::fs::symlink(target, &fresh).unwrap();
        fs::rename(fresh, self.lab.link(link)).unwrap();
    }
    async fn resize(&self, name: &str, size: u64) {
        let image = self.lab.image(name);
        File::options().write(true).open(&image).unwrap().set_len(size).unwrap();
        loop_device::refresh(&loop_device::find(&image).await.unwrap().unwrap()).await.unwrap();
    }
    fn folder(&self) -> PathBuf {
        self.lab.root().join("targets")
    }
    fn write_file(&self, path: &Path) {
        fs::write(path, "of a stranger").unwrap();
    }
    fn exists(&self, path: &Path) -> bool {
        fs::symlink_metadata(path).is_ok()
    }
    fn hold(&self, mounted: &Path) -> Box<dyn Send> {
        Box::new(File::create(mounted.join("held")).unwrap())
    }
    fn shut_down(&self, _name: &str, mounted: &Path) {
        run("xfs_io", &["-x", "-c", "shutdown", mounted.to_str().expect("a plain name")]);
    }
    fn may_grow_ext4(&self) -> bool {
        has_sys_resource()
    }
}

struct InMemory {
    host: FakeHost,
    may_grow_ext4: bool,
}

struct Held(FakeHost, PathBuf);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.release(&self.1);
    }
}

impl InMemory {
    fn number(&self, name: &str) -> DeviceNumber {
        self.host.disk_named(name).expect("the disk is plugged in")
    }
}

#[async_trait]
impl Machine for InMemory {
    type Host = FakeHost;
    fn host(&self) -> &FakeHost {
        &self.host
    }
    async fn plug(&self, name: &str, size: u64) -> DiskAddress {
        let disk = FakeDisk::blank(name, size);
        let address = disk.address(name);
        self.host.plug(disk);
        address
    }
    async fn lead(&self, link: &str, to: Option<&str>) {
        let to = to.map(|name| self.number(name));
        self.host.set_link(Path::new("disk/by-id").join(link), to);
    }
    async fn resize(&self, name: &str, size: u64) {
        self.host.resize(self.number(name), size);
    }
    fn folder(&self) -> PathBuf {
        let folder = PathBuf::from("/var/lib/kubelet");
        self.host.make_folder(&folder);
        folder
    }
    fn write_file(&self, path: &Path) {
        self.host.write_file(path);
    }
    fn exists(&self, path: &Path) -> bool {
        self.host.target(path).is_some()
    }
    fn hold(&self, mounted: &Path) -> Box<dyn Send> {
        self.host.hold(mounted);
        Box::new(Held(self.host.clone(), mounted.to_owned()))
    }
    fn shut_down(&self, name: &str, _mounted: &Path) {
        self.host.shut_down(self.number(name));
    }
    fn may_grow_ext4(&self) -> bool {
        self.may_grow_ext4
    }
}

/// Makes two tests of each function: one on the kernel, one in memory.
macro_rules! contract {
    ($($name:ident)*) => {
        mod on_linux {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                if is_root() {
                    let lab = Lab::new();
                    let host = lab.host();
                    super::$name(&OnLinux { lab, host }).await;
                }
            })*
        }
        mod in_memory {
            use super::*;
            $(#[tokio::test]
            async fn $name() {
                super::$name(&InMemory { host: FakeHost::new(), may_grow_ext4: true }).await;
            })*
        }
    };
}

contract! {
    every_kind_is_made_recognised_checked_mounted_and_taken_down_twice
    a_disk_that_appears_while_it_is_waited_for_is_found
    a_disk_that_never_comes_is_reported_with_its_link
    a_link_to_another_disk_is_refused_until_it_leads_to_the_right_one
    a_disk_that_is_too_small_is_refused_until_it_has_grown
    a_device_is_opened_by_its_number_and_an_unknown_number_is_none
    nothing_but_a_blank_disk_is_formatted
    an_erased_disk_is_blank_and_a_mounted_one_is_not_erased
    a_disk_that_was_cut_off_is_an_error_and_never_blank
    mounts_stack_and_each_unmount_takes_off_one
    a_refused_mount_leaves_nothing_behind
    a_read_only_mount_is_read_only
    a_read_only_bind_leaves_its_source_writable
    a_bind_needs_a_source_and_a_target_that_fit
    a_device_node_is_bound_onto_a_file
    a_busy_mount_stays_and_says_so
    targets_are_made_and_removed_one_at_a_time
    what_is_not_empty_or_mounted_is_not_removed
    a_mounted_filesystem_grows_with_its_disk_and_then_rests
    a_filesystem_that_shut_down_says_so_wherever_it_is_mounted_until_it_is_mounted_anew
    paths_are_resolved_without_looking_at_their_end
}

async fn every_kind_is_made_recognised_checked_mounted_and_taken_down_twice<M: Machine>(m: &M) {
    let host = m.host();
    for kind in FilesystemKind::ALL {
        let address = m.plug(&format!("pvc-{kind}"), SIZE).await;
        let device = host.find_disk(&address, PATIENCE).await.unwrap();
        assert_eq!((device.size(), device.users()), (SIZE, [].as_slice()));
        assert_eq!(host.probe(&device).await.unwrap(), Content::Blank);
        let health = async || host.device_health(device.number(), Some(kind)).await.unwrap();
        assert_eq!(health().await, DeviceHealth::Replaced);
        host.format(&device, &Format::of(kind)).await.unwrap();
        assert_eq!(health().await, DeviceHealth::Live { recorded_errors: 0 });
        assert_eq!(host.probe(&device).await.unwrap(), Content::Filesystem(kind));
        host.check(&device, kind).await.unwrap();

        let target = mounted(m, &address, kind).await;
        let table = host.mounts().await.unwrap();
        let entry = table.at(&target).next_back().unwrap();
        assert_eq!(entry.device, Some(device.number()));
        assert_eq!(entry.root, Path::new("/"));
        assert_eq!(entry.filesystem, kind.name());
        assert_eq!(entry.access, Access::ReadWrite);
        assert_eq!(table.of_device(device.number()).count(), 1);
        let usage = host.usage(&target).await.unwrap();
        assert!(usage.total_bytes > SIZE * 8 / 10 && usage.total_bytes <= SIZE, "{usage:?}");
        assert!(usage.available_bytes <= usage.total_bytes - usage.used_bytes, "{usage:?}");

        for _ in 0..2 {
            host.unmount(&target).await.unwrap();
            host.remove_target(&target).await.unwrap();
            assert!(!m.exists(&target));
        }
        assert_eq!(host.mounts().await.unwrap().of_device(device.number()).count(), 0);
        assert_eq!(host.probe(&device).await.unwrap(), Content::Filesystem(kind));
    }
}

async fn a_disk_that_appears_while_it_is_waited_for_is_found<M: Machine>(m: &M) {
    let address = DiskAddress {
        link: PathBuf::from("disk/by-id/pvc-late"),
        names: vec!["pvc-other-name".to_owned(), "pvc-late".to_owned()],
        minimum_size: MIB,
    };
    let (found, ()) = tokio::join!(m.host().find_disk(&address, PATIENCE), async {
        tokio::task::yield_now().await;
        m.lead("pvc-late", None).await;
        tokio::task::yield_now().await;
        m.plug("pvc-late", MIB).await;
    });
    assert_eq!(found.unwrap().size(), MIB);
}

async fn a_disk_that_never_comes_is_reported_with_its_link<M: Machine>(m: &M) {
    let address = m.plug("pvc-lost", MIB).await;
    m.lead("pvc-lost", None).await;
    let short = Duration::from_millis(50);
    let error = m.host().find_disk(&address, short).await.unwrap_err();
    assert!(
        matches!(&error, Error::DiskAbsent { link, waited, seen }
            if link.ends_with("disk/by-id/pvc-lost") && *waited >= short && seen.contains("link")),
        "{error:?}"
    );
}

async fn a_link_to_another_disk_is_refused_until_it_leads_to_the_right_one<M: Machine>(m: &M) {
    let host = m.host();
    let address = m.plug("pvc-1", MIB).await;
    m.plug("pvc-2", MIB).await;
    m.lead("pvc-1", Some("pvc-2")).await;
    let error = host.find_disk(&address, Duration::from_millis(50)).await.unwrap_err();
    assert!(
        matches!(&error, Error::WrongDisk { wanted, .. } if wanted == "pvc-1")
            && error.to_string().contains("pvc-2"),
        "{error}"
    );
    let (found, ()) = tokio::join!(host.find_disk(&address, PATIENCE), async {
        tokio::task::yield_now().await;
        m.lead("pvc-1", Some("pvc-1")).await;
    });
    found.unwrap();
}

async fn a_disk_that_is_too_small_is_refused_until_it_has_grown<M: Machine>(m: &M) {
    let mut address = m.plug("pvc-small", MIB).await;
    address.minimum_size = 2 * MIB;
    let error = m.host().find_disk(&address, Duration::ZERO).await.unwrap_err();
    assert!(
        matches!(error, Error::TooSmall { size: MIB, minimum, .. } if minimum == 2 * MIB),
        "{error:?}"
    );
    let (found, ()) = tokio::join!(m.host().find_disk(&address, PATIENCE), async {
        m.resize("pvc-small", 3 * MIB).await;
    });
    assert_eq!(found.unwrap().size(), 3 * MIB);
}

async fn a_device_is_opened_by_its_number_and_an_unknown_number_is_none<M: Machine>(m: &M) {
    let host = m.host();
    let address = m.plug("pvc-1", MIB).await;
    let device = host.find_disk(&address, PATIENCE).await.unwrap();
    let same = host.open_device(device.number()).await.unwrap().unwrap();
    assert_eq!((same.path(), same.number()), (device.path(), device.number()));
    assert_eq!(same.identity(), device.identity());
    assert_eq!(host.device_at(device.path()).await.unwrap(), Some(device.number()));
    m.resize("pvc-1", 2 * MIB).await;
    assert_eq!(host.device_size(&device).await.unwrap(), 2 * MIB);
    let unknown = DeviceNumber { major: 4000, minor: 77 };
    assert!(host.open_device(unknown).await.unwrap().is_none());
}

async fn nothing_but_a_blank_disk_is_formatted<M: Machine>(m: &M) {
    let host = m.host();
    let address = formatted(m, "pvc-1", FilesystemKind::Ext4).await;
    let device = host.find_disk(&address, PATIENCE).await.unwrap();
    for kind in FilesystemKind::ALL {
        let error = host.format(&device, &Format::of(kind)).await.unwrap_err();
        assert!(
            matches!(&error, Error::NotBlank { found, .. }
                if *found == Content::Filesystem(FilesystemKind::Ext4)),
            "{error:?}"
        );
    }
    assert_eq!(host.probe(&device).await.unwrap(), Content::Filesystem(FilesystemKind::Ext4));
}

async fn an_erased_disk_is_blank_and_a_mounted_one_is_not_erased<M: Machine>(m: &M) {
    let host = m.host();
    for kind in FilesystemKind::ALL {
        let address = formatted(m, &format!("pvc-{kind}"), kind).await;
        let device = host.find_disk(&address, PATIENCE).await.unwrap();
        let target = mounted(m, &address, kind).await;
        host.erase(&device).await.unwrap_err();
        assert_eq!(host.probe(&device).await.unwrap(), Content::Filesystem(kind));
        host.unmount(&target).await.unwrap();
        host.erase(&device).await.unwrap();
        assert_eq!(host.probe(&device).await.unwrap(), Content::Blank);
        host.format(&device, &Format::of(kind)).await.unwrap();
    }
}

async fn a_disk_that_was_cut_off_is_an_error_and_never_blank<M: Machine>(m: &M) {
    let address = m.plug("pvc-1", SIZE).await;
    let device = m.host().find_disk(&address, PATIENCE).await.unwrap();
    m.resize("pvc-1", 4 * MIB).await;
    let error = m.host().probe(&device).await.unwrap_err();
    assert!(matches!(error, Error::Io { action: "read", .. }), "{error:?}");
    m.host().format(&device, &Format::of(FilesystemKind::Ext4)).await.unwrap_err();
}

async fn mounts_stack_and_each_unmount_takes_off_one<M: Machine>(m: &M) {
    let host = m.host();
    let address = formatted(m, "pvc-1", FilesystemKind::Ext4).await;
    let target = mounted(m, &address, FilesystemKind::Ext4).await;
    mounted(m, &address, FilesystemKind::Ext4).await;
    for left in [1, 0, 0] {
        host.unmount(&target).await.unwrap();
        assert_eq!(host.mounts().await.unwrap().at(&target).count(), left);
    }
    host.unmount(&target.join("not").join("there")).await.unwrap();
}

async fn a_refused_mount_leaves_nothing_behind<M: Machine>(m: &M) {
    let host = m.host();
    let address = formatted(m, "pvc-1", FilesystemKind::Ext4).await;
    let device = host.find_disk(&address, PATIENCE).await.unwrap();
    let target = m.folder().join("target");
    host.create_target(&target, TargetKind::Directory).await.unwrap();
    let absent = m.folder().join("absent");
    for (target, kind) in [(&target, FilesystemKind::Xfs), (&absent, FilesystemKind::Ext4)] {
        let mount = plain(target, kind);
        let error = host.mount(&device, &mount).await.unwrap_err();
        assert!(matches!(&error, Error::Mount { target: place, .. } if place == target), "{error}");
    }
    assert_eq!(mounts_beneath_folder(m).await, 0);
    assert!(!m.exists(&absent));
}

async fn a_read_only_mount_is_read_only<M: Machine>(m: &M) {
    let host = m.host();
    for (index, kind) in FilesystemKind::ALL.into_iter().enumerate() {
        let address = formatted(m, &format!("pvc-{kind}"), kind).await;
        let device = host.find_disk(&address, PATIENCE).await.unwrap();
        let target = m.folder().join("target");
        host.create_target(&target, TargetKind::Directory).await.unwrap();
        // It may be asked for in either way, and "rw" takes neither back.
        let mut mount = plain(&target, kind);
        if index % 2 == 0 {
            mount.access = Access::ReadOnly;
            mount.options = vec!["rw".to_owned()];
        } else {
            mount.options = vec!["ro".to_owned(), "rw".to_owned()];
        }
        host.mount(&device, &mount).await.unwrap();
        let table = host.mounts().await.unwrap();
        let entry = table.at(&target).next_back().unwrap();
        assert_eq!(entry.access, Access::ReadOnly);
        assert_eq!(entry.super_options[0], "ro");
        host.unmount(&target).await.unwrap();
    }
}

async fn a_read_only_bind_leaves_its_source_writable<M: Machine>(m: &M) {
    let host = m.host();
    for kind in FilesystemKind::ALL {
        let address = formatted(m, &format!("pvc-{kind}"), kind).await;
        let device = host.find_disk(&address, PATIENCE).await.unwrap();
        let stage = mounted(m, &address, kind).await;
        for (name, access) in [("pod-1", Access::ReadOnly), ("pod-2", Access::ReadWrite)] {
            let pod = m.folder().join(name);
            host.create_target(&pod, TargetKind::Directory).await.unwrap();
            host.bind(&stage, &pod, access).await.unwrap();
            let table = host.mounts().await.unwrap();
            let entry = table.at(&pod).next_back().unwrap();
            assert_eq!((entry.access, entry.device), (access, Some(device.number())));
            assert_eq!(table.at(&pod).count(), 1);
        }
        let table = host.mounts().await.unwrap();
        let entry = table.at(&stage).next_back().unwrap();
        assert_eq!(entry.access, Access::ReadWrite);
        assert_eq!(entry.super_options[0], "rw");
        assert_eq!(table.of_device(device.number()).count(), 3);
        // One pod goes, the other and the stage stay.
        host.unmount(&m.folder().join("pod-1")).await.unwrap();
        assert_eq!(host.mounts().await.unwrap().of_device(device.number()).count(), 2);
        host.unmount(&stage).await.unwrap();
        host.usage(&m.folder().join("pod-2")).await.unwrap();
        host.unmount(&m.folder().join("pod-2")).await.unwrap();
    }
}

async fn a_bind_needs_a_source_and_a_target_that_fit<M: Machine>(m: &M) {
    let host = m.host();
    let (folder, file) = (m.folder().join("folder"), m.folder().join("file"));
    let (other, absent) = (m.folder().join("other-file"), m.folder().join("absent"));
    host.create_target(&folder, TargetKind::Directory).await.unwrap();
    host.create_target(&file, TargetKind::File).await.unwrap();
    host.create_target(&other, TargetKind::File).await.unwrap();
    for (source, target) in [
        (&folder, &file),
        (&file, &folder),
        (&file, &other),
        (&absent, &file),
        (&absent, &folder),
        (&folder, &absent),
    ] {
        for access in [Access::ReadOnly, Access::ReadWrite] {
            let error = host.bind(source, target, access).await.unwrap_err();
            assert!(matches!(error, Error::Mount { .. }), "{error:?}");
        }
    }
    assert_eq!(mounts_beneath_folder(m).await, 0);
    assert!(!m.exists(&absent));
}

async fn a_device_node_is_bound_onto_a_file<M: Machine>(m: &M) {
    let host = m.host();
    let address = m.plug("pvc-raw", MIB).await;
    let device = host.find_disk(&address, PATIENCE).await.unwrap();
    let target = m.folder().join("volume-device");
    host.create_target(&target, TargetKind::File).await.unwrap();
    host.bind(device.path(), &target, Access::ReadOnly).await.unwrap_err();
    assert_eq!(host.device_at(&target).await.unwrap(), None);
    host.bind(device.path(), &target, Access::ReadWrite).await.unwrap();
    assert_eq!(host.device_at(&target).await.unwrap(), Some(device.number()));
    assert_eq!(host.mounts().await.unwrap().at(&target).count(), 1);
    // It is a mount of the device folder, not of the disk.
    assert_eq!(host.mounts().await.unwrap().of_device(device.number()).count(), 0);
    host.create_target(&target, TargetKind::File).await.unwrap_err();
    host.unmount(&target).await.unwrap();
    assert_eq!(host.device_at(&target).await.unwrap(), None);
    host.remove_target(&target).await.unwrap();
    assert_eq!(host.device_at(&target).await.unwrap(), None);
    assert!(!m.exists(&target));
}

async fn a_busy_mount_stays_and_says_so<M: Machine>(m: &M) {
    let host = m.host();
    let address = formatted(m, "pvc-1", FilesystemKind::Ext4).await;
    let target = mounted(m, &address, FilesystemKind::Ext4).await;
    let held = m.hold(&target);
    let error = host.unmount(&target).await.unwrap_err();
    assert!(matches!(&error, Error::Busy { path } if *path == target), "{error:?}");
    assert_eq!(host.mounts().await.unwrap().at(&target).count(), 1);
    host.remove_target(&target).await.unwrap_err();
    drop(held);
    host.unmount(&target).await.unwrap();
}

async fn targets_are_made_and_removed_one_at_a_time<M: Machine>(m: &M) {
    let host = m.host();
    for (kind, other) in
        [(TargetKind::Directory, TargetKind::File), (TargetKind::File, TargetKind::Directory)]
    {
        let target = m.folder().join("target");
        host.create_target(&target, kind).await.unwrap();
        host.create_target(&target, kind).await.unwrap();
        let error = host.create_target(&target, other).await.unwrap_err();
        assert!(matches!(&error, Error::NotEmpty { path, .. } if *path == target), "{error:?}");
        host.remove_target(&target).await.unwrap();
        assert!(!m.exists(&target));
        host.remove_target(&target).await.unwrap();
    }
    let orphan = m.folder().join("absent").join("target");
    let error = host.create_target(&orphan, TargetKind::Directory).await.unwrap_err();
    assert!(error.to_string().contains("absent/target"), "{error}");
    host.remove_target(&orphan).await.unwrap();
    assert!(!m.exists(&m.folder().join("absent")));
}

async fn what_is_not_empty_or_mounted_is_not_removed<M: Machine>(m: &M) {
    let host = m.host();
    let target = m.folder().join("target");
    host.create_target(&target, TargetKind::Directory).await.unwrap();
    let stray = target.join("stray");
    m.write_file(&stray);
    for path in [&target, &stray] {
        let error = host.remove_target(path).await.unwrap_err();
        assert!(matches!(&error, Error::NotEmpty { path: left, .. } if left == path), "{error:?}");
        assert!(m.exists(path));
    }
    let address = formatted(m, "pvc-1", FilesystemKind::Ext4).await;
    let stage = mounted(m, &address, FilesystemKind::Ext4).await;
    let error = host.remove_target(&stage).await.unwrap_err();
    assert!(matches!(&error, Error::NotEmpty { path, .. } if *path == stage), "{error:?}");
    assert_eq!(host.mounts().await.unwrap().at(&stage).count(), 1);
}

async fn a_mounted_filesystem_grows_with_its_disk_and_then_rests<M: Machine>(m: &M) {
    let host = m.host();
    for kind in FilesystemKind::ALL {
        let name = format!("pvc-{kind}");
        let address = formatted(m, &name, kind).await;
        let device = host.find_disk(&address, PATIENCE).await.unwrap();
        let target = mounted(m, &address, kind).await;
        let before = host.usage(&target).await.unwrap();
        host.grow(&device, &target, kind).await.unwrap();
        assert_eq!(host.usage(&target).await.unwrap().total_bytes, before.total_bytes);
        m.resize(&name, GIB).await;
        let grown = host.grow(&device, &target, kind).await;
        if matches!(kind, FilesystemKind::Ext4 | FilesystemKind::Ext3) && !m.may_grow_ext4() {
            let error = grown.unwrap_err();
            assert!(
                matches!(&error, Error::MissingCapability { capability: "CAP_SYS_RESOURCE", .. }),
                "{error:?}"
            );
            // What cannot be done mounted can be done before.
            host.unmount(&target).await.unwrap();
            host.grow(&device, &target, kind).await.unwrap();
            mounted(m, &address, kind).await;
        } else {
            grown.unwrap();
        }
        let after = host.usage(&target).await.unwrap();
        assert!(after.total_bytes > before.total_bytes * 18 / 10, "{before:?} {after:?}");
        host.grow(&device, &target, kind).await.unwrap();
        assert_eq!(host.usage(&target).await.unwrap().total_bytes, after.total_bytes);
        host.unmount(&target).await.unwrap();
        host.check(&device, kind).await.unwrap();
    }
}

async fn a_filesystem_that_shut_down_says_so_wherever_it_is_mounted_until_it_is_mounted_anew<
    M: Machine,
>(
    m: &M,
) {
    let host = m.host();
    let address = formatted(m, "pvc-1", FilesystemKind::Xfs).await;
    let other = formatted(m, "pvc-2", FilesystemKind::Ext4).await;
    let device = host.find_disk(&address, PATIENCE).await.unwrap();
    let stage = mounted(m, &address, FilesystemKind::Xfs).await;
    let (pod, sound) = (m.folder().join("pod"), m.folder().join("sound"));
    for target in [&pod, &sound] {
        host.create_target(target, TargetKind::Directory).await.unwrap();
    }
    host.bind(&stage, &pod, Access::ReadOnly).await.unwrap();
    let another = host.find_disk(&other, PATIENCE).await.unwrap();
    host.mount(&another, &plain(&sound, FilesystemKind::Ext4)).await.unwrap();
    for target in [&stage, &pod, &sound, &m.folder(), &m.folder().join("absent")] {
        assert!(!host.has_shut_down(target).await.unwrap(), "{}", target.display());
    }

    m.shut_down("pvc-1", &stage);
    for (target, expected) in [(&stage, true), (&pod, true), (&sound, false)] {
        assert_eq!(host.has_shut_down(target).await.unwrap(), expected, "{}", target.display());
    }
    // Nothing else tells.
    host.usage(&stage).await.unwrap();
    let health = host.device_health(device.number(), Some(FilesystemKind::Xfs)).await.unwrap();
    assert_eq!(health, DeviceHealth::Live { recorded_errors: 0 });
    let table = host.mounts().await.unwrap();
    assert_eq!(table.at(&stage).next_back().unwrap().super_options[0], "rw");

    host.unmount(&stage).await.unwrap();
    assert!(host.has_shut_down(&pod).await.unwrap(), "it is still mounted there");
    host.unmount(&pod).await.unwrap();
    mounted(m, &address, FilesystemKind::Xfs).await;
    assert!(!host.has_shut_down(&stage).await.unwrap());
    for target in [&stage, &sound] {
        host.unmount(target).await.unwrap();
    }
}

async fn paths_are_resolved_without_looking_at_their_end<M: Machine>(m: &M) {
    let host = m.host();
    let folder = m.folder();
    assert_eq!(host.resolve(&folder.join("absent")).await.unwrap(), folder.join("absent"));
    assert_eq!(host.resolve(&folder.join(".//x/")).await.unwrap(), folder.join("x"));
    for path in ["relative", "/", "/..", "/no-such-folder/x"] {
        host.resolve(Path::new(path)).await.unwrap_err();
    }
}

/// The machine in memory keeps to the kernel's rule also where this one cannot show it.
#[tokio::test]
async fn without_the_capability_a_mounted_ext_stays_small_in_memory_too() {
    let machine = InMemory { host: FakeHost::new(), may_grow_ext4: false };
    machine.host.set_may_grow_mounted_ext(false);
    a_mounted_filesystem_grows_with_its_disk_and_then_rests(&machine).await;
}

// --- What the assertions need --------------------------------------------------------------------

/// A disk with a filesystem on it.
async fn formatted<M: Machine>(m: &M, name: &str, kind: FilesystemKind) -> DiskAddress {
    let address = m.plug(name, SIZE).await;
    let device = m.host().find_disk(&address, PATIENCE).await.unwrap();
    m.host().format(&device, &Format::of(kind)).await.unwrap();
    address
}

/// Other tests mount at the same time, elsewhere.
async fn mounts_beneath_folder<M: Machine>(m: &M) -> usize {
    let table = m.host().mounts().await.unwrap();
    table.entries().iter().filter(|entry| entry.target.starts_with(m.folder())).count()
}

/// Mounts the disk at the one place for it.
async fn mounted<M: Machine>(m: &M, address: &DiskAddress, kind: FilesystemKind) -> PathBuf {
    let target = m.folder().join("stage");
    let device = m.host().find_disk(address, PATIENCE).await.unwrap();
    m.host().create_target(&target, TargetKind::Directory).await.unwrap();
    m.host().mount(&device, &plain(&target, kind)).await.unwrap();
    target
}

fn plain(target: &Path, kind: FilesystemKind) -> Mount {
    let target = target.to_owned();
    Mount { target, kind, access: Access::ReadWrite, options: Vec::new() }
}
