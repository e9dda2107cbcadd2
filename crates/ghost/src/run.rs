//! Wiring: a checked configuration becomes a running half of the driver, until it is told to stop.

use std::sync::Arc;
use std::time::Duration;

use ghost_csi as pb;
use ghost_host::{Host, Linux};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tonic::service::Routes;

use crate::backend::SharedBackend;
use crate::backend::cosmos::Cosmos;
use crate::config::{ControllerConfig, NodeConfig, Shared};
use crate::controller::{Clones, Controller, Refusals};
use crate::csi::{ControllerService, IdentityService, Listener, NodeIdentity, NodeService, serve};
use crate::error::{Error, Result};
use crate::node::{FormatNotes, Node, OwnDisks};
use crate::operation::Operations;
use crate::telemetry::{self, Metrics};
use crate::volume::TopologyKey;

/// How long running operations may take after the signal to stop. Kubernetes gives 30 s.
const GRACE: Duration = Duration::from_secs(25);
/// How long open connections may take after that.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How long a disk that is attached may take to appear. The kubelet gives a stage two minutes.
const DISK_PATIENCE: Duration = Duration::from_secs(60);

/// Runs the controller half until it is told to stop.
///
/// # Errors
/// When it cannot start: the socket or the admin address is taken.
pub async fn controller(config: ControllerConfig) -> Result<()> {
    let metrics = Metrics::new();
    let seed = config.options.seed;
    let meter = Box::new(metrics.clone());
    let cosmos = Cosmos::new(config.exchange, config.token, config.options, meter);
    let backend: SharedBackend = Arc::new(cosmos);
    #[cfg(debug_assertions)]
    let backend: SharedBackend =
        Arc::new(crate::mark::Marked::new(backend, config.shared.marks.clone()));

    let operations = Operations::new(Arc::new(metrics.clone()));
    let controller = Controller {
        backend,
        default_size: config.default_size,
        default_region: config.shared.region.clone(),
        clones: Clones::default(),
        refusals: Refusals::default(),
    };
    let identity = IdentityService::of_controller(config.shared.plugin.clone(), &controller);
    let key = TopologyKey::new(config.shared.plugin.name());
    let service = ControllerService::new(controller, seed, operations.clone(), key);
    let routes = Routes::new(pb::identity_server::IdentityServer::new(identity))
        .add_service(pb::controller_server::ControllerServer::new(service));
    answer(config.shared, metrics, operations, routes, |_| async { Ok(()) }).await
}

/// Runs the node half until it is told to stop.
///
/// # Errors
/// When it cannot start: the socket or the admin address is taken, or the folder of the format
/// notes cannot be made.
pub async fn node(config: NodeConfig) -> Result<()> {
    let metrics = Metrics::new();
    let mut linux = Linux::new(config.dev_root).with_sysfs(config.sysfs_root);
    if config.allow_unidentified {
        linux = linux.allowing_unidentified();
    }
    let host: Arc<dyn Host> = Arc::new(linux);
    #[cfg(debug_assertions)]
    let host: Arc<dyn Host> = Arc::new(crate::mark::Marked::new(host, config.shared.marks.clone()));
    let node = Node {
        host,
        notes: FormatNotes::open(config.format_notes_dir)?,
        kubelet_dir: config.kubelet_dir,
        disk_link: config.disk_link,
        patience: DISK_PATIENCE,
        own: OwnDisks {
            name_prefix: config.shared.name_prefix.clone(),
            driver_name: config.shared.plugin.name().to_owned(),
        },
        allow_unidentified: config.allow_unidentified,
    };

    let identity = match (config.node_id, config.shared.region.clone()) {
        (Some(id), Some(region)) => NodeIdentity::known(id, region),
        (id, region) => {
            let (sender, identity) = NodeIdentity::pending();
            let metadata = config.metadata;
            #[expect(clippy::disallowed_methods, reason = "wiring: it ends when it knows")]
            tokio::spawn(async move {
                sender.send_replace(Some(metadata.identity(id, region).await));
            });
            identity
        }
    };
    let operations = Operations::new(Arc::new(metrics.clone()));
    let plugin = config.shared.plugin.clone();
    let key = TopologyKey::new(plugin.name());
    let limit = config.shared.attach_limit;
    let service = NodeService::new(node.clone(), identity.clone(), limit, operations.clone(), key);
    let registration = config.registration;
    let register = {
        let identity = identity.clone();
        |stop: CancellationToken| async move {
            let Some(registration) = registration else { return Ok(()) };
            // The kubelet asks for the node's id at once, and more and more seldom afterwards.
            tokio::select! {
                biased;
                () = stop.cancelled() => Ok(()),
                () = identity.when_known() => registration.serve(stop.cancelled()).await,
            }
        }
    };
    let identity = IdentityService::of_node(plugin, node, identity);
    let routes = Routes::new(pb::identity_server::IdentityServer::new(identity))
        .add_service(pb::node_server::NodeServer::new(service));
    answer(config.shared, metrics, operations, routes, register).await
}

/// Answers calls until a signal comes, then lets the running operations end. Meanwhile `register`
/// makes it known to the kubelet, until its token says that it is over.
async fn answer<Register: Future<Output = Result<()>>>(
    shared: Shared,
    metrics: Metrics,
    operations: Operations,
    routes: Routes,
    register: impl FnOnce(CancellationToken) -> Register,
) -> Result<()> {
    let failed =
        |error: std::io::Error| Error::failed("cannot wait for signals").with_source(error);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    let listener = Listener::bind(&shared.endpoint).await?;
    if let Some(address) = shared.admin {
        let admin = TcpListener::bind(address).await.map_err(|error| {
            Error::failed(format!("cannot listen at the admin address {address}"))
                .with_source(error)
        })?;
        let served = telemetry::serve_admin(admin, metrics, shared.endpoint.clone());
        #[expect(clippy::disallowed_methods, reason = "wiring: it ends with the process")]
        tokio::spawn(async move {
            if let Err(error) = served.await {
                tracing::error!(error = error.chain(), "no more metrics and health");
            }
        });
    }
    tracing::info!(
        endpoint = %shared.endpoint.path().display(),
        driver = shared.plugin.name(),
        version = env!("CARGO_PKG_VERSION"),
        "answering"
    );

    let (drained, when_drained) = tokio::sync::oneshot::channel();
    let (unregistered, when_unregistered) = tokio::sync::oneshot::channel();
    let unregister = CancellationToken::new();
    let registered = register(unregister.clone());
    let registered = async move {
        registered.await?;
        let _ = unregistered.send(());
        std::future::pending().await
    };
    let stop = async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        // First of all, so that the kubelet begins nothing more.
        unregister.cancel();
        let _ = tokio::time::timeout(LAST_ANSWERS, when_unregistered).await;
        if !operations.drain(GRACE).await {
            tracing::warn!("stopping although operations are still running");
        }
        // Nobody waits for this only when serving ended by itself.
        let _ = drained.send(());
    };
    let last_answers = async {
        if when_drained.await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(LAST_ANSWERS).await;
    };
    tokio::select! {
        served = serve(listener, routes, stop) => served,
        failed = registered => failed,
        () = last_answers => Ok(()),
    }
}
