//! ControllerExpandVolume.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use tonic::Code;

use super::{Check, Need, check};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "expand.grows",
        "a volume grows, the repeated call has the same answer, and it never shrinks",
        [Need::Volume, Need::Rpc(ControllerRpc::ExpandVolume)],
        grows
    ),
    check!(
        "expand.contradiction",
        "an expansion without a size, or with one that cannot be, is refused",
        [Need::Volume, Need::Rpc(ControllerRpc::ExpandVolume)],
        contradiction
    ),
    check!(
        "expand.limit",
        "an expansion to a limit below the size is OUT_OF_RANGE",
        [Need::Volume, Need::Rpc(ControllerRpc::ExpandVolume)],
        limit
    ),
];

/// What is asked to make a volume at least this large.
pub(super) fn to(trial: &Trial, id: &str, bytes: i64) -> pb::ControllerExpandVolumeRequest {
    pb::ControllerExpandVolumeRequest {
        volume_id: id.to_owned(),
        capacity_range: Some(pb::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        secrets: trial.options.secrets.clone(),
        volume_capability: Some(trial.capability()),
    }
}

async fn grows(trial: &Trial) -> Verdict {
    let request = trial.create("grows");
    let volume = trial.volume_of(request).await?;
    let large = volume.capacity_bytes.max(trial.options.size) * 2;
    let mut told = Vec::new();
    for bytes in [large, large, 1] {
        let asked = trial.ask(to(trial, &volume.volume_id, bytes)).await;
        let words = asked.asked.clone();
        let answer = asked.ok("the volume is smaller, or large enough already")?;
        demand(
            answer.capacity_bytes >= large,
            words,
            format!("capacity_bytes: {}", answer.capacity_bytes),
            format!("{large} at least: volumes do not shrink"),
        )?;
        told.push(answer);
    }
    demand(
        told[0] == told[1],
        "ControllerExpandVolume, twice",
        format!("{:?}, then {:?}", told[0], told[1]),
        "the same answer",
    )?;
    if trial.driver.offers(ControllerRpc::GetVolume) {
        let request = pb::ControllerGetVolumeRequest { volume_id: volume.volume_id };
        let got = trial.ask(request).await.ok("the volume is there")?.volume.unwrap_or_default();
        demand(
            got.capacity_bytes == told[0].capacity_bytes,
            "ControllerExpandVolume, then ControllerGetVolume",
            format!("capacity_bytes: {}", got.capacity_bytes),
            format!("{}, as the expansion answered", told[0].capacity_bytes),
        )?;
    }
    Ok(())
}

async fn contradiction(trial: &Trial) -> Verdict {
    let volume = trial.volume("contradiction").await?;
    let sound = to(trial, &volume.volume_id, trial.options.size);
    let size = trial.options.size;
    let range =
        |required_bytes, limit_bytes| Some(pb::CapacityRange { required_bytes, limit_bytes });
    for capacity_range in [None, range(size * 4, size * 2), range(-1, 0), range(0, -1)] {
        let request = pb::ControllerExpandVolumeRequest { capacity_range, ..sound.clone() };
        trial.ask(request).await.refused(
            &[Code::InvalidArgument, Code::OutOfRange],
            "a size is required, and it is neither negative nor over its own limit",
        )?;
    }
    trial
        .ask(to(trial, &volume.volume_id, i64::MAX - 1))
        .await
        .refused(&[Code::OutOfRange, Code::ResourceExhausted], "no storage is that large")?;
    Ok(())
}

async fn limit(trial: &Trial) -> Verdict {
    let volume = trial.volume("limit").await?;
    let has = volume.capacity_bytes.max(trial.options.size);
    let range = pb::CapacityRange { required_bytes: 1, limit_bytes: has / 2 };
    let request = pb::ControllerExpandVolumeRequest {
        capacity_range: Some(range),
        ..to(trial, &volume.volume_id, 0)
    };
    trial
        .ask(request)
        .await
        .refused(&[Code::OutOfRange], &format!("the volume has {has} bytes and cannot shrink"))?;
    Ok(())
}
