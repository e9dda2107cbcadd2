//! What is said when a call is refused: seen in all answers of the run, and provoked once more.

use std::collections::HashMap;

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use tonic::Status;

use super::{Check, Need, check};
use crate::ask::Ask;
use crate::driver::Half;
use crate::trial::{Seen, Trial};
use crate::verdict::{Verdict, demand, shown};

pub(super) static CHECKS: &[Check] = &[
    check!("error.message", "every refusal has a message that people can read", [], message),
    check!("error.details", "no refusal has details, which are reserved", [], details),
    check!(
        "error.secrets",
        "a secret comes back in no message and in no context",
        [Need::Volume],
        secrets
    ),
];

/// A secret that must not be seen again.
const CANARY: &str = "conformance-canary-8f3a61c5";

/// Asks for what is refused, so that there is something to look at.
async fn provoke(trial: &Trial) {
    if trial.driver.has(Half::Controller) {
        let _ = trial.once(pb::ValidateVolumeCapabilitiesRequest::default()).await;
        let _ = trial.once(pb::CreateVolumeRequest::default()).await;
        let _ = trial.once(pb::ControllerExpandVolumeRequest::default()).await;
    }
    if trial.driver.has(Half::Node) {
        let _ = trial.once(pb::NodePublishVolumeRequest::default()).await;
        let _ = trial.once(pb::NodeUnpublishVolumeRequest::default()).await;
    }
}

fn of_all(trial: &Trial, which: impl Fn(&Seen) -> &Vec<String>, came: &str) -> Verdict {
    let seen = trial.seen.lock().expect("nobody panics while holding it");
    let found = which(&seen);
    let first = found.first().cloned().unwrap_or_default();
    let more = found.len().saturating_sub(1);
    demand(
        found.is_empty(),
        if more > 0 { format!("{first}, and {more} other calls") } else { first },
        came,
        "a message for people, without secrets, and no details",
    )
}

async fn message(trial: &Trial) -> Verdict {
    provoke(trial).await;
    of_all(trial, |seen| &seen.without_message, "a refusal without a message")
}

async fn details(trial: &Trial) -> Verdict {
    provoke(trial).await;
    of_all(trial, |seen| &seen.with_details, "a refusal with details")
}

/// Demands that a refusal, if it is one, does not show the secret.
async fn keeps<A: Ask>(trial: &Trial, request: A) -> Verdict<Option<A::Answer>> {
    let asked = trial.ask(request).await;
    let told = |status: &Status| format!("{} {:?}", status.message(), status.metadata());
    let text = asked.answer.as_ref().err().map(told).unwrap_or_default();
    let came = asked.answer.as_ref().err().map(shown).unwrap_or_default();
    demand(!text.contains(CANARY), asked.asked, came, "no secret is shown")?;
    Ok(asked.answer.ok())
}

fn is_kept(asked: &str, context: &HashMap<String, String>) -> Verdict {
    let shows = |text: &String| text.contains(CANARY);
    let found = context.iter().find(|(key, value)| shows(key) || shows(value));
    demand(found.is_none(), asked, format!("{found:?}"), "no secret is in a context")
}

async fn secrets(trial: &Trial) -> Verdict {
    of_all(trial, |seen| &seen.with_secret, "a refusal with a secret of --secrets-file")?;
    let mut secrets = trial.options.secrets.clone();
    secrets.insert("conformance".to_owned(), CANARY.to_owned());
    let secret = || secrets.clone();
    let id = "conformance-nothing".to_owned();

    keeps(trial, pb::CreateVolumeRequest { secrets: secret(), ..Default::default() }).await?;
    let unknown = [("conformance-no-such-parameter".to_owned(), "1".to_owned())].into();
    let request = pb::CreateVolumeRequest {
        secrets: secret(),
        parameters: unknown,
        ..trial.create("refused")
    };
    keeps(trial, request).await?;
    let request = pb::DeleteVolumeRequest { volume_id: String::new(), secrets: secret() };
    keeps(trial, request).await?;
    let range = Some(pb::CapacityRange { required_bytes: -1, limit_bytes: -2 });
    let request = pb::CreateVolumeRequest {
        secrets: secret(),
        capacity_range: range,
        ..trial.create("refused")
    };
    keeps(trial, request).await?;

    let request = pb::CreateVolumeRequest { secrets: secret(), ..trial.create("secret") };
    let Some(answer) = keeps(trial, request).await? else { return Ok(()) };
    let volume = answer.volume.unwrap_or_default();
    is_kept("CreateVolume, volume_context", &volume.volume_context)?;
    if trial.driver.offers(ControllerRpc::ExpandVolume) {
        let request = pb::ControllerExpandVolumeRequest {
            secrets: secret(),
            ..super::expand::to(trial, &id, 1)
        };
        keeps(trial, request).await?;
    }
    if trial.driver.offers(ControllerRpc::PublishUnpublishVolume) {
        for node in ["conformance-no-such-node".to_owned(), trial.node_id()] {
            let request = pb::ControllerPublishVolumeRequest {
                secrets: secret(),
                ..trial.attach(&volume, &node)
            };
            if let Some(answer) = keeps(trial, request).await? {
                is_kept("ControllerPublishVolume, publish_context", &answer.publish_context)?;
            }
        }
    }
    if trial.driver.offers(ControllerRpc::CreateDeleteSnapshot) {
        let request =
            pb::CreateSnapshotRequest { secrets: secret(), ..trial.snapshot("secret", &id) };
        keeps(trial, request).await?;
    }
    if trial.driver.has(Half::Node) {
        // A staging path that cannot be, so that the call is refused before it does anything.
        let request = pb::NodeStageVolumeRequest {
            volume_id: id,
            secrets: secret(),
            volume_capability: Some(trial.capability()),
            ..Default::default()
        };
        keeps(trial, request).await?;
    }
    Ok(())
}
