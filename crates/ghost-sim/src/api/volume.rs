//! The volume routes.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::page::{Page, query_value};
use super::{Answer, Api, Call, Result, wire};
use crate::state::{Effect, Refusal, Volume, VolumeRequest};

/// `volumes_ext4` and `volumes_xfs` of the document.
#[derive(Deserialize)]
struct CreateVolume {
    name: Option<String>,
    region: Option<String>,
    size_gigabytes: Option<i64>,
    snapshot_id: Option<String>,
    description: Option<String>,
    tags: Option<Vec<String>>,
    filesystem_type: Option<String>,
}

impl From<CreateVolume> for VolumeRequest {
    fn from(body: CreateVolume) -> Self {
        Self {
            name: body.name,
            region: body.region,
            size_gigabytes: body.size_gigabytes,
            snapshot_id: body.snapshot_id,
            description: body.description,
            tags: body.tags,
            filesystem_type: body.filesystem_type,
        }
    }
}

impl Api {
    pub(super) fn list_volumes(&self, call: &Call<'_>) -> Result<Answer> {
        let page = Page::parse(call.uri())?;
        let name = query_value(call.uri(), "name");
        let region = query_value(call.uri(), "region");
        let fits =
            |wanted: &Option<String>, value: &str| wanted.as_deref().is_none_or(|w| w == value);
        let volumes = self
            .cloud
            .volumes(call.now)
            .filter(|volume| fits(&name, &volume.name) && fits(&region, &volume.region))
            .collect();
        let shown = |volume| self.volume_as_read(volume, call);
        Ok(Answer::ok(page.of("volumes", volumes, shown, &self.base(call), call.uri())))
    }

    pub(super) fn create_volume(
        &mut self,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        let body: CreateVolume = call.body()?;
        let (volume, effect) = self.cloud.create_volume(body.into(), call.now)?;
        effects.push(effect);
        let body = json!({ "volume": self.volume_as_read(&volume, call) });
        Ok(Answer::json(StatusCode::CREATED, body))
    }

    pub(super) fn get_volume(&self, call: &Call<'_>) -> Result<Answer> {
        let volume = self.cloud.volume(call.variable(0))?;
        Ok(Answer::ok(json!({ "volume": self.volume_as_read(volume, call) })))
    }

    pub(super) fn delete_volume(
        &mut self,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        effects.push(self.cloud.delete_volume(call.variable(0))?);
        Ok(Answer::no_content())
    }

    pub(super) fn delete_volume_by_name(
        &mut self,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        let wanted = |key: &str| {
            let missing = || Refusal::Unprocessable(format!("{key} is missing"));
            query_value(call.uri(), key).ok_or_else(missing)
        };
        effects.push(self.cloud.delete_volume_named(&wanted("name")?, &wanted("region")?)?);
        Ok(Answer::no_content())
    }

    fn volume_as_read<'a>(&self, volume: &'a Volume, call: &Call<'_>) -> wire::Volume<'a> {
        let mut shown = wire::volume(volume, self.cloud.attached_as_read(volume, call.now));
        shown.device = shown.device.filter(|_| self.cloud.volumes_tell_slots());
        shown
    }
}
