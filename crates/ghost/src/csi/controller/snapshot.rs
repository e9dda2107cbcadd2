//! The calls about snapshots.

use ghost_csi as pb;
use tonic::Request;
use tracing::{Instrument, info_span};

use super::ControllerService;
use crate::controller::{self, SnapshotFilter, SnapshotRequest};
use crate::csi::{decode, encode};
use crate::error::Result;
use crate::operation::Key;
use crate::volume::{Parameters, Snapshot, SnapshotId, SnapshotName, VolumeId};

impl ControllerService {
    pub(super) async fn snapshot(
        &self,
        request: Request<pb::CreateSnapshotRequest>,
    ) -> Result<Snapshot> {
        let deadline = decode::deadline(request.metadata());
        let request = request.into_inner();
        let name = SnapshotName::new(request.name)?;
        let source = VolumeId::new(request.source_volume_id)
            .map_err(|error| error.context("source_volume_id"))?;
        let span = info_span!("operation", rpc = "CreateSnapshot", name = name.as_str());
        let create = SnapshotRequest {
            requirement: decode::requirement(request.accessibility_requirements, &self.key)?,
            tags: Parameters::parse_snapshot(&decode::context(request.parameters))?,
            source,
            name,
        };
        let key = Key::Snapshot(create.name.to_string());
        let controller = self.controller.clone();
        self.operations
            .run("create_snapshot", key, deadline, create, |create| async move {
                controller::create_snapshot(&controller, create).await
            })
            .instrument(span)
            .await
    }

    pub(super) async fn drop_snapshot(
        &self,
        request: Request<pb::DeleteSnapshotRequest>,
    ) -> Result<()> {
        let deadline = decode::deadline(request.metadata());
        let id = decode::snapshot_id(request.into_inner().snapshot_id)?;
        let span = info_span!("operation", rpc = "DeleteSnapshot", snapshot_id = id.as_str());
        let controller = self.controller.clone();
        let key = Key::Snapshot(id.to_string());
        self.operations
            .run("delete_snapshot", key, deadline, id, |id| async move {
                controller::delete_snapshot(&controller, &id).await
            })
            .instrument(span)
            .await
    }

    pub(super) async fn list_of_snapshots(
        &self,
        request: pb::ListSnapshotsRequest,
    ) -> Result<pb::ListSnapshotsResponse> {
        use pb::list_snapshots_response::Entry;

        let page = decode::page(request.max_entries, request.starting_token)?;
        // An id that none can have is one that is not there.
        let (Ok(id), Ok(source)) = (
            decode::filter(request.snapshot_id, SnapshotId::new),
            decode::filter(request.source_volume_id, VolumeId::new),
        ) else {
            return Ok(pb::ListSnapshotsResponse::default());
        };
        let filter = SnapshotFilter { id, source };
        let lists = &self.snapshots;
        let page = controller::list_snapshots(lists, &self.controller, &filter, &page).await?;
        let entries = page.entries.iter();
        let entries = entries.map(|one| Entry { snapshot: Some(encode::snapshot(one, &self.key)) });
        Ok(pb::ListSnapshotsResponse {
            entries: entries.collect(),
            next_token: page.next.unwrap_or_default(),
        })
    }

    pub(super) async fn one_snapshot(&self, id: String) -> Result<Snapshot> {
        let id = decode::snapshot_id(id)?;
        controller::snapshot(&self.controller, &id).await
    }
}
