//! NodePublishVolume and NodeUnpublishVolume of one target.

use std::fs;
use std::os::unix::fs::FileTypeExt;

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
    check!("node-publish.twice", "a repeated publish changes nothing", [Need::Use], twice),
    check!(
        "node-publish.other-arguments",
        "a published target with another readonly or capability is ALREADY_EXISTS",
        [Need::Use],
        other_arguments
    ),
    check!(
        "node-publish.unstaged",
        "what is not staged is not published, and leaves no target",
        [Need::Use, Need::NodeRpc(NodeRpc::StageUnstageVolume)],
        unstaged
    ),
    check!(
        "node-publish.odd-paths",
        "paths with blanks, signs and letters of any language work",
        [Need::Use],
        odd_paths
    ),
    check!(
        "node-unpublish.removes",
        "an unpublish removes the target, and can be repeated",
        [Need::Use],
        removes
    ),
    check!(
        "node-unpublish.never-published",
        "what was never published is unpublished",
        [Need::Use],
        never_published
    ),
];

async fn twice(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("twice")?;
    for _ in 0..3 {
        let asked = trial.ask(used.publish(trial, &target)).await;
        asked.ok("a staged volume can be published, and the same again")?;
    }
    let mounted = mounts::at(&target);
    demand(
        mounted <= 1,
        "NodePublishVolume, three times",
        format!("{mounted} mounts over each other at {}", target.display()),
        "one",
    )?;
    demand(
        target.metadata().is_ok(),
        "NodePublishVolume",
        format!("nothing at {}", target.display()),
        "the volume at the target path",
    )
}

async fn other_arguments(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("other")?;
    let request = used.publish(trial, &target);
    trial.ask(request.clone()).await.ok("a staged volume can be published")?;
    let other = match trial.options.access {
        Access::Mount => AccessType::Block(BlockVolume {}),
        Access::Block => AccessType::Mount(MountVolume::default()),
    };
    let other = pb::VolumeCapability { access_type: Some(other), ..used.capability.clone() };
    for request in [
        pb::NodePublishVolumeRequest { readonly: true, ..request.clone() },
        pb::NodePublishVolumeRequest { volume_capability: Some(other), ..request.clone() },
    ] {
        // A driver that does not offer the other use at all says that instead.
        let codes = [Code::AlreadyExists, Code::InvalidArgument];
        trial.ask(request).await.refused(&codes, "it is at that path in another way")?;
    }
    trial.ask(request).await.ok("it is still published as it was")?;
    Ok(())
}

async fn unstaged(trial: &Trial) -> Verdict {
    let used = trial.attached(trial.capability()).await?;
    let target = trial.target("unstaged")?;
    let asked = trial.ask(used.publish(trial, &target)).await;
    let words = asked.asked.clone();
    if asked.answer.is_ok() {
        // A device that is the right one does no harm. An empty folder would take a pod's data.
        let kind = target.metadata().map(|found| found.file_type());
        return demand(
            kind.as_ref().is_ok_and(FileTypeExt::is_block_device),
            words,
            format!("OK, and {kind:?}"),
            "a refusal: the volume is not staged at that path",
        );
    }
    demand(
        mounts::at(&target) == 0,
        words,
        format!("refused, and something is mounted at {}", target.display()),
        "nothing is mounted there",
    )
}

async fn odd_paths(trial: &Trial) -> Verdict {
    let mut used = trial.attached(trial.capability()).await?;
    for name in ["a b", "größe 容量", "a\tb", "-x", "a,b=c", "a\\040b", "'\"$(x)"] {
        let parent = trial.folder(&trial.options.target_dir.clone(), name)?;
        if !used.staging.is_empty() {
            let staging = trial.folder(&trial.options.staging_dir.clone(), name)?;
            used.staging = staging.to_string_lossy().into_owned();
        }
        let target = parent.join(name);
        trial.stage(&used).await?;
        trial.ask(used.publish(trial, &target)).await.ok("the path is only a path")?;
        demand(
            target.metadata().is_ok(),
            format!("NodePublishVolume at {target:?}"),
            "nothing is there",
            "the volume at the target path",
        )?;
        trial.ask(used.unpublish(&target)).await.ok("it is there")?;
        demand(
            target.symlink_metadata().is_err() && mounts::at(&target) == 0,
            format!("NodeUnpublishVolume at {target:?}"),
            "something is still there",
            "the driver removes the target path",
        )?;
        trial.unstage(&used).await?;
        demand(
            used.staging.is_empty() || !mounts::any_below(used.staging.as_ref()),
            format!("NodeUnstageVolume at {:?}", used.staging),
            "something is mounted there",
            "nothing is mounted there",
        )?;
    }
    Ok(())
}

async fn removes(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("removes")?;
    trial.ask(used.publish(trial, &target)).await.ok("a staged volume can be published")?;
    for _ in 0..2 {
        let asked = trial.ask(used.unpublish(&target)).await;
        let words = asked.asked.clone();
        asked.ok("it is there, or not any more")?;
        demand(
            target.symlink_metadata().is_err(),
            words,
            format!("{} is there", target.display()),
            "the driver removes the target path",
        )?;
    }
    Ok(())
}

async fn never_published(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("never")?;
    trial.ask(used.unpublish(&target)).await.ok("it is not there, which is asked for")?;
    // An empty folder is what an interrupted publish leaves.
    if fs::create_dir(&target).is_ok() {
        let left = trial.ask(used.unpublish(&target)).await.ok("nothing is mounted there");
        let there = target.symlink_metadata().is_ok();
        let _ = fs::remove_dir(&target);
        left?;
        demand(
            !there,
            "NodeUnpublishVolume of an empty folder that nothing is mounted at",
            format!("{} is there", target.display()),
            "the driver removes the target path",
        )?;
    }
    Ok(())
}
