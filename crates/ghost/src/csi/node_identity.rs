//! Who a node is, which the provider's metadata service may take its time to say.

use tokio::sync::watch;

use crate::error::{Error, Result};
use crate::volume::{NodeId, Region};

/// Who this node is: its id and region, from the moment that they are known.
#[derive(Clone, Debug)]
pub struct NodeIdentity(watch::Receiver<Option<(NodeId, Region)>>);

impl NodeIdentity {
    /// An identity that is known from the start.
    #[must_use]
    pub fn known(id: NodeId, region: Region) -> Self {
        Self(watch::channel(Some((id, region))).1)
    }

    /// An identity that somebody will find out.
    #[must_use]
    pub fn pending() -> (watch::Sender<Option<(NodeId, Region)>>, Self) {
        let (sender, receiver) = watch::channel(None);
        (sender, Self(receiver))
    }

    /// Whether it is known.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.0.borrow().is_some()
    }

    /// Waits until it is known.
    pub async fn when_known(mut self) {
        if self.0.wait_for(Option::is_some).await.is_err() {
            // Whoever was to find it out has ended without.
            std::future::pending::<()>().await;
        }
    }

    /// It.
    ///
    /// # Errors
    /// `Unavailable` while it is not known.
    pub(super) fn get(&self) -> Result<(NodeId, Region)> {
        self.0.borrow().clone().ok_or_else(|| {
            Error::unavailable(
                "the provider's metadata service has not yet said which node this is; asking on",
            )
        })
    }
}
