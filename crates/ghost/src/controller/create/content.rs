//! Volumes with content: of a snapshot, grown to what was asked for.

use super::{CreateRequest, spec};
use crate::controller::Controller;
use crate::controller::snapshot::power;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{
    Bytes, ContentSource, Region, Requirement, SizeRange, SizeRule, Snapshot, SnapshotId, Volume,
    VolumeContent,
};

/// The volume that is restored from the snapshot, with the size that is asked for.
///
/// The storage may ignore the size and give the snapshot's, so that growing is a step of its own; a
/// volume that was found may still lack it.
pub(super) async fn restore(
    controller: &Controller,
    request: &CreateRequest,
    id: &SnapshotId,
    found: Option<Volume>,
) -> Result<Volume> {
    let volume = match found {
        Some(volume) => volume,
        None => {
            let absent = || Error::not_found(format!("there is no snapshot {id}"));
            let snapshot = power(controller)?.get(id).await?.ok_or_else(absent)?;
            let source = format!("snapshot {id}");
            check_region(&request.requirement, &source, &snapshot.region)?;
            check_ready(&snapshot)?;
            check_size(controller, request, &source, snapshot.size)?;
            make_of(controller, request, &snapshot).await?
        }
    };
    grow(controller, request, volume).await
}

/// Makes the volume of this snapshot, not grown yet.
pub(super) async fn make_of(
    controller: &Controller,
    request: &CreateRequest,
    snapshot: &Snapshot,
) -> Result<Volume> {
    let source = request.source.clone();
    let source = source.unwrap_or_else(|| ContentSource::Snapshot(snapshot.id.clone()));
    let mut spec = spec(request, snapshot.size, &snapshot.region);
    spec.content = Some(VolumeContent { snapshot: snapshot.id.clone(), source });
    controller.backend.create(&spec).await
}

/// Refuses what is not ready for now: its size is not known, and no volume can be made of it.
pub(super) fn check_ready(snapshot: &Snapshot) -> Result<()> {
    if snapshot.is_ready() {
        return Ok(());
    }
    Err(Error::unavailable(format!(
        "snapshot {} of volume {} is not ready yet: the storage is still working on it; ask again in \
         a moment",
        snapshot.id, snapshot.source
    )))
}

/// Refuses a size that a volume of this source cannot have, before anything is made.
pub(super) fn check_size(
    controller: &Controller,
    request: &CreateRequest,
    source: &str,
    size: Bytes,
) -> Result<()> {
    let wanted = choose(controller.backend.sizes(), request.size, source, size)?;
    if wanted > size && controller.backend.grow().is_none() {
        return Err(Error::out_of_range(format!(
            "{source} has {size}, and volumes of this storage do not grow"
        )));
    }
    Ok(())
}

/// Refuses a source that is in no region that will do.
pub(super) fn check_region(requirement: &Requirement, source: &str, region: &Region) -> Result<()> {
    if requirement.allows(region) {
        return Ok(());
    }
    Err(Error::exhausted(format!(
        "{source} is in region {region}, and none of its content can be had in a region that the \
         request allows"
    )))
}

/// The size to reach: the source's where that will do, and never less.
fn choose(sizes: SizeRule, range: Option<SizeRange>, source: &str, size: Bytes) -> Result<Bytes> {
    let Some(range) = range else { return Ok(size) };
    let too_small = || {
        Err(Error::out_of_range(format!(
            "{source} has {size}, and a volume made of it cannot be smaller; {range} is asked for"
        )))
    };
    if range.limit().is_some_and(|limit| limit < size) {
        return too_small();
    }
    match range.required() {
        None => Ok(size),
        Some(_) => match sizes.choose(Some(range), size)? {
            wanted if wanted < size => too_small(),
            wanted => Ok(wanted),
        },
    }
}

/// Grows what has been made. From here on no error is final: the volume is there, and whoever gives
/// up the claim must still come to delete it.
pub(super) async fn grow(
    controller: &Controller,
    request: &CreateRequest,
    volume: Volume,
) -> Result<Volume> {
    let later = |error: Error| {
        error.into_kind(ErrorKind::Unavailable).context(format_args!(
            "volume {} was made with {} and waits to grow",
            volume.id, volume.size
        ))
    };
    let sizes = controller.backend.sizes();
    let wanted = match request.size {
        Some(range) if range.required().is_some() => {
            sizes.choose(Some(range), volume.size).map_err(later)?
        }
        _ => volume.size,
    };
    if volume.size >= wanted {
        return Ok(volume);
    }
    let power = controller.backend.grow();
    let power = power.ok_or_else(|| later(Error::unsupported("this storage does not grow")))?;
    power.grow(&volume.id, wanted).await.map_err(later)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: SizeRule = SizeRule {
        granularity: Bytes::from_gib(1),
        minimum: Bytes::from_gib(1),
        maximum: Bytes::from_gib(16384),
    };

    #[test]
    fn b41_a_restored_volume_is_never_smaller_than_its_snapshot() {
        let size = Bytes::from_gib(10);
        let choose = |required: i64, limit: i64| {
            let range = SizeRange::from_csi(required << 30, limit << 30).expect("a range");
            choose(SIZES, Some(range), "snapshot s", size)
        };
        assert_eq!(super::choose(SIZES, None, "snapshot s", size).expect("any size"), size);
        assert_eq!(choose(10, 0).expect("the same"), size);
        assert_eq!(choose(0, 12).expect("a limit above"), size);
        assert_eq!(choose(12, 0).expect("more"), Bytes::from_gib(12));
        for (required, limit) in [(5, 0), (5, 10), (0, 9), (5, 9), (20_000, 0)] {
            let error = choose(required, limit).expect_err("too small");
            assert_eq!(error.kind(), ErrorKind::OutOfRange, "{required} {limit}: {error}");
        }
    }
}
