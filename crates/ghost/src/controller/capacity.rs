//! How much more can be made.

use super::Controller;
use crate::error::Result;
use crate::volume::{Bytes, Region};

/// How much can be made, and of which sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// All in all. Where the storage tells no limit, the largest number.
    pub available: Bytes,
    /// The largest volume.
    pub largest: Bytes,
    /// The smallest volume.
    pub smallest: Bytes,
}

/// How much more can be made in this region, or in any.
pub async fn capacity(controller: &Controller, region: Option<&Region>) -> Result<Capacity> {
    let sizes = controller.backend.sizes();
    let available = controller.backend.capacity(region).await?;
    let available = available.unwrap_or(Bytes::new(i64::MAX.unsigned_abs()));
    Ok(Capacity { available, largest: sizes.maximum.min(available), smallest: sizes.minimum })
}
