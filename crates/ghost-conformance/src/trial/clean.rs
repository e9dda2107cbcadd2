//! Taking away what a check has made, in the order in which an orchestrator would.

use std::fs;
use std::sync::atomic::Ordering;

use ghost_csi as pb;
use tonic::Code;

use super::{Owed, Trial};
use crate::ask::{Made, Makes};
use crate::verdict::{Asked, Ended};

impl Trial {
    /// Takes away what is owed, and answers what could not be.
    pub(crate) async fn clean(&self) -> Vec<String> {
        self.stopped.store(false, Ordering::Relaxed);
        let mut left = Vec::new();
        // A creation whose answer was lost is made again: that is how its id is learnt.
        for owed in self.listed() {
            if let Owed::Unknown(makes, _) = owed {
                left.extend(self.settle(makes).await);
            }
        }
        for step in 0..5 {
            for owed in self.listed().into_iter().rev() {
                if let Owed::Known(made) = owed
                    && place(&made) == step
                {
                    left.extend(self.undo(made).await);
                }
            }
        }
        for owed in self.listed().into_iter().rev() {
            if let Owed::Folder(folder) = owed
                && let Err(error) = fs::remove_dir(&folder)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                left.push(format!("the folder {} ({error})", folder.display()));
            }
        }
        left
    }

    /// What is owed, each thing once: a repeated call notes it again.
    fn listed(&self) -> Vec<Owed> {
        let mut known = Vec::new();
        let mut listed = self.owed().clone();
        listed.retain(|owed| match owed {
            Owed::Known(made) if known.contains(made) => false,
            Owed::Known(made) => {
                known.push(made.clone());
                true
            }
            _ => true,
        });
        listed
    }

    async fn settle(&self, makes: Makes) -> Option<String> {
        match makes {
            Makes::Nothing | Makes::Known(_) => None,
            Makes::Volume(request) => {
                let what = format!("perhaps a volume named {:?}", request.name);
                unknown(self.ask(*request).await, &what)
            }
            Makes::Snapshot(request) => {
                let what = format!("perhaps a snapshot named {:?}", request.name);
                unknown(self.ask(*request).await, &what)
            }
        }
    }

    async fn undo(&self, made: Made) -> Option<String> {
        let secrets = self.options.secrets.clone();
        match made {
            Made::Target { volume: volume_id, path: target_path } => {
                let what = format!("volume {volume_id:?} at {target_path}");
                let request = pb::NodeUnpublishVolumeRequest { volume_id, target_path };
                gone(self.ask(request).await, &what)
            }
            Made::Staging { volume: volume_id, path: staging_target_path } => {
                let what = format!("volume {volume_id:?} staged at {staging_target_path}");
                let request = pb::NodeUnstageVolumeRequest { volume_id, staging_target_path };
                gone(self.ask(request).await, &what)
            }
            Made::Attachment { volume: volume_id, node: node_id } => {
                let what = format!("volume {volume_id:?} at node {node_id:?}");
                let request = pb::ControllerUnpublishVolumeRequest { volume_id, node_id, secrets };
                gone(self.ask(request).await, &what)
            }
            Made::Snapshot(snapshot_id) => {
                let what = format!("snapshot {snapshot_id:?}");
                let request = pb::DeleteSnapshotRequest { snapshot_id, secrets };
                gone(self.ask(request).await, &what)
            }
            Made::Volume(volume_id) => {
                let what = format!("volume {volume_id:?}");
                let request = pb::DeleteVolumeRequest { volume_id, secrets };
                gone(self.ask(request).await, &what)
            }
        }
    }
}

/// In which step something is taken away. Volumes go before snapshots as often as after them, so
/// that a check decides this by its own deletions; here the dependants go first.
fn place(made: &Made) -> usize {
    match made {
        Made::Target { .. } => 0,
        Made::Staging { .. } => 1,
        Made::Attachment { .. } => 2,
        Made::Snapshot(_) => 3,
        Made::Volume(_) => 4,
    }
}

fn gone<T>(asked: Asked<T>, what: &str) -> Option<String> {
    match asked.ok_or(&[Code::NotFound], "") {
        Ok(_) | Err(Ended::Skipped(_)) => None,
        Err(Ended::Failed(failure)) => Some(format!("{what} ({})", failure.came)),
    }
}

fn unknown<T>(asked: Asked<T>, what: &str) -> Option<String> {
    let unsettled = asked.is_unsettled();
    match asked.ok("") {
        Err(Ended::Failed(failure)) if unsettled => Some(format!("{what} ({})", failure.came)),
        // A final refusal means that there is nothing.
        _ => None,
    }
}
