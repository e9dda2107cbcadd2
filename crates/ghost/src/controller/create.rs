//! Creation: the volume of that name, made if it is not there; empty, of a snapshot, or as a clone.

use std::time::Duration;

use super::Controller;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{
    Bytes, ContentSource, Filesystem, Labels, Region, Requirement, SizeRange, Volume, VolumeName,
    VolumeSpec,
};

mod clone;
mod content;

pub use clone::Clones;

/// How long lists lag at most, by our assumption: the API says nothing of it.
const SETTLE: Duration = Duration::from_secs(3);

/// What is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// The orchestrator's name for it, the same on every try.
    pub name: VolumeName,
    /// The sizes that will do.
    pub size: Option<SizeRange>,
    /// Where it has to be reachable.
    pub requirement: Requirement,
    /// What its content comes from; empty without.
    pub source: Option<ContentSource>,
    /// The filesystem that it is to have, unless it is used as a device.
    pub filesystem: Option<Filesystem>,
    /// What people see of it in the storage's own panel.
    pub labels: Labels,
}

/// Answers the volume of the request's name, making it when there is none.
///
/// Already done: a volume of that name whose size, region and source are what is asked for. A crash
/// at any point leaves nothing that the next call does not find: the volume by its name, the
/// snapshot of a clone by its source.
///
/// # Errors
/// `Conflict` when the name is taken by a volume that is not what is asked for, `OutOfRange` for
/// sizes the storage cannot make or the filesystem cannot have, `Invalid` without a region, `NotFound` without the source,
/// `Exhausted` when the source is in no region that will do. As long as it is not known that nothing
/// of that name was made, or once it was, the error is `Unavailable`: a final answer would leave it
/// behind.
pub async fn create(controller: &Controller, request: CreateRequest) -> Result<Volume> {
    let backend = &controller.backend;
    // Asked before anything else, so that a request that cannot be met makes no call at all.
    let size = backend.sizes().choose(request.size, controller.default_size)?;
    request.filesystem.as_ref().map_or(Ok(()), |filesystem| filesystem.check_size(size))?;
    let made = match &request.source {
        None => {
            let region = region(controller, &request.requirement)?;
            match find(controller, &request).await? {
                Some(volume) => return Ok(volume),
                None => backend.create(&spec(&request, size, region)).await,
            }
        }
        Some(ContentSource::Snapshot(id)) => {
            let found = find(controller, &request).await?;
            content::restore(controller, &request, id, found).await
        }
        Some(ContentSource::Volume(id)) => {
            let found = find(controller, &request).await?;
            clone::clone(controller, &request, id, found).await
        }
    };
    match made.map_err(mends) {
        Err(error) if !error.kind().is_open() => settle(controller, &request, error).await,
        made => made,
    }
}

/// A refused token or permission says nothing of what there is, and mends itself or is mended.
pub(super) fn mends(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unauthenticated | ErrorKind::Refused => error.into_kind(ErrorKind::Unavailable),
        _ => error,
    }
}

/// What there is in spite of a refusal, which is final only if there is nothing. Somebody was
/// quicker, or an earlier try of ours was and does not show yet: it is looked for until a list that
/// lags must show it, because nothing else tells. A refusal may come before the name is looked at,
/// and be of something that came to be since, as that the source is gone.
async fn settle(controller: &Controller, request: &CreateRequest, error: Error) -> Result<Volume> {
    for wait in [Duration::ZERO, SETTLE] {
        tokio::time::sleep(wait).await;
        if let Some(volume) = find(controller, request).await? {
            return content::grow(controller, request, volume).await;
        }
    }
    Err(match error.kind() {
        ErrorKind::Conflict => error
            .into_kind(ErrorKind::Unavailable)
            .context("the name is taken, but the volume that has it is not listed yet"),
        _ => error,
    })
}

/// The volume of the request's name, if it is what is asked for.
async fn find(controller: &Controller, request: &CreateRequest) -> Result<Option<Volume>> {
    decide(request, controller.backend.find(&request.name).await?)
}

/// Where a volume without content is made.
fn region<'a>(controller: &'a Controller, requirement: &'a Requirement) -> Result<&'a Region> {
    requirement.choose(controller.default_region.as_ref()).ok_or_else(|| {
        Error::invalid(
            "no region: the request names none and the controller has no default (--region)",
        )
    })
}

/// What would be made, still without content.
fn spec(request: &CreateRequest, size: Bytes, region: &Region) -> VolumeSpec {
    VolumeSpec {
        name: request.name.clone(),
        size,
        region: region.clone(),
        content: None,
        labels: request.labels.clone(),
    }
}

/// Whether what was found is what is asked for; `None` when there is nothing. One that was made of
/// something may still be smaller: it grows after it was made.
fn decide(request: &CreateRequest, found: Option<Volume>) -> Result<Option<Volume>> {
    let Some(volume) = found else { return Ok(None) };
    let conflict = |what: String| {
        let (id, name) = (&volume.id, &request.name);
        Err(Error::conflict(format!("volume {id} was made under the name {name:?} {what}")))
    };
    if volume.source != request.source {
        let named = |source: &Option<ContentSource>| match source {
            None => "empty".to_owned(),
            Some(source) => format!("of {source}"),
        };
        let (there, asked) = (named(&volume.source), named(&request.source));
        return conflict(format!("{there}, but one {asked} is asked for"));
    }
    let fits = |range: &SizeRange| {
        range.contains(volume.size)
            || volume.source.is_some() && range.limit().is_none_or(|limit| volume.size <= limit)
    };
    if let Some(range) = request.size.filter(|range| !fits(range)) {
        return conflict(format!("with {}, but {range} is asked for", volume.size));
    }
    if !request.requirement.allows(&volume.region) {
        return conflict(format!("in region {}, which the request does not allow", volume.region));
    }
    Ok(Some(volume))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{SnapshotId, VolumeId};

    fn volume(gib: u64, region: &str) -> Volume {
        Volume {
            id: VolumeId::new("v-1").expect("an id"),
            name: "pvc-1".to_owned(),
            size: Bytes::from_gib(gib),
            region: Region::new(region).expect("a slug"),
            attached: Vec::new(),
            made_blank: true,
            source: None,
            slot: None,
        }
    }

    fn request(required: i64, limit: i64, regions: &[&str]) -> CreateRequest {
        CreateRequest {
            name: VolumeName::new("pvc-1").expect("a name"),
            size: Some(SizeRange::from_csi(required << 30, limit << 30).expect("a range")),
            requirement: Requirement {
                requisite: regions.iter().map(|r| Region::new(*r).expect("a slug")).collect(),
                preferred: Vec::new(),
            },
            source: None,
            filesystem: None,
            labels: Labels::default(),
        }
    }

    #[test]
    fn b53_a_volume_of_that_name_is_taken_when_it_fits_and_refused_when_it_does_not() {
        assert_eq!(decide(&request(10, 0, &[]), None).expect("nothing there"), None);
        // Grown since: 20 GiB are there and 10 were asked for.
        assert!(decide(&request(10, 0, &["ams1"]), Some(volume(20, "ams1"))).is_ok());
        for (request, volume) in [
            (request(30, 0, &[]), volume(20, "ams1")),
            (request(5, 10, &[]), volume(20, "ams1")),
            (request(10, 0, &["fra1"]), volume(20, "ams1")),
        ] {
            let error = decide(&request, Some(volume)).expect_err("does not fit");
            assert_eq!(error.kind(), ErrorKind::Conflict);
        }
    }

    #[test]
    fn a_volume_made_of_something_else_is_not_what_is_asked_for_and_one_still_small_is() {
        let snapshot = |id: &str| Some(ContentSource::Snapshot(SnapshotId::new(id).expect("id")));
        let of = |source| Volume { source, ..volume(10, "ams1") };
        let asked = |source| CreateRequest { source, ..request(20, 30, &[]) };
        assert!(decide(&asked(snapshot("s")), Some(of(snapshot("s")))).is_ok(), "it has to grow");
        for (request, volume) in [
            (asked(snapshot("s")), of(snapshot("t"))),
            (asked(snapshot("s")), of(None)),
            (asked(None), of(snapshot("s"))),
            (asked(snapshot("s")), Volume { source: snapshot("s"), ..volume(40, "ams1") }),
        ] {
            let error = decide(&request, Some(volume)).expect_err("does not fit");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
        }
    }
}
