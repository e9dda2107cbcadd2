//! Unstaging and unpublishing: everything at one path unmounted, and the empty path removed.
//!
//! Decided by the mount table alone, so that a dead device is no obstacle and nothing is looked at
//! that could hang. Only this one path is touched: what else is mounted of the volume stays, and
//! the device beneath is the cloud's to take away.

use std::path::{Path, PathBuf};

use super::error::domain;
use super::{Node, place};
use crate::error::Result;
use crate::volume::VolumeId;

/// What is to be unstaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnstageRequest {
    /// The volume.
    pub id: VolumeId,
    /// Where it is staged.
    pub staging: PathBuf,
}

/// What is to be unpublished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnpublishRequest {
    /// The volume.
    pub id: VolumeId,
    /// Where it is published.
    pub target: PathBuf,
}

/// Unmounts the staging path and removes it. Already done: nothing is there. Targets at which
/// pods still use the volume stay mounted.
///
/// # Errors
/// `Failed` when it is in use, or something else lies there; that is left as it is.
pub async fn unstage(node: &Node, request: &UnstageRequest) -> Result<()> {
    let unstaged = async {
        release(node, "staging path", &request.staging).await?;
        // The disk may be in use on another node before it comes back: a note of a format that was
        // begun here says nothing of it then, and must never let that node's data be erased.
        node.notes.remove(&request.id).await
    };
    unstaged
        .await
        .map_err(|error| error.context(format_args!("cannot unstage volume {}", request.id)))
}

/// Unmounts the target and removes it. Already done: nothing is there.
///
/// # Errors
/// `Failed` when it is in use, or something else lies there; that is left as it is.
pub async fn unpublish(node: &Node, request: &UnpublishRequest) -> Result<()> {
    release(node, "target path", &request.target)
        .await
        .map_err(|error| error.context(format_args!("cannot unpublish volume {}", request.id)))
}

async fn release(node: &Node, what: &str, path: &Path) -> Result<()> {
    let Some(place) = place::resolve_if_there(node, what, path).await? else { return Ok(()) };
    place::clear(node, &place).await?;
    node.host.remove_target(&place).await.map_err(domain)
}
