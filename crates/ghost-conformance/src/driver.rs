//! The driver that is looked at: its sockets, and what it says of itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ghost_csi as pb;
use hyper_util::rt::TokioIo;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::node_service_capability::rpc::Type as NodeRpc;
use pb::plugin_capability::service::Type as Service;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use crate::ask::Ask;
use crate::options::Options;

/// Which socket a call goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Half {
    /// The Controller service's.
    Controller,
    /// The Node service's.
    Node,
    /// Either: every socket has the Identity service.
    Any,
}

/// The driver that is looked at.
#[derive(Debug)]
pub struct Driver {
    controller: Option<Socket>,
    node: Option<Socket>,
    name: String,
    version: String,
    /// Numbers of plugin services, of all its sockets.
    services: Vec<i32>,
    controller_rpcs: Vec<i32>,
    node_rpcs: Vec<i32>,
    info: Option<pb::NodeGetInfoResponse>,
}

#[derive(Debug)]
struct Socket {
    path: PathBuf,
    channel: Channel,
}

impl Driver {
    /// Connects to the sockets and asks what the driver claims.
    ///
    /// # Errors
    /// When no socket is given, or one does not answer GetPluginInfo.
    pub async fn connect(options: &Options) -> Result<Self> {
        let mut driver = Self {
            controller: Socket::open(options.controller.as_deref()).await?,
            node: Socket::open(options.node.as_deref()).await?,
            name: String::new(),
            version: String::new(),
            services: Vec::new(),
            controller_rpcs: Vec::new(),
            node_rpcs: Vec::new(),
            info: None,
        };
        if driver.controller.is_none() && driver.node.is_none() {
            bail!("no socket is given: neither of the controller nor of the node");
        }
        let limit = options.call_limit;
        for half in driver.halves() {
            let channel = driver.channel(half);
            let info = pb::GetPluginInfoRequest {}.send(channel.clone(), limit).await;
            let info = info.with_context(|| format!("no answer of {}", driver.shown(half)))?;
            (driver.name, driver.version) = (info.name, info.vendor_version);
            // Whatever is refused from here on is a matter for the checks.
            let request = pb::GetPluginCapabilitiesRequest {};
            if let Ok(answer) = request.send(channel, limit).await {
                driver.services.extend(services(&answer));
            }
        }
        driver.ask_halves(limit).await;
        Ok(driver)
    }

    async fn ask_halves(&mut self, limit: Duration) {
        if self.controller.is_some() {
            let request = pb::ControllerGetCapabilitiesRequest {};
            if let Ok(answer) = request.send(self.channel(Half::Controller), limit).await {
                self.controller_rpcs = controller_rpcs(&answer);
            }
        }
        if self.node.is_some() {
            let request = pb::NodeGetCapabilitiesRequest {};
            if let Ok(answer) = request.send(self.channel(Half::Node), limit).await {
                self.node_rpcs = node_rpcs(&answer);
            }
            let request = pb::NodeGetInfoRequest {};
            self.info = request.send(self.channel(Half::Node), limit).await.ok();
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its version.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The sockets that are given.
    pub(crate) fn halves(&self) -> Vec<Half> {
        let mut halves = Vec::new();
        if self.controller.is_some() {
            halves.push(Half::Controller);
        }
        if self.node.is_some() {
            halves.push(Half::Node);
        }
        halves
    }

    pub(crate) fn has(&self, half: Half) -> bool {
        self.socket(half).is_some()
    }

    pub(crate) fn offers(&self, rpc: ControllerRpc) -> bool {
        self.controller_rpcs.contains(&rpc.into())
    }

    pub(crate) fn node_offers(&self, rpc: NodeRpc) -> bool {
        self.node_rpcs.contains(&rpc.into())
    }

    pub(crate) fn serves(&self, service: Service) -> bool {
        self.services.contains(&service.into())
    }

    /// What NodeGetInfo said at the beginning.
    pub(crate) fn info(&self) -> Option<&pb::NodeGetInfoResponse> {
        self.info.as_ref()
    }

    /// The channel to a socket.
    pub(crate) fn channel(&self, half: Half) -> Channel {
        self.socket(half).expect("a check says which sockets it needs").channel.clone()
    }

    /// Another connection to a socket.
    pub(crate) async fn another(&self, half: Half) -> Result<Channel> {
        connect(&self.socket(half).expect("a check says which sockets it needs").path).await
    }

    fn socket(&self, half: Half) -> Option<&Socket> {
        match half {
            Half::Controller => self.controller.as_ref(),
            Half::Node => self.node.as_ref(),
            Half::Any => self.controller.as_ref().or(self.node.as_ref()),
        }
    }

    fn shown(&self, half: Half) -> String {
        self.socket(half).map_or_else(String::new, |socket| socket.path.display().to_string())
    }
}

impl Socket {
    async fn open(path: Option<&Path>) -> Result<Option<Self>> {
        let Some(path) = path else { return Ok(None) };
        Ok(Some(Self { path: path.to_owned(), channel: connect(path).await? }))
    }
}

async fn connect(path: &Path) -> Result<Channel> {
    let socket = path.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://localhost");
    endpoint
        .connect_with_connector(connector)
        .await
        .with_context(|| format!("cannot connect to {}", path.display()))
}

/// The numbers of the services that an answer claims.
pub(crate) fn services(answer: &pb::GetPluginCapabilitiesResponse) -> Vec<i32> {
    use pb::plugin_capability::Type;
    let of = |one: &pb::PluginCapability| match &one.r#type {
        Some(Type::Service(service)) => Some(service.r#type),
        _ => None,
    };
    answer.capabilities.iter().filter_map(of).collect()
}

/// The numbers of the ways to expand that an answer claims.
pub(crate) fn expansions(answer: &pb::GetPluginCapabilitiesResponse) -> Vec<i32> {
    use pb::plugin_capability::Type;
    let of = |one: &pb::PluginCapability| match &one.r#type {
        Some(Type::VolumeExpansion(expansion)) => Some(expansion.r#type),
        _ => None,
    };
    answer.capabilities.iter().filter_map(of).collect()
}

/// The numbers of the capabilities that a controller claims; 0 for one that says nothing.
pub(crate) fn controller_rpcs(answer: &pb::ControllerGetCapabilitiesResponse) -> Vec<i32> {
    use pb::controller_service_capability::Type;
    let of = |one: &pb::ControllerServiceCapability| match &one.r#type {
        Some(Type::Rpc(rpc)) => rpc.r#type,
        None => 0,
    };
    answer.capabilities.iter().map(of).collect()
}

/// The numbers of the capabilities that a node claims; 0 for one that says nothing.
pub(crate) fn node_rpcs(answer: &pb::NodeGetCapabilitiesResponse) -> Vec<i32> {
    use pb::node_service_capability::Type;
    let of = |one: &pb::NodeServiceCapability| match &one.r#type {
        Some(Type::Rpc(rpc)) => rpc.r#type,
        None => 0,
    };
    answer.capabilities.iter().map(of).collect()
}
