//! Volumes made, shown and deleted.

use ghost_csi as pb;
use tonic::{Code, Status};

use super::fault::Fault;
use super::{MIB, Reference, SLOW, State, Volume, disk, given, is_block, no};

/// The largest volume, in bytes.
pub(super) const LARGEST: i64 = MIB * 1024;

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

    pub(super) fn check_name(&self, name: &str) -> Result<(), Status> {
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
    pub(super) fn size(&self, range: Option<&pb::CapacityRange>) -> Result<i64, Status> {
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

    pub(super) fn check_source(
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

    pub(super) fn check_topology(
        &self,
        requirement: Option<&pb::TopologyRequirement>,
    ) -> Result<(), Status> {
        let requisite = requirement.map_or(&[][..], |one| &one.requisite);
        let here = |one: &pb::Topology| {
            one.segments.get("topology.example/zone").is_some_and(|zone| zone == "a")
        };
        if requisite.is_empty() || requisite.iter().any(here) || self.is(Fault::TopologyIgnored) {
            return Ok(());
        }
        no(Code::ResourceExhausted, "there is no storage in any of these topologies")
    }

    pub(super) async fn create(
        &self,
        request: pb::CreateVolumeRequest,
    ) -> Result<pb::Volume, Status> {
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

    pub(super) fn named(&self, key: &str) -> Option<String> {
        let state = self.state();
        let found = state.volumes.iter().find(|(_, volume)| volume.name == key);
        found.map(|(id, _)| id.clone())
    }

    pub(super) fn check_same(
        &self,
        id: &str,
        request: &pb::CreateVolumeRequest,
    ) -> Result<(), Status> {
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

    pub(super) fn insert(
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
    pub(super) fn told(&self, id: &str) -> pb::Volume {
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

    pub(super) fn shown(&self, id: &str, volume: &Volume) -> pb::Volume {
        pb::Volume {
            capacity_bytes: volume.size,
            volume_id: id.to_owned(),
            volume_context: [("block".to_owned(), volume.block.to_string())].into(),
            content_source: volume.source.clone(),
            accessible_topology: vec![self.topology()],
        }
    }

    pub(super) fn listed(&self, id: &str, volume: &Volume) -> pb::Volume {
        let more = if self.is(Fault::ListSizeWrong) { MIB } else { 0 };
        pb::Volume { capacity_bytes: volume.size + more, ..self.shown(id, volume) }
    }

    pub(super) fn topology(&self) -> pb::Topology {
        pb::Topology { segments: [("topology.example/zone".to_owned(), "a".to_owned())].into() }
    }

    pub(super) fn delete(&self, id: &str) -> Result<(), Status> {
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
}
