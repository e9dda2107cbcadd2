//! Publishing: the staged filesystem, or the device itself, shown at the target path of a pod.

use std::path::{Path, PathBuf};

use ghost_host::{Access, MountEntry, TargetKind};

use super::error::domain;
use super::stage::access_of;
use super::{Node, place};
use crate::error::{Error, Result};
use crate::volume::{AccessMode, AccessType, Capability, Locator};

mod block;
mod filesystem;

/// What is to be published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishRequest {
    /// Where the data is.
    pub locator: Locator,
    /// Where it is staged.
    pub staging: PathBuf,
    /// Where it is to be seen.
    pub target: PathBuf,
    /// How it is to be used.
    pub capability: Capability,
    /// Whether this one user may write to it.
    pub access: Access,
}

/// Shows the volume at the target, which is made. Already done: it is there with the same access.
/// What is there and dead, or stacked, is taken off first.
///
/// A filesystem is bound from the staging path, read-only if anything asks for that. A device is
/// bound as itself; a read-only bind of a device node would keep nobody from writing to the device,
/// so that it is refused.
///
/// Several targets on this node are part of every mode but `SINGLE_NODE_SINGLE_WRITER`: Kubernetes
/// publishes a `ReadWriteOnce` volume (`SINGLE_NODE_WRITER`) once for each pod of the node, and
/// asks for the other mode where it means one pod only.
///
/// After an error nothing is mounted at the target that was not before. A crash leaves a target
/// that is empty, or a mount that the next call finds.
///
/// # Errors
/// `Precondition` when the volume is not staged at the staging path, or has its only target
/// elsewhere; `Conflict` when something else, or the volume with other access, is at the target;
/// `Invalid` for a read-only device; `Unavailable` while the disk is not there.
pub async fn publish(node: &Node, request: &PublishRequest) -> Result<()> {
    let Locator::Disk(disk) = &request.locator;
    let published = match &request.capability.access {
        AccessType::Mount { filesystem, .. } => {
            filesystem::publish(node, disk, request, *filesystem).await
        }
        AccessType::Block => block::publish(node, disk, request).await,
    };
    published.map_err(|error| error.context(format_args!("cannot publish volume {}", disk.id)))
}

/// Reading only wins wherever it was said: by the call, the mode or a mount option.
fn effective_access(request: &PublishRequest) -> Access {
    match (request.access, access_of(&request.capability)) {
        (Access::ReadWrite, Access::ReadWrite) => Access::ReadWrite,
        _ => Access::ReadOnly,
    }
}

/// One mount at the target.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Layer {
    /// The volume, as it is to be shown but perhaps for the access.
    Own(Access),
    /// Something without a device that would answer.
    Dead,
    /// Something else that is in order, in words.
    Other(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Done,
    Bind,
    ClearAndBind,
}

/// Decides by what is mounted at the target, the topmost last.
fn decide_target(layers: &[Layer], access: Access) -> Result<Step> {
    let other = layers.iter().find_map(|layer| match layer {
        Layer::Other(what) => Some(what),
        Layer::Own(_) | Layer::Dead => None,
    });
    if let Some(what) = other {
        return Err(Error::conflict(format!("the target path is taken by {what}")));
    }
    match layers {
        [] => Ok(Step::Bind),
        [Layer::Own(present)] if *present == access => Ok(Step::Done),
        [.., Layer::Own(present)] if *present != access => Err(Error::conflict(format!(
            "the volume is published there for {}, but {} is asked for; unpublish it first",
            super::stage::purpose(*present),
            super::stage::purpose(access)
        ))),
        _ => Ok(Step::ClearAndBind),
    }
}

/// Decides whether one more target may be, besides these.
fn decide_others(capability: &Capability, others: &[&MountEntry]) -> Result<()> {
    match others.first() {
        Some(other) if capability.mode == AccessMode::SingleNodeSingleWriter => {
            Err(Error::precondition(format!(
                "access mode {} allows one target, and the volume is published at {}",
                capability.mode,
                other.target.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Makes the target and binds the source to it.
async fn bind(
    node: &Node,
    source: &Path,
    target: &Path,
    kind: TargetKind,
    access: Access,
) -> Result<()> {
    node.host.create_target(target, kind).await.map_err(domain)?;
    node.host.bind(source, target, access).await.map_err(domain)
}

/// After a failure: leaves nothing at the target. What cannot be taken away is told in the log, and
/// the next call finds it.
async fn undo(node: &Node, target: &Path) {
    let undone = match place::clear(node, target).await {
        Ok(()) => node.host.remove_target(target).await.map_err(domain),
        Err(error) => Err(error),
    };
    if let Err(error) = undone {
        tracing::warn!(target_path = %target.display(), error = error.chain(),
            "a target that was not finished is left");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use Access::{ReadOnly, ReadWrite};

    #[test]
    fn b23_b27_what_is_mounted_at_the_target_decides() {
        let other = || Layer::Other("a tmpfs".to_owned());
        let own = Layer::Own;
        let table = [
            (vec![], Ok(Step::Bind)),
            (vec![own(ReadWrite)], Ok(Step::Done)),
            (vec![own(ReadOnly)], Err(ErrorKind::Conflict)),
            (vec![own(ReadWrite), own(ReadWrite), own(ReadWrite)], Ok(Step::ClearAndBind)),
            (vec![own(ReadWrite), own(ReadOnly)], Err(ErrorKind::Conflict)),
            (vec![Layer::Dead], Ok(Step::ClearAndBind)),
            (vec![Layer::Dead, own(ReadWrite)], Ok(Step::ClearAndBind)),
            (vec![own(ReadWrite), Layer::Dead], Ok(Step::ClearAndBind)),
            (vec![other()], Err(ErrorKind::Conflict)),
            (vec![other(), own(ReadWrite)], Err(ErrorKind::Conflict)),
            (vec![other(), Layer::Dead], Err(ErrorKind::Conflict)),
        ];
        for (layers, expected) in table {
            let step = decide_target(&layers, ReadWrite).map_err(|error| error.kind());
            assert_eq!(step, expected, "{layers:?}");
        }
    }
}
