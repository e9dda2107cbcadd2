//! Creation: the volume of that name, made if it is not there.

use super::Controller;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{
    Bytes, Region, Requirement, SizeRange, SizeRule, Volume, VolumeName, VolumeSpec,
};

/// What is to be created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateRequest {
    /// The orchestrator's name for it, the same on every try.
    pub name: VolumeName,
    /// The sizes that will do.
    pub size: Option<SizeRange>,
    /// Where it has to be reachable.
    pub requirement: Requirement,
}

/// Answers the volume of the request's name, making it when there is none.
///
/// Already done: a volume of that name whose size and region are what is asked for. A crash at any
/// point leaves nothing that the next call does not find by name.
///
/// # Errors
/// `Conflict` when the name is taken by a volume that is not what is asked for, `OutOfRange` for
/// sizes the storage cannot make, `Invalid` without a region. As long as it is not known that
/// nothing of that name was made, the error is `Unavailable`: a final answer would leave it behind.
pub async fn create(controller: &Controller, request: CreateRequest) -> Result<Volume> {
    let backend = &controller.backend;
    // Asked before anything else, so that a request that cannot be met makes no call at all.
    let spec = plan_new(controller, &request, backend.sizes())?;

    if let Some(volume) = decide(&request, backend.find(&request.name).await?)? {
        return Ok(volume);
    }
    let error = match backend.create(&spec).await {
        Ok(volume) => return Ok(volume),
        Err(error) if error.kind() == ErrorKind::Unavailable => return Err(error),
        Err(error) => error,
    };
    // Somebody was quicker, or an earlier try of ours was and did not show yet: before anything
    // final is said, what is there decides.
    match decide(&request, backend.find(&request.name).await?)? {
        Some(volume) => Ok(volume),
        None => Err(match error.kind() {
            ErrorKind::Conflict => error
                .into_kind(ErrorKind::Unavailable)
                .context("the name is taken, but the volume that has it is not listed yet"),
            // Such a refusal may come before the name is looked at, and mends itself or is mended.
            ErrorKind::Unauthenticated | ErrorKind::Refused | ErrorKind::Bug => {
                error.into_kind(ErrorKind::Unavailable)
            }
            _ => error,
        }),
    }
}

/// What would be made.
fn plan_new(
    controller: &Controller,
    request: &CreateRequest,
    sizes: SizeRule,
) -> Result<VolumeSpec> {
    let size: Bytes = sizes.choose(request.size, controller.default_size)?;
    let region: &Region =
        request.requirement.choose(controller.default_region.as_ref()).ok_or_else(|| {
            Error::invalid(
                "no region: the request names none and the controller has no default (--region)",
            )
        })?;
    Ok(VolumeSpec { name: request.name.clone(), size, region: region.clone() })
}

/// Whether what was found is what is asked for; `None` when there is nothing.
fn decide(request: &CreateRequest, found: Option<Volume>) -> Result<Option<Volume>> {
    let Some(volume) = found else { return Ok(None) };
    if let Some(range) = request.size.filter(|range| !range.contains(volume.size)) {
        return Err(Error::conflict(format!(
            "volume {} was made under the name {:?} with {}, but {range} is asked for",
            volume.id, request.name, volume.size
        )));
    }
    if !request.requirement.allows(&volume.region) {
        return Err(Error::conflict(format!(
            "volume {} was made under the name {:?} in region {}, which the request does not allow",
            volume.id, request.name, volume.region
        )));
    }
    Ok(Some(volume))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::VolumeId;

    fn volume(gib: u64, region: &str) -> Volume {
        Volume {
            id: VolumeId::new("v-1").expect("an id"),
            name: "pvc-1".to_owned(),
            size: Bytes::from_gib(gib),
            region: Region::new(region).expect("a slug"),
            attached: Vec::new(),
            made_blank: true,
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
}
