//! What an account holds, and what of it a cluster made: for finding what was left behind.
//!
//! Nothing here decides what may go. It tells what is there, whole or not at all, and looks at one
//! item again, so that whoever decides can do so on what is true at that moment.

use std::fmt;

use jiff::Timestamp;

use super::exchange::Exchange;
use super::ownership::{self, Maker};
use super::{ClusterId, Cosmos, list, snapshot, wire};
use crate::backend::{Backend, Snapshots};
use crate::error::{Error, Result};
use crate::volume::{Bytes, NodeId, SnapshotId, VolumeId, told_by_kubernetes};

/// Which volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemId {
    /// A volume.
    Volume(VolumeId),
    /// A snapshot.
    Snapshot(SnapshotId),
}

impl ItemId {
    /// What it is: `volume` or `snapshot`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Volume(_) => "volume",
            Self::Snapshot(_) => "snapshot",
        }
    }

    /// The cloud's id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Volume(id) => id.as_str(),
            Self::Snapshot(id) => id.as_str(),
        }
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.kind(), self.as_str())
    }
}

/// A volume or snapshot, as the cloud describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Which one.
    pub id: ItemId,
    /// The cloud's name of it. Those of snapshots are not unique.
    pub name: String,
    /// Who made it.
    pub maker: Maker,
    /// The size of the volume, or of a volume that is made of the snapshot.
    pub size: Bytes,
    /// The region's slug; of a snapshot that is in several, the first; empty if none is told.
    pub region: String,
    /// When it was made, if the cloud tells.
    pub created: Option<Timestamp>,
    /// The nodes that it is attached to; a snapshot never is.
    pub attached: Vec<NodeId>,
    /// Whether it is a snapshot that was made for clones of its volume: those delete it, and no
    /// object of Kubernetes names it.
    pub is_for_clones: bool,
    /// What it was made for, by its tags: the claim or snapshot, as `namespace/name`.
    pub made_for: Option<String>,
}

impl<E: Exchange> Cosmos<E> {
    /// Every volume and every snapshot of the account, whoever made it.
    ///
    /// # Errors
    /// Whenever it is not certain that none is missing: `Unavailable` when a list changed while it
    /// was read, and the error of any page that could not be.
    pub async fn inventory(&self, cluster: &ClusterId) -> Result<Vec<Item>> {
        let volumes = list::volumes(&self.client, &self.recent).await?;
        // What was done a moment ago may not show: whoever deletes looks once more at each.
        let snapshots = self.list_all(None).await?;
        let volumes = volumes.into_iter().map(|volume| of_volume(cluster, volume));
        let snapshots = snapshots.into_iter().map(|snapshot| of_snapshot(cluster, snapshot));
        volumes.chain(snapshots).collect()
    }

    /// The item as it is now; `None` when there is none any more. The snapshot of a machine is none.
    ///
    /// # Errors
    /// When it could not be read.
    pub async fn item(&self, cluster: &ClusterId, id: &ItemId) -> Result<Option<Item>> {
        match id {
            ItemId::Volume(id) => {
                let volume = self.look(id).await?;
                volume.map(|volume| of_volume(cluster, volume)).transpose()
            }
            ItemId::Snapshot(id) => {
                let snapshot = self.read_snapshot(id).await?;
                snapshot.map(|snapshot| of_snapshot(cluster, snapshot)).transpose()
            }
        }
    }

    /// Deletes the item, whatever it is.
    ///
    /// # Errors
    /// `NotFound` when there is none, `Precondition` when it is attached or something depends on it.
    pub async fn delete_item(&self, id: &ItemId) -> Result<()> {
        match id {
            ItemId::Volume(id) => Backend::delete(self, id).await,
            ItemId::Snapshot(id) => Snapshots::delete(self, id).await,
        }
    }

    /// The cloud's own time when it answered last, if it told it.
    #[must_use]
    pub fn time(&self) -> Option<Timestamp> {
        self.client.time()
    }
}

fn of_volume(cluster: &ClusterId, volume: wire::Volume) -> Result<Item> {
    let odd = |error: Error| odd("volume", &volume.id, error);
    let droplets = volume.droplet_ids.iter().flatten();
    let attached = droplets.map(|id| NodeId::new(id.to_string())).collect::<Result<_>>();
    let tags = volume.tags.unwrap_or_default();
    Ok(Item {
        id: ItemId::Volume(VolumeId::new(volume.id.clone()).map_err(odd)?),
        maker: ownership::maker(cluster, &volume.name, &tags),
        size: Bytes::from_gib(volume.size_gigabytes),
        region: volume.region.slug,
        created: time(volume.created_at.as_deref()),
        attached: attached.map_err(odd)?,
        is_for_clones: false,
        made_for: told_by_kubernetes(&tags),
        name: volume.name,
    })
}

fn of_snapshot(cluster: &ClusterId, snapshot: wire::Snapshot) -> Result<Item> {
    let id = SnapshotId::new(snapshot.id.clone());
    let is_for_clones = snapshot::is_for_clones(&snapshot);
    let tags = snapshot.tags.unwrap_or_default();
    Ok(Item {
        id: ItemId::Snapshot(id.map_err(|error| odd("snapshot", &snapshot.id, error))?),
        maker: ownership::maker(cluster, &snapshot.name, &tags),
        size: Bytes::from_gib(snapshot.min_disk_size),
        region: snapshot.regions.into_iter().next().unwrap_or_default(),
        created: time(snapshot.created_at.as_deref()),
        attached: Vec::new(),
        is_for_clones,
        made_for: told_by_kubernetes(&tags),
        name: snapshot.name,
    })
}

fn odd(kind: &str, id: &str, error: Error) -> Error {
    error.context(format_args!("the cloud's {kind} {id:?} is odd"))
}

fn time(text: Option<&str>) -> Option<Timestamp> {
    text.and_then(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::exchange::Response;
    use super::super::fixture::{Played, response, token};
    use super::super::{Options, TokenFile};
    use super::*;
    use crate::error::ErrorKind;

    const NOW: &str = "Thu, 01 Jan 2026 12:00:00 GMT";

    fn cluster() -> ClusterId {
        ClusterId::new("prod").expect("a sound id")
    }

    fn account<F>(played: F) -> Cosmos<Played<F>>
    where
        F: Fn(&str) -> Response + Send + Sync + 'static,
    {
        let options =
            Options { cluster_id: None, requests_per_minute: 1000, attach_limit: 7, seed: 1 };
        let token: TokenFile = token();
        Cosmos::new(Played(played), token, options, Box::new(()))
    }

    /// What the cloud answers for these lists.
    fn lists(path: &str, volumes: &Value, snapshots: &Value) -> Response {
        let (key, list) = match path.starts_with("/v2/volumes") {
            true => ("volumes", volumes),
            false => ("snapshots", snapshots),
        };
        let total = list.as_array().map(Vec::len);
        response(200, Some(NOW), json!({ key: list, "meta": { "total": total } }).to_string())
    }

    #[tokio::test(start_paused = true)]
    async fn everything_is_told_with_what_a_decision_needs() {
        let own = json!(["ghost", "ghost:cluster:prod", "k8s:namespace:shop", "k8s:claim:data"]);
        let volumes = json!([
            { "id": "v-1", "name": "prod-pvc-1", "size_gigabytes": 10, "tags": own,
              "region": { "slug": "ams1" }, "droplet_ids": [101], "created_at": "2026-01-01T00:00:00Z" },
            { "id": "v-2", "name": "mine", "size_gigabytes": 1, "droplet_ids": null, "region": { "slug": "" } },
        ]);
        let clone = json!(["ghost", "ghost:cluster:prod", "ghost:clone:0123456789abcdef0123"]);
        let snapshots = json!([
            { "id": "s-1", "name": "prod-clone-of-v-1", "resource_id": "v-1",
              "resource_type": "volume", "min_disk_size": 10,
              "tags": clone, "created_at": "soon" },
        ]);
        let account = account(move |path: &str| lists(path, &volumes, &snapshots));
        assert_eq!(account.time(), None);
        let items = account.inventory(&cluster()).await.expect("two whole lists");
        let noon = "2026-01-01T12:00:00Z".parse().ok();
        assert_eq!(account.time(), noon, "the cloud's own");
        let [volume, other, snapshot] = &items[..] else { panic!("{items:?}") };
        assert_eq!(
            *volume,
            Item {
                id: ItemId::Volume(VolumeId::new("v-1").expect("an id")),
                name: "prod-pvc-1".to_owned(),
                maker: Maker::Cluster,
                size: Bytes::from_gib(10),
                region: "ams1".to_owned(),
                created: "2026-01-01T00:00:00Z".parse().ok(),
                attached: vec![NodeId::new("101").expect("an id")],
                is_for_clones: false,
                made_for: Some("shop/data".to_owned()),
            }
        );
        assert_eq!((other.maker, other.created), (Maker::Other, None));
        assert_eq!((snapshot.maker, snapshot.created), (Maker::Cluster, None));
        assert!(snapshot.is_for_clones);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_or_odd_makes_the_whole_inventory_fail() {
        let sound = json!({ "id": "v-1", "name": "a", "size_gigabytes": 1, "droplet_ids": [], "region": { "slug": "r" } });
        let mut odd = sound.clone();
        odd["id"] = json!("");
        for (volumes, snapshots) in
            [(json!([sound, odd]), json!([])), (json!([sound]), json!([{ "id": "s-1" }]))]
        {
            let account = account(move |path: &str| lists(path, &volumes, &snapshots));
            assert!(account.inventory(&cluster()).await.is_err());
        }
        let account = account(|path: &str| match path.starts_with("/v2/volumes") {
            true => response(200, None, r#"{"volumes":[],"meta":{"total":0}}"#),
            false => response(403, None, r#"{"id":"forbidden","message":"no"}"#),
        });
        let error = account.inventory(&cluster()).await.expect_err("only half of it");
        assert_eq!(error.kind(), ErrorKind::Refused);
    }

    #[tokio::test(start_paused = true)]
    async fn a_snapshot_of_a_machine_is_never_listed_got_or_deleted_whatever_it_looks_like() {
        let snapshot = |id: &str, of: &str| {
            json!({ "id": id, "name": "prod-snapshot", "resource_type": of, "resource_id": "v-1",
                "min_disk_size": 1, "regions": ["ams1"], "created_at": "2026-01-01T00:00:00Z",
                "tags": ["ghost", "ghost:cluster:prod"] })
        };
        let all =
            json!([snapshot("s-1", "volume"), snapshot("s-2", "droplet"), snapshot("s-3", "?")]);
        let by_id = all.clone();
        let account = account(move |path: &str| match path.strip_prefix("/v2/snapshots/s-") {
            Some(number) => {
                let one = by_id.get(number.parse::<usize>().expect("a number") - 1);
                response(200, Some(NOW), json!({ "snapshot": one }).to_string())
            }
            // As a cloud does that does not know the filter.
            None => lists(path, &json!([]), &all),
        });
        let id = |text: &str| SnapshotId::new(text).expect("an id");
        let items = account.inventory(&cluster()).await.expect("two whole lists");
        let ids: Vec<ItemId> = items.into_iter().map(|item| item.id).collect();
        assert_eq!(ids, [ItemId::Snapshot(id("s-1"))]);
        assert_eq!(account.read_all(None).await.expect("a whole list").len(), 1);
        for of_machine in ["s-2", "s-3"] {
            let item = ItemId::Snapshot(id(of_machine));
            assert_eq!(account.item(&cluster(), &item).await.expect("read"), None);
            assert_eq!(Snapshots::get(&account, &id(of_machine)).await.expect("read"), None);
            let error = account.delete_item(&item).await.expect_err("there is none");
            assert_eq!(error.kind(), ErrorKind::NotFound);
        }
        account.delete_item(&ItemId::Snapshot(id("s-1"))).await.expect("this one is a volume's");
    }
}
