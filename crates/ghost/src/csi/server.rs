//! The Unix socket that the orchestrator speaks to, and the server behind it.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_csi as pb;
use hyper_util::rt::TokioIo;
use rustix::process::Pid;
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::service::Routes;
use tonic::transport::{Server, Uri};

use crate::error::{Error, Result};

/// How long a probe of the own socket may take.
const PROBE_LIMIT: Duration = Duration::from_secs(1);
/// The longest path of a Unix socket, in bytes (`sockaddr_un`, less the closing zero).
const PATH_LIMIT: usize = 107;

/// Where the plugin listens: `unix:///path/to/plugin.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint(PathBuf);

impl Endpoint {
    /// Reads an endpoint.
    ///
    /// # Errors
    /// `Invalid` when it is no absolute path of a Unix socket, or one too long for the kernel.
    pub fn parse(text: &str) -> Result<Self> {
        let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
        match path.map(Path::new) {
            Some(path) if path.is_absolute() && path.as_os_str().len() <= PATH_LIMIT => {
                Ok(Self(path.to_owned()))
            }
            Some(path) if path.is_absolute() => Err(Error::invalid(format!(
                "endpoint {text:?} has a path of {} bytes; the kernel takes at most {PATH_LIMIT}",
                path.as_os_str().len()
            ))),
            _ => Err(Error::invalid(format!(
                "endpoint {text:?} is no Unix socket; expected unix:///path/to/plugin.sock"
            ))),
        }
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// A bound socket, removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    listener: Option<UnixListener>,
    path: PathBuf,
    /// Which file the socket is: at its path there may be another process's by the end.
    file: Option<(u64, u64)>,
}

impl Listener {
    /// Binds the endpoint. A socket that a killed process has left is replaced; a live one, or
    /// anything that is no socket, is not. Missing parent folders are made.
    ///
    /// # Errors
    /// `Precondition` when something is in the way, `Failed` when the socket cannot be made.
    pub async fn bind(endpoint: &Endpoint) -> Result<Self> {
        let path = endpoint.path().to_owned();
        let failed = |error: io::Error| {
            Error::failed(format!("cannot listen at {}", path.display())).with_source(error)
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed)?;
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(Error::precondition(format!(
                    "{} is there already and is no socket; move it away or choose another \
                     endpoint",
                    path.display()
                )));
            }
            Ok(_) => {
                if UnixStream::connect(&path).await.is_ok() {
                    return Err(Error::precondition(format!(
                        "another process listens at {}",
                        path.display()
                    )));
                }
                fs::remove_file(&path).map_err(failed)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(failed(error)),
        }
        // Bound under another name first, so that nobody connects before it may be connected to
        // by its owner alone.
        let own = own_path(&path);
        let _ = fs::remove_file(&own);
        let listener = UnixListener::bind(&own).map_err(failed)?;
        let restrict = <fs::Permissions as std::os::unix::fs::PermissionsExt>::from_mode(0o660);
        fs::set_permissions(&own, restrict)
            .and_then(|()| fs::rename(&own, &path))
            .inspect_err(|_| {
                let _ = fs::remove_file(&own);
            })
            .map_err(failed)?;
        let file = identity(&path);
        Ok(Self { listener: Some(listener), path, file })
    }
}

impl Listener {
    /// The connections that come in.
    ///
    /// # Panics
    /// When it is asked for twice.
    pub(crate) fn incoming(&mut self) -> UnixListenerStream {
        UnixListenerStream::new(self.listener.take().expect("a listener is served once"))
    }
}

/// The device and inode of what is at a path.
fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// A short name beside the socket that no other process takes.
fn own_path(path: &Path) -> PathBuf {
    let pid: Pid = rustix::process::getpid();
    path.with_file_name(format!(".{}", pid.as_raw_nonzero()))
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Gone already is as well: whoever removed it wanted it gone. Another process's socket, of
        // an update that overlaps, is left alone.
        if self.file.is_some() && identity(&self.path) == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Answers calls at the socket until `stop` is done, and then finishes the ones that are running.
///
/// # Errors
/// `Failed` when the socket fails.
pub async fn serve(
    mut listener: Listener,
    routes: Routes,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    Server::builder()
        .add_routes(routes)
        .serve_with_incoming_shutdown(listener.incoming(), stop)
        .await
        .map_err(|error| Error::failed("the gRPC server failed").with_source(error))
}

/// Asks the plugin at the endpoint for its Probe, as the kubelet's prober would: whether it answers
/// that it is ready.
///
/// # Errors
/// `Unavailable` when it does not answer in time.
pub async fn probe(endpoint: &Endpoint) -> Result<bool> {
    let path = endpoint.path().to_owned();
    let connect = tower::service_fn(move |_: Uri| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    let ask = async {
        let channel = tonic::transport::Endpoint::from_static("http://localhost")
            .connect_with_connector(connect)
            .await
            .map_err(|error| Error::unavailable("cannot connect").with_source(error))?;
        pb::identity_client::IdentityClient::new(channel)
            .probe(pb::ProbeRequest {})
            .await
            .map(|answer| answer.into_inner().ready.unwrap_or(true))
            .map_err(|status| Error::unavailable(status.message().to_owned()))
    };
    tokio::time::timeout(PROBE_LIMIT, ask)
        .await
        .unwrap_or_else(|_| Err(Error::unavailable("Probe did not answer in time")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn an_endpoint_is_an_absolute_socket_path() {
        for good in ["unix:///run/csi/controller.sock", "unix:/run/csi/controller.sock"] {
            let endpoint = Endpoint::parse(good).expect("sound");
            assert_eq!(endpoint.path(), Path::new("/run/csi/controller.sock"));
        }
        let long = format!("unix:///{}", "x".repeat(107));
        for bad in ["", "/run/csi.sock", "tcp://127.0.0.1:1", "unix://relative", long.as_str()] {
            assert!(Endpoint::parse(bad).is_err(), "{bad:?}");
        }
    }

    #[tokio::test]
    async fn b56_a_left_over_socket_is_replaced_and_nothing_else_is() {
        let folder = tempfile::tempdir().expect("a folder");
        let at = |name: &str| {
            let path = folder.path().join(name);
            Endpoint::parse(&format!("unix://{}", path.display())).expect("sound")
        };

        // (a) stale: bound and forgotten without being removed.
        drop(std::os::unix::net::UnixListener::bind(at("stale").path()).expect("bound"));
        assert!(at("stale").path().exists());
        let listener = Listener::bind(&at("stale")).await.expect("replaced");
        assert!(UnixStream::connect(at("stale").path()).await.is_ok());

        // (e) live.
        let error = Listener::bind(&at("stale")).await.expect_err("somebody listens");
        assert_eq!(error.kind(), ErrorKind::Precondition);
        drop(listener);
        assert!(!at("stale").path().exists(), "removed when done");

        // One that is slow to end does not take its successor's socket away.
        let old = Listener::bind(&at("shared")).await.expect("free");
        fs::remove_file(at("shared").path()).expect("removed by the successor");
        let successor = Listener::bind(&at("shared")).await.expect("free");
        drop(old);
        assert!(UnixStream::connect(at("shared").path()).await.is_ok());
        drop(successor);

        // (b) a file and (c) a directory stay as they are.
        fs::write(at("file").path(), "keep").expect("written");
        fs::create_dir(at("directory").path()).expect("made");
        for name in ["file", "directory"] {
            let error = Listener::bind(&at(name)).await.expect_err("in the way");
            assert_eq!(error.kind(), ErrorKind::Precondition);
            assert!(error.to_string().contains(name), "{error}");
        }
        assert_eq!(fs::read_to_string(at("file").path()).expect("still there"), "keep");

        // (d) the parent is missing.
        let nested = at("new/folder/plugin.sock");
        let _listener = Listener::bind(&nested).await.expect("made with its folders");
        let beside = fs::read_dir(nested.path().parent().expect("a parent")).expect("readable");
        assert_eq!(beside.count(), 1, "nothing else is left beside the socket");
    }
}
