//! What an orchestrator does with one claim: a volume is made, moved about, copied, grown and
//! deleted. After each answer it is looked whether it is true.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fastrand::Rng;
use ghost_csi as pb;
use pb::controller_server::Controller as _;
use pb::volume_content_source::{SnapshotSource, Type, VolumeSource};

use crate::world::{Sidecar, World};

const GIB: u64 = 1 << 30;
const NODES: [u64; 3] = [101, 102, 103];

/// What the orchestrator knows to be there in the end: by id.
#[derive(Default)]
pub(crate) struct Known {
    /// Where each volume is attached.
    volumes: RefCell<BTreeMap<String, Option<u64>>>,
    snapshots: RefCell<BTreeMap<String, String>>,
}

impl Known {
    /// Compares with what is really there.
    pub(crate) fn check(&self, world: &World<'_>) {
        let known = self.volumes.borrow();
        let there: BTreeMap<String, Option<u64>> =
            world.cloud.volumes().into_iter().map(|(id, _, attached)| (id, attached)).collect();
        if *known != there {
            world.cloud.violated(format!("there are the volumes {there:?}, known are {known:?}"));
        }
        let known = self.snapshots.borrow();
        let there: BTreeMap<String, String> = world.cloud.snapshots().into_iter().collect();
        if *known != there {
            world.cloud.violated(format!("there are the snapshots {there:?}, known are {known:?}"));
        }
    }
}

/// The life of one claim and of all that is copied from it.
pub(crate) async fn live(world: &World<'_>, known: &Known, number: usize) {
    let claim = Claim {
        world,
        known,
        name: format!("pvc-{number}"),
        random: RefCell::new(world.random()),
        provisioner: Sidecar::new(world),
        attacher: Sidecar::new(world),
        resizer: Sidecar::new(world),
        snapshotter: Sidecar::new(world),
    };
    let Some(id) = claim.create(&claim.name, 1, None).await else { return };
    let mut copies = Vec::new();
    let mut snapshots = Vec::new();
    let mut size = 1;
    for step in 0..claim.draw(1..6) {
        match claim.draw(0..10) {
            0..=4 => claim.visit(&id).await,
            5 => {
                size += 1;
                claim.grow(&id, size).await;
            }
            6 | 7 => snapshots.extend(claim.snapshot(&id, step).await),
            8 => {
                let source = Type::Volume(VolumeSource { volume_id: id.clone() });
                let name = format!("{}-clone-{step}", claim.name);
                copies.extend(claim.create(&name, size, Some(source)).await);
            }
            _ => {
                if let Some(snapshot) = snapshots.first() {
                    let snapshot_id = String::clone(snapshot);
                    let source = Type::Snapshot(SnapshotSource { snapshot_id });
                    let name = format!("{}-copy-{step}", claim.name);
                    copies.extend(claim.create(&name, size, Some(source)).await);
                }
            }
        }
    }
    for copy in copies {
        claim.visit(&copy).await;
        if claim.draw(0..2) == 0 {
            claim.delete(&copy).await;
        }
    }
    for snapshot in snapshots {
        if claim.draw(0..2) == 0 {
            claim.delete_snapshot(&snapshot).await;
        }
    }
    if claim.draw(0..2) == 0 {
        claim.delete(&id).await;
    }
}

struct Claim<'a> {
    world: &'a World<'a>,
    known: &'a Known,
    name: String,
    random: RefCell<Rng>,
    // Each has its own leader.
    provisioner: Sidecar<'a>,
    attacher: Sidecar<'a>,
    resizer: Sidecar<'a>,
    snapshotter: Sidecar<'a>,
}

impl Claim<'_> {
    fn draw(&self, range: std::ops::Range<usize>) -> usize {
        self.random.borrow_mut().usize(range)
    }

    fn violated(&self, text: String) {
        self.world.cloud.violated(text);
    }

    async fn create(&self, name: &str, gib: u64, source: Option<Type>) -> Option<String> {
        let cloud = &self.world.cloud;
        let required_bytes = bytes(gib);
        let request = pb::CreateVolumeRequest {
            name: name.to_owned(),
            capacity_range: Some(pb::CapacityRange { required_bytes, limit_bytes: 0 }),
            volume_capabilities: vec![capability()],
            volume_content_source: source
                .map(|source| pb::VolumeContentSource { r#type: Some(source) }),
            ..Default::default()
        };
        let is_there = |volume: &pb::Volume| {
            cloud.truth(&volume.volume_id).is_some_and(|truth| truth.gigabytes >= gib)
        };
        let answer = self
            .provisioner
            .call(
                &format!("CreateVolume {name}"),
                &request,
                None,
                async |service, request| {
                    let made = service.create_volume(request).await?.into_inner();
                    Ok(made.volume.expect("an answer has it"))
                },
                |_, volume| {
                    if !is_there(volume) {
                        self.violated(format!("{name} is answered, but not there"));
                    }
                },
            )
            .await?;
        match answer {
            Ok(volume) => {
                self.known.volumes.borrow_mut().insert(volume.volume_id.clone(), None);
                Some(volume.volume_id)
            }
            Err(status) => {
                let made = cloud.volumes().into_iter().any(|(_, other, _)| other == name);
                self.violated(format!("creation of {name} ended (made: {made}): {status}"));
                None
            }
        }
    }

    /// To a node and away again; now and then it is not waited for.
    async fn visit(&self, id: &str) {
        let cloud = &self.world.cloud;
        let node = NODES[self.draw(0..NODES.len())];
        // The pod is often gone before its volume is attached.
        let tries = Some(self.draw(1..4)).filter(|_| self.draw(0..2) == 0);
        let request = pb::ControllerPublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: node.to_string(),
            volume_capability: Some(capability()),
            ..Default::default()
        };
        let answer = self
            .attacher
            .call(
                &format!("ControllerPublishVolume {id} {node}"),
                &request,
                tries,
                async |service, request| {
                    Ok(service.controller_publish_volume(request).await?.into_inner())
                },
                |began, _| {
                    if !cloud.ever(id, began, |truth| truth.attached == Some(node)) {
                        self.violated(format!("{id} is answered as attached, but never was"));
                    }
                },
            )
            .await;
        match answer {
            Some(Ok(_)) => {
                let attached = cloud.truth(id).and_then(|truth| truth.attached);
                if attached != Some(node) {
                    self.violated(format!("{id} was attached to {node}, now to {attached:?}"));
                }
            }
            Some(Err(status)) => {
                let truth = cloud.truth(id).unwrap_or_default();
                if truth.attached == Some(node) || truth.coming == Some(node) {
                    self.violated(format!("final, but {truth:?}: {status}"));
                }
                // The attacher gives up on a node that is not the right one, or tries again.
                if status.code() != tonic::Code::Internal {
                    self.violated(format!("{id} cannot be attached to {node}: {status}"));
                }
            }
            None => {}
        }
        self.leave(id, node).await;
    }

    async fn leave(&self, id: &str, node: u64) {
        let cloud = &self.world.cloud;
        let named = self.draw(0..6) != 0;
        let request = pb::ControllerUnpublishVolumeRequest {
            volume_id: id.to_owned(),
            node_id: if named { node.to_string() } else { String::new() },
            ..Default::default()
        };
        loop {
            let answer = self
                .attacher
                .call(
                    &format!("ControllerUnpublishVolume {id} {node}"),
                    &request,
                    None,
                    async |service, request| {
                        Ok(service.controller_unpublish_volume(request).await?.into_inner())
                    },
                    |_, _| {
                        let truth = cloud.truth(id).unwrap_or_default();
                        if truth.attached == Some(node) || truth.coming == Some(node) {
                            self.violated(format!("{id} is answered as detached, but {truth:?}"));
                        }
                    },
                )
                .await;
            match answer {
                // An action of the cloud failed: the attacher asks again.
                Some(Err(status)) if status.code() == tonic::Code::Internal => {}
                Some(Err(status)) => {
                    self.violated(format!("{id} cannot be detached from {node}: {status}"));
                    return;
                }
                _ => return,
            }
        }
    }

    async fn grow(&self, id: &str, gib: u64) {
        let cloud = &self.world.cloud;
        let request = pb::ControllerExpandVolumeRequest {
            volume_id: id.to_owned(),
            capacity_range: Some(pb::CapacityRange { required_bytes: bytes(gib), limit_bytes: 0 }),
            ..Default::default()
        };
        let answer = self
            .resizer
            .call(
                &format!("ControllerExpandVolume {id} {gib}"),
                &request,
                None,
                async |service, request| {
                    Ok(service.controller_expand_volume(request).await?.into_inner())
                },
                |_, _| {
                    if cloud.truth(id).is_none_or(|truth| truth.gigabytes < gib) {
                        self.violated(format!("{id} is answered as grown to {gib}, but is not"));
                    }
                },
            )
            .await;
        if let Some(Err(status)) = answer
            && status.code() != tonic::Code::Internal
        {
            self.violated(format!("{id} cannot grow: {status}"));
        }
    }

    async fn snapshot(&self, id: &str, step: usize) -> Option<String> {
        let cloud = &self.world.cloud;
        let name = format!("{}-snapshot-{step}", self.name);
        let request = pb::CreateSnapshotRequest {
            source_volume_id: id.to_owned(),
            name: name.clone(),
            ..Default::default()
        };
        let is_there = |id: &str| cloud.snapshots().iter().any(|(other, _)| other == id);
        let answer = self
            .snapshotter
            .call(
                &format!("CreateSnapshot {name}"),
                &request,
                None,
                async |service, request| {
                    let made = service.create_snapshot(request).await?.into_inner();
                    Ok(made.snapshot.expect("an answer has it"))
                },
                |_, snapshot| {
                    if !is_there(&snapshot.snapshot_id) {
                        self.violated(format!("{name} is answered, but not there"));
                    }
                },
            )
            .await?;
        match answer {
            Ok(snapshot) => {
                let id = snapshot.snapshot_id;
                self.known.snapshots.borrow_mut().insert(id.clone(), name);
                Some(id)
            }
            Err(status) => {
                self.violated(format!("the snapshot {name} ended: {status}"));
                None
            }
        }
    }

    async fn delete(&self, id: &str) {
        let cloud = &self.world.cloud;
        let request = pb::DeleteVolumeRequest { volume_id: id.to_owned(), ..Default::default() };
        let answer = self
            .provisioner
            .call(
                &format!("DeleteVolume {id}"),
                &request,
                None,
                async |service, request| Ok(service.delete_volume(request).await?.into_inner()),
                |_, _| {
                    if cloud.truth(id).is_some() {
                        self.violated(format!("{id} is answered as deleted, but is there"));
                    }
                },
            )
            .await;
        if let Some(Err(status)) = answer {
            self.violated(format!("{id} cannot be deleted: {status}"));
        }
        self.known.volumes.borrow_mut().remove(id);
    }

    async fn delete_snapshot(&self, id: &str) {
        let cloud = &self.world.cloud;
        let request =
            pb::DeleteSnapshotRequest { snapshot_id: id.to_owned(), ..Default::default() };
        let is_there = || cloud.snapshots().iter().any(|(other, _)| other == id);
        let answer = self
            .snapshotter
            .call(
                &format!("DeleteSnapshot {id}"),
                &request,
                None,
                async |service, request| Ok(service.delete_snapshot(request).await?.into_inner()),
                |_, _| {
                    if is_there() {
                        self.violated(format!("{id} is answered as deleted, but is there"));
                    }
                },
            )
            .await;
        if let Some(Err(status)) = answer {
            self.violated(format!("{id} cannot be deleted: {status}"));
        }
        self.known.snapshots.borrow_mut().remove(id);
    }
}

fn bytes(gib: u64) -> i64 {
    i64::try_from(gib * GIB).expect("small")
}

pub(crate) fn capability() -> pb::VolumeCapability {
    use pb::volume_capability::access_mode::Mode;
    use pb::volume_capability::{AccessMode, AccessType, MountVolume};

    pb::VolumeCapability {
        access_mode: Some(AccessMode { mode: Mode::SingleNodeWriter.into() }),
        access_type: Some(AccessType::Mount(MountVolume {
            fs_type: "ext4".to_owned(),
            ..Default::default()
        })),
    }
}
