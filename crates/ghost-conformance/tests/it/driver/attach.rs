//! Volumes attached to nodes and detached.

use ghost_csi as pb;
use tonic::{Code, Status};

use super::fault::Fault;
use super::{NODES, Reference, SLOW, Volume, given, is_block, no};

impl Reference {
    pub(super) async fn attach(
        &self,
        request: pb::ControllerPublishVolumeRequest,
    ) -> Result<pb::ControllerPublishVolumeResponse, Status> {
        given("volume_id", &request.volume_id)?;
        given("node_id", &request.node_id)?;
        if !self.is(Fault::AttachUnchecked) {
            is_block(request.volume_capability.as_ref())?;
        }
        let (id, node) = (request.volume_id, request.node_id);
        let found = self.state().volumes.get(&id).cloned();
        let Some(volume) = found else { return no(Code::NotFound, "there is no such volume") };
        if !NODES.contains(&node.as_str()) {
            let internal = self.is(Fault::UnknownNodeIsInternal);
            let code = if internal { Code::Internal } else { Code::NotFound };
            return no(code, format!("there is no node {node}"));
        }
        match &volume.at {
            Some((at, _)) if *at != node => {
                let shown = if self.is(Fault::SecondNodeUnnamed) { "another" } else { at };
                return no(Code::FailedPrecondition, format!("the volume is at node {shown}"));
            }
            Some((_, readonly))
                if *readonly != request.readonly && !self.is(Fault::ReadonlyIgnored) =>
            {
                return no(Code::AlreadyExists, "the volume is there with another readonly");
            }
            _ => {}
        }
        if self.is(Fault::PublishRaces) {
            tokio::time::sleep(SLOW).await;
        }
        self.be_busy(&id).await?;
        if self.is(Fault::LostPublishStaysBusy) {
            if self.state().busy.contains(&id) {
                return no(Code::Aborted, "another call is at it");
            }
            self.state().busy.push(id.clone());
            tokio::time::sleep(SLOW).await;
            self.state().busy.retain(|one| *one != id);
        }
        let changes = self.is(Fault::PublishContextChanges);
        let place = if changes { self.next().to_string() } else { "0".to_owned() };
        match self.state().volumes.get_mut(&id) {
            None => return no(Code::NotFound, "there is no such volume any more"),
            // Another caller may have been faster.
            Some(Volume { at: Some((at, _)), .. })
                if *at != node && !self.is(Fault::PublishRaces) =>
            {
                return no(Code::FailedPrecondition, format!("the volume is at node {at}"));
            }
            Some(volume) => volume.at = Some((node, request.readonly)),
        }
        let publish_context = [("place".to_owned(), place)].into();
        Ok(pb::ControllerPublishVolumeResponse { publish_context })
    }

    /// Takes long over a call on a volume, and refuses all others meanwhile, if that is the fault.
    pub(super) async fn be_busy(&self, id: &str) -> Result<(), Status> {
        if !self.is(Fault::BusyIsInternal) {
            return Ok(());
        }
        {
            let mut state = self.state();
            if state.busy.iter().any(|one| one == id) {
                return no(Code::Internal, "another call is at it");
            }
            state.busy.push(id.to_owned());
        }
        tokio::time::sleep(SLOW).await;
        self.state().busy.retain(|one| one != id);
        Ok(())
    }

    pub(super) async fn detach(&self, id: String, node: String) -> Result<(), Status> {
        given("volume_id", &id)?;
        if self.is(Fault::LostUnpublishStays) {
            let at = self.state().volumes.get(&id).and_then(|volume| volume.at.clone());
            if at.is_some() && !self.state().busy.contains(&id) {
                self.state().busy.push(id.clone());
                tokio::time::sleep(SLOW).await;
                self.state().busy.retain(|one| *one != id);
                if let Some(volume) = self.state().volumes.get_mut(&id) {
                    volume.at = None;
                }
            }
            return Ok(());
        }
        self.be_busy(&id).await?;
        if self.is(Fault::GoneNodeIsStuck) && !node.is_empty() && !NODES.contains(&node.as_str()) {
            return no(Code::Internal, "there is no such node");
        }
        let free = self.state().volumes.get(&id).is_some_and(|volume| volume.at.is_none());
        if self.is(Fault::UnpublishNeedsPublished) && free {
            return no(Code::FailedPrecondition, "the volume is at no node");
        }
        let every = node.is_empty() && !self.is(Fault::EmptyNodeIsNone);
        let any = every || self.is(Fault::AnyNodeUnpublishes);
        if let Some(volume) = self.state().volumes.get_mut(&id)
            && (any || volume.at.as_ref().is_some_and(|(at, _)| *at == node))
        {
            volume.at = None;
        }
        Ok(())
    }

    pub(super) fn nodes(&self, volume: &Volume) -> Vec<String> {
        let shown = !self.is(Fault::NodesNotShown);
        volume.at.iter().filter(|_| shown).map(|(node, _)| node.clone()).collect()
    }
}
