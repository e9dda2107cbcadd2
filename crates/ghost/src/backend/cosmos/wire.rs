//! The JSON of the cloud's API, as far as it is used. Unknown fields are ignored, and a field that
//! may be absent on a compatible cloud is optional here.

use serde::{Deserialize, Serialize};

use crate::volume::Bytes;

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Volume {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) size_gigabytes: u64,
    pub(super) region: Region,
    /// An answer without them is none: nothing else tells where the volume is.
    #[serde(deserialize_with = "Option::deserialize")]
    pub(super) droplet_ids: Option<Vec<u64>>,
    pub(super) tags: Option<Vec<String>>,
    /// The slot on its droplet, where the host is one of Xen; an extension of the API.
    pub(super) device: Option<String>,
    /// When it was made, as text; compared with other such texts only.
    pub(super) created_at: Option<String>,
}

impl Volume {
    pub(super) fn is_on(&self, droplet: u64) -> bool {
        self.droplet_ids.as_ref().is_some_and(|droplets| droplets.contains(&droplet))
    }
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Snapshot {
    pub(super) id: String,
    pub(super) name: String,
    /// What it is of: where snapshots are got, listed and deleted are those of machines too.
    pub(super) resource_type: ResourceType,
    /// The volume's id.
    pub(super) resource_id: String,
    #[serde(default)]
    pub(super) regions: Vec<String>,
    /// The size of a volume that is made of it, zero while none can be made; `size_gigabytes` is what
    /// it takes up.
    pub(super) min_disk_size: u64,
    pub(super) created_at: Option<String>,
    pub(super) tags: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ResourceType {
    Volume,
    /// A droplet, or whatever a later API may add.
    #[serde(other)]
    Other,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Region {
    pub(super) slug: String,
    #[serde(default = "yes")]
    pub(super) available: bool,
}

fn yes() -> bool {
    true
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Action {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) status: ActionStatus,
    #[serde(rename = "type", default)]
    pub(super) kind: String,
    /// The slot on the droplet that the volume is attached in; an extension of the API.
    pub(super) device: Option<String>,
}

impl Action {
    /// Whether it has not ended yet.
    pub(super) fn is_running(&self) -> bool {
        self.status == ActionStatus::InProgress
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ActionStatus {
    Completed,
    Errored,
    /// Also whatever a later API may add: it has not ended as we know it.
    #[default]
    #[serde(other)]
    InProgress,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Droplet {
    #[serde(default)]
    pub(super) volume_ids: Vec<String>,
    pub(super) region: Option<Region>,
}

#[derive(Clone, Debug, Deserialize)]
pub(super) struct Account {
    pub(super) volume_limit: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct VolumeBody {
    pub(super) volume: Volume,
}

#[derive(Debug, Deserialize)]
pub(super) struct ActionBody {
    pub(super) action: Action,
}

#[derive(Debug, Deserialize)]
pub(super) struct DropletBody {
    pub(super) droplet: Droplet,
}

#[derive(Debug, Deserialize)]
pub(super) struct AccountBody {
    pub(super) account: Account,
}

#[derive(Debug, Deserialize)]
pub(super) struct VolumesBody {
    pub(super) volumes: Vec<Volume>,
    pub(super) meta: Meta,
}

#[derive(Debug, Deserialize)]
pub(super) struct SnapshotBody {
    pub(super) snapshot: Snapshot,
}

#[derive(Debug, Deserialize)]
pub(super) struct SnapshotsBody {
    pub(super) snapshots: Vec<Snapshot>,
    pub(super) meta: Meta,
}

#[derive(Debug, Deserialize)]
pub(super) struct ActionsBody {
    #[serde(default)]
    pub(super) actions: Vec<Action>,
}

#[derive(Debug, Deserialize)]
pub(super) struct RegionsBody {
    pub(super) regions: Vec<Region>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct Meta {
    pub(super) total: u64,
}

/// The error envelope. Only an answer in this form is the API's own word.
#[derive(Debug, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) id: String,
    pub(super) message: String,
    pub(super) request_id: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct CreateVolume<'a> {
    pub(super) name: &'a str,
    pub(super) size_gigabytes: u64,
    pub(super) region: &'a str,
    pub(super) description: &'a str,
    pub(super) tags: &'a [String],
    /// The API ignores the size when this is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) snapshot_id: Option<&'a str>,
}

#[derive(Debug, Serialize)]
pub(super) struct CreateSnapshot<'a> {
    pub(super) name: &'a str,
    pub(super) tags: &'a [String],
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub(super) enum PostAction {
    Attach { droplet_id: u64 },
    Detach { droplet_id: u64 },
    Resize { size_gigabytes: u64 },
}

/// A size that can be one: not nothing, and not more bytes than CSI can count (a signed 64-bit
/// number). What is beyond is an answer that was garbled, and must not count as a huge disk.
pub(super) fn size(gib: u64) -> Option<Bytes> {
    let size = Bytes::from_gib(gib);
    (gib > 0 && i64::try_from(size.get()).is_ok()).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b43_a_volume_that_does_not_say_where_it_is_is_no_answer() {
        let told = |droplets: &str| {
            let text = format!(
                r#"{{"id":"v","name":"n","size_gigabytes":1,"region":{{"slug":"r"}}{droplets}}}"#
            );
            serde_json::from_str::<Volume>(&text).map(|volume| volume.droplet_ids)
        };
        assert_eq!(told(r#","droplet_ids":[7]"#).expect("told"), Some(vec![7]));
        // The API's document allows for it.
        assert_eq!(told(r#","droplet_ids":null"#).expect("told"), None);
        let error = told("").expect_err("not told").to_string();
        assert!(error.contains("droplet_ids"), "{error}");
    }
}
