//! An account in which not everything is what it looks like.

use ghost_csi as pb;
use serde_json::json;
use tonic::Code;
use xtask::volume_life::{Controller, Volume, mounted, of_volume};

use crate::api_server::{ApiServer, Cluster, content, content_by_hand, flexvolume, volume};
use crate::world::World;

pub(crate) const DRIVER: &str = "ghost.csi.greenhost.net";

/// What may be deleted, and nothing else.
pub(crate) const ORPHANS: [&str; 4] = [
    "volume prod-pvc-orphan",
    "volume prod-pvc-orphan-x9c89038b84c55af1951d",
    "snapshot prod-clone-of-SOURCE",
    "snapshot prod-snapshot-orphan",
];

/// What must never be deleted, and what is told of it when it is asked for.
pub(crate) const LOOK_ALIKES: [(&str, &str); 16] = [
    ("prod-pvc-used", "a PersistentVolume names it"),
    ("prod-pvc-flexvolume", "a PersistentVolume names it"),
    ("prod-pvc-other-driver", "a PersistentVolume names it"),
    ("prod-pvc-attached", "attached to node 101"),
    ("prod-pvc-young", "younger than 24 hours"),
    ("prod-pvc-untagged", "not made by this cluster: its name fits, its tags do not"),
    ("prod-pvc-no-cluster", "not made by this cluster: its name fits, its tags do not"),
    ("prod-pvc-two-clusters", "not made by this cluster: its name fits, its tags do not"),
    ("manual", "not made by this cluster: its tags fit, its name does not"),
    ("production-pvc-orphan", "not made by this cluster: its tags fit, its name does not"),
    ("prod2-pvc-orphan", "not made by this cluster"),
    ("pvc-orphan", "not made by this cluster"),
    ("prod-snapshot-used", "a VolumeSnapshotContent names it"),
    ("prod-snapshot-brought", "a VolumeSnapshotContent names it"),
    ("prod-snapshot-young", "younger than 24 hours"),
    ("prod2-snapshot-orphan", "not made by this cluster"),
];

/// A machine's snapshot with everything that an orphan has; whatever is asked for, it is not seen.
pub(crate) const MACHINE_SNAPSHOT: &str = "prod-snapshot-of-machine";

/// An account with orphans and look-alikes, and the cluster that uses it.
pub(crate) struct Account {
    pub(crate) world: World,
    pub(crate) cluster: ApiServer,
    pub(crate) kubeconfig: String,
    pub(crate) used: Vec<String>,
}

impl Account {
    pub(crate) async fn prepare() -> Self {
        let mut world = World::start();
        let mut other = world.driver(Some("prod2")).await;
        let there = make(&mut other, "pvc-orphan").await;
        other.snapshot("snapshot-orphan", &there).await.unwrap();
        let mut nameless = world.driver(None).await;
        make(&mut nameless, "pvc-orphan").await;
        make(&mut nameless, "prod-pvc-no-cluster").await;
        let own = ["ghost", "ghost:cluster:prod"];
        world.volume_by_hand("prod-pvc-untagged", &[]).await;
        world.volume_by_hand("manual", &own).await;
        world.volume_by_hand("production-pvc-orphan", &own).await;
        let both = [own[0], own[1], "ghost:cluster:prod2"];
        world.volume_by_hand("prod-pvc-two-clusters", &both).await;

        let mut driver = world.driver(Some("prod")).await;
        let used = make(&mut driver, "pvc-used").await;
        for name in ["pvc-orphan", "pvc-orphan ", "pvc-flexvolume", "pvc-attached"] {
            make(&mut driver, name).await;
        }
        let other_driver = make(&mut driver, "pvc-other-driver").await;
        let mut snapshots = Vec::new();
        for name in ["snapshot-orphan", "snapshot-used", "snapshot-brought"] {
            snapshots.push(driver.snapshot(name, &used).await.unwrap().snapshot_id);
        }
        interrupt_clone(&world, &mut driver, &used).await;
        world.machine_snapshot(MACHINE_SNAPSHOT, &own).await;
        world.attach(&world.id("volume", "prod-pvc-attached").await).await;
        world.age_all().await;
        // After the others have aged.
        make(&mut driver, "pvc-young").await;
        driver.snapshot("snapshot-young", &used).await.unwrap();

        let volumes = vec![
            volume(DRIVER, &used.id),
            flexvolume("prod-pvc-flexvolume"),
            volume("dobs.csi.digitalocean.com", &other_driver.id),
            volume("nfs.csi.k8s.io", "server/share"),
            volume(DRIVER, "long-gone"),
        ];
        let contents = vec![
            content("other.example.org", "elsewhere"),
            content_by_hand(DRIVER, &snapshots[2]),
            content(DRIVER, &snapshots[1]),
        ];
        let cluster = Cluster { volumes, contents, versions: vec!["v1"], trouble: None };
        let cluster = ApiServer::start(cluster);
        let kubeconfig = format!("--kubeconfig={}", cluster.kubeconfig(&world.path("")));
        let used = vec![used.id, other_driver.id, snapshots[1].clone(), snapshots[2].clone()];
        Self { world, cluster, kubeconfig, used }
    }

    /// The options that lead to the cluster.
    pub(crate) fn in_cluster<'a>(&'a self, more: &[&'a str]) -> Vec<&'a str> {
        [&[self.kubeconfig.as_str(), "--context", "here"], more].concat()
    }

    /// The same names in a file.
    pub(crate) fn handles(&self) -> String {
        let [used, other_driver, snapshots @ ..] = &self.used[..] else { unreachable!() };
        let snapshots: Vec<&str> = snapshots.iter().map(String::as_str).collect();
        self.world.handles(&[used, "name: prod-pvc-flexvolume", other_driver], &snapshots)
    }

    /// The names of the orphans, `volume NAME`.
    pub(crate) async fn orphans(&self) -> Vec<String> {
        let source = self.world.id("volume", "prod-pvc-used").await;
        ORPHANS.iter().map(|name| name.replace("SOURCE", &source)).collect()
    }
}

/// Makes a volume as the provisioner does.
async fn make(driver: &mut Controller, name: &str) -> Volume {
    let capability = mounted("ext4");
    let told = [("pvc/name", "data"), ("pvc/namespace", "shop"), ("pv/name", name)];
    let told = told.map(|(key, value)| (format!("csi.storage.k8s.io/{key}"), value.to_owned()));
    let request = pb::CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(pb::CapacityRange { required_bytes: 10 << 30, limit_bytes: 0 }),
        volume_capabilities: vec![capability.clone()],
        parameters: told.into(),
        ..Default::default()
    };
    let made = driver.0.create_volume(request).await.unwrap().into_inner().volume.unwrap();
    let context = made.volume_context;
    Volume { id: made.volume_id, context, attachment: Default::default(), capability }
}

/// Begins a clone that is never tried again: its snapshot is made, and its volume is not.
async fn interrupt_clone(world: &World, driver: &mut Controller, source: &Volume) {
    world.fault("POST", "/v2/volumes", 0, json!({ "status": 503 })).await;
    let clone = driver.create_of("pvc-clone", 10, mounted("ext4"), of_volume(&source.id)).await;
    assert_eq!(clone.unwrap_err().code(), Code::Unavailable);
    world.no_faults().await;
}
