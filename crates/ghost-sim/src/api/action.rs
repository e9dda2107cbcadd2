//! The action routes.

use hyper::StatusCode;
use serde::Deserialize;
use serde_json::json;

use super::page::Page;
use super::{Answer, Api, Call, Result, wire};
use crate::fault::ActionFault;
use crate::state::{ActionRequest, Effect, Ending, Refusal, VolumeKey};

/// `volume_action_post_attach`, `…_detach` and `…_resize` of the document.
#[derive(Deserialize)]
struct PostAction {
    #[serde(rename = "type")]
    kind: Option<String>,
    droplet_id: Option<i64>,
    region: Option<String>,
    size_gigabytes: Option<i64>,
    volume_name: Option<String>,
}

impl Api {
    pub(super) fn post_action(
        &mut self,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        let key = VolumeKey::Id(call.variable(0).to_owned());
        self.start_action(&key, call.body()?, call, effects)
    }

    pub(super) fn post_action_by_name(
        &mut self,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        let mut body: PostAction = call.body()?;
        let key = VolumeKey::Name(body.volume_name.take());
        self.start_action(&key, body, call, effects)
    }

    pub(super) fn list_volume_actions(&self, call: &Call<'_>) -> Result<Answer> {
        let page = Page::parse(call.uri())?;
        let id = &self.cloud.volume(call.variable(0))?.id;
        let actions = self.cloud.actions_of(id).collect();
        Ok(Answer::ok(page.of("actions", actions, wire::action, &self.base(call), call.uri())))
    }

    pub(super) fn get_volume_action(&self, call: &Call<'_>) -> Result<Answer> {
        let id = &self.cloud.volume(call.variable(0))?.id;
        let action = self.cloud.action(call.number(1, "action")?)?;
        if action.volume != *id {
            let text = format!("action {} is none of volume {id}", action.id);
            return Err(Refusal::NotFound(text).into());
        }
        Ok(Answer::ok(json!({ "action": wire::action(action) })))
    }

    pub(super) fn get_action(&self, call: &Call<'_>) -> Result<Answer> {
        let action = self.cloud.action(call.number(0, "action")?)?;
        Ok(Answer::ok(json!({ "action": wire::action(action) })))
    }

    fn start_action(
        &mut self,
        key: &VolumeKey,
        body: PostAction,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        let request = ActionRequest {
            kind: body.kind,
            droplet_id: body.droplet_id,
            region: body.region,
            size_gigabytes: body.size_gigabytes,
        };
        let ending = match call.action_fault {
            None => Ending::Completes,
            Some(ActionFault::Fail) => Ending::Fails,
            Some(ActionFault::Stick) => Ending::Sticks,
        };
        let id = self.cloud.start_action(key, &request, ending, call.now)?;
        effects.extend(self.end_due_actions(call.now));
        let action = wire::action(self.cloud.action(id)?);
        Ok(Answer::json(StatusCode::ACCEPTED, json!({ "action": action })))
    }
}
