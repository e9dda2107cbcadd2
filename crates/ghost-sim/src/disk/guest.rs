//! Which QEMU guest is which droplet, as it is typed, and the conversation with one of them.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result};
use ghost_qmp::disk::{Bus, Disk, UnplugLimit};
use ghost_qmp::{Error, Event, Monitor};
use serde_json::json;
use tokio::sync::Mutex;

/// How long a QEMU may take to greet.
const GREETING_LIMIT: Duration = Duration::from_secs(10);

/// A QEMU guest that is a droplet: `DROPLET=SOCKET[,bus=scsi|virtio][,read-only]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestAddress {
    /// The number of the droplet.
    pub droplet: u64,
    /// The socket of a QMP monitor that nobody else uses.
    pub socket: PathBuf,
    /// How its disks are connected.
    pub bus: Bus,
    /// Whether its disks refuse to be written to.
    pub write_protected: bool,
}

impl FromStr for GuestAddress {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let shape = "a guest looks like 101=/run/guest/monitor,bus=scsi";
        let (droplet, rest) = text.split_once('=').ok_or(shape)?;
        let droplet = droplet.parse().map_err(|_| format!("{droplet:?} is no droplet; {shape}"))?;
        let mut words = rest.split(',');
        let socket = words.next().filter(|socket| !socket.is_empty()).ok_or(shape)?;
        let mut guest = Self {
            droplet,
            socket: PathBuf::from(socket),
            bus: Bus::default(),
            write_protected: false,
        };
        for word in words {
            match word.split_once('=') {
                Some(("bus", bus)) => guest.bus = bus.parse()?,
                None if word == "read-only" => guest.write_protected = true,
                _ => return Err(format!("{word:?} is no setting of a guest; {shape}")),
            }
        }
        Ok(guest)
    }
}

/// A guest, and the conversation with it while it is on.
#[derive(Debug)]
pub(super) struct Guest {
    pub(super) address: GuestAddress,
    conversation: Mutex<Conversation>,
}

/// What a guest's QEMU is told to do.
#[derive(Debug)]
pub(super) enum Order<'a> {
    /// To plug this disk in.
    Plug(&'a Disk),
    /// To take the disk of this volume out.
    Unplug(&'a str),
    /// To make the disk of this volume, if it has it, this large.
    Resize(&'a str, u64),
    /// To have these disks, each this large, and no other volumes.
    Have(&'a [(Disk, u64)]),
    /// To answer.
    Answer,
}

#[derive(Debug, Default)]
struct Conversation {
    monitor: Option<Monitor>,
    /// Whether the guest has been reconciled since this conversation began, and nothing has gone
    /// from it by itself since.
    settled: bool,
}

impl Guest {
    pub(super) fn new(address: GuestAddress) -> Self {
        Self { address, conversation: Mutex::default() }
    }

    /// Has the guest's QEMU do this, and answers whether the guest is on; one that is off cannot be
    /// told anything. To be on it needs a QEMU that is not just being loaded with a saved state.
    pub(super) async fn order(&self, order: &Order<'_>) -> Result<bool> {
        let mut conversation = self.conversation.lock().await;
        loop {
            let is_kept = conversation.monitor.is_some();
            if !is_kept {
                *conversation = self.begin().await?;
            }
            let Conversation { monitor: Some(monitor), settled } = &mut *conversation else {
                return Ok(false);
            };
            let done = order.carry_out(monitor).await;
            // A disk that was asked back too long ago has gone after all.
            *settled &= !monitor.take_events().iter().any(is_disk_gone);
            if matches!(&done, Err(error) if !matches!(error, Error::Refused { .. })) {
                conversation.monitor = None;
            }
            match done {
                // It ended since it was last spoken with; another may have taken its place.
                Err(Error::BrokenOff { .. }) if is_kept => {}
                Err(Error::BrokenOff { .. }) => return Ok(false),
                Err(error) => return Err(error).with_context(|| self.name()),
                Ok(()) => {
                    conversation.settled |= matches!(order, Order::Have(_));
                    return Ok(true);
                }
            }
        }
    }

    /// Whether the guest is on and may not have what it should have.
    pub(super) async fn is_disturbed(&self) -> bool {
        let is_on = self.order(&Order::Answer).await.unwrap_or_else(|error| {
            tracing::debug!("{error:#}");
            false
        });
        is_on && !self.conversation.lock().await.settled
    }

    async fn begin(&self) -> Result<Conversation> {
        let mut monitor = match Monitor::connect(&self.address.socket, GREETING_LIMIT).await {
            Ok(monitor) => monitor,
            Err(Error::Absent { .. } | Error::BrokenOff { .. }) => {
                return Ok(Conversation::default());
            }
            Err(error) => return Err(error).with_context(|| self.name()),
        };
        match monitor.is_loaded().await {
            Ok(true) => Ok(Conversation { monitor: Some(monitor), settled: false }),
            Ok(false) | Err(Error::BrokenOff { .. }) => Ok(Conversation::default()),
            Err(error) => Err(error).with_context(|| self.name()),
        }
    }

    fn name(&self) -> String {
        format!("the guest that is droplet {}", self.address.droplet)
    }
}

impl Order<'_> {
    async fn carry_out(&self, monitor: &mut Monitor) -> ghost_qmp::Result<()> {
        match self {
            Self::Plug(disk) => monitor.plug(disk).await,
            Self::Unplug(volume) => monitor.unplug(volume, UnplugLimit::default()).await,
            Self::Resize(volume, bytes) => monitor.resize(volume, *bytes).await,
            Self::Have(disks) => {
                for key in monitor.plugged().await? {
                    // Only volumes have such keys; whatever else is plugged in is not ours.
                    let is_volume = uuid::Uuid::parse_str(&key).is_ok();
                    if is_volume && !disks.iter().any(|(disk, _)| disk.key == key) {
                        monitor.unplug(&key, UnplugLimit::default()).await?;
                    }
                }
                for (disk, bytes) in *disks {
                    monitor.plug(disk).await?;
                    // One that was there already may be older than the file's last resize.
                    monitor.resize(&disk.key, *bytes).await?;
                }
                Ok(())
            }
            Self::Answer => monitor.execute("query-status", json!({})).await.map(drop),
        }
    }
}

/// Whether a disk has left the guest; parts of one that have no name leave with it.
fn is_disk_gone(event: &Event) -> bool {
    event.name == "DEVICE_DELETED" && event.data["device"].is_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_is_typed_with_its_bus() {
        let guest: GuestAddress = "101=/run/a".parse().expect("sound");
        let wanted = GuestAddress {
            droplet: 101,
            socket: PathBuf::from("/run/a"),
            bus: Bus::Scsi,
            write_protected: false,
        };
        assert_eq!(guest, wanted);
        let guest: GuestAddress = "102=/run/a=b,bus=virtio,read-only".parse().expect("sound");
        assert_eq!((guest.bus, guest.write_protected), (Bus::Virtio, true));
        assert_eq!(guest.socket, PathBuf::from("/run/a=b"));
        for wrong in ["", "101", "=x", "x=/run/a", "101=", "101=/run/a,", "101=/run/a,bus=sata"] {
            let error = wrong.parse::<GuestAddress>().expect_err(wrong);
            assert!(error.contains("101=") || error.contains("sata"), "{wrong:?}: {error}");
        }
    }
}
