//! Snapshots.

use ghost_csi as pb;
use tonic::{Code, Status};

use super::fault::Fault;
use super::{Reference, SLOW, Snapshot, given, no, page};

impl Reference {
    pub(super) async fn make_snapshot(
        &self,
        request: pb::CreateSnapshotRequest,
    ) -> Result<pb::Snapshot, Status> {
        given("name", &request.name)?;
        given("source_volume_id", &request.source_volume_id)?;
        let lost = self.is(Fault::LostSnapshotMakesSecond);
        let name = self.known_as(&request.name);
        let (id, shown) = {
            let mut state = self.state();
            let named = state.snapshots.iter().find(|(_, one)| one.name == name);
            if let (Some((id, found)), false) = (named, self.is(Fault::SnapshotEachTime)) {
                let same = found.source == request.source_volume_id;
                if !same && !self.is(Fault::SnapshotOfOtherSource) {
                    return no(Code::AlreadyExists, "it is a snapshot of another volume");
                }
                return Ok(shown(id, found));
            }
            let Some(mut snapshot) = self.volume_content(&state, &request.source_volume_id) else {
                let internal = self.is(Fault::SnapshotOfNothingIsInternal);
                let code = if internal { Code::Internal } else { Code::NotFound };
                return no(code, "there is no such volume");
            };
            snapshot.name = if lost { String::new() } else { name.clone() };
            let id = format!("snapshot-{:08}", self.next());
            let shown = shown(&id, &snapshot);
            state.snapshots.insert(id.clone(), snapshot);
            (id, shown)
        };
        if lost {
            tokio::time::sleep(SLOW).await;
            if let Some(snapshot) = self.state().snapshots.get_mut(&id) {
                snapshot.name = name;
            }
        }
        Ok(shown)
    }

    pub(super) fn list_of_snapshots(
        &self,
        request: &pb::ListSnapshotsRequest,
    ) -> Result<pb::ListSnapshotsResponse, Status> {
        let state = self.state();
        let (source, only) = (&request.source_volume_id, &request.snapshot_id);
        let fits = |(id, snapshot): &(&String, &Snapshot)| {
            (source.is_empty() || snapshot.source == *source) && (only.is_empty() || *id == only)
        };
        let after = self.is(Fault::FilterAfterPaging);
        let entries: Vec<_> = state.snapshots.iter().filter(|one| after || fits(one)).collect();
        let none = entries.is_empty() && !(source.is_empty() && only.is_empty());
        if none && self.is(Fault::UnknownFilterIsNotFound) {
            return no(Code::NotFound, "there is no such snapshot");
        }
        let (entries, next_token) =
            page(self, entries, request.max_entries, &request.starting_token)?;
        let entries = entries.into_iter().filter(fits).map(|(id, snapshot)| {
            let snapshot = Some(shown(id, snapshot));
            pb::list_snapshots_response::Entry { snapshot }
        });
        Ok(pb::ListSnapshotsResponse { entries: entries.collect(), next_token })
    }

    pub(super) fn one_snapshot(&self, id: &str) -> Result<pb::GetSnapshotResponse, Status> {
        given("snapshot_id", id)?;
        match self.state().snapshots.get(id) {
            None => no(Code::NotFound, "there is no such snapshot"),
            Some(snapshot) => {
                let mut snapshot = shown(id, snapshot);
                if self.is(Fault::SnapshotGetForgets) {
                    snapshot.size_bytes = 0;
                }
                Ok(pb::GetSnapshotResponse { snapshot: Some(snapshot) })
            }
        }
    }
}

fn shown(id: &str, snapshot: &Snapshot) -> pb::Snapshot {
    pb::Snapshot {
        size_bytes: snapshot.size,
        snapshot_id: id.to_owned(),
        source_volume_id: snapshot.source.clone(),
        creation_time: Some(pb::Timestamp { seconds: 1_700_000_000, nanos: 0 }),
        ready_to_use: true,
        ..Default::default()
    }
}
