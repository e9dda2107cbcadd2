//! GetCapacity and ControllerModifyVolume.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::plugin_capability::service::Type as Service;
use tonic::Code;

use super::{Check, Need, check};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "capacity.sound",
        "capacities are not negative, and the smallest volume is not the larger one",
        [Need::Controller, Need::Rpc(ControllerRpc::GetCapacity)],
        sound
    ),
    check!(
        "capacity.nowhere",
        "there is no capacity where there is no storage",
        [
            Need::Controller,
            Need::Rpc(ControllerRpc::GetCapacity),
            Need::Service(Service::VolumeAccessibilityConstraints)
        ],
        nowhere
    ),
    check!(
        "modify.refuses",
        "an unknown mutable parameter is INVALID_ARGUMENT, an unknown volume NOT_FOUND",
        [Need::Volume, Need::Rpc(ControllerRpc::ModifyVolume)],
        modify
    ),
];

fn capacity(trial: &Trial) -> pb::GetCapacityRequest {
    pb::GetCapacityRequest {
        volume_capabilities: vec![trial.capability()],
        parameters: trial.options.parameters.clone(),
        accessible_topology: None,
    }
}

async fn sound(trial: &Trial) -> Verdict {
    let near = trial.driver.info().and_then(|info| info.accessible_topology.clone());
    for accessible_topology in [None, near] {
        let request = pb::GetCapacityRequest { accessible_topology, ..capacity(trial) };
        let asked = trial.ask(request).await;
        let words = asked.asked.clone();
        let answer = asked.ok("the capacity is claimed")?;
        let least = answer.minimum_volume_size.unwrap_or(0);
        let most = answer.maximum_volume_size.unwrap_or(i64::MAX);
        demand(
            answer.available_capacity >= 0 && least >= 0 && most >= least,
            words,
            format!("{answer:?}"),
            "numbers of bytes of which the minimum is not over the maximum",
        )?;
    }
    Ok(())
}

async fn nowhere(trial: &Trial) -> Verdict {
    let own = trial.driver.info().and_then(|info| info.accessible_topology.clone());
    let mut nowhere = own.unwrap_or_default();
    nowhere.segments.values_mut().for_each(|value| "conformance-nowhere".clone_into(value));
    let request = pb::GetCapacityRequest { accessible_topology: Some(nowhere), ..capacity(trial) };
    let asked = trial.ask(request).await;
    let words = asked.asked.clone();
    let Some(answer) = asked.ok_or(&[Code::InvalidArgument], "perhaps it knows all segments")?
    else {
        return Ok(());
    };
    let came = format!("available_capacity: {}", answer.available_capacity);
    demand(answer.available_capacity == 0, words, came, "none: nothing is there")
}

async fn modify(trial: &Trial) -> Verdict {
    let volume = trial.volume("modify").await?;
    let request = |id: &str, parameters: &[(&str, &str)]| pb::ControllerModifyVolumeRequest {
        volume_id: id.to_owned(),
        secrets: trial.options.secrets.clone(),
        mutable_parameters: parameters
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect(),
    };
    let unknown = [("conformance-no-such-parameter", "1")];
    trial
        .ask(request(&volume.volume_id, &unknown))
        .await
        .refused(&[Code::InvalidArgument], "there is no such parameter")?;
    trial
        .ask(request("conformance-nothing", &unknown))
        .await
        .refused(&[Code::NotFound, Code::InvalidArgument], "neither is there")?;
    Ok(())
}
