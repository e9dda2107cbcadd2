//! The seam between what the cloud says of attachments and whatever makes devices of them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

use super::Devices;
use super::loop_driver::{LoopDriver, Nodes};
use super::qmp_driver::QmpDriver;
use crate::state::Attachment;

/// Whatever makes devices of attached volumes. Every function may be called again after it failed,
/// and then goes on from what is there.
#[derive(Clone, Debug)]
pub(super) enum Driver {
    Loop(LoopDriver),
    Qmp(Arc<QmpDriver>),
}

impl Driver {
    /// The driver of this kind, if any is wanted.
    pub(super) fn open(root: &Path, devices: &Devices) -> Result<Option<Self>> {
        Ok(match devices {
            Devices::Loop => Some(Self::Loop(LoopDriver::open(root, Nodes::OfMachine)?)),
            Devices::DropletLoop => Some(Self::Loop(LoopDriver::open(root, Nodes::OfDroplet)?)),
            Devices::Qmp(guests) => Some(Self::Qmp(Arc::new(QmpDriver::open(guests)?))),
            Devices::None => None,
        })
    }

    /// Makes the volume with this file appear on its droplet.
    pub(super) async fn attach(&self, attachment: &Attachment, file: &Path) -> Result<()> {
        match self {
            Self::Loop(driver) => driver.attach(attachment, file).await,
            Self::Qmp(driver) => driver.attach(attachment, file).await,
        }
    }

    /// Takes the volume away from its droplet, whoever is using it there. Once this is done, nothing
    /// that is written there reaches the file any more.
    pub(super) async fn detach(&self, attachment: &Attachment, file: &Path) -> Result<()> {
        match self {
            Self::Loop(driver) => driver.detach(attachment, file).await,
            Self::Qmp(driver) => driver.detach(attachment).await,
        }
    }

    /// Tells the volume's device, if there is one, that the file has grown.
    pub(super) async fn resize(&self, volume: &str, file: &Path) -> Result<()> {
        match self {
            Self::Loop(driver) => driver.resize(file).await,
            Self::Qmp(driver) => driver.resize(volume, file).await,
        }
    }

    /// Makes these attachments, and no others, be devices of these droplets.
    pub(super) async fn reconcile(
        &self,
        droplets: &[u64],
        attachments: &[(Attachment, PathBuf)],
    ) -> Result<()> {
        match self {
            Self::Loop(driver) => driver.reconcile(droplets, attachments).await,
            Self::Qmp(driver) => driver.reconcile(attachments).await,
        }
    }

    /// Whether devices may have changed by themselves since they were last reconciled.
    pub(super) async fn is_disturbed(&self) -> bool {
        match self {
            // The kernel of this machine outlives this process.
            Self::Loop(_) => false,
            Self::Qmp(driver) => driver.is_disturbed().await,
        }
    }

    /// Takes away what would be left behind on this machine.
    pub(super) async fn release(&self) -> Result<()> {
        match self {
            Self::Loop(driver) => driver.release().await,
            Self::Qmp(_) => Ok(()),
        }
    }
}
