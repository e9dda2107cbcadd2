//! The routes around volumes: droplets and their metadata service, the account and the regions.

use hyper::StatusCode;
use serde_json::{Value, json};

use super::page::{Page, query_value};
use super::problem::Problem;
use super::{Answer, Api, Call, Result, wire};
use crate::state::Droplet;

impl Api {
    pub(super) fn list_droplets(&self, call: &Call<'_>) -> Result<Answer> {
        let page = Page::parse(call.uri())?;
        let name = query_value(call.uri(), "name");
        // No droplet here has a tag or a GPU, so either filter finds none.
        let none = query_value(call.uri(), "tag_name").is_some()
            || query_value(call.uri(), "type").as_deref() == Some("gpus");
        let droplets = self
            .cloud
            .droplets()
            .into_iter()
            .filter(|droplet| !none && name.as_ref().is_none_or(|name| *name == droplet.name))
            .collect();
        let shown = |droplet: Droplet| self.droplet_as_read(&droplet, call);
        Ok(Answer::ok(page.of("droplets", droplets, shown, &self.base(call), call.uri())))
    }

    pub(super) fn get_droplet(&self, call: &Call<'_>) -> Result<Answer> {
        let droplet = self.cloud.droplet(call.number(0, "droplet")?)?;
        Ok(Answer::ok(json!({ "droplet": self.droplet_as_read(&droplet, call) })))
    }

    /// `volume_limit` is not in the document but in the API's answers; absent without a limit.
    pub(super) fn get_account(&self) -> Answer {
        let mut account = json!({
            "droplet_limit": 25,
            "floating_ip_limit": 3,
            "email": "simulator@example.org",
            "name": "Simulator",
            "uuid": "00000000-0000-4000-8000-000000000001",
            "email_verified": true,
            "status": "active",
            "status_message": "",
        });
        if let Some(limit) = self.cloud.settings().volume_limit {
            account["volume_limit"] = Value::from(limit);
        }
        Answer::ok(json!({ "account": account }))
    }

    pub(super) fn list_regions(&self, call: &Call<'_>) -> Result<Answer> {
        let page = Page::parse(call.uri())?;
        let regions = self.cloud.regions();
        Ok(Answer::ok(page.of("regions", regions, wire::region, &self.base(call), call.uri())))
    }

    pub(super) fn metadata(&self, call: &Call<'_>) -> Result<Answer> {
        let droplet = self.cloud.droplet(call.number(0, "droplet")?)?;
        match call.variable(1) {
            "id" => Ok(Answer::text(droplet.id.to_string())),
            "region" => Ok(Answer::text(droplet.region)),
            "hostname" => Ok(Answer::text(droplet.name)),
            other => {
                Err(Problem::new(StatusCode::NOT_FOUND, format!("there is no metadata {other:?}")))
            }
        }
    }

    fn droplet_as_read(&self, droplet: &Droplet, call: &Call<'_>) -> Value {
        wire::droplet(droplet, &self.cloud.volumes_on(droplet.id, call.now))
    }
}
