//! Which actions may start: the rules for attach, detach and resize.

use super::{ActionKind, ActionRequest, Cloud, Refusal, Volume, VolumeKey, rule};

impl Cloud {
    pub(super) fn keyed(&self, key: &VolumeKey, region: Option<&str>) -> Result<&Volume, Refusal> {
        let volume = match key {
            VolumeKey::Id(id) => self.volume(id)?,
            VolumeKey::Name(name) => {
                let region = self.known_region(region)?;
                let name = name.as_deref().unwrap_or_default();
                let absent = || format!("no volume named {name:?} exists in region {region}");
                self.named(name, &region).ok_or_else(|| Refusal::NotFound(absent()))?
            }
        };
        if region.is_some_and(|region| region != volume.region) {
            return Err(Refusal::Unprocessable(format!(
                "volume {} is in region {}, not in {:?}",
                volume.id,
                volume.region,
                region.unwrap_or_default()
            )));
        }
        Ok(volume)
    }

    pub(super) fn can_attach(
        &self,
        volume: &Volume,
        request: &ActionRequest,
    ) -> Result<u64, Refusal> {
        let droplet = self.requested_droplet(request)?;
        if volume.attached().is_some() {
            // The real API does not say where; whoever needs it has to read the volume.
            return Err(Refusal::Unprocessable("the volume is attached already".to_owned()));
        }
        let home = self.droplet(droplet)?.region;
        if home != volume.region {
            return Err(Refusal::Unprocessable(format!(
                "volume {} is in region {}, droplet {droplet} in {home}",
                volume.id, volume.region
            )));
        }
        self.check_idle(volume, droplet)?;
        let on_it = self.records.volumes.iter().filter(|other| other.attached() == Some(droplet));
        let coming = self
            .running()
            .filter(|action| action.kind == ActionKind::Attach && action.droplet == Some(droplet));
        let limit = self.settings.volumes_per_droplet;
        if on_it.count() + coming.count() >= limit {
            return Err(Refusal::Unprocessable(format!(
                "droplet {droplet} has its {limit} volumes already"
            )));
        }
        Ok(droplet)
    }

    pub(super) fn can_detach(
        &self,
        volume: &Volume,
        request: &ActionRequest,
    ) -> Result<u64, Refusal> {
        let droplet = self.requested_droplet(request)?;
        self.check_idle(volume, droplet)?;
        if volume.attached() != Some(droplet) {
            return Err(Refusal::Unprocessable(format!(
                "volume {} is not attached to droplet {droplet}",
                volume.id
            )));
        }
        Ok(droplet)
    }

    pub(super) fn can_resize(
        &self,
        volume: &Volume,
        request: &ActionRequest,
    ) -> Result<u64, Refusal> {
        let gigabytes = rule::gigabytes(request.size_gigabytes)?;
        if gigabytes <= volume.gigabytes {
            return Err(Refusal::Unprocessable(format!(
                "volume {} has {} GiB; the new size must be larger, not {gigabytes}",
                volume.id, volume.gigabytes
            )));
        }
        self.check_volume_idle(volume)?;
        Ok(gigabytes)
    }

    fn requested_droplet(&self, request: &ActionRequest) -> Result<u64, Refusal> {
        let Some(id) = request.droplet_id else {
            return Err(Refusal::Unprocessable("droplet_id is missing".to_owned()));
        };
        let absent = |_| Refusal::NotFound(format!("droplet {id} does not exist"));
        Ok(self.droplet(u64::try_from(id).map_err(absent)?)?.id)
    }

    fn check_idle(&self, volume: &Volume, droplet: u64) -> Result<(), Refusal> {
        self.check_volume_idle(volume)?;
        let event = self.event_on(droplet).filter(|_| self.settings.one_event_per_droplet);
        event.map_or(Ok(()), |_| {
            Err(Refusal::Unprocessable(format!("droplet {droplet} already has an event running")))
        })
    }

    fn check_volume_idle(&self, volume: &Volume) -> Result<(), Refusal> {
        self.running_on(&volume.id).map_or(Ok(()), |_| {
            Err(Refusal::Unprocessable(format!("volume {} has an event running", volume.id)))
        })
    }
}
