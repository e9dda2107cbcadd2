//! Droplets: the machines that volumes are attached to. They come with the settings.

use jiff::Timestamp;

use super::{Cloud, Refusal};

/// Whether a droplet is running.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropletStatus {
    /// It runs.
    Active,
    /// It is powered off; volumes are attached and detached all the same.
    Off,
}

/// One droplet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Droplet {
    /// Its number.
    pub id: u64,
    /// Its name, which is its host name too.
    pub name: String,
    /// Its region.
    pub region: String,
    /// Whether it is running.
    pub status: DropletStatus,
    /// Whether an event is running on it.
    pub locked: bool,
}

impl Cloud {
    /// All droplets, in the order of their numbers.
    #[must_use]
    pub fn droplets(&self) -> Vec<Droplet> {
        let first = self.settings.first_droplet;
        (first..first.saturating_add(self.settings.droplets)).map(|id| self.describe(id)).collect()
    }

    /// The droplet with this number.
    pub fn droplet(&self, id: u64) -> Result<Droplet, Refusal> {
        let position = id.checked_sub(self.settings.first_droplet);
        if position.is_some_and(|position| position < self.settings.droplets) {
            return Ok(self.describe(id));
        }
        Err(Refusal::NotFound(format!("droplet {id} does not exist")))
    }

    /// The ids of the volumes on this droplet as a read at this time shows them.
    #[must_use]
    pub fn volumes_on(&self, droplet: u64, now: Timestamp) -> Vec<&str> {
        let volumes = self.records.volumes.iter();
        volumes
            .filter(|volume| self.attached_as_read(volume, now) == Some(droplet))
            .map(|volume| volume.id.as_str())
            .collect()
    }

    /// Switches a droplet on or off.
    pub fn set_droplet_status(&mut self, id: u64, status: DropletStatus) -> Result<(), Refusal> {
        self.droplet(id)?;
        self.records.droplets_off.retain(|off| *off != id);
        if status == DropletStatus::Off {
            self.records.droplets_off.push(id);
        }
        self.revision += 1;
        Ok(())
    }

    fn describe(&self, id: u64) -> Droplet {
        let off = self.records.droplets_off.contains(&id);
        Droplet {
            id,
            name: format!("droplet-{id}"),
            region: self.settings.region.clone(),
            status: if off { DropletStatus::Off } else { DropletStatus::Active },
            locked: self.event_on(id).is_some(),
        }
    }
}
