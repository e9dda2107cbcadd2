//! What lies between a controller and the cloud: time, loss, and the controller's death.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ghost::backend::cosmos::{Exchange, Failure, Request, Response};

use super::{Cloud, Fate};
use crate::schedule::Variant;
use crate::wrong::Believed;

/// The way of one controller's life to the cloud. Once it has died, nothing comes back.
pub(crate) struct Wire {
    cloud: Cloud,
    pub(crate) is_dead: Arc<AtomicBool>,
    believed: Believed,
}

impl Wire {
    pub(crate) fn new(cloud: Cloud, variant: Variant) -> Self {
        Self { cloud, is_dead: Arc::default(), believed: Believed::new(variant) }
    }

    async fn stop_if_dead(&self) {
        if self.is_dead.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Exchange for Wire {
    async fn exchange(&self, request: Request) -> Result<Response, Failure> {
        self.stop_if_dead().await;
        let (fate, there, back) = {
            let mut inner = self.cloud.lock();
            let fate = inner.fate(&request);
            let mut way = |most: u64| Duration::from_millis(inner.random.u64(1..most));
            let most =
                if fate == Fate::LostBefore || fate == Fate::LostAfter { 30_000 } else { 60 };
            let (there, back) = (way(60), way(most));
            (fate, there, back)
        };
        tokio::time::sleep(there).await;
        // What had left before a death may arrive, or not.
        if self.is_dead.load(Ordering::Relaxed) && self.cloud.lock().random.bool() {
            std::future::pending::<()>().await;
        }
        let answer = self.cloud.lock().act(&request, fate);
        tokio::time::sleep(back).await;
        self.stop_if_dead().await;
        self.believed.told(&request, answer)
    }
}
