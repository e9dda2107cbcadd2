//! Names out of the cluster: every PersistentVolume and every VolumeSnapshotContent, whole or not
//! at all.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use ghost::error::{Error, ErrorKind, Result};
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Config};
use serde_json::Value;

use super::names::{Names, Words};
use crate::cli::KubernetesArgs;

/// How many objects one page has, as kubectl asks for them.
const PAGE: u32 = 500;
/// How long the API server may take for an answer. Its own limit is 60 s.
const ANSWER_LIMIT: Duration = Duration::from_secs(75);
/// The API group of snapshots, which is installed apart from Kubernetes.
const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";
const SNAPSHOT_VERSION: &str = "v1";

/// Reads all names.
///
/// # Errors
/// Whenever it is not certain that none is missing.
pub(super) async fn read(args: &KubernetesArgs) -> Result<Names> {
    let client = client(args).await?;
    let volumes = GroupVersionKind::gvk("", "v1", "PersistentVolume");
    let volumes = ApiResource::from_gvk_with_plural(&volumes, "persistentvolumes");
    let volumes = list(&client, &volumes).await?;
    let contents = match has_snapshots(&client).await? {
        false => None,
        true => {
            let contents =
                GroupVersionKind::gvk(SNAPSHOT_GROUP, SNAPSHOT_VERSION, "VolumeSnapshotContent");
            let contents = ApiResource::from_gvk_with_plural(&contents, "volumesnapshotcontents");
            Some(list(&client, &contents).await?)
        }
    };
    let driver = args.driver_name.as_str();
    let of_driver = volumes.iter().filter_map(|volume| volume_handle(volume, driver));
    let of_driver = of_driver
        .chain(contents.iter().flatten().flat_map(|content| snapshot_handles(content, driver)))
        .map(str::to_owned)
        .collect::<HashSet<_>>();
    Ok(Names {
        of_volumes: words(&volumes)?,
        of_snapshots: contents.as_deref().map(words).transpose()?,
        as_of: None,
        of_driver: Some(of_driver),
    })
}

/// The handle of a PersistentVolume of this driver.
fn volume_handle<'a>(volume: &'a DynamicObject, driver: &str) -> Option<&'a str> {
    let csi = &volume.data["spec"]["csi"];
    csi["volumeHandle"].as_str().filter(|_| csi["driver"] == driver)
}

/// The handles of a VolumeSnapshotContent of this driver: that which it was made for, if it was
/// made by hand, and that which the driver answered.
fn snapshot_handles<'a>(content: &'a DynamicObject, driver: &str) -> impl Iterator<Item = &'a str> {
    let (spec, status) = (&content.data["spec"], &content.data["status"]);
    let handles = [&spec["source"]["snapshotHandle"], &status["snapshotHandle"]];
    let is_own = spec["driver"] == driver;
    handles.into_iter().filter_map(Value::as_str).filter(move |_| is_own)
}

fn words(objects: &[DynamicObject]) -> Result<Words> {
    let mut words = Words::default();
    for object in objects {
        let object = serde_json::to_value(object);
        let object = object.map_err(|e| Error::bug("an object is not JSON").with_source(e))?;
        words.add_all(&object);
    }
    Ok(words)
}

/// A client by kubectl's rules; in a pod, of the cluster that it runs in.
async fn client(args: &KubernetesArgs) -> Result<Client> {
    let unusable =
        |error: KubeconfigError| Error::invalid("the kubeconfig is not usable").with_source(error);
    let kubeconfig = match &args.kubeconfig {
        Some(path) => Some(Kubeconfig::read_from(path)),
        None => default_kubeconfig(),
    };
    let config = match kubeconfig {
        Some(kubeconfig) => {
            let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
            let kubeconfig = kubeconfig.map_err(unusable)?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)
        }
        None if args.context.is_some() => {
            Err(Error::invalid("--context is given, but there is no kubeconfig; see --kubeconfig"))
        }
        None => Config::incluster().map_err(|error| {
            Error::invalid("there is no kubeconfig, and this is no pod either; see --kubeconfig")
                .with_source(error)
        }),
    };
    let mut config = config?;
    config.read_timeout = Some(ANSWER_LIMIT);
    config.reset_reader_on_write = true;
    Client::try_from(config)
        .map_err(|error| Error::invalid("the cluster cannot be reached so").with_source(error))
}

/// That of `KUBECONFIG`, or of the home folder; none when neither is there. One that is there and
/// broken must not lead to another cluster.
fn default_kubeconfig() -> Option<std::result::Result<Kubeconfig, KubeconfigError>> {
    match Kubeconfig::from_env() {
        Ok(Some(kubeconfig)) => return Some(Ok(kubeconfig)),
        Ok(None) => {}
        Err(error) => return Some(Err(error)),
    }
    match Kubeconfig::read() {
        Err(KubeconfigError::FindPath) => None,
        Err(KubeconfigError::ReadConfig(error, _))
            if error.kind() == std::io::ErrorKind::NotFound =>
        {
            None
        }
        read => Some(read),
    }
}

/// Whether the cluster knows VolumeSnapshotContents. Only the API server's own list of its groups
/// says that it does not: "not found" may come from anything on the way.
async fn has_snapshots(client: &Client) -> Result<bool> {
    let groups = client.list_api_groups().await;
    let groups = groups.map_err(|error| not_whole("API groups", error))?.groups;
    let Some(group) = groups.into_iter().find(|group| group.name == SNAPSHOT_GROUP) else {
        return Ok(false);
    };
    let versions: BTreeSet<String> = group.versions.into_iter().map(|v| v.version).collect();
    if versions.contains(SNAPSHOT_VERSION) {
        return Ok(true);
    }
    let versions: Vec<String> = versions.into_iter().collect();
    Err(Error::unsupported(format!(
        "the cluster has {SNAPSHOT_GROUP} only as {}, and {SNAPSHOT_VERSION} is needed",
        versions.join(", ")
    )))
}

/// Every object of this kind.
///
/// The pages of one list are of one moment, as their common resource version says; the API server
/// ends a list that it cannot go on with so (410).
async fn list(client: &Client, resource: &ApiResource) -> Result<Vec<DynamicObject>> {
    let kind = format!("{}s", resource.kind);
    let changed = |what: String| {
        Error::unavailable(format!("the list of {kind} could not be read whole: {what}; try again"))
    };
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let mut parameters = ListParams::default().limit(PAGE);
    let mut objects = Vec::new();
    let mut version = None;
    loop {
        let page = api.list(&parameters).await.map_err(|error| not_whole(&kind, error))?;
        let expected = format!("{}List", resource.kind);
        if page.types.kind != expected {
            return Err(changed(format!("a page is a {:?}, not a {expected}", page.types.kind)));
        }
        let metadata = page.metadata;
        let now = metadata.resource_version.unwrap_or_default();
        if now.is_empty() || *version.get_or_insert_with(|| now.clone()) != now {
            return Err(changed("its pages are not of one moment".to_owned()));
        }
        let was_empty = page.items.is_empty();
        objects.extend(page.items);
        match metadata.continue_.filter(|token| !token.is_empty()) {
            None if metadata.remaining_item_count.is_some_and(|remaining| remaining > 0) => {
                return Err(changed("it ends before its last object".to_owned()));
            }
            None => return Ok(objects),
            Some(_) if was_empty => {
                return Err(changed("it goes on without end".to_owned()));
            }
            token => parameters.continue_token = token,
        }
    }
}

fn not_whole(what: &str, error: kube::Error) -> Error {
    let what = format!("the list of {what} could not be read whole");
    match error {
        // Every answer of an API server has its code within.
        kube::Error::Api(status) if status.code == 0 => {
            let message = status.message;
            Error::unavailable(format!("{what}: what answered is no API server: {message}"))
        }
        kube::Error::Api(status) => {
            let (kind, hint) = match status.code {
                401 => (ErrorKind::Unauthenticated, ""),
                403 => (ErrorKind::Refused, ""),
                410 => (ErrorKind::Unavailable, "; it changed too much meanwhile, try again"),
                _ => (ErrorKind::Unavailable, ""),
            };
            let (code, message) = (status.code, status.message);
            Error::new(kind, format!("{what}: the API server answered {code}: {message}{hint}"))
        }
        error => Error::unavailable(what).with_source(error),
    }
}
