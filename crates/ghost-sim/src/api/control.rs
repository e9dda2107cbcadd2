//! The control surface under `/sim/v1`: what was asked, what there is, and what is to go wrong.
//!
//! No real cloud has this. It needs no token, costs no budget, and no fault applies to it.

use hyper::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::problem::Problem;
use super::request_log::RequestLog;
use super::route::{self, Control};
use super::snapshot::CreateSnapshot;
use super::{Answer, Api, Call, Result, wire};
use crate::fault::Faults;
use crate::state::{DropletStatus, Effect};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutDroplet {
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Active,
    Off,
}

/// When something was made, as the cloud says from now on.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PutCreation {
    created_at: Timestamp,
}

impl Api {
    pub(super) fn control(
        &mut self,
        control: Control,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        match control {
            Control::ListRequests => Ok(Answer::ok(self.log.show())),
            Control::ForgetRequests => {
                self.log = RequestLog::default();
                Ok(Answer::no_content())
            }
            Control::State => Ok(Answer::ok(self.show_state(call.now))),
            Control::GetFaults => Ok(Answer::ok(json!(self.faults))),
            Control::PutFaults => {
                self.faults = Faults::parse(call.request.body(), &route::templates())
                    .map_err(|reason| Problem::new(StatusCode::BAD_REQUEST, reason))?;
                Ok(Answer::ok(json!(self.faults)))
            }
            Control::RemoveEverything => {
                effects.extend(self.cloud.remove_everything());
                Ok(Answer::no_content())
            }
            Control::PutDroplet => {
                let status = match call.body::<PutDroplet>()?.status {
                    Status::Active => DropletStatus::Active,
                    Status::Off => DropletStatus::Off,
                };
                self.cloud.set_droplet_status(call.number(0, "droplet")?, status)?;
                Ok(Answer::no_content())
            }
            Control::PutVolume => {
                let created_at = call.body::<PutCreation>()?.created_at;
                self.cloud.set_volume_creation(call.variable(0), created_at)?;
                Ok(Answer::no_content())
            }
            Control::PutSnapshot => {
                let created_at = call.body::<PutCreation>()?.created_at;
                self.cloud.set_snapshot_creation(call.variable(0), created_at)?;
                Ok(Answer::no_content())
            }
            Control::PostDropletSnapshot => {
                let request = call.body::<CreateSnapshot>()?.into();
                let droplet = call.number(0, "droplet")?;
                let made = self.cloud.create_droplet_snapshot(droplet, request, call.now)?;
                let body = json!({ "snapshot": self.show_snapshot(&made, call.now) });
                Ok(Answer::json(StatusCode::CREATED, body))
            }
        }
    }

    /// Everything as it is, without the lag of reads.
    fn show_state(&self, now: Timestamp) -> Value {
        let volumes = self.cloud.all_volumes();
        let on = |droplet| {
            let there = volumes.iter().filter(move |volume| volume.attached() == Some(droplet));
            there.map(|volume| volume.id.as_str()).collect::<Vec<_>>()
        };
        let snapshots = self.cloud.all_snapshots().iter();
        let droplets = self.cloud.droplets();
        let droplets = droplets.iter().map(|droplet| wire::droplet(droplet, &on(droplet.id)));
        let actions = self.cloud.all_actions().iter().map(|action| {
            let mut shown = wire::action(action);
            shown["volume_id"] = json!(action.volume);
            shown["droplet_id"] = json!(action.droplet);
            shown
        });
        json!({
            "droplets": droplets.collect::<Vec<_>>(),
            "volumes": volumes.iter().map(|v| wire::volume(v, v.attached())).collect::<Vec<_>>(),
            "snapshots": snapshots.map(|one| self.show_snapshot(one, now)).collect::<Vec<_>>(),
            "actions": actions.collect::<Vec<_>>(),
        })
    }
}
