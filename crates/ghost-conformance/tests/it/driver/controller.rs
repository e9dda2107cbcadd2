//! The Controller service.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as Rpc;
use tonic::{Code, Request, Status};

use super::fault::Fault;
use super::{
    Answer, MIB, NODES, Reference, SLOW, Snapshot, State, Volume, disk, given, is_block, no, page,
};

/// The largest volume, in bytes.
const LARGEST: i64 = MIB * 1024;

impl Reference {
    /// The key under which a name is known.
    pub(super) fn known_as(&self, name: &str) -> String {
        if self.is(Fault::NamesCleaned) {
            let clean =
                |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
            return name.chars().map(clean).collect();
        }
        if self.is(Fault::NamesCut) {
            return name.chars().take(64).collect();
        }
        name.to_owned()
    }

    fn check_name(&self, name: &str) -> Result<(), Status> {
        if !self.is(Fault::NameOptional) {
            given("name", name)?;
        }
        if name.len() > 128 && self.is(Fault::LongNameFails) {
            return no(Code::Internal, "the disk cannot be made");
        }
        if name.len() > 128 {
            return no(Code::InvalidArgument, "the name is longer than 128 bytes");
        }
        if self.is(Fault::NamesAreFiles) && name.contains('/') {
            return no(Code::InvalidArgument, "the name has a slash");
        }
        if self.is(Fault::NamesAreAscii) && !name.is_ascii() {
            return no(Code::InvalidArgument, "the name is not ASCII");
        }
        if self.is(Fault::ControlFails) && name.contains('\u{7}') {
            return no(Code::Internal, "strange name");
        }
        Ok(())
    }

    /// The size for a range.
    fn size(&self, range: Option<&pb::CapacityRange>) -> Result<i64, Status> {
        if range.is_none() && self.is(Fault::SizeRequired) {
            return no(Code::InvalidArgument, "capacity_range is missing");
        }
        let (mut required, mut limit) = range.map_or((0, 0), |r| (r.required_bytes, r.limit_bytes));
        if self.is(Fault::NegativeSizeTaken) {
            (required, limit) = (required.max(0), limit.max(0));
        }
        if required < 0 || limit < 0 {
            return no(Code::InvalidArgument, "a size is negative");
        }
        if limit > 0 && required > limit {
            return no(Code::InvalidArgument, "required_bytes is more than limit_bytes");
        }
        if required > LARGEST {
            return no(Code::OutOfRange, "no volume is that large");
        }
        let rounded = if self.is(Fault::RoundsDown) {
            required / MIB * MIB
        } else {
            required.div_euclid(MIB) * MIB + if required % MIB > 0 { MIB } else { 0 }
        };
        let size = rounded.max(MIB);
        if limit > 0 && size > limit && !self.is(Fault::LimitIgnored) {
            return no(Code::OutOfRange, format!("sizes are multiples of {MIB} bytes"));
        }
        Ok(size)
    }

    fn check_source(
        &self,
        state: &State,
        source: Option<&pb::VolumeContentSource>,
    ) -> Result<(i64, Vec<u8>), Status> {
        use pb::volume_content_source::Type;
        let Some(source) = source else { return Ok((0, Vec::new())) };
        let found = match &source.r#type {
            None => return no(Code::InvalidArgument, "the content source is empty"),
            Some(Type::Snapshot(one)) => state.snapshots.get(&one.snapshot_id).map(|snapshot| {
                if self.is(Fault::RestoreIsLive) {
                    (snapshot.size, disk::content(&self.disk(&snapshot.source)))
                } else {
                    (snapshot.size, snapshot.content.clone())
                }
            }),
            Some(Type::Volume(one)) => state.volumes.get(&one.volume_id).map(|volume| {
                let blank = self.is(Fault::CloneIsBlank);
                let content =
                    if blank { Vec::new() } else { disk::content(&self.disk(&one.volume_id)) };
                (volume.size, content)
            }),
        };
        match found {
            Some(found) => Ok(found),
            None if self.is(Fault::BlankForUnknownSource) => Ok((0, Vec::new())),
            None => no(Code::NotFound, "the content source does not exist"),
        }
    }

    fn check_topology(&self, requirement: Option<&pb::TopologyRequirement>) -> Result<(), Status> {
        let requisite = requirement.map_or(&[][..], |one| &one.requisite);
        let here = |one: &pb::Topology| {
            one.segments.get("topology.example/zone").is_some_and(|zone| zone == "a")
        };
        if requisite.is_empty() || requisite.iter().any(here) || self.is(Fault::TopologyIgnored) {
            return Ok(());
        }
        no(Code::ResourceExhausted, "there is no storage in any of these topologies")
    }

    async fn create(&self, request: pb::CreateVolumeRequest) -> Result<pb::Volume, Status> {
        if let (true, Some(secret)) =
            (self.is(Fault::SecretInMessage), request.secrets.values().next())
        {
            self.check_name(&request.name).map_err(|status| {
                Status::new(status.code(), format!("cannot log in as {secret}"))
            })?;
        }
        self.check_name(&request.name)?;
        let unchecked = self.is(Fault::CapabilitiesUnchecked);
        if request.volume_capabilities.is_empty() && !unchecked {
            return no(Code::InvalidArgument, "the volume capabilities are missing");
        }
        let mut block = false;
        for capability in request.volume_capabilities.iter().filter(|_| !unchecked) {
            block = is_block(Some(capability))?;
        }
        if let Some(key) = request.parameters.keys().next() {
            return no(Code::InvalidArgument, format!("parameter {key:?} is not known"));
        }
        self.check_topology(request.accessibility_requirements.as_ref())?;
        let key = self.known_as(&request.name);
        if self.state().kept.contains(&key) {
            return no(Code::AlreadyExists, "a volume had that name");
        }
        if self.is(Fault::CreateRaces) && self.named(&key).is_none() {
            tokio::time::sleep(SLOW).await;
            let size = self.size(request.capacity_range.as_ref())?;
            let id = self.insert(&request, key, size, block)?;
            return Ok(self.told(&id));
        }
        let counted = self.state().volumes.len();
        if self.is(Fault::IdsCounted) {
            tokio::time::sleep(SLOW).await;
        }
        if let Some(id) = self.named(&key) {
            self.check_same(&id, &request)?;
            return Ok(self.told(&id));
        }
        let size = match self.size(request.capacity_range.as_ref()) {
            Err(status) if self.is(Fault::RefusedCreateLeavesVolume) => {
                if status.code() == Code::OutOfRange {
                    self.insert(&request, key, MIB, block)?;
                }
                return Err(status);
            }
            size => size?,
        };
        let id = if self.is(Fault::LostCreateMakesSecond) {
            let id = self.insert(&request, String::new(), size, block)?;
            tokio::time::sleep(SLOW).await;
            if let Some(volume) = self.state().volumes.get_mut(&id) {
                volume.name = key;
            }
            id
        } else {
            self.insert(&request, key, size, block)?
        };
        if self.is(Fault::IdsCounted) {
            let mut state = self.state();
            let volume = state.volumes.remove(&id).expect("it was just made");
            state.volumes.insert(format!("volume-{counted}"), volume);
            drop(state);
            return Ok(self.told(&format!("volume-{counted}")));
        }
        Ok(self.told(&id))
    }

    fn named(&self, key: &str) -> Option<String> {
        let state = self.state();
        let found = state.volumes.iter().find(|(_, volume)| volume.name == key);
        found.map(|(id, _)| id.clone())
    }

    fn check_same(&self, id: &str, request: &pb::CreateVolumeRequest) -> Result<(), Status> {
        let state = self.state();
        let Some(volume) = state.volumes.get(id) else { return Ok(()) };
        let range = request.capacity_range.unwrap_or_default();
        if self.is(Fault::SizeMustBeEqual) && range != volume.range {
            return no(Code::AlreadyExists, "it exists with another range");
        }
        let fits = volume.size >= range.required_bytes
            && (range.limit_bytes == 0 || volume.size <= range.limit_bytes);
        if !fits && !self.is(Fault::SizeIgnoredOnRepeat) {
            return no(Code::AlreadyExists, format!("it exists with {} bytes", volume.size));
        }
        let same = volume.source == request.volume_content_source;
        if !same && !self.is(Fault::SourceIgnoredOnRepeat) {
            return no(Code::AlreadyExists, "it exists with another content");
        }
        Ok(())
    }

    fn insert(
        &self,
        request: &pb::CreateVolumeRequest,
        key: String,
        size: i64,
        block: bool,
    ) -> Result<String, Status> {
        let mut state = self.state();
        // Another caller may have been faster.
        let named = state.volumes.iter().find(|(_, volume)| volume.name == key);
        if let (Some((id, _)), false) = (named, key.is_empty() || self.is(Fault::CreateRaces)) {
            return Ok(id.clone());
        }
        let source = request.volume_content_source.clone();
        let (least, content) = self.check_source(&state, source.as_ref())?;
        let limit = request.capacity_range.map_or(0, |range| range.limit_bytes);
        if limit > 0 && least > limit && !self.is(Fault::RestoreShrinks) {
            return no(Code::OutOfRange, format!("the content has {least} bytes"));
        }
        let size = if self.is(Fault::RestoreShrinks) { size } else { size.max(least) };
        let id = format!("volume-{:08}", self.next());
        disk::make(&self.disk(&id), block, size)?;
        if !content.is_empty() {
            disk::fill(&self.disk(&id), &content)?;
        }
        let range = request.capacity_range.unwrap_or_default();
        let volume = Volume {
            name: key,
            range,
            size,
            filesystem_size: size,
            block,
            source,
            at: None,
            filesystem: None,
            told: false,
        };
        state.volumes.insert(id.clone(), volume);
        if let (true, Some(secret)) =
            (self.is(Fault::SecretInContext), request.secrets.values().next())
        {
            state.secret = Some(secret.clone());
        }
        Ok(id)
    }

    /// The volume as an answer to its creation.
    fn told(&self, id: &str) -> pb::Volume {
        let mut state = self.state();
        let context = state.secret.clone().map(|secret| ("login".to_owned(), secret));
        let Some(volume) = state.volumes.get_mut(id) else { return pb::Volume::default() };
        let mut shown = self.shown(id, volume);
        shown.volume_context.extend(context);
        if volume.told && self.is(Fault::SourceForgotten) {
            shown.content_source = None;
        }
        if volume.told && self.is(Fault::TopologyForgotten) {
            shown.accessible_topology.clear();
        }
        if volume.told && self.is(Fault::ContextForgotten) {
            shown.volume_context.clear();
        }
        volume.told = true;
        shown
    }

    fn shown(&self, id: &str, volume: &Volume) -> pb::Volume {
        pb::Volume {
            capacity_bytes: volume.size,
            volume_id: id.to_owned(),
            volume_context: [("block".to_owned(), volume.block.to_string())].into(),
            content_source: volume.source.clone(),
            accessible_topology: vec![self.topology()],
        }
    }

    fn listed(&self, id: &str, volume: &Volume) -> pb::Volume {
        let more = if self.is(Fault::ListSizeWrong) { MIB } else { 0 };
        pb::Volume { capacity_bytes: volume.size + more, ..self.shown(id, volume) }
    }

    pub(super) fn topology(&self) -> pb::Topology {
        pb::Topology { segments: [("topology.example/zone".to_owned(), "a".to_owned())].into() }
    }

    fn delete(&self, id: &str) -> Result<(), Status> {
        if self.is(Fault::EmptyIdIsFine) && id.is_empty() {
            return Ok(());
        }
        given("volume_id", id)?;
        let mut state = self.state();
        let Some(volume) = state.volumes.get(id) else {
            let again = state.deleted.iter().any(|deleted| deleted == id);
            let fails = again && self.is(Fault::DeleteTwiceFails);
            if fails || self.is(Fault::DeleteUnknownIsNotFound) {
                return no(Code::NotFound, "there is no such volume");
            }
            return Ok(());
        };
        if let (Some((node, _)), false) = (&volume.at, self.is(Fault::DeletesPublished)) {
            return no(Code::FailedPrecondition, format!("the volume is at node {node}"));
        }
        let name = volume.name.clone();
        state.volumes.remove(id);
        state.deleted.push(id.to_owned());
        if self.is(Fault::DeletedNameIsTaken) {
            state.kept.push(name);
        }
        if self.is(Fault::SnapshotsGoWithVolume) {
            state.snapshots.retain(|_, snapshot| snapshot.source != id);
        }
        Ok(())
    }

    async fn attach(
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
    async fn be_busy(&self, id: &str) -> Result<(), Status> {
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

    async fn detach(&self, id: String, node: String) -> Result<(), Status> {
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

    fn nodes(&self, volume: &Volume) -> Vec<String> {
        let shown = !self.is(Fault::NodesNotShown);
        volume.at.iter().filter(|_| shown).map(|(node, _)| node.clone()).collect()
    }

    fn list(&self, request: &pb::ListVolumesRequest) -> Result<pb::ListVolumesResponse, Status> {
        use pb::list_volumes_response::{Entry, VolumeStatus};
        let state = self.state();
        let entries = state.volumes.iter().collect();
        let (shown, next_token) =
            page(self, entries, request.max_entries, &request.starting_token)?;
        let mut entries: Vec<Entry> = shown
            .into_iter()
            .map(|(id, volume)| Entry {
                volume: Some(self.listed(id, volume)),
                status: Some(VolumeStatus { published_node_ids: self.nodes(volume) }),
            })
            .collect();
        if let (true, Some(id)) = (self.is(Fault::DeletedIsListed), state.deleted.last()) {
            let volume = pb::Volume { volume_id: id.clone(), ..Default::default() };
            entries.push(Entry { volume: Some(volume), status: None });
        }
        Ok(pb::ListVolumesResponse { entries, next_token })
    }

    fn expand(
        &self,
        request: &pb::ControllerExpandVolumeRequest,
    ) -> Result<pb::ControllerExpandVolumeResponse, Status> {
        given("volume_id", &request.volume_id)?;
        let none = self.is(Fault::ExpandNeedsNoSize).then(pb::CapacityRange::default);
        let Some(range) = request.capacity_range.or(none) else {
            return no(Code::InvalidArgument, "capacity_range is missing");
        };
        let mut state = self.state();
        let Some(volume) = state.volumes.get_mut(&request.volume_id) else {
            return no(Code::NotFound, "there is no such volume");
        };
        if range.limit_bytes > 0
            && range.required_bytes <= range.limit_bytes
            && range.limit_bytes < volume.size
            && !self.is(Fault::ExpandIgnoresLimit)
        {
            return no(Code::OutOfRange, format!("the volume has {} bytes", volume.size));
        }
        let ignored = self.is(Fault::ExpandIgnoresLimit) && range.limit_bytes < volume.size;
        let range =
            pb::CapacityRange { limit_bytes: if ignored { 0 } else { range.limit_bytes }, ..range };
        let wanted = self.size(Some(&range))?;
        volume.size = if self.is(Fault::GrowsEachTime) && wanted <= volume.size {
            volume.size * 2
        } else {
            volume.size.max(wanted)
        };
        if volume.block {
            let file =
                std::fs::OpenOptions::new().write(true).open(self.disk(&request.volume_id))?;
            file.set_len(u64::try_from(volume.size).unwrap_or(0))?;
        }
        let (capacity_bytes, node_expansion_required) = (volume.size, !volume.block);
        Ok(pb::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required })
    }

    fn validate(
        &self,
        request: pb::ValidateVolumeCapabilitiesRequest,
    ) -> Result<pb::ValidateVolumeCapabilitiesResponse, Status> {
        use pb::validate_volume_capabilities_response::Confirmed;
        given("volume_id", &request.volume_id)?;
        if request.volume_capabilities.is_empty() {
            return no(Code::InvalidArgument, "the volume capabilities are missing");
        }
        let state = self.state();
        let Some(volume) = state.volumes.get(&request.volume_id) else {
            return no(Code::NotFound, "there is no such volume");
        };
        if self.is(Fault::ConfirmsNothing) {
            let confirmed = Some(Confirmed::default());
            return Ok(pb::ValidateVolumeCapabilitiesResponse { confirmed, ..Default::default() });
        }
        for capability in &request.volume_capabilities {
            if is_block(Some(capability))? != volume.block {
                let message = "the volume is of the other kind".to_owned();
                return Ok(pb::ValidateVolumeCapabilitiesResponse { confirmed: None, message });
            }
        }
        Ok(pb::ValidateVolumeCapabilitiesResponse {
            confirmed: Some(Confirmed {
                volume_context: request.volume_context,
                volume_capabilities: request.volume_capabilities,
                parameters: request.parameters,
                mutable_parameters: request.mutable_parameters,
            }),
            message: String::new(),
        })
    }

    fn claims(&self) -> Vec<Rpc> {
        let mut claims = vec![
            Rpc::CreateDeleteVolume,
            Rpc::PublishUnpublishVolume,
            Rpc::ListVolumes,
            Rpc::GetCapacity,
            Rpc::CreateDeleteSnapshot,
            Rpc::ListSnapshots,
            Rpc::CloneVolume,
            Rpc::PublishReadonly,
            Rpc::ExpandVolume,
            Rpc::ListVolumesPublishedNodes,
            Rpc::GetVolume,
            Rpc::SingleNodeMultiWriter,
            Rpc::ModifyVolume,
            Rpc::ListVolumeHealth,
        ];
        if !self.is(Fault::UnclaimedAnswered) {
            claims.push(Rpc::GetSnapshot);
        }
        if !self.is(Fault::HealthListAlone) {
            claims.push(Rpc::GetVolumeHealth);
        }
        if self.is(Fault::ClaimedTwice) {
            claims.push(Rpc::GetVolume);
        }
        claims
    }

    fn capacity(&self, request: &pb::GetCapacityRequest) -> pb::GetCapacityResponse {
        let here = |one: &pb::Topology| *one == self.topology();
        let here = request.accessible_topology.as_ref().is_none_or(here);
        let all = here || self.is(Fault::CapacityEverywhere);
        pb::GetCapacityResponse {
            available_capacity: match all {
                true if self.is(Fault::CapacityNegative) => -1,
                true => LARGEST,
                false => 0,
            },
            maximum_volume_size: Some(LARGEST),
            minimum_volume_size: Some(MIB),
        }
    }

    pub(super) fn volume_content(&self, state: &State, id: &str) -> Option<Snapshot> {
        let volume = state.volumes.get(id)?;
        Some(Snapshot {
            name: String::new(),
            source: id.to_owned(),
            size: volume.size,
            content: disk::content(&self.disk(id)),
        })
    }
}

#[tonic::async_trait]
impl pb::controller_server::Controller for Reference {
    async fn create_volume(
        &self,
        request: Request<pb::CreateVolumeRequest>,
    ) -> Answer<pb::CreateVolumeResponse> {
        let made = self.create(request.into_inner()).await;
        self.answer(made.map(|volume| pb::CreateVolumeResponse { volume: Some(volume) }))
    }

    async fn delete_volume(
        &self,
        request: Request<pb::DeleteVolumeRequest>,
    ) -> Answer<pb::DeleteVolumeResponse> {
        let id = request.into_inner().volume_id;
        if self.is(Fault::DeleteRaces) && self.state().volumes.contains_key(&id) {
            tokio::time::sleep(SLOW).await;
            if !self.state().volumes.contains_key(&id) {
                return self.answer(no(Code::Internal, "its disk is gone"));
            }
        }
        let gone = self.delete(&id);
        self.answer(gone.map(|()| pb::DeleteVolumeResponse {}))
    }

    async fn controller_publish_volume(
        &self,
        request: Request<pb::ControllerPublishVolumeRequest>,
    ) -> Answer<pb::ControllerPublishVolumeResponse> {
        let attached = self.attach(request.into_inner()).await;
        self.answer(attached)
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<pb::ControllerUnpublishVolumeRequest>,
    ) -> Answer<pb::ControllerUnpublishVolumeResponse> {
        let request = request.into_inner();
        let detached = self.detach(request.volume_id, request.node_id).await;
        self.answer(detached.map(|()| pb::ControllerUnpublishVolumeResponse {}))
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<pb::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<pb::ValidateVolumeCapabilitiesResponse> {
        self.answer(self.validate(request.into_inner()))
    }

    async fn list_volumes(
        &self,
        request: Request<pb::ListVolumesRequest>,
    ) -> Answer<pb::ListVolumesResponse> {
        self.answer(self.list(&request.into_inner()))
    }

    async fn controller_get_volume(
        &self,
        request: Request<pb::ControllerGetVolumeRequest>,
    ) -> Answer<pb::ControllerGetVolumeResponse> {
        use pb::controller_get_volume_response::VolumeStatus;
        let id = request.into_inner().volume_id;
        let found = given("volume_id", &id).and_then(|()| {
            let state = self.state();
            let Some(volume) = state.volumes.get(&id) else {
                return no(Code::NotFound, "there is no such volume");
            };
            let status = Some(VolumeStatus { published_node_ids: self.nodes(volume) });
            let mut volume = self.shown(&id, volume);
            if self.is(Fault::GetForgetsSize) {
                volume.capacity_bytes = 0;
            }
            let volume = Some(volume);
            Ok(pb::ControllerGetVolumeResponse { volume, status })
        });
        self.answer(found)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<pb::ControllerExpandVolumeRequest>,
    ) -> Answer<pb::ControllerExpandVolumeResponse> {
        self.answer(self.expand(&request.into_inner()))
    }

    async fn controller_modify_volume(
        &self,
        request: Request<pb::ControllerModifyVolumeRequest>,
    ) -> Answer<pb::ControllerModifyVolumeResponse> {
        let request = request.into_inner();
        let there = self.state().volumes.contains_key(&request.volume_id);
        let unknown = request.mutable_parameters.keys().next();
        let modified = given("volume_id", &request.volume_id).and_then(|()| match unknown {
            _ if !there => no(Code::NotFound, "there is no such volume"),
            Some(key) if !self.is(Fault::ModifyTakesAnything) => {
                no(Code::InvalidArgument, format!("mutable parameter {key:?} is not known"))
            }
            _ => Ok(pb::ControllerModifyVolumeResponse {}),
        });
        self.answer(modified)
    }

    async fn get_capacity(
        &self,
        request: Request<pb::GetCapacityRequest>,
    ) -> Answer<pb::GetCapacityResponse> {
        if self.is(Fault::ClaimedUnimplemented) {
            return self.answer(no(Code::Unimplemented, "nobody knows"));
        }
        self.answer(Ok(self.capacity(&request.into_inner())))
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<pb::ControllerGetCapabilitiesRequest>,
    ) -> Answer<pb::ControllerGetCapabilitiesResponse> {
        use pb::controller_service_capability::{self, Type};
        let capabilities = self.claims().into_iter().map(|rpc| pb::ControllerServiceCapability {
            r#type: Some(Type::Rpc(controller_service_capability::Rpc { r#type: rpc.into() })),
        });
        let capabilities = capabilities.collect();
        self.answer(Ok(pb::ControllerGetCapabilitiesResponse { capabilities }))
    }

    async fn create_snapshot(
        &self,
        request: Request<pb::CreateSnapshotRequest>,
    ) -> Answer<pb::CreateSnapshotResponse> {
        let made = self.make_snapshot(request.into_inner()).await;
        self.answer(made.map(|snapshot| pb::CreateSnapshotResponse { snapshot: Some(snapshot) }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<pb::DeleteSnapshotRequest>,
    ) -> Answer<pb::DeleteSnapshotResponse> {
        let id = request.into_inner().snapshot_id;
        let gone = given("snapshot_id", &id).and_then(|()| {
            let gone = self.state().snapshots.remove(&id);
            if gone.is_none() && self.is(Fault::SnapshotDeleteTwiceFails) {
                return no(Code::NotFound, "there is no such snapshot");
            }
            Ok(pb::DeleteSnapshotResponse {})
        });
        self.answer(gone)
    }

    async fn list_snapshots(
        &self,
        request: Request<pb::ListSnapshotsRequest>,
    ) -> Answer<pb::ListSnapshotsResponse> {
        self.answer(self.list_of_snapshots(&request.into_inner()))
    }

    async fn get_snapshot(
        &self,
        request: Request<pb::GetSnapshotRequest>,
    ) -> Answer<pb::GetSnapshotResponse> {
        self.answer(self.one_snapshot(&request.into_inner().snapshot_id))
    }

    async fn controller_get_volume_health(
        &self,
        request: Request<pb::ControllerGetVolumeHealthRequest>,
    ) -> Answer<pb::ControllerGetVolumeHealthResponse> {
        if self.is(Fault::HealthListAlone) {
            return self.answer(no(Code::Unimplemented, "only the list is offered"));
        }
        let id = request.into_inner().volume_id;
        let found = given("volume_id", &id).and_then(|()| {
            let there = self.state().volumes.contains_key(&id);
            if !there && !self.is(Fault::HealthOfUnknown) {
                return no(Code::NotFound, "there is no such volume");
            }
            let health = pb::VolumeHealth { volume_id: id.clone(), health_statuses: Vec::new() };
            Ok(pb::ControllerGetVolumeHealthResponse { volume_health: Some(health) })
        });
        self.answer(found)
    }

    async fn controller_list_volume_health(
        &self,
        request: Request<pb::ControllerListVolumeHealthRequest>,
    ) -> Answer<pb::ControllerListVolumeHealthResponse> {
        let request = request.into_inner();
        let listed = self.is(Fault::HealthyListed);
        let state = self.state();
        let entries = state.volumes.iter().filter(|_| listed).collect();
        let found = page(self, entries, request.max_entries, &request.starting_token);
        self.answer(found.map(|(shown, next_token)| {
            let entries = shown.into_iter().map(|(id, _)| pb::VolumeHealth {
                volume_id: id.clone(),
                health_statuses: Vec::new(),
            });
            pb::ControllerListVolumeHealthResponse { entries: entries.collect(), next_token }
        }))
    }
}
