//! A small driver that is right, or wrong in one way that is chosen.
//!
//! Its storage is a folder: a volume is a folder in it, or a file behind a loop device. Its state is
//! in memory, behind one lock that is never held while it waits, so that each call is one step.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ghost_csi as pb;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server;
use tonic::{Code, Response, Status};

pub(crate) mod disk;
pub(crate) mod fault;

mod attach;
mod controller;
mod create;
mod identity;
mod node;
mod snapshot;

use fault::Fault;

/// The granularity of sizes, in bytes.
pub(crate) const MIB: i64 = 1 << 20;
/// The nodes.
pub(crate) const NODES: [&str; 2] = ["node-a", "node-b"];
/// How long it takes over what a fault makes slow: longer than the suite waits before it loses an
/// answer, so that the fault does not depend on luck.
const SLOW: Duration = Duration::from_millis(60);

pub(crate) type Answer<T> = Result<Response<T>, Status>;

/// A volume.
#[derive(Clone, Debug)]
pub(crate) struct Volume {
    name: String,
    /// The range that was asked for.
    range: pb::CapacityRange,
    size: i64,
    /// The size of the filesystem.
    filesystem_size: i64,
    block: bool,
    source: Option<pb::VolumeContentSource>,
    /// The node that it is at, and whether for reading only.
    at: Option<(String, bool)>,
    filesystem: Option<String>,
    /// Whether the answer to its creation was given before.
    told: bool,
}

/// A snapshot.
#[derive(Clone, Debug)]
pub(crate) struct Snapshot {
    name: String,
    source: String,
    size: i64,
    content: Vec<u8>,
}

/// A volume at a staging path.
#[derive(Clone, Debug)]
pub(crate) struct Staged {
    volume: String,
    capability: pb::VolumeCapability,
    device: Option<PathBuf>,
}

/// A volume at a target path.
#[derive(Clone, Debug)]
pub(crate) struct Published {
    volume: String,
    capability: pb::VolumeCapability,
    readonly: bool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    volumes: BTreeMap<String, Volume>,
    snapshots: BTreeMap<String, Snapshot>,
    deleted: Vec<String>,
    /// Names that were used, for the fault that keeps them.
    kept: Vec<String>,
    /// A secret that was given, for the fault that gives it back.
    secret: Option<String>,
    staged: BTreeMap<PathBuf, Staged>,
    targets: BTreeMap<PathBuf, Published>,
    busy: Vec<String>,
}

/// What its services share.
#[derive(Clone, Debug)]
pub(crate) struct Reference(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    fault: Option<Fault>,
    folder: PathBuf,
    state: Mutex<State>,
    number: AtomicU64,
}

/// The running driver; what it mounted and attached goes away with it.
#[derive(Debug)]
pub(crate) struct Running {
    folder: TempDir,
    root: PathBuf,
    shared: Arc<Shared>,
    _server: JoinSet<()>,
}

impl Running {
    /// Starts one.
    pub(crate) fn start(fault: Option<Fault>) -> Self {
        let folder = tempfile::Builder::new().prefix("gc-").tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it is there");
        for name in ["disk", "staging", "target"] {
            fs::create_dir(root.join(name)).expect("room for it");
        }
        let shared = Shared {
            fault,
            folder: root.clone(),
            state: Mutex::default(),
            number: AtomicU64::new(1),
        };
        let shared = Arc::new(shared);
        let reference = Reference(shared.clone());
        let listener = UnixListener::bind(root.join("csi.sock")).expect("a short path");
        let server = Server::builder()
            .add_service(pb::identity_server::IdentityServer::new(reference.clone()))
            .add_service(pb::controller_server::ControllerServer::new(reference.clone()))
            .add_service(pb::node_server::NodeServer::new(reference))
            .serve_with_incoming(UnixListenerStream::new(listener));
        let mut tasks = JoinSet::new();
        tasks.spawn(async move { server.await.expect("it serves") });
        Self { folder, root, shared, _server: tasks }
    }

    /// How many volumes there are.
    pub(crate) fn volumes(&self) -> usize {
        self.shared.state.lock().expect("nobody panics while holding it").volumes.len()
    }

    /// A path in its folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        disk::take_away_below(self.folder.path());
    }
}

pub(crate) fn no<T>(code: Code, message: impl Into<String>) -> Result<T, Status> {
    Err(Status::new(code, message))
}

impl Reference {
    fn is(&self, fault: Fault) -> bool {
        self.0.fault == Some(fault)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().expect("nobody panics while holding it")
    }

    fn next(&self) -> u64 {
        self.0.number.fetch_add(1, Ordering::Relaxed)
    }

    /// The last step of every call.
    fn answer<T>(&self, result: Result<T, Status>) -> Answer<T> {
        match result {
            Ok(answer) => Ok(Response::new(answer)),
            Err(status) if self.is(Fault::RefusesSilently) => Err(Status::new(status.code(), "")),
            Err(status) if self.is(Fault::RefusesWithDetails) => {
                Err(Status::with_details(status.code(), status.message(), vec![1].into()))
            }
            Err(status) => Err(status),
        }
    }

    fn disk(&self, volume: &str) -> PathBuf {
        let name = if self.is(Fault::VolumesShared) { "shared" } else { volume };
        self.0.folder.join("disk").join(name)
    }
}

/// Whether a capability is sound, and of which kind it is.
fn is_block(capability: Option<&pb::VolumeCapability>) -> Result<bool, Status> {
    use pb::volume_capability::AccessType;
    let Some(capability) = capability else {
        return no(Code::InvalidArgument, "volume_capability is missing");
    };
    let mode = capability.access_mode.as_ref().map_or(0, |mode| mode.mode);
    if !(1..=7).contains(&mode) {
        return no(Code::InvalidArgument, "the access mode is missing or unknown");
    }
    match capability.access_type {
        None => no(Code::InvalidArgument, "the access type is missing"),
        Some(AccessType::Block(_)) => Ok(true),
        Some(AccessType::Mount(_)) => Ok(false),
    }
}

fn given(name: &str, text: &str) -> Result<(), Status> {
    if text.is_empty() { no(Code::InvalidArgument, format!("{name} is missing")) } else { Ok(()) }
}

/// The entries of a page, by their ids, and the token of the next.
type Page<'a, T> = (Vec<(&'a String, &'a T)>, String);

/// A page of a list that is in order.
fn page<'a, T>(
    reference: &Reference,
    entries: Vec<(&'a String, &'a T)>,
    max_entries: i32,
    token: &str,
) -> Result<Page<'a, T>, Status> {
    let most = match usize::try_from(max_entries) {
        Ok(0) => usize::MAX,
        Ok(most) if reference.is(Fault::PagesTooLong) => most + 1,
        Ok(most) => most,
        Err(_) if reference.is(Fault::NegativeIsAll) => usize::MAX,
        Err(_) => return no(Code::InvalidArgument, "max_entries is negative"),
    };
    let by_place = reference.is(Fault::PagesByOffset);
    let start = match (token, token.strip_prefix("after ")) {
        ("", _) => 0,
        (_, Some(place)) if by_place => place.parse().unwrap_or(0),
        (_, Some(last)) => {
            entries.iter().position(|(id, _)| id.as_str() > last).unwrap_or(usize::MAX)
        }
        (_, None) if reference.is(Fault::BadTokenIsStart) => 0,
        (_, None) => return no(Code::Aborted, "starting_token is not known; begin again"),
    };
    let start = start.min(entries.len());
    let skip = usize::from(reference.is(Fault::PagesWithGaps) && start > 0);
    let all = entries.len();
    let shown: Vec<_> = entries.into_iter().skip(start + skip).take(most).collect();
    let end = start + skip + shown.len();
    let next = match shown.last() {
        Some(_) if by_place && end < all => format!("after {end}"),
        Some((last, _)) if end < all => format!("after {last}"),
        _ => String::new(),
    };
    Ok((shown, next))
}
