//! What it means that an action was refused, told from the state that was read after it.

use super::Cosmos;
use super::action::Goal;
use super::client::Call;
use super::error::ApiError;
use super::exchange::Exchange;
use super::wire;
use crate::error::{Error, ErrorKind, Result};

/// How long nothing has been under way on a volume whose action was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calm {
    /// Nothing is under way now; something may have been when the action was refused.
    Now,
    /// Nothing was when it was refused.
    Long,
}

impl<E: Exchange> Cosmos<E> {
    /// Fails when the state shows that the goal will not be taken, now or later.
    pub(super) async fn explain(
        &self,
        goal: Goal,
        volume: &wire::Volume,
        refusal: &ApiError,
        calm: Calm,
    ) -> Result<()> {
        let id = &volume.id;
        match goal {
            Goal::On(droplet) => {
                if let Some(holder) = volume.droplet_ids.iter().flatten().next() {
                    return Err(Error::precondition(format!(
                        "volume {id} is attached to node {holder}; it has to be detached there first"
                    )));
                }
                self.explain_attach(volume, droplet, refusal).await
            }
            Goal::Off(_) => Ok(()),
            // No state tells why; it is not what was under way.
            Goal::Large(_) if calm == Calm::Now => Ok(()),
            Goal::Large(gib) => {
                Err(Error::precondition(format!("volume {id} cannot grow to {gib} GiB: {refusal}")))
            }
        }
    }

    /// Why a volume that is attached nowhere cannot be attached to the droplet.
    async fn explain_attach(
        &self,
        volume: &wire::Volume,
        droplet: u64,
        refusal: &ApiError,
    ) -> Result<()> {
        let call = Call::get("/v2/droplets/{id}", format!("/v2/droplets/{droplet}"));
        let now = match self.client.json::<wire::DropletBody>(call).await {
            Ok(body) => body.droplet,
            Err(error) if error.is_not_found() => {
                return Err(error.meaning(
                    ErrorKind::NotFound,
                    format!("there is no node {droplet} at the cloud"),
                ));
            }
            Err(error) => return Err(error.into()),
        };
        // An attachment of this very volume may show here before it shows on the volume.
        let others = now.volume_ids.iter().filter(|id| **id != volume.id).count();
        if others >= self.options.attach_limit {
            return Err(Error::exhausted(format!(
                "node {droplet} has {others} volumes, as many as one node takes ({refusal})"
            )));
        }
        match &now.region {
            Some(region) if region.slug != volume.region.slug => Err(Error::precondition(format!(
                "volume {} is in region {}, node {droplet} in {}",
                volume.id, volume.region.slug, region.slug
            ))),
            _ => Ok(()),
        }
    }
}
