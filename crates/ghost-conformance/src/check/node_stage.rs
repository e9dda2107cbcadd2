//! NodeStageVolume and NodeUnstageVolume.

use ghost_csi as pb;
use pb::node_service_capability::rpc::Type as NodeRpc;
use pb::volume_capability::{AccessType, BlockVolume, MountVolume};
use tonic::Code;

use super::{Check, Need, check};
use crate::mounts;
use crate::options::Access;
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "stage.twice",
        "a repeated stage changes nothing",
        [Need::Use, Need::NodeRpc(NodeRpc::StageUnstageVolume)],
        twice
    ),
    check!(
        "stage.other-capability",
        "a staged volume with another capability is ALREADY_EXISTS",
        [Need::Use, Need::NodeRpc(NodeRpc::StageUnstageVolume)],
        other_capability
    ),
    check!(
        "stage.other-filesystem",
        "a volume with one filesystem is not staged as another, and keeps its data",
        [Need::Use, Need::Mount, Need::NodeRpc(NodeRpc::StageUnstageVolume)],
        other_filesystem
    ),
    check!(
        "unstage.never-staged",
        "what was never staged, or is gone, is unstaged",
        [Need::Use, Need::NodeRpc(NodeRpc::StageUnstageVolume)],
        never_staged
    ),
];

async fn twice(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let once = mounts::at(used.staging.as_ref());
    for _ in 0..2 {
        trial.ask(used.stage(trial)).await.ok("the same stage again")?;
    }
    let thrice = mounts::at(used.staging.as_ref());
    demand(
        thrice == once,
        "NodeStageVolume, three times",
        format!("{thrice} mounts over each other at {}", used.staging),
        format!("{once}, as after the first"),
    )?;
    for _ in 0..2 {
        trial.ask(used.unstage()).await.ok("it is staged, or not any more")?;
    }
    demand(
        !mounts::any_below(used.staging.as_ref()),
        "NodeStageVolume three times, NodeUnstageVolume twice",
        format!("something is mounted at {}", used.staging),
        "nothing is mounted there",
    )
}

async fn other_capability(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let other = match trial.options.access {
        Access::Mount => AccessType::Block(BlockVolume {}),
        Access::Block => AccessType::Mount(MountVolume {
            fs_type: trial.options.fs_type.clone(),
            ..Default::default()
        }),
    };
    let mut others = vec![other];
    if trial.options.access == Access::Mount {
        others.push(AccessType::Mount(MountVolume {
            fs_type: trial.options.other_fs_type.clone(),
            ..Default::default()
        }));
    }
    for other in others {
        let capability =
            pb::VolumeCapability { access_type: Some(other), ..used.capability.clone() };
        let request =
            pb::NodeStageVolumeRequest { volume_capability: Some(capability), ..used.stage(trial) };
        // A driver that does not offer the other use at all says that instead.
        let codes = [Code::AlreadyExists, Code::InvalidArgument];
        trial.ask(request).await.refused(&codes, "it is staged at that path in another way")?;
    }
    trial.ask(used.stage(trial)).await.ok("it is still staged as it was")?;
    Ok(())
}

async fn other_filesystem(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("filesystem")?;
    super::node_data::write(trial, &used, &target, "kept").await?;
    trial.unstage(&used).await?;
    let mut other = used.clone();
    other.capability.access_type = Some(AccessType::Mount(MountVolume {
        fs_type: trial.options.other_fs_type.clone(),
        ..Default::default()
    }));
    let asked = trial.ask(other.stage(trial)).await;
    let words = asked.asked.clone();
    if asked.answer.is_ok() {
        trial.unstage(&other).await?;
        return demand(
            false,
            words,
            "OK",
            format!("a refusal: the volume has {:?} on it", trial.options.fs_type),
        );
    }
    trial.stage(&used).await?;
    super::node_data::read(trial, &used, &target, "kept").await
}

async fn never_staged(trial: &Trial) -> Verdict {
    let used = trial.attached(trial.capability()).await?;
    for _ in 0..2 {
        trial.ask(used.unstage()).await.ok("it is not staged, which is what is asked for")?;
    }
    let staging_target_path = format!("{}/does/not/exist", used.staging);
    let request = pb::NodeUnstageVolumeRequest { staging_target_path, ..used.unstage() };
    trial.ask(request).await.ok_or(&[Code::NotFound], "there is no such path")?;
    let volume_id = "conformance-nothing".to_owned();
    let request = pb::NodeUnstageVolumeRequest { volume_id, ..used.unstage() };
    trial.ask(request).await.ok_or(&[Code::NotFound], "there is no such volume")?;
    Ok(())
}
