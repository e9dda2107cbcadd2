//! Deletion. The storage's own answer is the observation: asking first would only be a second call.

use super::Controller;
use crate::error::{ErrorKind, Result};
use crate::volume::VolumeId;

/// Deletes the volume. Already done: there is none.
///
/// # Errors
/// `Precondition` when it is attached; it is left unaltered.
pub async fn delete(controller: &Controller, id: &VolumeId) -> Result<()> {
    match controller.backend.delete(id).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        answer => answer,
    }
}
