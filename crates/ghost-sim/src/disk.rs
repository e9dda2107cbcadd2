//! Real disks behind the simulated ones: their content, and the devices through which it is used.
//!
//! A volume is the file `volumes/<id>` below the state folder, a snapshot is `snapshots/<id>`. How
//! an attached volume becomes a device is the driver's part: a loop device of this machine, or a
//! disk plugged into a QEMU guest. Nothing is remembered here: what there is, is read from the
//! folder, the kernel and QEMU. The principal type is [`Disk`].

use std::path::Path;

use anyhow::Result;

use crate::state::{Cloud, Effect};

mod content;
mod copy;
mod cut_off;
mod driver;
mod guest;
mod link;
mod loop_driver;
mod loop_table;
mod qmp_driver;

use content::Content;
use driver::Driver;

pub use guest::GuestAddress;

/// How volumes become devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// An attached volume has a loop device of this machine.
    Loop,
    /// The same, with a node in the droplet's own device folder, which can then be all of `/dev` in
    /// a mount namespace that is to see no other droplet's disks.
    DropletLoop,
    /// An attached volume is plugged into the QEMU guest that is its droplet.
    Qmp(Vec<GuestAddress>),
    /// Volumes are only spoken of.
    None,
}

/// The disks of one state folder.
#[derive(Clone, Debug)]
pub struct Disk {
    content: Content,
    driver: Driver,
}

impl Disk {
    /// The disks of this state folder, which must exist; none when volumes are only spoken of.
    ///
    /// Fails when this process may not make loop devices that it is to make, and when two guests
    /// are the same droplet.
    pub fn open(root: &Path, devices: &Devices) -> Result<Option<Self>> {
        let Some(driver) = Driver::open(root, devices)? else { return Ok(None) };
        Ok(Some(Self { content: Content::open(root)?, driver }))
    }

    /// Whether there is a file of any volume or snapshot.
    pub fn has_content(&self) -> Result<bool> {
        self.content.is_there()
    }

    /// Carries out one effect.
    pub async fn apply(&self, effect: &Effect) -> Result<()> {
        match effect {
            Effect::CreateVolume { volume, gigabytes, source } => {
                self.content.create_volume(volume, *gigabytes, source.as_deref()).await
            }
            Effect::RemoveVolume { volume } => self.content.remove_volume(volume),
            Effect::CreateSnapshot { snapshot, volume } => {
                self.content.create_snapshot(snapshot, volume).await
            }
            Effect::RemoveSnapshot { snapshot } => self.content.remove_snapshot(snapshot),
            Effect::Attach(attachment) => {
                let file = self.content.volume_file(&attachment.volume);
                self.driver.attach(attachment, &file).await
            }
            Effect::Detach(attachment) => {
                let file = self.content.volume_file(&attachment.volume);
                self.driver.detach(attachment, &file).await
            }
            Effect::Resize { volume, gigabytes } => {
                self.content.restore_size(volume, *gigabytes)?;
                self.driver.resize(volume, &self.content.volume_file(volume)).await
            }
        }
    }

    /// Makes files and devices what this cloud says they are, after a start.
    pub async fn reconcile(&self, cloud: &Cloud) -> Result<()> {
        for volume in cloud.all_volumes() {
            self.content.restore_size(&volume.id, volume.gigabytes)?;
        }
        self.reconcile_devices(cloud).await?;
        self.content.remove_all_but(cloud)
    }

    /// Makes the devices what this cloud says they are, and leaves the files.
    pub async fn reconcile_devices(&self, cloud: &Cloud) -> Result<()> {
        let attachments = cloud.attachments();
        let files = attachments
            .into_iter()
            .map(|attachment| {
                let file = self.content.volume_file(&attachment.volume);
                (attachment, file)
            })
            .collect::<Vec<_>>();
        let droplets: Vec<u64> = cloud.droplets().iter().map(|droplet| droplet.id).collect();
        self.driver.reconcile(&droplets, &files).await
    }

    /// Whether devices may have ceased to be what they were made, as those of a guest that was
    /// started anew. What it answers is true until they are reconciled.
    pub async fn is_disturbed(&self) -> bool {
        self.driver.is_disturbed().await
    }

    /// Takes the devices of this machine away and leaves the files. The disks of guests stay in
    /// them, as those of a real machine do while the cloud's API is down.
    pub async fn release(&self) -> Result<()> {
        self.driver.release().await
    }
}
