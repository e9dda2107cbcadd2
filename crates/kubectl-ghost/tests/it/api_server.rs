//! The far end of the wire to Kubernetes: an API server that lists in pages, and can be made to do
//! so badly.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use axum::extract::{Query, State};
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// Objects on one page, whatever limit is asked for: a server may give fewer.
const PAGE: usize = 2;
pub(crate) const VOLUMES: &str = "persistentvolumes";
pub(crate) const CONTENTS: &str = "volumesnapshotcontents";
pub(crate) const GROUPS: &str = "apis";

/// What the cluster has.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    /// The PersistentVolumes.
    pub(crate) volumes: Vec<Value>,
    /// The VolumeSnapshotContents.
    pub(crate) contents: Vec<Value>,
    /// The versions of their API group; not installed without any.
    pub(crate) versions: Vec<&'static str>,
    /// What goes wrong.
    pub(crate) trouble: Option<Trouble>,
}

/// What goes wrong with a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Trouble {
    /// Which list.
    pub(crate) list: &'static str,
    /// From which page on, the first being 0.
    pub(crate) page: usize,
    /// How.
    pub(crate) how: How,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// It is answered with this status.
    Status(u16),
    /// The page is of another moment than the first.
    OtherMoment,
    /// The page is the last although others should follow.
    EndsEarly,
    /// The page is empty and is not the last.
    Endless,
    /// The page is some other list.
    OtherKind,
    /// The page is no JSON.
    Garbage,
}

/// The server.
pub(crate) struct ApiServer {
    pub(crate) cluster: Arc<Mutex<Cluster>>,
    url: String,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Deserialize)]
struct Parameters {
    #[serde(default)]
    r#continue: String,
}

impl ApiServer {
    /// Serves this cluster until it is dropped.
    pub(crate) fn start(cluster: Cluster) -> Self {
        let cluster = Arc::new(Mutex::new(cluster));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&cluster));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (stop, stopped) = oneshot::channel();
        // On a thread of its own, since tests wait for the program.
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let stopped = async { drop(stopped.await) };
                tokio::select! {
                    served = axum::serve(listener, router) => served.unwrap(),
                    () = stopped => {}
                }
            });
        });
        Self { cluster, url, stop: Some(stop), thread: Some(thread) }
    }

    /// A kubeconfig for it below this folder, with a second context that leads nowhere.
    pub(crate) fn kubeconfig(&self, folder: &Path) -> String {
        let named =
            |name: &str, server: &str| json!({ "name": name, "cluster": { "server": server } });
        let context = |name: &str| json!({ "name": name, "context": { "cluster": name, "user": "operator" } });
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "nowhere",
            "clusters": [named("here", &self.url), named("nowhere", "http://127.0.0.1:1")],
            "contexts": [context("here"), context("nowhere")],
            "users": [{ "name": "operator", "user": { "token": "t" } }],
        });
        let path = folder.join("kubeconfig");
        fs::write(&path, kubeconfig.to_string()).unwrap();
        path.display().to_string()
    }

    pub(crate) fn change(&self, change: impl FnOnce(&mut Cluster)) {
        change(&mut self.cluster.lock().unwrap());
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the API server broke");
    }
}

async fn answer(
    State(cluster): State<Arc<Mutex<Cluster>>>,
    uri: Uri,
    Query(parameters): Query<Parameters>,
) -> Response {
    let cluster = cluster.lock().unwrap().clone();
    let page: usize = parameters.r#continue.parse().unwrap_or(0);
    let name = uri.path().rsplit('/').next().unwrap_or_default();
    let trouble = cluster.trouble.filter(|trouble| trouble.list == name && page >= trouble.page);
    let how = trouble.map(|trouble| trouble.how);
    if let Some(How::Status(code)) = how {
        return status(code, "this was chosen to fail");
    }
    if let Some(How::Garbage) = how {
        return "{\"kind\":".into_response();
    }
    match uri.path() {
        "/apis" => Json(groups(&cluster.versions)).into_response(),
        "/api/v1/persistentvolumes" => list("PersistentVolume", &cluster.volumes, page, how),
        "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents"
            if cluster.versions.contains(&"v1") =>
        {
            list("VolumeSnapshotContent", &cluster.contents, page, how)
        }
        _ => status(404, "the server could not find the requested resource"),
    }
}

fn status(code: u16, message: &str) -> Response {
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure",
        "message": message, "reason": "Chosen", "code": code });
    (StatusCode::from_u16(code).unwrap(), Json(body)).into_response()
}

fn groups(versions: &[&str]) -> Value {
    let version = |group: &str, version: &str| json!({ "groupVersion": format!("{group}/{version}"), "version": version });
    let group = |name: &str, versions: &[&str]| {
        let versions: Vec<Value> = versions.iter().map(|v| version(name, v)).collect();
        json!({ "name": name, "versions": versions, "preferredVersion": versions[0] })
    };
    let mut groups = vec![group("storage.k8s.io", &["v1"])];
    if !versions.is_empty() {
        groups.push(group("snapshot.storage.k8s.io", versions));
    }
    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": groups })
}

fn list(kind: &str, objects: &[Value], page: usize, how: Option<How>) -> Response {
    let end = objects.len().min((page + 1) * PAGE);
    let mut items = objects[(page * PAGE).min(end)..end].to_vec();
    let mut metadata = json!({ "resourceVersion": "7" });
    if end < objects.len() {
        metadata["continue"] = json!((page + 1).to_string());
        metadata["remainingItemCount"] = json!(objects.len() - end);
    }
    let version = if kind == "PersistentVolume" { "v1" } else { "snapshot.storage.k8s.io/v1" };
    let mut kind = format!("{kind}List");
    match how {
        Some(How::OtherMoment) => metadata["resourceVersion"] = json!("8"),
        Some(How::EndsEarly) => {
            metadata["continue"] = json!("");
            metadata["remainingItemCount"] = json!(1);
        }
        Some(How::Endless) => {
            items.clear();
            metadata["continue"] = json!((page + 1).to_string());
        }
        Some(How::OtherKind) => "NodeList".clone_into(&mut kind),
        _ => {}
    }
    let list = json!({ "kind": kind, "apiVersion": version, "metadata": metadata, "items": items });
    Json(list).into_response()
}

/// A PersistentVolume of this driver.
pub(crate) fn volume(driver: &str, handle: &str) -> Value {
    json!({
        "metadata": { "name": format!("pv-{handle}"), "uid": "u" },
        "spec": {
            "capacity": { "storage": "1Gi" },
            "csi": { "driver": driver, "volumeHandle": handle, "fsType": "ext4" },
        },
    })
}

/// A PersistentVolume of a flexvolume driver that knows volumes by their names.
pub(crate) fn flexvolume(name: &str) -> Value {
    json!({
        "metadata": { "name": "old" },
        "spec": { "flexVolume": { "driver": "vendor/disk", "options": { "volumeName": name } } },
    })
}

/// A VolumeSnapshotContent that the driver was asked to make.
pub(crate) fn content(driver: &str, handle: &str) -> Value {
    json!({
        "metadata": { "name": format!("snapcontent-{handle}") },
        "spec": { "driver": driver, "source": { "volumeHandle": "some-volume" } },
        "status": { "snapshotHandle": handle, "readyToUse": true },
    })
}

/// A VolumeSnapshotContent that a person made for a snapshot, which nobody has looked at yet.
pub(crate) fn content_by_hand(driver: &str, handle: &str) -> Value {
    json!({
        "metadata": { "name": format!("brought-{handle}") },
        "spec": { "driver": driver, "source": { "snapshotHandle": handle } },
    })
}
