//! Growth: at least the size asked for, never less than there is.

use super::Controller;
use crate::error::{Error, Result};
use crate::volume::{Bytes, Filesystem, SizeRange, Volume, VolumeId};

/// What is to grow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowRequest {
    /// The volume.
    pub id: VolumeId,
    /// The sizes that will do.
    pub size: SizeRange,
    /// The filesystem that is on it, where that is told.
    pub filesystem: Option<Filesystem>,
}

/// Grows the volume and answers it as it then is. Already done: it has the size, or more.
///
/// # Errors
/// `NotFound`; `OutOfRange` when no possible size fits, when the filesystem can never have it, or when it is larger than the limit
/// already: a volume never shrinks.
pub async fn grow(controller: &Controller, request: &GrowRequest) -> Result<Volume> {
    let backend = &controller.backend;
    let power =
        backend.grow().ok_or_else(|| Error::unsupported("volumes of this storage do not grow"))?;
    // Impossible sizes are refused before the first call.
    let wanted = backend.sizes().choose(Some(request.size), backend.sizes().minimum)?;
    request.filesystem.as_ref().map_or(Ok(()), |filesystem| filesystem.check_size(wanted))?;
    let volume = backend
        .get(&request.id)
        .await?
        .ok_or_else(|| Error::not_found(format!("there is no volume {}", request.id)))?;
    match decide(request.size, wanted, &volume, power.online())? {
        None => Ok(volume),
        Some(size) => power.grow(&request.id, size).await,
    }
}

fn decide(range: SizeRange, wanted: Bytes, volume: &Volume, online: bool) -> Result<Option<Bytes>> {
    if range.limit().is_some_and(|limit| volume.size > limit) {
        return Err(Error::out_of_range(format!(
            "volume {} has {} already, more than the limit of {range}; a volume never shrinks",
            volume.id, volume.size
        )));
    }
    if volume.size >= wanted {
        return Ok(None);
    }
    if let (false, Some(node)) = (online, volume.attached.first()) {
        return Err(Error::precondition(format!(
            "volume {} is attached to node {node}, and this storage grows detached volumes only",
            volume.id
        )));
    }
    Ok(Some(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::volume::{NodeId, Region};

    fn volume(gib: u64, node: Option<&str>) -> Volume {
        Volume {
            id: VolumeId::new("v-1").expect("an id"),
            name: "pvc-1".to_owned(),
            size: Bytes::from_gib(gib),
            region: Region::new("ams1").expect("a slug"),
            attached: node.map(|node| NodeId::new(node).expect("an id")).into_iter().collect(),
            made_blank: true,
            source: None,
            slot: None,
        }
    }

    #[test]
    fn b20_what_is_large_enough_is_left_alone() {
        let range = SizeRange::from_csi(15 << 30, 0).expect("a range");
        let wanted = Bytes::from_gib(15);
        assert_eq!(decide(range, wanted, &volume(20, None), true).expect("larger"), None);
        assert_eq!(decide(range, wanted, &volume(15, None), true).expect("equal"), None);
        assert_eq!(decide(range, wanted, &volume(10, None), true).expect("less"), Some(wanted));
    }

    #[test]
    fn b21_what_cannot_be_is_refused_for_good() {
        let range = SizeRange::from_csi(15 << 30, 16 << 30).expect("a range");
        let wanted = Bytes::from_gib(15);
        let error = decide(range, wanted, &volume(20, None), true).expect_err("no shrinking");
        assert_eq!(error.kind(), ErrorKind::OutOfRange);
        let attached = volume(10, Some("101"));
        let error = decide(range, wanted, &attached, false).expect_err("offline only");
        assert_eq!(error.kind(), ErrorKind::Precondition);
        assert!(decide(range, wanted, &attached, true).is_ok());
    }
}
