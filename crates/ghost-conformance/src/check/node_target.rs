//! A second target of the same volume on the same node.

use ghost_csi as pb;
use pb::node_service_capability::rpc::Type as NodeRpc;
use pb::volume_capability::access_mode::Mode;
use tonic::Code;

use super::{Check, Need, check};
use crate::mounts;
use crate::trial::{Trial, with_mode};
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "second-target.single-node-writer",
        "SINGLE_NODE_WRITER has a second target or refuses it, each time alike",
        [Need::Use],
        single_node_writer
    ),
    check!(
        "second-target.single-writer",
        "SINGLE_NODE_SINGLE_WRITER refuses a second target",
        [Need::Use, Need::NodeRpc(NodeRpc::SingleNodeMultiWriter)],
        single_writer
    ),
    check!(
        "second-target.multi-writer",
        "SINGLE_NODE_MULTI_WRITER has a second target, which outlives the first",
        [Need::Use, Need::NodeRpc(NodeRpc::SingleNodeMultiWriter)],
        multi_writer
    ),
];

/// What became of a second target.
async fn second(trial: &Trial, mode: Mode) -> Verdict<bool> {
    let used = trial.staged_with(with_mode(trial.capability(), mode)).await?;
    let (first, second) = (trial.target("first")?, trial.target("second")?);
    trial.ask(used.publish(trial, &first)).await.ok("a staged volume can be published")?;
    let mut told = Vec::new();
    for _ in 0..2 {
        let asked = trial.ask(used.publish(trial, &second)).await;
        told.push(asked.ok_or(&[Code::FailedPrecondition], "it has a first target")?.is_some());
    }
    let words = format!("NodePublishVolume at a second target, {}", mode.as_str_name());
    demand(
        told[0] == told[1],
        words.clone(),
        if told[0] { "OK, then FAILED_PRECONDITION" } else { "FAILED_PRECONDITION, then OK" },
        "the same answer when the call is repeated",
    )?;
    if told[0] {
        trial.ask(used.unpublish(&first)).await.ok("it is at the first target")?;
        let there = second.metadata().is_ok() && first.symlink_metadata().is_err();
        demand(
            there && mounts::at(&second) <= 1,
            format!("{words}, then NodeUnpublishVolume of the first"),
            format!(
                "the first is {}there, the second has {} mounts",
                if first.symlink_metadata().is_ok() { "" } else { "not " },
                mounts::at(&second)
            ),
            "the first is gone and the second is there",
        )?;
    } else {
        demand(
            mounts::at(&second) == 0 && first.metadata().is_ok(),
            words,
            "refused, and the second is there or the first is not",
            "a refused call changes nothing",
        )?;
    }
    Ok(told[0])
}

async fn single_node_writer(trial: &Trial) -> Verdict {
    // The specification's table has FAILED_PRECONDITION, as what SHOULD be; orchestrators that do
    // not know the newer modes rely on OK, and many drivers give it.
    second(trial, Mode::SingleNodeWriter).await?;
    Ok(())
}

async fn single_writer(trial: &Trial) -> Verdict {
    let given = second(trial, Mode::SingleNodeSingleWriter).await?;
    demand(
        !given,
        "NodePublishVolume at a second target, SINGLE_NODE_SINGLE_WRITER",
        "OK",
        "FAILED_PRECONDITION: the volume has one writer, at the first target",
    )
}

async fn multi_writer(trial: &Trial) -> Verdict {
    let given = second(trial, Mode::SingleNodeMultiWriter).await?;
    demand(
        given,
        "NodePublishVolume at a second target, SINGLE_NODE_MULTI_WRITER",
        "FAILED_PRECONDITION",
        "OK: the volume has as many writers on the node as there are targets",
    )?;
    // One of them may be for reading only.
    let capability = with_mode(trial.capability(), Mode::SingleNodeMultiWriter);
    let used = trial.staged_with(capability).await?;
    let (first, second) = (trial.target("first")?, trial.target("second")?);
    trial.ask(used.publish(trial, &first)).await.ok("a staged volume can be published")?;
    if trial.options.access == crate::options::Access::Mount {
        let request = used.publish(trial, &second);
        let request = pb::NodePublishVolumeRequest { readonly: true, ..request };
        trial.ask(request).await.ok("another target has its own readonly")?;
    }
    Ok(())
}
