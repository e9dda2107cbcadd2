//! What is wrong with volumes as the storage tells it.
//!
//! Where a volume is wanted, only the orchestrator knows; what it asked for last is remembered here
//! for as long as this process runs, and nothing is done by it. After a restart it is learnt again
//! when the orchestrator compares what is attached with what should be, and asks anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Controller;
use crate::error::{Error, ErrorKind, Result};
use crate::volume::{NodeId, Volume, VolumeHealth, VolumeId, VolumeProblem};

/// Where volumes were asked to be attached last. Copies share it.
#[derive(Clone, Debug, Default)]
pub struct Wanted(Arc<Mutex<HashMap<VolumeId, NodeId>>>);

impl Wanted {
    pub(super) fn attach(&self, id: &VolumeId, node: &NodeId) {
        self.lock().insert(id.clone(), node.clone());
    }

    /// The volume is not wanted on this node any more; on none, without.
    pub(super) fn detach(&self, id: &VolumeId, node: Option<&NodeId>) {
        let mut wanted = self.lock();
        if node.is_none() || wanted.get(id) == node {
            wanted.remove(id);
        }
    }

    fn of(&self, id: &VolumeId) -> Option<NodeId> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<VolumeId, NodeId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is wrong with the volume. That the storage cannot be asked is one such thing.
///
/// # Errors
/// `NotFound` when there is none.
pub async fn volume_health(controller: &Controller, id: &VolumeId) -> Result<VolumeHealth> {
    let problems = match controller.backend.get(id).await {
        Ok(Some(volume)) => judge(&volume, controller.wanted.of(id).as_ref()),
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

/// Every volume with which something is wrong, by id; also those that were attached and are gone.
pub(super) async fn unhealthy(controller: &Controller) -> Result<Vec<VolumeHealth>> {
    let volumes = controller.backend.list().await?;
    let wanted = controller.wanted.lock().clone();
    let there: HashMap<&VolumeId, &Volume> =
        volumes.iter().map(|volume| (&volume.id, volume)).collect();
    let missing = wanted
        .keys()
        .filter(|id| !there.contains_key(*id))
        .map(|id| VolumeHealth { id: id.clone(), problems: vec![VolumeProblem::VolumeMissing] });
    let judged = volumes.iter().map(|volume| VolumeHealth {
        id: volume.id.clone(),
        problems: judge(volume, wanted.get(&volume.id)),
    });
    let mut found: Vec<VolumeHealth> =
        judged.filter(|health| !health.problems.is_empty()).chain(missing).collect();
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

    #[test]
    fn what_is_wanted_is_what_was_asked_for_last() {
        let wanted = Wanted::default();
        let id = VolumeId::new("v-1").expect("an id");
        wanted.attach(&id, &node("101"));
        wanted.detach(&id, Some(&node("102")));
        assert_eq!(wanted.of(&id), Some(node("101")));
        wanted.attach(&id, &node("102"));
        wanted.detach(&id, None);
        assert_eq!(wanted.of(&id), None);
    }
}
