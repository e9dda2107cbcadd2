//! The snapshot routes: those of volumes know a volume's snapshots only, the others know all.

use hyper::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::page::{Page, query_value};
use super::{Answer, Api, Call, Result, wire};
use crate::state::{Effect, Refusal, Snapshot, SnapshotRequest};

/// The body of the document's `volumeSnapshots_create`.
#[derive(Deserialize)]
pub(super) struct CreateSnapshot {
    name: Option<String>,
    tags: Option<Vec<String>>,
}

impl From<CreateSnapshot> for SnapshotRequest {
    fn from(body: CreateSnapshot) -> Self {
        Self { name: body.name, tags: body.tags }
    }
}

impl Api {
    pub(super) fn show_snapshot(&self, snapshot: &Snapshot, now: Timestamp) -> Value {
        wire::snapshot(snapshot, self.cloud.restorable_gigabytes(snapshot, now))
    }

    pub(super) fn list_snapshots(&self, call: &Call<'_>) -> Result<Answer> {
        let page = Page::parse(call.uri())?;
        let volumes_wanted = match query_value(call.uri(), "resource_type").as_deref() {
            None => None,
            Some("volume") => Some(true),
            Some("droplet") => Some(false),
            Some(other) => {
                let text = format!("resource_type must be volume or droplet, not {other:?}");
                return Err(Refusal::Unprocessable(text).into());
            }
        };
        let all = self.cloud.snapshots(call.now);
        let is_wanted = |snapshot: &&Snapshot| {
            volumes_wanted.is_none_or(|wanted| wanted == snapshot.volume().is_some())
        };
        let snapshots = all.filter(is_wanted).collect();
        Ok(Answer::ok(page.of(
            "snapshots",
            snapshots,
            |snapshot| self.show_snapshot(snapshot, call.now),
            &self.base(call),
            call.uri(),
        )))
    }

    pub(super) fn list_volume_snapshots(&self, call: &Call<'_>) -> Result<Answer> {
        let page = Page::parse(call.uri())?;
        let id = &self.cloud.volume(call.variable(0))?.id;
        let all = self.cloud.snapshots(call.now);
        let snapshots = all.filter(|snapshot| snapshot.volume() == Some(id)).collect();
        Ok(Answer::ok(page.of(
            "snapshots",
            snapshots,
            |snapshot| self.show_snapshot(snapshot, call.now),
            &self.base(call),
            call.uri(),
        )))
    }

    pub(super) fn create_snapshot(
        &mut self,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        let body: CreateSnapshot = call.body()?;
        let (snapshot, effect) =
            self.cloud.create_snapshot(call.variable(0), body.into(), call.now)?;
        effects.push(effect);
        Ok(Answer::json(
            StatusCode::CREATED,
            json!({ "snapshot": self.show_snapshot(&snapshot, call.now) }),
        ))
    }

    pub(super) fn get_snapshot(&self, call: &Call<'_>) -> Result<Answer> {
        let snapshot = self.cloud.snapshot(call.variable(0))?;
        Ok(Answer::ok(json!({ "snapshot": self.show_snapshot(snapshot, call.now) })))
    }

    pub(super) fn get_volume_snapshot(&self, call: &Call<'_>) -> Result<Answer> {
        let snapshot = self.cloud.volume_snapshot(call.variable(0))?;
        Ok(Answer::ok(json!({ "snapshot": self.show_snapshot(snapshot, call.now) })))
    }

    pub(super) fn delete_snapshot(
        &mut self,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        effects.push(self.cloud.delete_snapshot(call.variable(0))?);
        Ok(Answer::no_content())
    }

    pub(super) fn delete_volume_snapshot(
        &mut self,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        self.cloud.volume_snapshot(call.variable(0))?;
        self.delete_snapshot(call, effects)
    }
}
