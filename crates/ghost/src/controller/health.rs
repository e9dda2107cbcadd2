//! What is wrong with volumes as the storage tells it.
//!
//! Where a volume is wanted, only the orchestrator knows. While it asks for an attachment that is
//! refused because another node has the volume, that is remembered here, for as long as it asks: the
//! attacher does so every minute. Nothing is done by it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::Controller;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{NodeId, Volume, VolumeHealth, VolumeId, VolumeProblem};

/// How long a refusal counts after which nobody asked again.
const COUNTS_FOR: Duration = Duration::from_secs(300);

/// The attachments that were refused a short while ago because another node has the volume. Copies
/// share them.
#[derive(Clone, Debug, Default)]
pub struct Refusals(Arc<Mutex<HashMap<VolumeId, (NodeId, Instant)>>>);

impl Refusals {
    pub(super) fn refused(&self, id: &VolumeId, node: &NodeId) {
        self.lock().insert(id.clone(), (node.clone(), Instant::now()));
    }

    /// The volume is where it was wanted, or is wanted there no more.
    pub(super) fn settled(&self, id: &VolumeId) {
        self.lock().remove(id);
    }

    /// Where the volume is wanted and could not be had.
    fn of(&self, id: &VolumeId) -> Option<NodeId> {
        self.lock().get(id).map(|(node, _)| node.clone())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VolumeId, (NodeId, Instant)>> {
        let mut refusals = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        refusals.retain(|_, (_, when)| when.elapsed() < COUNTS_FOR);
        refusals
    }
}

/// What is wrong with the volume. That the storage cannot be asked is one such thing.
///
/// # Errors
/// `NotFound` when there is none.
pub async fn volume_health(controller: &Controller, id: &VolumeId) -> Result<VolumeHealth> {
    let problems = match controller.backend.get(id).await {
        Ok(Some(volume)) => judge(&volume, controller.refusals.of(id).as_ref()),
        Ok(None) => return Err(Error::not_found(format!("there is no volume {id}"))),
        Err(error) if is_unreachable(&error) => {
            vec![VolumeProblem::CloudUnreachable(error.chain())]
        }
        Err(error) => return Err(error),
    };
    Ok(VolumeHealth { id: id.clone(), problems })
}

fn is_unreachable(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Unavailable
            | ErrorKind::Timeout
            | ErrorKind::Unauthenticated
            | ErrorKind::Refused
    )
}

/// Every volume with which something is wrong, by id.
pub(super) async fn unhealthy(controller: &Controller) -> Result<Vec<VolumeHealth>> {
    let volumes = controller.backend.list().await?;
    let judged = volumes.iter().map(|volume| VolumeHealth {
        id: volume.id.clone(),
        problems: judge(volume, controller.refusals.of(&volume.id).as_ref()),
    });
    let mut found: Vec<VolumeHealth> =
        judged.filter(|health| !health.problems.is_empty()).collect();
    found.sort_by(|a, b| a.id.cmp(&b.id));
    Ok(found)
}

fn judge(volume: &Volume, wanted: Option<&NodeId>) -> Vec<VolumeProblem> {
    let mut problems = Vec::new();
    if volume.attached.len() > 1 {
        problems.push(VolumeProblem::AttachedTwice(volume.attached.clone()));
    }
    if let (Some(wanted), Some(found)) = (wanted, volume.attached.first())
        && !volume.attached.contains(wanted)
    {
        problems.push(VolumeProblem::AttachedElsewhere {
            wanted: wanted.clone(),
            found: found.clone(),
        });
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::{Bytes, Region};

    fn node(id: &str) -> NodeId {
        NodeId::new(id).expect("an id")
    }

    #[test]
    fn a_volume_is_unhealthy_when_it_is_not_where_it_is_wanted_or_at_two_places() {
        let volume = |nodes: &[&str]| Volume {
            id: VolumeId::new("v-1").expect("an id"),
            name: "pvc-1".to_owned(),
            size: Bytes::from_gib(1),
            region: Region::new("ams1").expect("a slug"),
            attached: nodes.iter().map(|id| node(id)).collect(),
            made_blank: true,
            source: None,
            slot: None,
        };
        let reasons = |nodes: &[&str], wanted: Option<&str>| -> Vec<&str> {
            let wanted = wanted.map(node);
            judge(&volume(nodes), wanted.as_ref()).iter().map(VolumeProblem::reason).collect()
        };
        assert!(reasons(&[], None).is_empty());
        // On its way.
        assert!(reasons(&[], Some("101")).is_empty());
        assert!(reasons(&["101"], Some("101")).is_empty());
        // By hand, and nobody wants it elsewhere.
        assert!(reasons(&["102"], None).is_empty());
        assert_eq!(reasons(&["102"], Some("101")), ["AttachedElsewhere"]);
        assert_eq!(reasons(&["101", "102"], Some("101")), ["AttachedTwice"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_counts_until_it_is_settled_or_nobody_asks_any_more() {
        let refusals = Refusals::default();
        let id = VolumeId::new("v-1").expect("an id");
        refusals.refused(&id, &node("101"));
        refusals.refused(&id, &node("102"));
        assert_eq!(refusals.of(&id), Some(node("102")));
        refusals.settled(&id);
        assert_eq!(refusals.of(&id), None);
        refusals.refused(&id, &node("101"));
        tokio::time::advance(COUNTS_FOR).await;
        assert_eq!(refusals.of(&id), None);
    }
}
