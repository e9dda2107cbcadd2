//! The node's questions: statistics, and what is refused.

use ghost_csi as pb;
use pb::node_service_capability::rpc::Type as NodeRpc;
use pb::volume_usage::Unit;
use tonic::Code;

use super::{Check, Need, check};
use crate::options::Access;
use crate::trial::{Trial, Used};
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "node.missing",
        "a stage or publish without a path or a sound capability is refused",
        [Need::Use],
        missing
    ),
    check!(
        "node.stats",
        "the statistics of a published volume add up",
        [Need::Use, Need::NodeRpc(NodeRpc::GetVolumeStats)],
        stats
    ),
    check!(
        "node.stats-elsewhere",
        "statistics of what is not at the path are NOT_FOUND",
        [Need::Use, Need::NodeRpc(NodeRpc::GetVolumeStats)],
        stats_elsewhere
    ),
    check!(
        "node.stats-other-volume",
        "statistics of one volume at the path of another are NOT_FOUND",
        [Need::Use, Need::NodeRpc(NodeRpc::GetVolumeStats)],
        stats_other_volume
    ),
    check!(
        "node.expand",
        "an expanded volume grows at the node, which answers the size",
        [Need::Use, Need::NodeRpc(NodeRpc::ExpandVolume)],
        expand
    ),
    check!(
        "node.expand-elsewhere",
        "an expansion of what is not at the path is NOT_FOUND",
        [Need::Use, Need::NodeRpc(NodeRpc::ExpandVolume)],
        expand_elsewhere
    ),
];

async fn missing(trial: &Trial) -> Verdict {
    let used = trial.attached(trial.capability()).await?;
    let target = trial.target("missing")?;
    let invalid: &[Code] = &[Code::InvalidArgument];
    let nameless = String::new;
    let without_mode = pb::VolumeCapability { access_mode: None, ..used.capability.clone() };
    if !used.staging.is_empty() {
        const DEMANDED: &str = "volume_id, staging_target_path and volume_capability are required";
        let sound = used.stage(trial);
        for request in [
            pb::NodeStageVolumeRequest { volume_id: nameless(), ..sound.clone() },
            pb::NodeStageVolumeRequest { staging_target_path: nameless(), ..sound.clone() },
            pb::NodeStageVolumeRequest { volume_capability: None, ..sound.clone() },
            pb::NodeStageVolumeRequest {
                volume_capability: Some(without_mode.clone()),
                ..sound.clone()
            },
        ] {
            trial.ask(request).await.refused(invalid, DEMANDED)?;
        }
        for request in [
            pb::NodeUnstageVolumeRequest { volume_id: nameless(), ..used.unstage() },
            pb::NodeUnstageVolumeRequest { staging_target_path: nameless(), ..used.unstage() },
        ] {
            trial.ask(request).await.refused(invalid, DEMANDED)?;
        }
        // It is the orchestrator's mistake not to say where a volume is staged.
        let request = used.publish(trial, &target);
        let request = pb::NodePublishVolumeRequest { staging_target_path: nameless(), ..request };
        let either = [Code::FailedPrecondition, Code::InvalidArgument];
        trial.ask(request).await.refused(&either, "STAGE_UNSTAGE_VOLUME is claimed")?;
    }
    const DEMANDED: &str = "volume_id, target_path and volume_capability are required";
    let sound = used.publish(trial, &target);
    for request in [
        pb::NodePublishVolumeRequest { volume_id: nameless(), ..sound.clone() },
        pb::NodePublishVolumeRequest { target_path: nameless(), ..sound.clone() },
        pb::NodePublishVolumeRequest { volume_capability: None, ..sound.clone() },
        pb::NodePublishVolumeRequest { volume_capability: Some(without_mode), ..sound },
    ] {
        trial.ask(request).await.refused(invalid, DEMANDED)?;
    }
    for request in [
        pb::NodeUnpublishVolumeRequest { volume_id: nameless(), ..used.unpublish(&target) },
        pb::NodeUnpublishVolumeRequest { target_path: nameless(), ..used.unpublish(&target) },
    ] {
        trial.ask(request).await.refused(invalid, DEMANDED)?;
    }
    Ok(())
}

fn stats_of(used: &Used, path: &str) -> pb::NodeGetVolumeStatsRequest {
    pb::NodeGetVolumeStatsRequest {
        volume_id: used.volume.volume_id.clone(),
        volume_path: path.to_owned(),
        staging_target_path: used.staging.clone(),
    }
}

async fn stats(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("stats")?;
    trial.ask(used.publish(trial, &target)).await.ok("a staged volume can be published")?;
    let asked = trial.ask(stats_of(&used, &target.to_string_lossy())).await;
    let words = asked.asked.clone();
    let usage = asked.ok("the volume is at the path")?.usage;
    let bytes = usage.iter().filter(|one| one.unit == i32::from(Unit::Bytes)).count();
    let (came, demanded) = (format!("{usage:?}"), "one usage in bytes, at most one in inodes");
    let units = usage.len() - bytes
        == usage.iter().filter(|one| one.unit == i32::from(Unit::Inodes)).count();
    demand(bytes == 1 && units && usage.len() <= 2, words.clone(), came, demanded)?;
    for one in &usage {
        // A filesystem keeps some for root, so that the parts may be less than the whole.
        let sound = one.total > 0
            && one.used >= 0
            && one.available >= 0
            && one.used.checked_add(one.available).is_some_and(|sum| sum <= one.total);
        let demanded = "no negative number, and no more used and available than there is";
        demand(sound, words.clone(), format!("{one:?}"), demanded)?;
    }
    if trial.options.access == Access::Block {
        let total = usage.first().map_or(0, |one| one.total);
        demand(
            total >= trial.options.size,
            words,
            format!("total: {total}"),
            format!("{} at least, the size of the device", trial.options.size),
        )?;
    }
    Ok(())
}

async fn stats_elsewhere(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("stats")?;
    let not_found: &[Code] = &[Code::NotFound];
    let path = target.to_string_lossy().into_owned();
    trial.ask(stats_of(&used, &path)).await.refused(not_found, "nothing is published there")?;
    trial.ask(used.publish(trial, &target)).await.ok("a staged volume can be published")?;
    trial.ask(stats_of(&used, &path)).await.ok("the volume is at the path")?;
    let beside = format!("{path}-beside");
    trial.ask(stats_of(&used, &beside)).await.refused(not_found, "nothing is at that path")?;
    trial.ask(used.unpublish(&target)).await.ok("the volume is at the path")?;
    trial.ask(stats_of(&used, &path)).await.refused(not_found, "it is not there any more")?;
    Ok(())
}

async fn stats_other_volume(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("stats")?;
    let path = target.to_string_lossy().into_owned();
    trial.ask(used.publish(trial, &target)).await.ok("a staged volume can be published")?;
    let other = trial.volume("other").await?;
    for id in [other.volume_id.as_str(), "conformance-nothing"] {
        let request =
            pb::NodeGetVolumeStatsRequest { volume_id: id.to_owned(), ..stats_of(&used, &path) };
        let demanded = "the volume of this id does not exist on this volume_path";
        trial.ask(request).await.refused(&[Code::NotFound], demanded)?;
    }
    Ok(())
}

fn expand_at(trial: &Trial, used: &Used, path: &str, bytes: i64) -> pb::NodeExpandVolumeRequest {
    pb::NodeExpandVolumeRequest {
        volume_id: used.volume.volume_id.clone(),
        volume_path: path.to_owned(),
        capacity_range: Some(pb::CapacityRange { required_bytes: bytes, limit_bytes: 0 }),
        staging_target_path: used.staging.clone(),
        volume_capability: Some(used.capability.clone()),
        secrets: trial.options.secrets.clone(),
    }
}

async fn expand(trial: &Trial) -> Verdict {
    use pb::controller_service_capability::rpc::Type as ControllerRpc;

    let used = trial.staged().await?;
    let target = trial.target("expand")?;
    let path = target.to_string_lossy().into_owned();
    trial.ask(used.publish(trial, &target)).await.ok("a staged volume can be published")?;
    let stats = trial.driver.node_offers(NodeRpc::GetVolumeStats);
    let total = async || -> Verdict<i64> {
        if !stats {
            return Ok(0);
        }
        let usage = trial.ask(stats_of(&used, &path)).await.ok("the volume is at the path")?.usage;
        let bytes = usage.iter().find(|one| one.unit == i32::from(Unit::Bytes));
        Ok(bytes.map_or(0, |one| one.total))
    };
    let before = total().await?;
    let large = used.volume.capacity_bytes.max(trial.options.size) * 2;
    if trial.driver.offers(ControllerRpc::ExpandVolume) {
        let request = super::expand::to(trial, &used.volume.volume_id, large);
        // A volume that cannot grow while it is in use says so.
        let asked = trial.ask(request).await;
        if asked.ok_or(&[Code::FailedPrecondition], "the volume is smaller")?.is_none() {
            return Ok(());
        }
    }
    for _ in 0..2 {
        let asked = trial.ask(expand_at(trial, &used, &path, large)).await;
        let words = asked.asked.clone();
        let answer = asked.ok("the device is large enough")?;
        demand(
            answer.capacity_bytes == 0 || answer.capacity_bytes >= large,
            words,
            format!("capacity_bytes: {}", answer.capacity_bytes),
            format!("{large} at least"),
        )?;
    }
    let after = total().await?;
    demand(
        !stats || after > before,
        "NodeExpandVolume, then NodeGetVolumeStats",
        format!("total: {after}, and {before} before"),
        "more than before",
    )
}

async fn expand_elsewhere(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("expand")?;
    let path = target.to_string_lossy().into_owned();
    let request = pb::NodeExpandVolumeRequest {
        staging_target_path: String::new(),
        ..expand_at(trial, &used, &path, trial.options.size)
    };
    trial.ask(request.clone()).await.refused(&[Code::NotFound], "nothing is at that path")?;
    let volume_id = "conformance-nothing".to_owned();
    trial
        .ask(pb::NodeExpandVolumeRequest { volume_id, ..request })
        .await
        .refused(&[Code::NotFound], "there is no such volume")?;
    Ok(())
}
