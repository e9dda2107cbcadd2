//! What was typed, checked and made into what it means. Everything is checked before anything
//! starts, and a problem names the option, the value and what to do.

use std::net::SocketAddr;
use std::path::PathBuf;

use url::Url;

use crate::backend::cosmos::{ClusterId, Http, Options, TokenFile};
use crate::cli::{BackendName, ControllerArgs, CosmosArgs, NodeArgs, SharedArgs};
use crate::csi::{Endpoint, Plugin};
use crate::error::{Error, Result};
use crate::kubelet::Registration;
use crate::metadata::Metadata;
use crate::node::{DiskLink, KubeletDir};
use crate::telemetry::{Filter, Format};
use crate::volume::{Bytes, NodeId, Region};

/// What both halves need.
pub struct Shared {
    /// The socket.
    pub endpoint: Endpoint,
    /// Who this is.
    pub plugin: Plugin,
    /// The region that was given.
    pub region: Option<Region>,
    /// The most volumes on one node.
    pub attach_limit: u32,
    /// What the names of this cluster's disks begin with: its id, or what the provisioner gives
    /// them where there is none.
    pub name_prefix: String,
    /// The admin address, if one is wanted.
    pub admin: Option<SocketAddr>,
    /// The form of log lines.
    pub log_format: Format,
    /// Which log lines.
    pub log: Filter,
    /// Where a test kills this process.
    #[cfg(debug_assertions)]
    pub marks: crate::mark::Marks,
}

/// An account at the cloud that can be asked.
pub struct Account {
    /// The way to the cloud.
    pub exchange: Http,
    /// The token for it.
    pub token: TokenFile,
    /// The most requests in a minute.
    pub requests_per_minute: usize,
}

/// A controller that can be started.
pub struct ControllerConfig {
    /// What both halves need.
    pub shared: Shared,
    /// The way to the cloud.
    pub exchange: Http,
    /// The token for it.
    pub token: TokenFile,
    /// How to use the account.
    pub options: Options,
    /// The size of a volume for which none is asked.
    pub default_size: Bytes,
}

/// A node that can be started.
pub struct NodeConfig {
    /// What both halves need.
    pub shared: Shared,
    /// The id that was given.
    pub node_id: Option<NodeId>,
    /// Who is asked for what was not given.
    pub metadata: Metadata,
    /// The folder of the device nodes.
    pub dev_root: PathBuf,
    /// Where a disk appears in it.
    pub disk_link: DiskLink,
    /// The kernel's account of its devices.
    pub sysfs_root: PathBuf,
    /// Whether disks are used that do not say who they are.
    pub allow_unidentified: bool,
    /// Where the kubelet keeps its volumes.
    pub kubelet_dir: KubeletDir,
    /// How the kubelet is told of this plugin, if by itself.
    pub registration: Option<Registration>,
    /// The folder of the format notes.
    pub format_notes_dir: PathBuf,
}

fn shared(args: &SharedArgs) -> Result<Shared> {
    let named = |option: &'static str| move |error: Error| error.context(option);
    if args.attach_limit == 0 {
        return Err(Error::invalid(
            "--attach-limit 0: a node that takes no volumes needs no driver",
        ));
    }
    if let Some(id) = &args.cluster_id {
        ClusterId::new(id.clone()).map_err(named("--cluster-id"))?;
    }
    let admin = args.admin_addr.as_deref().map(|text| {
        text.parse().map_err(|error: std::net::AddrParseError| {
            Error::invalid(format!("--admin-addr {text:?}: expected ADDRESS:PORT"))
                .with_source(error)
        })
    });
    #[cfg(debug_assertions)]
    let marks = match &args.kill_at {
        None => crate::mark::Marks::default(),
        Some(mark) => crate::mark::Marks::kill_at(mark).map_err(named("--kill-at"))?,
    };
    Ok(Shared {
        endpoint: Endpoint::parse(&args.endpoint).map_err(named("--endpoint"))?,
        plugin: Plugin::new(args.driver_name.clone()).map_err(named("--driver-name"))?,
        region: args.region.clone().map(Region::new).transpose().map_err(named("--region"))?,
        attach_limit: args.attach_limit,
        name_prefix: args.cluster_id.as_ref().map_or("pvc-".to_owned(), |id| format!("{id}-")),
        admin: admin.transpose()?,
        log_format: args.log_format,
        log: Filter::parse(&args.log).map_err(named("--log"))?,
        #[cfg(debug_assertions)]
        marks,
    })
}

impl Account {
    /// Checks what was typed.
    ///
    /// # Errors
    /// `Invalid` naming the option and its value.
    pub fn new(args: &CosmosArgs) -> Result<Self> {
        if args.cosmos_requests_per_minute == 0 {
            return Err(Error::invalid("--cosmos-requests-per-minute 0: nothing could be asked"));
        }
        let base = url("--cosmos-url", &args.cosmos_url)?;
        let exchange = Http::new(base, args.cosmos_ca_file.as_deref())
            .map_err(|error| error.context("--cosmos-url"))?;
        let token = TokenFile::open(&args.cosmos_token_file)
            .map_err(|error| error.context("--cosmos-token-file"))?;
        let requests_per_minute = to_usize(args.cosmos_requests_per_minute);
        Ok(Self { exchange, token, requests_per_minute })
    }
}

impl ControllerConfig {
    /// Checks what was typed.
    ///
    /// # Errors
    /// `Invalid` naming the option and its value.
    pub fn new(args: &ControllerArgs, seed: u64) -> Result<Self> {
        let BackendName::Cosmos = args.backend;
        let shared = shared(&args.shared)?;
        let Account { exchange, token, requests_per_minute } = Account::new(&args.cosmos)?;
        let options = Options {
            cluster_id: args.shared.cluster_id.clone().map(ClusterId::new).transpose()?,
            requests_per_minute,
            attach_limit: to_usize(shared.attach_limit),
            seed,
        };
        Ok(Self { exchange, token, options, default_size: size(&args.default_size)?, shared })
    }
}

impl NodeConfig {
    /// Checks what was typed.
    ///
    /// # Errors
    /// `Invalid` naming the option and its value.
    pub fn new(args: &NodeArgs) -> Result<Self> {
        let shared = shared(&args.shared)?;
        for (option, path) in [
            ("--dev-root", &args.dev_root),
            ("--sysfs-root", &args.sysfs_root),
            ("--format-notes-dir", &args.format_notes_dir),
            ("--kubelet-dir", &args.kubelet_dir),
        ] {
            if !path.is_absolute() {
                return Err(Error::invalid(format!("{option} {path:?} must be an absolute path")));
            }
        }
        for (option, path) in [("--dev-root", &args.dev_root), ("--sysfs-root", &args.sysfs_root)] {
            if !path.is_dir() {
                return Err(Error::invalid(format!(
                    "{option} {path:?} is no directory on this machine"
                )));
            }
        }
        let registration = args.kubelet_registration_dir.as_deref().map(|folder| {
            let endpoint = args.kubelet_registration_path.as_deref();
            let endpoint = endpoint.unwrap_or(shared.endpoint.path());
            if !endpoint.is_absolute() {
                return Err(Error::invalid(format!(
                    "--kubelet-registration-path {endpoint:?} must be an absolute path"
                )));
            }
            Registration::new(folder, &shared.plugin, endpoint.to_owned())
                .map_err(|error| error.context("--kubelet-registration-dir"))
        });
        let node_id = args.node_id.clone().map(NodeId::new).transpose();
        Ok(Self {
            node_id: node_id.map_err(|error| error.context("--node-id"))?,
            metadata: Metadata::new(url("--metadata-url", &args.metadata_url)?)?,
            dev_root: args.dev_root.clone(),
            disk_link: DiskLink::parse(&args.disk_link)
                .map_err(|error| error.context("--disk-link"))?,
            sysfs_root: args.sysfs_root.clone(),
            allow_unidentified: args.allow_unidentified,
            registration: registration.transpose()?,
            format_notes_dir: args.format_notes_dir.clone(),
            kubelet_dir: KubeletDir::new(args.kubelet_dir.clone()),
            shared,
        })
    }
}

fn url(option: &str, text: &str) -> Result<Url> {
    Url::parse(text)
        .map_err(|error| Error::invalid(format!("{option} {text:?} is no URL")).with_source(error))
}

/// Reads a size as Kubernetes writes it, in whole GiB or more: `10Gi`, `1Ti`, or bytes.
fn size(text: &str) -> Result<Bytes> {
    let wrong = || {
        Error::invalid(format!(
            "--default-size {text:?} is no size; expected one such as 10Gi, 1Ti, or bytes"
        ))
    };
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| wrong())?;
    let bytes = match &text[digits.len()..] {
        "" => Some(Bytes::new(number)),
        "Gi" | "GiB" => Some(Bytes::from_gib(number)),
        "Ti" | "TiB" => number.checked_mul(1024).map(Bytes::from_gib),
        _ => None,
    };
    bytes.filter(|bytes| bytes.get() > 0).ok_or_else(wrong)
}

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_is_read_as_kubernetes_writes_it() {
        assert_eq!(size("10Gi").expect("sound"), Bytes::from_gib(10));
        assert_eq!(size("1Ti").expect("sound"), Bytes::from_gib(1024));
        assert_eq!(size("1073741824").expect("sound"), Bytes::from_gib(1));
        for bad in
            ["", "Gi", "0", "0Gi", "-1Gi", "1.5Gi", "10G", "10Mi", "10 Gi", "99999999999999999999"]
        {
            let error = size(bad).expect_err("must be refused");
            assert!(error.to_string().contains("--default-size"), "{error}");
        }
    }
}
