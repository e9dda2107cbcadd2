//! ControllerPublishVolume and ControllerUnpublishVolume.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use tonic::Code;

use super::{Check, Need, check};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!("publish.twice", "a repeated publish has the same context", [Need::Attachment], twice),
    check!(
        "publish.capability",
        "a publish without a sound capability is refused",
        [Need::Attachment],
        capability
    ),
    check!(
        "publish.unknown-node",
        "a node that does not exist is NOT_FOUND",
        [Need::Attachment],
        unknown_node
    ),
    check!(
        "publish.second-node",
        "a single-node volume is not published to a second node, and it is said where it is",
        [Need::Attachment, Need::SecondNode],
        second_node
    ),
    check!(
        "publish.other-readonly",
        "a published volume with another readonly is ALREADY_EXISTS",
        [Need::Attachment, Need::Rpc(ControllerRpc::PublishReadonly)],
        other_readonly
    ),
    check!(
        "unpublish.never-published",
        "a volume that was never published is unpublished",
        [Need::Attachment],
        never_published
    ),
    check!("unpublish.twice", "a repeated unpublish succeeds", [Need::Attachment], unpublish_twice),
    check!(
        "unpublish.every-node",
        "without a node id the volume is unpublished from all nodes",
        [Need::Attachment],
        every_node
    ),
    check!(
        "unpublish.other-node",
        "unpublishing from a node where the volume is not leaves it where it is",
        [Need::Attachment, Need::SecondNode],
        other_node
    ),
    check!(
        "unpublish.gone-node",
        "unpublishing from a node that does not exist is no reason to be stuck",
        [Need::Attachment],
        gone_node
    ),
    check!(
        "publish.shown",
        "lists show at which node a volume is, and only while it is",
        [Need::Attachment, Need::Rpc(ControllerRpc::ListVolumesPublishedNodes)],
        is_shown
    ),
];

/// A node id that nobody has.
const NOBODY: &str = "conformance-no-such-node";

async fn twice(trial: &Trial) -> Verdict {
    let volume = trial.volume("twice").await?;
    let node = trial.node_id();
    let mut contexts = Vec::new();
    for _ in 0..3 {
        let asked = trial.ask(trial.attach(&volume, &node)).await;
        contexts.push(asked.ok("the volume is free, or there already")?.publish_context);
    }
    demand(
        contexts.windows(2).all(|pair| pair[0] == pair[1]),
        "ControllerPublishVolume, three times",
        format!("publish_context: {contexts:?}"),
        "the same context",
    )?;
    trial.is_at("ControllerPublishVolume", &volume.volume_id, &[node]).await
}

async fn capability(trial: &Trial) -> Verdict {
    let volume = trial.volume("capability").await?;
    let sound = trial.attach(&volume, &trial.node_id());
    let without_mode = pb::VolumeCapability { access_mode: None, ..trial.capability() };
    let without_type = pb::VolumeCapability { access_type: None, ..trial.capability() };
    for volume_capability in [None, Some(without_mode), Some(without_type)] {
        let request = pb::ControllerPublishVolumeRequest { volume_capability, ..sound.clone() };
        trial
            .ask(request)
            .await
            .refused(&[Code::InvalidArgument], "the capability is required, with mode and type")?;
    }
    trial.is_at("ControllerPublishVolume, refused", &volume.volume_id, &[]).await
}

async fn unknown_node(trial: &Trial) -> Verdict {
    let volume = trial.volume("node").await?;
    trial
        .ask(trial.attach(&volume, NOBODY))
        .await
        .refused(&[Code::NotFound], "there is no such node")?;
    trial.is_at("ControllerPublishVolume, refused", &volume.volume_id, &[]).await
}

async fn second_node(trial: &Trial) -> Verdict {
    let volume = trial.volume("second").await?;
    let first = trial.node_id();
    let second = trial.options.second_node_id.clone().unwrap_or_default();
    trial.ask(trial.attach(&volume, &first)).await.ok("the volume is free")?;
    let asked = trial.ask(trial.attach(&volume, &second)).await;
    let words = asked.asked.clone();
    let status =
        asked.refused(&[Code::FailedPrecondition], &format!("the volume is at node {first:?}"))?;
    demand(
        status.message().contains(&first),
        words,
        format!("the message {:?}", status.message()),
        format!("the message names {first:?}, the node at which the volume is"),
    )?;
    trial
        .is_at("ControllerPublishVolume, refused", &volume.volume_id, std::slice::from_ref(&first))
        .await?;
    trial.ask(trial.detach(&volume.volume_id, &first)).await.ok("the volume is there")?;
    trial.ask(trial.attach(&volume, &second)).await.ok("the volume is free again")?;
    trial.is_at("ControllerPublishVolume", &volume.volume_id, &[second]).await
}

async fn other_readonly(trial: &Trial) -> Verdict {
    let volume = trial.volume("readonly").await?;
    let request = trial.attach(&volume, &trial.node_id());
    trial.ask(request.clone()).await.ok("the volume is free")?;
    let other = pb::ControllerPublishVolumeRequest { readonly: true, ..request };
    trial
        .ask(other)
        .await
        .refused(&[Code::AlreadyExists], "the volume is there with another readonly")?;
    Ok(())
}

async fn never_published(trial: &Trial) -> Verdict {
    let volume = trial.volume("never").await?;
    for node in [trial.node_id(), String::new()] {
        let asked = trial.ask(trial.detach(&volume.volume_id, &node)).await;
        asked.ok("the volume is not there, which is what is asked for")?;
    }
    Ok(())
}

async fn unpublish_twice(trial: &Trial) -> Verdict {
    let volume = trial.volume("twice").await?;
    let node = trial.node_id();
    trial.ask(trial.attach(&volume, &node)).await.ok("the volume is free")?;
    for _ in 0..3 {
        let asked = trial.ask(trial.detach(&volume.volume_id, &node)).await;
        asked.ok("the volume is there, or not any more")?;
    }
    trial.is_at("ControllerUnpublishVolume", &volume.volume_id, &[]).await
}

async fn every_node(trial: &Trial) -> Verdict {
    let volume = trial.volume("every").await?;
    let node = trial.node_id();
    trial.ask(trial.attach(&volume, &node)).await.ok("the volume is free")?;
    let asked = trial.ask(trial.detach(&volume.volume_id, "")).await;
    let words = asked.asked.clone();
    asked.ok("an empty node_id means all nodes")?;
    trial.is_at(&words, &volume.volume_id, &[]).await?;
    // A volume that is at no node can be deleted, which also shows it where no list does.
    trial.ask(trial.delete(&volume.volume_id)).await.ok("the volume is at no node")?;
    Ok(())
}

async fn other_node(trial: &Trial) -> Verdict {
    let volume = trial.volume("other").await?;
    let first = trial.node_id();
    let second = trial.options.second_node_id.clone().unwrap_or_default();
    trial.ask(trial.attach(&volume, &first)).await.ok("the volume is free")?;
    let asked = trial.ask(trial.detach(&volume.volume_id, &second)).await;
    let words = asked.asked.clone();
    asked.ok("the volume is not there, which is what is asked for")?;
    trial.is_at(&words, &volume.volume_id, std::slice::from_ref(&first)).await?;
    trial.ask(trial.delete(&volume.volume_id)).await.refused(
        &[Code::FailedPrecondition],
        "it was unpublished from another node, and is still at the first",
    )?;
    Ok(())
}

async fn gone_node(trial: &Trial) -> Verdict {
    let volume = trial.volume("gone").await?;
    trial
        .ask(trial.detach(&volume.volume_id, NOBODY))
        .await
        .ok_or(&[Code::NotFound], "there is no such node")?;
    Ok(())
}

async fn is_shown(trial: &Trial) -> Verdict {
    let volume = trial.volume("shown").await?;
    let (id, node) = (volume.volume_id.clone(), trial.node_id());
    for there in [false, true, false] {
        if there {
            trial.ask(trial.attach(&volume, &node)).await.ok("the volume is free")?;
        } else {
            trial.ask(trial.detach(&id, &node)).await.ok("the volume is there, or was not")?;
        }
        let nodes: &[String] = if there { std::slice::from_ref(&node) } else { &[] };
        trial.is_at("publishing and unpublishing", &id, nodes).await?;
        if trial.driver.offers(ControllerRpc::ListVolumes) {
            let request = pb::ListVolumesRequest::default();
            let answer = trial.ask(request).await.ok("the list is claimed")?;
            let one = |entry: &pb::list_volumes_response::Entry| {
                entry.volume.as_ref().is_some_and(|one| one.volume_id == id)
            };
            // With many volumes it may be on a later page.
            let Some(entry) = answer.entries.into_iter().find(one) else { continue };
            let told = entry.status.unwrap_or_default().published_node_ids;
            demand(
                told == nodes,
                format!("ListVolumes while {id:?} is at {nodes:?}"),
                format!("published_node_ids: {told:?}"),
                "the nodes at which it is",
            )?;
        }
    }
    Ok(())
}
