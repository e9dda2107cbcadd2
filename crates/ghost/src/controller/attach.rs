//! Attachment. The cloud's answer to the attach or detach itself is the arbiter.

use super::Controller;
use crate::backend::Attach;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{NodeId, Volume, VolumeId};

/// Attaches the volume to the node and answers it as it then is. Already done: it is attached there.
///
/// # Errors
/// `NotFound` without the volume or the node, `Precondition` naming the node that has it,
/// `Exhausted` when the node is full. It never detaches anything: who may lose a disk is not
/// decided here.
pub async fn attach(controller: &Controller, id: &VolumeId, node: &NodeId) -> Result<Volume> {
    let attached = power(controller)?.attach(id, node).await;
    match &attached {
        Ok(_) => controller.refusals.settled(id),
        Err(error) if error.kind() == ErrorKind::Precondition => {
            controller.refusals.refused(id, node);
        }
        Err(_) => {}
    }
    attached
}

/// Detaches the volume from the node, or from every node that has it when none is named. Already
/// done: it is not attached there, or there is no such volume or node.
pub async fn detach(controller: &Controller, id: &VolumeId, node: Option<&NodeId>) -> Result<()> {
    let power = power(controller)?;
    controller.refusals.settled(id);
    power.detach(id, node).await
}

fn power(controller: &Controller) -> Result<&dyn Attach> {
    controller
        .backend
        .attach()
        .ok_or_else(|| Error::unsupported("volumes of this storage are not attached to nodes"))
}
