//! Greenhost's disk API, compatible with version 2 of DigitalOcean's block storage: droplets are
//! machines, volumes are disks, and attach, detach and resize are asynchronous actions.
//!
//! The principal type is [`Cosmos`]. What the API's document does not say is decided here alone:
//! a refusal is never explained by its text, but by the state that is read after it.

use std::time::Duration;

use async_trait::async_trait;

use self::action::{ByKind, Goal};
use self::budget::Urgency;
use self::client::{Call, Client, encoded};
use self::fresh::Fresh;
use self::list::Recent;
use self::look::Looks;
use self::turns::Turns;
use crate::backend::{Attach, Backend, Grow, Snapshots};
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{
    Bytes, ContentSource, NodeId, Region, SizeRule, SnapshotId, Volume, VolumeId, VolumeName,
    VolumeSpec,
};

mod action;
mod budget;
mod client;
mod durations;
mod error;
mod exchange;
#[cfg(test)]
mod fixture;
mod fresh;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod inventory;
mod list;
mod look;
mod name;
mod ownership;
mod pace;
mod refused;
mod snapshot;
mod token;
mod turns;
mod wire;

pub use client::Meter;
pub use exchange::{Exchange, Failure, Http, Request, Response};
pub use inventory::{Item, ItemId};
pub use name::ClusterId;
pub use ownership::Maker;
pub use token::TokenFile;

/// The sizes of the API: whole GiB, 1 to 16384 (its documentation).
const SIZES: SizeRule = SizeRule {
    granularity: Bytes::from_gib(1),
    minimum: Bytes::from_gib(1),
    maximum: Bytes::from_gib(16384),
};

/// The tag of a volume that was made empty, and so may be formatted while it is.
const TAG_BLANK: &str = "ghost:blank";
/// Before the id of the snapshot that a volume was made of.
const TAG_FROM_SNAPSHOT: &str = "ghost:snapshot:";
/// Before the id of the volume that a volume is a clone of.
const TAG_FROM_VOLUME: &str = "ghost:volume:";

/// How long reads and lists lag at most, by our assumption: the API says nothing of it.
const SETTLE: Duration = Duration::from_secs(3);

/// How to use an account.
#[derive(Debug, Clone)]
pub struct Options {
    /// What stands before the names of this cluster's volumes.
    pub cluster_id: Option<ClusterId>,
    /// The most requests in a minute; the API does not tell its limit.
    pub requests_per_minute: usize,
    /// The most volumes on one droplet.
    pub attach_limit: usize,
    /// Where the random part of waits begins.
    pub seed: u64,
}

/// An account at the cloud.
pub struct Cosmos<E> {
    client: Client<E>,
    looks: Looks,
    recent: Recent,
    fresh: Fresh,
    turns: Turns,
    durations: ByKind,
    options: Options,
}

impl<E: Exchange> Cosmos<E> {
    /// An account reached through `exchange` with the token in that file.
    pub fn new(exchange: E, token: TokenFile, options: Options, meter: Box<dyn Meter>) -> Self {
        let random = fastrand::Rng::with_seed(options.seed);
        let client = Client::new(exchange, token, options.requests_per_minute, random, meter);
        Self {
            client,
            looks: Looks::default(),
            recent: Recent::default(),
            fresh: Fresh::new(),
            turns: Turns::default(),
            durations: ByKind::default(),
            options,
        }
    }

    async fn look(&self, id: &VolumeId) -> Result<Option<wire::Volume>> {
        if !is_sendable(id) {
            return Ok(None);
        }
        self.looks.volume(&self.client, &self.recent, id).await
    }

    /// What a refused permission to make or grow a volume means: the same status says that the account is
    /// full, which its own numbers tell.
    async fn explain_forbidden(&self, refusal: error::ApiError) -> Error {
        let call = Call::get("/v2/account", "/v2/account".to_owned());
        let limit = match self.client.json::<wire::AccountBody>(call).await {
            Ok(body) => body.account.volume_limit,
            Err(error) if error.status().is_some_and(|status| status < 500) => None,
            Err(error) => return error.into(),
        };
        let Some(limit) = limit else { return refusal.into() };
        match self.looks.all(&self.client, &self.recent).await.map(|all| all.volumes.len()) {
            Ok(count) if u64::try_from(count).is_ok_and(|count| count >= limit) => refusal.meaning(
                ErrorKind::Exhausted,
                format!("the account has {count} volumes, as many as it may have"),
            ),
            Ok(_) => refusal.into(),
            Err(error) => error,
        }
    }

    /// What a refused creation means. The request was checked, so it is the snapshot, which may be
    /// gone by now, or the region, or news.
    async fn explain_create(&self, spec: &VolumeSpec, refusal: error::ApiError) -> Error {
        if let Some(content) = &spec.content {
            match Snapshots::get(self, &content.snapshot).await {
                Ok(Some(_)) => {}
                Ok(None) => {
                    let words = format!("there is no snapshot {} any more", content.snapshot);
                    return refusal.meaning(ErrorKind::NotFound, words);
                }
                Err(error) => return error,
            }
        }
        let call = Call::get("/v2/regions", "/v2/regions?per_page=200".to_owned());
        match self.client.json::<wire::RegionsBody>(call).await {
            Ok(body) => {
                let known = body.regions.iter().find(|r| r.slug == spec.region.as_str());
                if known.is_some_and(|region| region.available) {
                    refusal.into()
                } else {
                    refusal.meaning(
                        ErrorKind::Exhausted,
                        format!("no volume can be made in region {}", spec.region),
                    )
                }
            }
            Err(error) => error.into(),
        }
    }
}

#[async_trait]
impl<E: Exchange> Backend for Cosmos<E> {
    async fn find(&self, name: &VolumeName) -> Result<Option<Volume>> {
        let cloud_name = name::cloud_name(self.options.cluster_id.as_ref(), name.as_str());
        let path = format!("/v2/volumes?name={}&per_page=200", encoded(&cloud_name));
        // It begins a creation, and waits like one.
        let call = Call::get("/v2/volumes", path).urgent(Urgency::Begin);
        // Whatever the answer is, a look-up that failed says nothing of what there is.
        let body: wire::VolumesBody = self.client.json(call).await.map_err(|error| {
            error.meaning(ErrorKind::Unavailable, format!("cannot look for {cloud_name:?}"))
        })?;
        // A filter that is not understood answers everything, so the names are compared here too.
        let mut found = body.volumes.into_iter().filter(|volume| volume.name == cloud_name);
        match (found.next(), found.next()) {
            (None, _) => Ok(None),
            (Some(volume), None) => domain(volume).map(Some),
            (Some(one), Some(two)) => Err(Error::conflict(format!(
                "there are two volumes named {cloud_name:?}: {} in {} and {} in {}; delete or \
                 rename the one that is not wanted",
                one.id, one.region.slug, two.id, two.region.slug
            ))),
        }
    }

    async fn get(&self, id: &VolumeId) -> Result<Option<Volume>> {
        self.look(id).await?.map(domain).transpose()
    }

    async fn list(&self) -> Result<Vec<Volume>> {
        let all = self.looks.all(&self.client, &self.recent).await?;
        all.volumes.values().cloned().map(domain).collect()
    }

    async fn create(&self, spec: &VolumeSpec) -> Result<Volume> {
        let cluster = self.options.cluster_id.as_ref();
        let name = name::cloud_name(cluster, spec.name.as_str());
        let mut tags: Vec<String> = ownership::tags(cluster).collect();
        tags.push(match spec.content.as_ref().map(|content| &content.source) {
            None => TAG_BLANK.to_owned(),
            Some(ContentSource::Snapshot(id)) => format!("{TAG_FROM_SNAPSHOT}{id}"),
            Some(ContentSource::Volume(id)) => format!("{TAG_FROM_VOLUME}{id}"),
        });
        tags.extend(spec.labels.tags.iter().cloned());
        let description = match spec.labels.description.as_str() {
            "" => "made by ghost, the CSI driver of a Kubernetes cluster",
            given => given,
        };
        let body = wire::CreateVolume {
            name: &name,
            size_gigabytes: spec.size.whole_gib(),
            region: spec.region.as_str(),
            description,
            tags: &tags,
            snapshot_id: spec.content.as_ref().map(|content| content.snapshot.as_str()),
        };
        let call = Call::post("/v2/volumes", "/v2/volumes".to_owned(), &body);
        match self.client.json::<wire::VolumeBody>(call).await {
            Ok(body) => {
                self.recent.made(&body.volume.id);
                domain(body.volume)
            }
            Err(error) => Err(match error.status() {
                Some(403) => self.explain_forbidden(error).await,
                Some(400 | 404 | 422) => self.explain_create(spec, error).await,
                _ => error.into(),
            }),
        }
    }

    async fn delete(&self, id: &VolumeId) -> Result<()> {
        if !is_sendable(id) {
            return Err(no_volume(id));
        }
        let call = Call::delete("/v2/volumes/{id}", look::volume_path(id, ""));
        match self.client.call(call).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_refusal() => {
                // Attached, or something else is going on with it: what it is decides the words.
                let volume = Backend::get(self, id).await?.ok_or_else(|| no_volume(id))?;
                let attached = volume.attached;
                let holder = match attached.first() {
                    Some(node) => format!("it is attached to node {node}"),
                    None => "the cloud does not allow it now".to_owned(),
                };
                let kind = match attached.first() {
                    Some(_) => ErrorKind::Precondition,
                    None => ErrorKind::Unavailable,
                };
                Err(error.meaning(kind, format!("volume {id} cannot be deleted: {holder}")))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn capacity(&self, region: Option<&Region>) -> Result<Option<Bytes>> {
        let call = Call::get("/v2/regions", "/v2/regions?per_page=200".to_owned());
        let body: wire::RegionsBody = self.client.json(call).await?;
        let fits = |found: &&wire::Region| {
            found.available && region.is_none_or(|wanted| found.slug == wanted.as_str())
        };
        if !body.regions.iter().any(|found| fits(&found)) {
            return Ok(Some(Bytes::default()));
        }
        let call = Call::get("/v2/account", "/v2/account".to_owned());
        let body: wire::AccountBody = self.client.json(call).await?;
        let Some(limit) = body.account.volume_limit else { return Ok(None) };
        let there = self.looks.all(&self.client, &self.recent).await?.volumes.len();
        let left = limit.saturating_sub(u64::try_from(there).unwrap_or(u64::MAX));
        Ok(Some(Bytes::new(left.saturating_mul(SIZES.maximum.get()))))
    }

    fn sizes(&self) -> SizeRule {
        SIZES
    }

    fn attach(&self) -> Option<&dyn Attach> {
        Some(self)
    }

    fn snapshots(&self) -> Option<&dyn Snapshots> {
        Some(self)
    }

    fn grow(&self) -> Option<&dyn Grow> {
        Some(self)
    }
}

#[async_trait]
impl<E: Exchange> Attach for Cosmos<E> {
    async fn attach(&self, id: &VolumeId, node: &NodeId) -> Result<Volume> {
        let droplet = droplet(node)
            .ok_or_else(|| Error::not_found(format!("{node:?} is no node of this cloud")))?;
        if !is_sendable(id) {
            return Err(no_volume(id));
        }
        let volume = self.reach(id, Goal::On(droplet)).await?;
        domain(volume.ok_or_else(|| no_volume(id))?)
    }

    async fn detach(&self, id: &VolumeId, node: Option<&NodeId>) -> Result<()> {
        // A node that is none of this cloud's has nothing attached, and neither has no volume.
        let droplets = match node {
            _ if !is_sendable(id) => Vec::new(),
            Some(node) => Vec::from_iter(droplet(node)),
            None => self.holders(id).await?,
        };
        for droplet in droplets {
            self.reach(id, Goal::Off(droplet)).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl<E: Exchange> Grow for Cosmos<E> {
    async fn grow(&self, id: &VolumeId, size: Bytes) -> Result<Volume> {
        let volume = self.reach(id, Goal::Large(size.whole_gib())).await?;
        domain(volume.ok_or_else(|| no_volume(id))?)
    }

    fn online(&self) -> bool {
        true
    }
}

fn no_volume(id: &VolumeId) -> Error {
    Error::not_found(format!("there is no volume {id} at the cloud"))
}

/// The droplet of a node id; a node id that is no positive integer is none of this cloud's.
fn droplet(node: &NodeId) -> Option<u64> {
    let text = node.as_str();
    let droplet = text.parse().ok().filter(|droplet| *droplet > 0)?;
    // "+7" and "007" parse too, but the cloud would answer with another spelling of the node.
    (text == u64::to_string(&droplet)).then_some(droplet)
}

/// Whether this can be the slot of a disk: a few letters, such as `xvdf`.
fn is_slot(text: &str) -> bool {
    (3..=8).contains(&text.len()) && text.chars().all(|c| c.is_ascii_lowercase())
}

/// Whether an id can stand in a path. Dots alone would name another path, and no id is that.
fn is_sendable(id: &VolumeId) -> bool {
    !matches!(id.as_str(), "." | "..")
}

fn domain(volume: wire::Volume) -> Result<Volume> {
    let odd = |what: &str| format!("the cloud's volume {:?} has {what}", volume.id);
    let unexpected = |error: Error| error.into_kind(ErrorKind::Unavailable);
    let attached: Result<Vec<NodeId>> =
        volume.droplet_ids.iter().flatten().map(|id| NodeId::new(id.to_string())).collect();
    let has_tag = |tag: &str| volume.tags.iter().flatten().any(|have| have == tag);
    let tagged = |prefix: &str| {
        volume.tags.iter().flatten().find_map(|tag| tag.strip_prefix(prefix)).map(str::to_owned)
    };
    let of_snapshot = tagged(TAG_FROM_SNAPSHOT).map(SnapshotId::new).transpose();
    let of_volume = tagged(TAG_FROM_VOLUME).map(VolumeId::new).transpose();
    let source = of_snapshot.and_then(|snapshot| {
        let snapshot = snapshot.map(ContentSource::Snapshot);
        Ok(snapshot.or(of_volume?.map(ContentSource::Volume)))
    });
    let source = source.map_err(|error| unexpected(error).context(odd("an odd source")))?;
    let slot = volume.device.clone().filter(|_| !attached.as_ref().is_ok_and(Vec::is_empty));
    if let Some(slot) = slot.as_ref().filter(|slot| !is_slot(slot)) {
        return Err(Error::unavailable(odd(&format!("the device {slot:?}, which is no slot"))));
    }
    Ok(Volume {
        slot,
        // Both cannot be, and a disk with content is never formatted.
        made_blank: has_tag(TAG_BLANK) && source.is_none(),
        source,
        region: Region::new(volume.region.slug.clone())
            .map_err(|error| unexpected(error).context(odd("no usable region")))?,
        attached: attached.map_err(|error| unexpected(error).context(odd("an odd droplet")))?,
        size: wire::size(volume.size_gigabytes).ok_or_else(|| {
            let gib = volume.size_gigabytes;
            Error::unavailable(odd(&format!("a size that none has: {gib} GiB")))
        })?,
        id: VolumeId::new(volume.id.clone())
            .map_err(|error| unexpected(error).context(odd("no usable id")))?,
        name: volume.name,
    })
}
