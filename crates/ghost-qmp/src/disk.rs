//! What is said to QEMU about disks that come and go.
//!
//! A disk of a guest has two halves there: the *node*, which is the open file, and the *device*,
//! which the guest sees. Both carry names that are made of [`Disk::key`], so that whoever comes
//! later finds them. Nothing is remembered here. The principal type is [`Disk`].

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::connection::{Error, Monitor, Result};

/// What the devices of this module are called in QEMU, before their key.
const DEVICE_PREFIX: &str = "disk-";
/// QEMU's names of nodes have at most 31 bytes.
const LONGEST_NODE_NAME: usize = 31;
/// Where QEMU lists the devices that have names.
const NAMED_DEVICES: &str = "/machine/peripheral";

/// How a disk is connected to the guest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bus {
    /// The guest's virtio-scsi controller.
    #[default]
    Scsi,
    /// A PCIe root port of the guest that is free.
    Virtio,
    /// The same, as an NVMe controller with one namespace.
    Nvme,
}

/// A disk as a guest is to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// What it is known by in QEMU: letters, digits and dashes. Not seen by the guest.
    pub key: String,
    /// The file with its content.
    pub file: PathBuf,
    /// How it is connected.
    pub bus: Bus,
    /// The name by which it introduces itself: the designator of a SCSI disk of vendor `DO` and
    /// product `Volume`, the serial of a virtio or NVMe disk. A guest is told the first 20 bytes of
    /// a serial.
    pub name: String,
    /// Whether it refuses to be written to.
    pub write_protected: bool,
}

/// How long QEMU is waited for until a disk is out of the guest.
///
/// A guest that does not run lets go of a SCSI disk at once, and of a virtio disk never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnplugLimit(pub Duration);

impl Default for UnplugLimit {
    fn default() -> Self {
        Self(Duration::from_secs(15))
    }
}

impl FromStr for Bus {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match text {
            "scsi" => Ok(Self::Scsi),
            "virtio" => Ok(Self::Virtio),
            "nvme" => Ok(Self::Nvme),
            _ => Err(format!("{text:?} is no bus; it is scsi, virtio or nvme")),
        }
    }
}

impl Monitor {
    /// Plugs the disk in, unless one with this key is there.
    ///
    /// # Errors
    /// `Refused` when QEMU cannot open the file or has no room for the disk; nothing of it is left
    /// then.
    pub async fn plug(&mut self, disk: &Disk) -> Result<()> {
        if self.plugged().await?.contains(&disk.key) {
            return Ok(());
        }
        let node = node_name(&disk.key);
        // One that was left half way by whoever came before.
        self.remove_node(&node).await?;
        let file = json!({"driver": "file", "filename": text(&disk.file)});
        let block = json!({
            "driver": "raw", "node-name": node, "discard": "unmap",
            "read-only": disk.write_protected, "file": file,
        });
        self.execute("blockdev-add", block).await?;
        let added = match self.device(disk, &node).await {
            Ok(device) => self.execute("device_add", device).await.map(drop),
            Err(error) => Err(error),
        };
        if added.is_err() {
            self.remove_node(&node).await?;
        }
        added
    }

    /// Takes the disk with this key out of the guest, whatever the guest does with it, and closes
    /// its file. That there is none is success.
    ///
    /// # Errors
    /// `Silent` when the guest has not let go of it within the limit; it may do so later.
    pub async fn unplug(&mut self, key: &str, limit: UnplugLimit) -> Result<()> {
        if self.plugged().await?.iter().any(|plugged| plugged == key) {
            let device = device_name(key);
            // Of an earlier disk of this key, which the guest let go of too late.
            self.forget("DEVICE_DELETED", |data| data["device"] == device.as_str());
            match self.execute("device_del", json!({"id": device})).await {
                // It was asked for before, and the guest has yet to let go.
                Err(Error::Refused { description, .. }) if description.contains("unplug") => {}
                other => drop(other?),
            }
            self.let_go(key, limit).await?;
        }
        self.remove_node(&node_name(key)).await
    }

    /// Waits until the guest lets go of the disk with this key, whoever asked for that.
    ///
    /// # Errors
    /// `Silent` when it has not done so within the limit.
    pub async fn let_go(&mut self, key: &str, limit: UnplugLimit) -> Result<()> {
        let device = device_name(key);
        let is_meant = |data: &Value| data["device"] == device.as_str();
        self.event("DEVICE_DELETED", limit.0, is_meant).await.map(drop)
    }

    /// The keys of all disks that are in the guest.
    ///
    /// # Errors
    /// When the conversation is over.
    pub async fn plugged(&mut self) -> Result<Vec<String>> {
        let devices = self.named(NAMED_DEVICES, |_| true).await?;
        let keys = devices.iter().filter_map(|name| name.strip_prefix(DEVICE_PREFIX));
        Ok(keys.map(str::to_owned).collect())
    }

    /// Tells the guest that its disk with this key has this size now. That there is none is success.
    ///
    /// # Errors
    /// `Refused` when QEMU cannot do it.
    pub async fn resize(&mut self, key: &str, bytes: u64) -> Result<()> {
        if !self.plugged().await?.iter().any(|plugged| plugged == key) {
            return Ok(());
        }
        let arguments = json!({"node-name": node_name(key), "size": bytes});
        self.execute("block_resize", arguments).await.map(drop)
    }

    /// Whether a guest is there to plug disks into: QEMU is not just being loaded with a saved one,
    /// which has to find the very devices that it was saved with.
    ///
    /// # Errors
    /// When the conversation is over.
    pub async fn is_loaded(&mut self) -> Result<bool> {
        let status = self.execute("query-status", json!({})).await?;
        Ok(!matches!(status["status"].as_str(), Some("inmigrate" | "prelaunch")))
    }

    /// The device of a disk, as QEMU is told of it.
    async fn device(&mut self, disk: &Disk, node: &str) -> Result<Value> {
        let id = device_name(&disk.key);
        Ok(match disk.bus {
            Bus::Scsi => {
                let is_controller = |kind: &str| kind == "child<virtio-scsi-pci>";
                let controllers = self.named(NAMED_DEVICES, is_controller).await?;
                let controller = controllers.first().ok_or_else(|| none("virtio-scsi"))?;
                json!({
                    "driver": "scsi-hd", "id": id, "drive": node, "bus": format!("{controller}.0"),
                    "vendor": "DO", "product": "Volume", "device_id": disk.name,
                })
            }
            Bus::Virtio | Bus::Nvme => {
                let driver = if disk.bus == Bus::Nvme { "nvme" } else { "virtio-blk-pci" };
                let port = self.free_port().await?;
                json!({
                    "driver": driver, "id": id, "drive": node, "bus": port, "serial": disk.name,
                })
            }
        })
    }

    async fn free_port(&mut self) -> Result<String> {
        for port in self.named(NAMED_DEVICES, |kind| kind == "child<pcie-root-port>").await? {
            // The port's bus has its own name, and what is plugged there is its child.
            let bus = format!("{NAMED_DEVICES}/{port}/{port}");
            let occupied = self.execute("qom-list", json!({"path": bus})).await?;
            let mut names = entries(&occupied).map(|(name, _)| name);
            if !names.any(|name| name.starts_with("child[")) {
                return Ok(port);
            }
        }
        Err(none("free PCIe port"))
    }

    /// The names of what QEMU lists at this path, sorted, of these kinds.
    async fn named(&mut self, path: &str, kind: impl Fn(&str) -> bool) -> Result<Vec<String>> {
        let list = self.execute("qom-list", json!({"path": path})).await?;
        let of_kind = entries(&list).filter(|(_, found)| kind(found));
        let mut names: Vec<String> = of_kind.map(|(name, _)| name.to_owned()).collect();
        names.sort();
        Ok(names)
    }

    /// Closes a node. That there is none is success.
    async fn remove_node(&mut self, node: &str) -> Result<()> {
        match self.execute("blockdev-del", json!({"node-name": node})).await {
            Err(Error::Refused { description, .. })
                if description.contains("Failed to find node") =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }
}

fn entries(list: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = list.as_array().into_iter().flatten();
    entries.filter_map(|entry| Some((entry["name"].as_str()?, entry["type"].as_str()?)))
}

fn device_name(key: &str) -> String {
    format!("{DEVICE_PREFIX}{key}")
}

/// The name of a disk's node. It is made of as much of the key as there is room for, its dashes
/// left out: of a UUID all but two digits.
fn node_name(key: &str) -> String {
    let letters = key.chars().filter(char::is_ascii_alphanumeric);
    std::iter::once('n').chain(letters).take(LONGEST_NODE_NAME).collect()
}

fn none(what: &str) -> Error {
    Error::Refused {
        command: "device_add".to_owned(),
        class: "GenericError".to_owned(),
        description: format!("the guest has no {what}"),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_within_what_qemu_takes() {
        let name = node_name("2f1e0c0a-1111-4222-8333-444455556666");
        assert_eq!(name, "n2f1e0c0a1111422283334444555566");
        assert_eq!(name.len(), LONGEST_NODE_NAME);
        assert_eq!(node_name("a-1"), "na1");
    }

    #[test]
    fn a_bus_is_named() {
        assert_eq!("scsi".parse(), Ok(Bus::Scsi));
        assert_eq!("virtio".parse(), Ok(Bus::Virtio));
        assert_eq!("nvme".parse(), Ok(Bus::Nvme));
        let error = "sata".parse::<Bus>().expect_err("no bus of ours");
        assert!(error.contains("sata") && error.contains("scsi"), "{error}");
    }
}
