//! The shapes of the API's document, as far as they are the same for everyone.

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use crate::state::{
    self, Action, ActionKind, ActionStatus, DROPLET_GIGABYTES, Droplet, DropletStatus, Snapshot,
    SnapshotSource,
};

/// A time to the second, as the API writes it.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[derive(Debug, Serialize)]
pub(super) struct Region<'a> {
    name: String,
    slug: &'a str,
    features: [&'static str; 2],
    available: bool,
    sizes: [&'static str; 1],
}

#[derive(Debug, Serialize)]
pub(super) struct Volume<'a> {
    id: &'a str,
    region: Region<'a>,
    droplet_ids: Vec<u64>,
    name: &'a str,
    description: &'a str,
    size_gigabytes: u64,
    created_at: String,
    filesystem_type: &'static str,
    filesystem_label: &'static str,
    tags: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) device: Option<&'a str>,
}

pub(super) fn region(slug: &str) -> Region<'_> {
    Region {
        name: slug.to_uppercase(),
        slug,
        features: ["storage", "metadata"],
        available: true,
        sizes: ["s-1vcpu-1gb"],
    }
}

pub(super) fn volume(volume: &state::Volume, droplet: Option<u64>) -> Volume<'_> {
    Volume {
        id: &volume.id,
        region: region(&volume.region),
        droplet_ids: Vec::from_iter(droplet),
        name: &volume.name,
        description: &volume.description,
        size_gigabytes: volume.gigabytes,
        created_at: time(volume.created_at),
        filesystem_type: "",
        filesystem_label: "",
        tags: &volume.tags,
        device: volume.slot.as_deref(),
    }
}

/// A snapshot of which volumes of that size can be made.
pub(super) fn snapshot(snapshot: &Snapshot, gigabytes: u64) -> Value {
    let (resource_type, resource_id) = match &snapshot.of {
        SnapshotSource::Volume(id) => ("volume", id.clone()),
        SnapshotSource::Droplet(number) => ("droplet", number.to_string()),
    };
    json!({
        "id": snapshot.id,
        "name": snapshot.name,
        "created_at": time(snapshot.created_at),
        "regions": [snapshot.region],
        "resource_id": resource_id,
        "resource_type": resource_type,
        "min_disk_size": gigabytes,
        "size_gigabytes": gigabytes,
        "tags": snapshot.tags,
    })
}

pub(super) fn action(action: &Action) -> Value {
    let mut shown = json!({
        "id": action.id,
        "status": match action.status {
            ActionStatus::InProgress => "in-progress",
            ActionStatus::Completed => "completed",
            ActionStatus::Errored => "errored",
        },
        "type": match action.kind {
            ActionKind::Attach => "attach_volume",
            ActionKind::Detach => "detach_volume",
            ActionKind::Resize => "resize_volume",
        },
        "started_at": time(action.started_at),
        "completed_at": action.completed_at.map(time),
        // A volume's id is no number, so the API leaves this empty.
        "resource_id": null,
        "resource_type": "backend",
        "region": region(&action.region),
        "region_slug": action.region,
    });
    if let Some(slot) = &action.slot {
        shown["device"] = json!(slot);
    }
    shown
}

pub(super) fn droplet(droplet: &Droplet, volumes: &[&str]) -> Value {
    let born = "2026-01-01T00:00:00Z";
    json!({
        "id": droplet.id,
        "name": droplet.name,
        "memory": 1024,
        "vcpus": 1,
        "disk": DROPLET_GIGABYTES,
        "locked": droplet.locked,
        "status": match droplet.status {
            DropletStatus::Active => "active",
            DropletStatus::Off => "off",
        },
        "kernel": null,
        "created_at": born,
        "features": ["private_networking"],
        "backup_ids": [],
        "next_backup_window": null,
        "snapshot_ids": [],
        "image": {
            "id": 1,
            "name": "13 x64",
            "type": "base",
            "distribution": "Debian",
            "slug": "debian-13-x64",
            "public": true,
            "regions": [],
            "created_at": born,
            "min_disk_size": 10,
            "size_gigabytes": 1.0,
            "tags": [],
            "status": "available",
        },
        "volume_ids": volumes,
        "size": {
            "slug": "s-1vcpu-1gb",
            "memory": 1024,
            "vcpus": 1,
            "disk": DROPLET_GIGABYTES,
            "transfer": 1.0,
            "price_monthly": 6.0,
            "price_hourly": 0.009,
            "regions": [droplet.region],
            "available": true,
            "description": "Basic",
        },
        "size_slug": "s-1vcpu-1gb",
        "networks": { "v4": [], "v6": [] },
        "region": region(&droplet.region),
        "tags": [],
        "vpc_uuid": "00000000-0000-4000-8000-000000000000",
    })
}
