//! Attached volumes as disks that are plugged into QEMU guests.
//!
//! A guest that is off gets its disks when it comes on, and one that ends loses them with its QEMU;
//! a guest that only boots again keeps them. What is plugged in, QEMU says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use ghost_qmp::disk::{Bus, Disk};

use super::guest::{Guest, GuestAddress, Order};
use crate::state::Attachment;

/// The guests of one cloud.
#[derive(Debug)]
pub(super) struct QmpDriver {
    guests: BTreeMap<u64, Guest>,
}

impl QmpDriver {
    pub(super) fn open(addresses: &[GuestAddress]) -> Result<Self> {
        let mut guests = BTreeMap::new();
        for address in addresses {
            let droplet = address.droplet;
            let former = guests.insert(droplet, Guest::new(address.clone()));
            ensure!(former.is_none(), "droplet {droplet} is said to be two guests");
        }
        Ok(Self { guests })
    }

    pub(super) async fn attach(&self, attachment: &Attachment, file: &Path) -> Result<()> {
        let guest = self.guest(attachment)?;
        let disk = disk(&guest.address, attachment, file);
        if !guest.order(&Order::Plug(&disk)).await? {
            let droplet = attachment.droplet;
            tracing::info!(droplet, "the guest is off and gets its disk later");
        }
        Ok(())
    }

    pub(super) async fn detach(&self, attachment: &Attachment) -> Result<()> {
        self.guest(attachment)?.order(&Order::Unplug(&attachment.volume)).await.map(drop)
    }

    pub(super) async fn resize(&self, volume: &str, file: &Path) -> Result<()> {
        let bytes = length(file)?;
        for guest in self.guests.values() {
            guest.order(&Order::Resize(volume, bytes)).await?;
        }
        Ok(())
    }

    pub(super) async fn reconcile(&self, attachments: &[(Attachment, PathBuf)]) -> Result<()> {
        for (droplet, guest) in &self.guests {
            let mut wanted = Vec::new();
            for (attachment, file) in attachments.iter().filter(|(a, _)| a.droplet == *droplet) {
                wanted.push((disk(&guest.address, attachment, file), length(file)?));
            }
            guest.order(&Order::Have(&wanted)).await?;
        }
        Ok(())
    }

    pub(super) async fn is_disturbed(&self) -> bool {
        let mut disturbed = false;
        for guest in self.guests.values() {
            disturbed |= guest.is_disturbed().await;
        }
        disturbed
    }

    fn guest(&self, attachment: &Attachment) -> Result<&Guest> {
        let droplet = attachment.droplet;
        self.guests.get(&droplet).with_context(|| {
            format!("droplet {droplet} has no guest; name one with --qmp {droplet}=SOCKET")
        })
    }
}

fn disk(guest: &GuestAddress, attachment: &Attachment, file: &Path) -> Disk {
    Disk {
        key: attachment.volume.clone(),
        file: file.to_owned(),
        bus: guest.bus,
        name: match guest.bus {
            Bus::Scsi => attachment.name.clone(),
            Bus::Virtio | Bus::Nvme => attachment.volume.clone(),
        },
        write_protected: guest.write_protected,
    }
}

fn length(file: &Path) -> Result<u64> {
    let data = fs::metadata(file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(data.len())
}
