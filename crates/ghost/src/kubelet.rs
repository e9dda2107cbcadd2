//! Registration with the kubelet of this machine, so that no registrar is needed beside the driver.
//!
//! A socket appears in the kubelet's registration folder; the kubelet sees it, asks there who the
//! plugin is and where it answers, asks the plugin itself for its NodeGetInfo, and says here whether
//! it has taken it. When the socket goes, the kubelet forgets the plugin. So it is there from the
//! moment that the plugin can answer until it is told to stop.

use std::path::{Path, PathBuf};

use ghost_csi::registration as pb;
use pb::registration_server::{Registration as Service, RegistrationServer};
use tokio_stream::StreamExt as _;
use tonic::transport::Server;
use tonic::{Request, Response, Status};

use self::authority::Readable;
use crate::csi::{Endpoint, Listener, Plugin};
use crate::error::{Error, Result};

mod authority;

/// What the kubelet calls a CSI driver.
const KIND: &str = "CSIPlugin";
/// The version of the registration API that is spoken; it is not that of CSI.
const VERSION: &str = "1.0.0";

/// A plugin that is to be known to the kubelet.
#[derive(Clone, Debug)]
pub struct Registration {
    socket: Endpoint,
    name: String,
    /// The plugin's own socket, as the kubelet sees it.
    endpoint: PathBuf,
}

impl Registration {
    /// The registration of this plugin in the kubelet's folder for that, `plugins_registry`;
    /// `endpoint` is the plugin's own socket as the kubelet sees it.
    ///
    /// # Errors
    /// `Invalid` when the socket's path would be no absolute one, or too long for the kernel.
    pub fn new(folder: &Path, plugin: &Plugin, endpoint: PathBuf) -> Result<Self> {
        let name = plugin.name().to_owned();
        let socket = folder.join(format!("{name}-reg.sock"));
        let socket = Endpoint::parse(&format!("unix://{}", socket.display()))?;
        Ok(Self { socket, name, endpoint })
    }

    /// Lets the kubelet know of the plugin until `stop` is done.
    ///
    /// # Errors
    /// `Precondition` when another process has the socket, `Failed` when it cannot be made.
    pub async fn serve(self, stop: impl Future<Output = ()>) -> Result<()> {
        let mut listener = Listener::bind(&self.socket).await?;
        tracing::info!(socket = %self.socket.path().display(), "waiting for the kubelet");
        let incoming = listener.incoming().map(|accepted| accepted.map(Readable::new));
        Server::builder()
            .add_service(RegistrationServer::new(self))
            .serve_with_incoming_shutdown(incoming, stop)
            .await
            .map_err(|error| Error::failed("the registration server failed").with_source(error))
    }
}

#[tonic::async_trait]
impl Service for Registration {
    async fn get_info(
        &self,
        _: Request<pb::InfoRequest>,
    ) -> std::result::Result<Response<pb::PluginInfo>, Status> {
        Ok(Response::new(pb::PluginInfo {
            r#type: KIND.to_owned(),
            name: self.name.clone(),
            endpoint: self.endpoint.display().to_string(),
            supported_versions: vec![VERSION.to_owned()],
        }))
    }

    async fn notify_registration_status(
        &self,
        status: Request<pb::RegistrationStatus>,
    ) -> std::result::Result<Response<pb::RegistrationStatusResponse>, Status> {
        let status = status.into_inner();
        if status.plugin_registered {
            tracing::info!("the kubelet has registered the plugin");
        } else {
            // It tries again by itself, more and more seldom.
            tracing::error!(error = status.error, "the kubelet has not registered the plugin");
        }
        Ok(Response::new(pb::RegistrationStatusResponse {}))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::*;

    const DATA: u8 = 0;
    const RST_STREAM: u8 = 3;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut bytes = length[1..].to_vec();
        bytes.extend([kind, flags, 0, 0, 0, stream]);
        bytes.extend(payload);
        bytes
    }

    fn text(bytes: &mut Vec<u8>, text: &str) {
        bytes.push(u8::try_from(text.len()).expect("short"));
        bytes.extend(text.as_bytes());
    }

    /// GetInfo as the kubelet's gRPC library sends it: the authority is the path, percent-encoded.
    fn get_info() -> Vec<u8> {
        // `:method: POST` and `:scheme: http` are in the static table.
        let mut block = vec![0x83, 0x86, 0x44];
        text(&mut block, "/pluginregistration.Registration/GetInfo");
        block.push(0x41);
        text(&mut block, "%2Fvar%2Flib%2Fkubelet%2Fplugins_registry%2Fghost-reg.sock");
        block.push(0x5f);
        text(&mut block, "application/grpc");
        block.push(0x40);
        text(&mut block, "te");
        text(&mut block, "trailers");
        let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        bytes.extend(frame(4, 0, 0, &[]));
        bytes.extend(frame(1, 4, 1, &block));
        bytes.extend(frame(DATA, 1, 1, &[0; 5]));
        bytes
    }

    /// Reads frames until the stream gets data, or is reset.
    async fn answer(stream: &mut UnixStream) -> (u8, Vec<u8>) {
        loop {
            let mut header = [0; 9];
            stream.read_exact(&mut header).await.expect("a frame");
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]);
            let mut payload = vec![0; usize::try_from(length).expect("short")];
            stream.read_exact(&mut payload).await.expect("its payload");
            if matches!(header[3], DATA | RST_STREAM) {
                return (header[3], payload);
            }
        }
    }

    #[tokio::test]
    async fn the_kubelet_is_answered_although_its_authority_is_none() {
        let folder = tempfile::tempdir().expect("a folder");
        let plugin = Plugin::new("ghost.example").expect("a name");
        let endpoint = PathBuf::from("/var/lib/kubelet/plugins/ghost.example/csi.sock");
        let registration = Registration::new(folder.path(), &plugin, endpoint).expect("sound");
        let socket = registration.socket.path().to_owned();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let served = registration.serve(async {
            let _ = stopped.await;
        });
        let asked = async {
            let mut stream = loop {
                match UnixStream::connect(&socket).await {
                    Ok(stream) => break stream,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            // In pieces, as a socket may deliver it.
            for piece in get_info().chunks(7) {
                stream.write_all(piece).await.expect("taken");
                tokio::task::yield_now().await;
            }
            let (kind, payload) = answer(&mut stream).await;
            assert_eq!(kind, DATA);
            let said = String::from_utf8_lossy(&payload).into_owned();
            for word in ["CSIPlugin", "ghost.example", "csi.sock", "1.0.0"] {
                assert!(said.contains(word), "{said}");
            }
            drop(stream);
            stop.send(()).expect("it serves");
        };
        let both = async { tokio::join!(served, asked) };
        let (served, ()) =
            tokio::time::timeout(Duration::from_secs(20), both).await.expect("in time");
        served.expect("served");
        assert!(!socket.exists(), "the kubelet forgets the plugin");
    }
}
