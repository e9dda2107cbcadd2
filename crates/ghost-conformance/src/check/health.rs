//! The health of volumes and of the storage (1.13, alpha).

use std::collections::BTreeSet;
use std::path::Path;

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::node_service_capability::rpc::Type as NodeRpc;
use tonic::Code;

use super::{Check, Need, check};
use crate::trial::{Trial, Used};
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "health.controller",
        "a volume that was just made is healthy, and an unknown one is NOT_FOUND",
        [Need::Volume, Need::Rpc(ControllerRpc::GetVolumeHealth)],
        controller
    ),
    check!(
        "health.list",
        "only what is unhealthy is in the list, with sound reasons, once on all pages",
        [Need::Volume, Need::Rpc(ControllerRpc::ListVolumeHealth)],
        list
    ),
    check!(
        "health.list-token",
        "a bad token is ABORTED, and a negative number of entries is refused",
        [Need::Controller, Need::Rpc(ControllerRpc::ListVolumeHealth)],
        list_token
    ),
    check!(
        "health.node",
        "a published volume is healthy at the node, and what is at no path is NOT_FOUND",
        [Need::Use, Need::NodeRpc(NodeRpc::GetVolumeHealth)],
        node
    ),
    check!(
        "health.node-other-volume",
        "the health of one volume at the path of another is NOT_FOUND",
        [Need::Use, Need::NodeRpc(NodeRpc::GetVolumeHealth)],
        node_other_volume
    ),
    check!(
        "health.storage",
        "the storage's problems have sound reasons",
        [Need::Node, Need::NodeRpc(NodeRpc::GetStorageHealth)],
        storage
    ),
];

/// Demands that problems have sound reasons, each once.
fn sound<'a>(asked: &str, problems: impl Iterator<Item = (i32, &'a str, bool)>) -> Verdict {
    let mut seen = BTreeSet::new();
    for (status, reason, known) in problems {
        let camel = reason.starts_with(|c: char| c.is_ascii_uppercase())
            && reason.chars().all(|c| c.is_ascii_alphanumeric());
        demand(
            camel,
            asked,
            format!("reason: {reason:?}"),
            "a word for machines in CamelCase: letters and digits, the first a capital",
        )?;
        let came = format!("status: {status}");
        demand(known && status != 0, asked, came, "a status of the specification, not UNKNOWN")?;
        let came = format!("{status} {reason:?} twice");
        demand(seen.insert((status, reason.to_owned())), asked, came, "each problem once")?;
    }
    Ok(())
}

fn of_volume(asked: &str, health: &pb::VolumeHealth) -> Verdict {
    let known = |status: i32| pb::VolumeHealthErrorType::try_from(status).is_ok();
    let problems = health.health_statuses.iter();
    sound(asked, problems.map(|one| (one.status, one.reason.as_str(), known(one.status))))
}

/// Demands that the health is that of this volume, and good.
fn healthy(asked: &str, health: Option<pb::VolumeHealth>, id: &str) -> Verdict {
    let health = health.unwrap_or_default();
    of_volume(asked, &health)?;
    demand(
        health.volume_id == id && health.health_statuses.is_empty(),
        asked,
        format!("{health:?}"),
        format!("the health of {id:?}, without problems"),
    )
}

async fn controller(trial: &Trial) -> Verdict {
    let volume = trial.volume("healthy").await?;
    let request = |id: &str| pb::ControllerGetVolumeHealthRequest {
        volume_id: id.to_owned(),
        secrets: trial.options.secrets.clone(),
    };
    let asked = trial.ask(request(&volume.volume_id)).await;
    let words = asked.asked.clone();
    let answer = asked.ok("the volume is there")?;
    healthy(&words, answer.volume_health, &volume.volume_id)?;
    let none = [Code::NotFound];
    trial.ask(request("conformance-nothing")).await.refused(&none, "there is no such volume")?;
    trial.ask(trial.delete(&volume.volume_id)).await.ok("nobody uses the volume")?;
    trial.ask(request(&volume.volume_id)).await.refused(&none, "the volume is gone")?;
    Ok(())
}

fn request(trial: &Trial) -> pb::ControllerListVolumeHealthRequest {
    pb::ControllerListVolumeHealthRequest {
        secrets: trial.options.secrets.clone(),
        ..Default::default()
    }
}

async fn list(trial: &Trial) -> Verdict {
    let mut own = Vec::new();
    for _ in 0..3 {
        own.push(trial.volume("healthy").await?.volume_id);
    }
    for size in [0, 1, 2] {
        let ids = trial.walk(&request(trial), size).await?;
        let words = format!("ControllerListVolumeHealth {{ max_entries: {size} }}, all pages");
        let unlike: BTreeSet<&String> = ids.iter().collect();
        let came = format!("{ids:?}");
        demand(unlike.len() == ids.len(), words.clone(), came.clone(), "each volume once")?;
        let healthy = !own.iter().any(|id| ids.contains(id));
        demand(healthy, words, came, "no volume that was just made: only what is unhealthy")?;
    }
    let answer = trial.ask(request(trial)).await.ok("the list is claimed")?;
    for entry in &answer.entries {
        of_volume("ControllerListVolumeHealth", entry)?;
        demand(
            !entry.health_statuses.is_empty(),
            "ControllerListVolumeHealth",
            format!("{:?} without a problem", entry.volume_id),
            "only what is unhealthy is in the list",
        )?;
    }
    Ok(())
}

async fn list_token(trial: &Trial) -> Verdict {
    trial.bad_token(&request(trial)).await?;
    trial.negative_entries(&request(trial)).await
}

fn at_node(used: &Used, id: &str, target: &Path) -> pb::NodeGetVolumeHealthRequest {
    pb::NodeGetVolumeHealthRequest {
        volume_id: id.to_owned(),
        volume_publish_path: target.to_string_lossy().into_owned(),
        staging_target_path: used.staging.clone(),
    }
}

async fn node(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let id = used.volume.volume_id.clone();
    let target = trial.target("healthy")?;
    trial.ask(used.publish(trial, &target)).await.ok("a staged volume can be published")?;
    let asked = trial.ask(at_node(&used, &id, &target)).await;
    let words = asked.asked.clone();
    let answer = asked.ok("the volume is at the path")?;
    healthy(&words, answer.volume_health, &id)?;
    trial.ask(used.unpublish(&target)).await.ok("the volume is at the path")?;
    trial.unstage(&used).await?;
    for id in [id.as_str(), "conformance-nothing"] {
        let asked = trial.ask(at_node(&used, id, &target)).await;
        asked.refused(&[Code::NotFound], "nothing is at these paths")?;
    }
    Ok(())
}

async fn node_other_volume(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("healthy")?;
    trial.ask(used.publish(trial, &target)).await.ok("a staged volume can be published")?;
    let other = trial.volume("other").await?;
    for id in [other.volume_id.as_str(), "conformance-nothing"] {
        let asked = trial.ask(at_node(&used, id, &target)).await;
        asked.refused(&[Code::NotFound], "another volume is at these paths")?;
    }
    Ok(())
}

async fn storage(trial: &Trial) -> Verdict {
    let request = pb::NodeGetStorageHealthRequest { secrets: trial.options.secrets.clone() };
    let answer = trial.ask(request).await.ok("the storage's health is claimed")?;
    let known = |status: i32| pb::StorageHealthErrorType::try_from(status).is_ok();
    // Problems of different uses may have the same reason.
    for one in &answer.backend_health {
        let problem = (one.status, one.reason.as_str(), known(one.status));
        sound("NodeGetStorageHealth", std::iter::once(problem))?;
    }
    Ok(())
}
