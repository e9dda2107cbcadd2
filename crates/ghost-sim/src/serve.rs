//! The listeners: connections, TLS, delays and broken connections.
#![expect(
    clippy::disallowed_methods,
    reason = "wiring: a task for each connection, and one for each request so that it is not undone"
)]

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::api::Delivery;
use crate::simulator::Simulator;

mod asker;

pub use asker::Asker;

/// No request of this API comes near this size.
const LARGEST_BODY_BYTES: usize = 1 << 20;

/// A socket that is being listened on.
pub struct Server {
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    audience: Audience,
}

/// Whom a socket is for.
#[derive(Clone, Debug)]
enum Audience {
    /// Whoever calls the API.
    Callers,
    /// Droplets, which are told about themselves.
    Droplets(Arc<[Asker]>),
}

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed on purpose")]
struct ClosedOnPurpose;

impl Server {
    /// Listens on this address; with the files of a certificate chain and its key, over TLS.
    pub async fn bind(address: SocketAddr, tls_files: Option<(&Path, &Path)>) -> Result<Self> {
        let tls = tls_files.map(|(certificate, key)| tls_acceptor(certificate, key)).transpose()?;
        Ok(Self { listener: listener(address).await?, tls, audience: Audience::Callers })
    }

    /// Listens on this address as the metadata service does: without TLS, for the droplets with
    /// these addresses, and with nothing but `/metadata/v1`.
    pub async fn bind_metadata(address: SocketAddr, askers: Vec<Asker>) -> Result<Self> {
        let audience = Audience::Droplets(askers.into());
        Ok(Self { listener: listener(address).await?, tls: None, audience })
    }

    /// Where it listens: `http://address:port` or `https://address:port`.
    pub fn url(&self) -> Result<String> {
        let address = self.listener.local_addr().context("cannot tell the address")?;
        Ok(format!("{}://{address}", if self.tls.is_some() { "https" } else { "http" }))
    }

    /// Serves until cancelled; then closes all connections and lets what was begun come to its end.
    pub async fn run(self, simulator: Arc<Simulator>, stop: CancellationToken) {
        let begun = TaskTracker::new();
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            let (stream, far_end) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The usual cause is too many open files, which passes when some are closed.
                    tracing::warn!("cannot accept a connection: {error}");
                    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            let service = Service {
                simulator: simulator.clone(),
                audience: self.audience.clone(),
                far_end: far_end.ip(),
                begun: begun.clone(),
            };
            let connection = connection(stream, self.tls.clone(), service);
            connections.spawn(stop.clone().run_until_cancelled_owned(connection));
        }
        connections.close();
        connections.wait().await;
        begun.close();
        begun.wait().await;
    }
}

async fn listener(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
}

/// What the requests of one connection are answered with.
#[derive(Clone)]
struct Service {
    simulator: Arc<Simulator>,
    audience: Audience,
    far_end: IpAddr,
    begun: TaskTracker,
}

async fn connection(stream: TcpStream, tls: Option<TlsAcceptor>, service: Service) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("cannot set TCP_NODELAY: {error}");
    }
    match tls {
        None => exchange(stream, service).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => exchange(stream, service).await,
            Err(error) => tracing::debug!("no TLS with the far end: {error}"),
        },
    }
}

async fn exchange(stream: impl AsyncRead + AsyncWrite + Unpin, service: Service) {
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .serve_connection(
            TokioIo::new(stream),
            service_fn(|request| answer(request, service.clone())),
        )
        .await;
    if let Err(error) = served {
        tracing::debug!("a connection ended: {error:?}");
    }
}

/// An error makes hyper close the connection without an answer.
async fn answer(
    request: Request<Incoming>,
    service: Service,
) -> Result<Response<Full<Bytes>>, ClosedOnPurpose> {
    let (mut head, body) = request.into_parts();
    if let Audience::Droplets(askers) = &service.audience {
        let Some(place) = asker::place_of(askers, service.far_end, &head.uri) else {
            tracing::info!(far_end = %service.far_end, path = head.uri.path(), "nothing to tell");
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NOT_FOUND;
            return Ok(response);
        };
        head.uri = place;
    }
    let body = match Limited::new(body, LARGEST_BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => return Ok(unreadable(&*error)),
    };
    let request = Request::from_parts(head, body);
    // On its own, because a request that was begun is not undone when its sender goes away.
    let simulator = service.simulator;
    let handled = service.begun.spawn(async move { simulator.handle(&request).await }).await;
    let outcome = match handled {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::error!("a request broke off: {error}");
            return Err(ClosedOnPurpose);
        }
    };
    tokio::time::sleep(outcome.delay).await;
    match outcome.delivery {
        Delivery::Answer(response) => Ok(response.map(Full::new)),
        Delivery::Closed => Err(ClosedOnPurpose),
    }
}

fn unreadable(error: &(dyn std::error::Error + 'static)) -> Response<Full<Bytes>> {
    let too_large = error.is::<http_body_util::LengthLimitError>();
    let (status, id) = if too_large {
        (StatusCode::PAYLOAD_TOO_LARGE, "payload_too_large")
    } else {
        (StatusCode::BAD_REQUEST, "bad_request")
    };
    let body =
        serde_json::json!({ "id": id, "message": format!("the body cannot be read: {error}") });
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    let json = hyper::header::HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, json);
    response
}

fn tls_acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .with_context(|| format!("cannot read the certificate {}", certificate.display()))?;
    let key_der = PrivateKeyDer::from_pem_file(key)
        .with_context(|| format!("cannot read the key {}", key.display()))?;
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .context("the TLS library offers no protocol version")?
        .with_no_client_auth()
        .with_single_cert(chain, key_der)
        .with_context(|| format!("{} and its key do not fit", certificate.display()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
