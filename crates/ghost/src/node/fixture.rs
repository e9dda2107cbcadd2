//! A node over a machine in memory, and the requests that tests make of it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ghost_host::{
    Access, Content, DeviceNumber, Error as HostError, FakeDisk, FakeHost, FilesystemKind,
    MountEntry, MountTable,
};

use super::{
    DiskLink, FormatNotes, KubeletDir, Node, OwnDisks, PublishRequest, StageRequest,
    UnpublishRequest, UnstageRequest,
};
use crate::volume::{
    AccessMode, AccessType, Bytes, Capability, Disk, Formatting, Locator, Region, VolumeId,
};

pub(super) const SIZE: u64 = 1 << 30;
pub(super) const STAGING: &str = "/kubelet/plugins/v-1";
pub(super) const TARGET: &str = "/kubelet/pods/one/mount";
pub(super) const SECOND: &str = "/kubelet/pods/two/mount";

pub(super) struct Fixture {
    pub(super) host: FakeHost,
    pub(super) node: Node,
    pub(super) request: StageRequest,
    /// Of the disk that was plugged in first.
    pub(super) number: DeviceNumber,
    notes: tempfile::TempDir,
}

impl Fixture {
    /// A node with this on the volume's disk, which is to be mounted as ext4.
    pub(super) fn new(content: Content) -> Self {
        let host = FakeHost::new();
        for folder in ["/kubelet/plugins", "/kubelet/pods/one", "/kubelet/pods/two"] {
            host.make_folder(folder);
        }
        let number = host.plug(FakeDisk::blank("pvc-1", SIZE).with_content(content));
        let notes = tempfile::tempdir().expect("a folder");
        let node = Node {
            host: Arc::new(host.clone()),
            notes: FormatNotes::open(notes.path()).expect("a folder"),
            kubelet_dir: KubeletDir::default(),
            disk_link: DiskLink::parse("disk/by-id/{name}").expect("a sound template"),
            patience: Duration::ZERO,
            own: OwnDisks {
                name_prefix: "pvc-".to_owned(),
                driver_name: "ghost.example".to_owned(),
            },
            allow_unidentified: false,
        };
        let locator = Locator::Disk(Disk {
            id: VolumeId::new("v-1").expect("an id"),
            name: "pvc-1".to_owned(),
            region: Region::new("ams1").expect("a slug"),
            minimum_size: Bytes::new(SIZE),
            made_blank: true,
            slot: None,
        });
        let request = StageRequest {
            locator,
            staging: PathBuf::from(STAGING),
            capability: mount(AccessMode::SingleNodeWriter, &[]),
            formatting: Formatting::default(),
        };
        Self { host, node, request, number, notes }
    }

    /// The same node for a block volume.
    pub(super) fn block(content: Content) -> Self {
        let mut fixture = Self::new(content);
        fixture.request.capability.access = AccessType::Block;
        fixture
    }

    pub(super) fn disk(&mut self) -> &mut Disk {
        let Locator::Disk(disk) = &mut self.request.locator;
        disk
    }

    pub(super) fn publish_at(&self, target: &str) -> PublishRequest {
        PublishRequest {
            locator: self.request.locator.clone(),
            staging: self.request.staging.clone(),
            target: PathBuf::from(target),
            capability: self.request.capability.clone(),
            access: Access::ReadWrite,
        }
    }

    pub(super) async fn stage(&self) -> crate::error::Result<()> {
        super::stage(&self.node, &self.request).await
    }

    pub(super) async fn publish(&self, target: &str) -> crate::error::Result<()> {
        super::publish(&self.node, &self.publish_at(target)).await
    }

    pub(super) async fn unpublish(&self, target: &str) -> crate::error::Result<()> {
        let request = UnpublishRequest { id: id(), target: PathBuf::from(target) };
        super::unpublish(&self.node, &request).await
    }

    pub(super) async fn unstage(&self) -> crate::error::Result<()> {
        let request = UnstageRequest { id: id(), staging: PathBuf::from(STAGING) };
        super::unstage(&self.node, &request).await
    }

    /// What is mounted at the path.
    pub(super) fn mounted(&self, path: &str) -> Vec<MountEntry> {
        self.host.table().at(Path::new(path)).cloned().collect()
    }

    /// The table without the order of its lines, which says nothing of separate places.
    pub(super) fn table(&self) -> MountTable {
        let mut entries = self.host.table().entries().to_vec();
        entries.sort_by(|one, two| one.target.cmp(&two.target));
        MountTable::new(entries)
    }

    /// How many calls of this method there were.
    pub(super) fn calls(&self, method: &str) -> usize {
        let is_it = |call: &&String| call.split(' ').next() == Some(method);
        self.host.calls().iter().filter(is_it).count()
    }

    /// How many notes, or leavings of notes, there are.
    pub(super) fn notes_left(&self) -> usize {
        self.notes.path().read_dir().expect("the folder of the notes").count()
    }

    /// Nothing was written, mounted or made.
    pub(super) fn assert_untouched(&self, before: &MountTable, content: &Content) {
        assert_eq!(self.host.table(), *before);
        assert_eq!(self.host.content(self.number), *content);
        for method in ["format", "erase", "mount", "bind"] {
            assert_eq!(self.calls(method), 0, "{method}");
        }
        assert_eq!(self.notes_left(), 0);
    }
}

pub(super) fn id() -> VolumeId {
    VolumeId::new("v-1").expect("an id")
}

pub(super) fn mount(mode: AccessMode, options: &[&str]) -> Capability {
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    Capability { mode, access: AccessType::Mount { filesystem: FilesystemKind::Ext4, options } }
}

pub(super) fn ext4() -> Content {
    Content::Filesystem(FilesystemKind::Ext4)
}

pub(super) fn io_error() -> HostError {
    HostError::Io {
        action: "do something with",
        path: PathBuf::from("/somewhere"),
        source: io::Error::from_raw_os_error(5),
    }
}
