//! The running simulator: one cloud under a lock, with the real clock and the real disks.
//!
//! Everything that changes the cloud goes through here, one at a time: the state moves, the disks
//! follow, the state is stored, and only then the answer goes out. If the disks do not follow, the
//! state moves back. The principal type is [`Simulator`].

use std::future::pending;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use hyper::body::Bytes;
use hyper::{Method, Request};
use jiff::Timestamp;
use tokio::sync::{Mutex, Notify};
use tokio_util::sync::CancellationToken;

use crate::api::{Api, Config, Outcome};
use crate::disk::{Devices, Disk};
use crate::fault::Faults;
use crate::state::{Cloud, Effect, Settings};
use crate::store::Store;
use crate::token::TokenFile;

/// How often guests are looked at.
const GUESTS_LOOKED_AT_EVERY: Duration = Duration::from_millis(100);

/// A cloud that runs by itself.
#[derive(Debug)]
pub struct Simulator {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Debug)]
struct Inner {
    api: Api,
    disk: Option<Disk>,
    store: Store,
    token: TokenFile,
}

impl Simulator {
    /// Starts from what is in the state folder, or with nothing if that is new, and makes the
    /// devices and links what they should be.
    pub async fn start(
        root: &Path,
        settings: Settings,
        mut config: Config,
        faults: Faults,
        mut token: TokenFile,
        devices: &Devices,
        seed: u64,
    ) -> Result<Self> {
        config.token = token.changed()?.context("the token file was never read")?;
        let mut store = Store::open(root)?;
        let disk = Disk::open(root, devices)?;
        let cloud = match store.load()? {
            Some(records) => Cloud::from_records(settings, records).map_err(anyhow::Error::msg)?,
            None => {
                let content = disk.as_ref().map_or(Ok(false), Disk::has_content)?;
                ensure!(
                    !content,
                    "{} has volumes or snapshots but no state.json; remove them to start anew",
                    root.display()
                );
                Cloud::new(settings, seed)
            }
        };
        if let Some(disk) = &disk {
            disk.reconcile(&cloud).await.context("cannot restore the disks")?;
        }
        store.save(&cloud)?;
        let api = Api::new(cloud, config, faults, seed);
        let inner = Mutex::new(Inner { api, disk, store, token });
        Ok(Self { inner, changed: Notify::new() })
    }

    /// Acts on one request. What it says of delays and of closed connections is for the caller.
    pub async fn handle(&self, request: &Request<Bytes>) -> Outcome {
        let mut inner = self.inner.lock().await;
        let outcome = inner.handle(request).await;
        drop(inner);
        self.changed.notify_one();
        outcome
    }

    /// Ends actions when they are due, until told to stop. An action that is being ended then is
    /// ended first, so that no disk is left half way.
    pub async fn end_actions(&self, stop: &CancellationToken) {
        loop {
            let next = {
                let mut inner = self.inner.lock().await;
                inner.end_due_actions(Timestamp::now()).await;
                inner.api.cloud().next_due()
            };
            let due = async {
                match next {
                    Some(due) => {
                        let wait = due.duration_since(Timestamp::now());
                        tokio::time::sleep(wait.try_into().unwrap_or_default()).await;
                    }
                    None => pending().await,
                }
            };
            tokio::select! {
                () = due => {}
                () = self.changed.notified() => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Gives guests that come on, or are started anew, the disks that they should have, until told
    /// to stop.
    pub async fn follow_guests(&self, stop: &CancellationToken) {
        let Some(disk) = self.inner.lock().await.disk.clone() else { return };
        loop {
            tokio::select! {
                // Nothing tells of a guest that has come on; it is looked for.
                () = tokio::time::sleep(GUESTS_LOOKED_AT_EVERY) => {}
                () = stop.cancelled() => return,
            }
            if disk.is_disturbed().await {
                let inner = self.inner.lock().await;
                if let Err(error) = disk.reconcile_devices(inner.api.cloud()).await {
                    tracing::warn!("a guest does not have its disks yet: {error:#}");
                }
            }
        }
    }

    /// Takes all devices and links of this machine away. The state stays, and the next start brings
    /// them back.
    pub async fn release(&self) -> Result<()> {
        let inner = self.inner.lock().await;
        match &inner.disk {
            Some(disk) => disk.release().await,
            None => Ok(()),
        }
    }
}

impl Inner {
    async fn handle(&mut self, request: &Request<Bytes>) -> Outcome {
        match self.token.changed() {
            Ok(Some(token)) => self.api.set_token(token),
            Ok(None) => {}
            Err(error) => tracing::warn!("the token stays what it was: {error:#}"),
        }
        let now = Timestamp::now();
        self.end_due_actions(now).await;
        // Reads change nothing, so only other requests need a way back.
        let before = (request.method() != Method::GET).then(|| self.api.cloud().clone());
        let mut outcome = self.api.handle(now, request);
        let effects = std::mem::take(&mut outcome.effects);
        if let Err(error) = self.follow(&effects).await {
            tracing::error!("the disks did not follow: {error:#}");
            let before = before.unwrap_or_else(|| self.api.cloud().clone());
            outcome = self.api.take_back(before, outcome, &format!("{error:#}"));
            self.settle_disks().await;
        }
        outcome
    }

    async fn end_due_actions(&mut self, now: Timestamp) {
        while let Some(action) = self.api.cloud().due_action(now) {
            let before = self.api.cloud().clone();
            let effects = Vec::from_iter(self.api.cloud_mut().end_action(action));
            if let Err(error) = self.follow(&effects).await {
                tracing::error!(action, "the disks did not follow: {error:#}");
                self.api.cloud_mut().restore(before);
                self.api.cloud_mut().fail_action(action);
                self.settle_disks().await;
            }
        }
    }

    /// After a failure: makes the disks what the state says again, as far as they let it, and
    /// stores the state.
    async fn settle_disks(&mut self) {
        let cloud = self.api.cloud();
        let reconciled = match &self.disk {
            Some(disk) => disk.reconcile(cloud).await,
            None => Ok(()),
        };
        if let Err(error) = reconciled.and(self.store.save(cloud)) {
            tracing::error!("the disks are not what the state says: {error:#}");
        }
    }

    /// Carries the effects out and stores the state. Files are removed only when the stored state
    /// does not know them any more, so that a death in between loses nothing that is still known.
    async fn follow(&mut self, effects: &[Effect]) -> Result<()> {
        let removes = |effect: &&Effect| {
            matches!(effect, Effect::RemoveVolume { .. } | Effect::RemoveSnapshot { .. })
        };
        if let Some(disk) = &self.disk {
            for effect in effects.iter().filter(|effect| !removes(effect)) {
                disk.apply(effect).await?;
            }
        }
        self.store.save(self.api.cloud())?;
        if let Some(disk) = &self.disk {
            for effect in effects.iter().filter(removes) {
                if let Err(error) = disk.apply(effect).await {
                    tracing::warn!("a file is left until the next start: {error:#}");
                }
            }
        }
        Ok(())
    }
}
