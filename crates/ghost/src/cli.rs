//! What can be typed. What it means, and whether it is sound, is `config`'s matter.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::telemetry::Format;

/// The name of the driver where no other is given.
pub const DRIVER_NAME: &str = "ghost.csi.greenhost.net";

/// CSI driver for the disks of a VPS provider.
///
/// Every option can also be set as an environment variable, whose name stands beside it.
#[derive(Debug, Parser)]
#[command(name = "ghost", version, propagate_version = true)]
pub struct Cli {
    /// What to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The two halves of the driver.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs the controller half: makes, deletes, attaches, grows and lists volumes.
    Controller(Box<ControllerArgs>),
    /// Runs the node half: formats, mounts and grows what is attached to this machine.
    Node(Box<NodeArgs>),
}

/// What both halves take.
#[derive(Args, Debug)]
pub struct SharedArgs {
    /// Socket to listen at, such as unix:///csi/controller.sock
    #[arg(long, env = "CSI_ENDPOINT", value_name = "URL")]
    pub endpoint: String,
    /// Name of the driver, as in the CSIDriver object
    #[arg(long, env = "GHOST_DRIVER_NAME", value_name = "NAME", default_value = DRIVER_NAME)]
    pub driver_name: String,
    /// Region slug; the controller's default for new volumes, the node's own place
    #[arg(long, env = "GHOST_REGION", value_name = "SLUG")]
    pub region: Option<String>,
    /// Most volumes on one node (7 at the provider)
    #[arg(long, env = "GHOST_ATTACH_LIMIT", value_name = "NUMBER", default_value_t = 7)]
    pub attach_limit: u32,
    /// Id of this cluster, which stands before the names of its volumes at the cloud
    #[arg(long, env = "GHOST_CLUSTER_ID", value_name = "ID")]
    pub cluster_id: Option<String>,
    /// Address for /metrics, /healthz and /readyz, such as 127.0.0.1:9808; none if absent
    #[arg(long, env = "GHOST_ADMIN_ADDR", value_name = "HOST:PORT")]
    pub admin_addr: Option<String>,
    /// Form of log lines
    #[arg(long, env = "GHOST_LOG_FORMAT", value_enum, default_value_t = Format::Text)]
    pub log_format: Format,
    /// Which log lines: a level, or per module as in info,ghost::backend=debug
    #[arg(long, env = "GHOST_LOG", value_name = "FILTER", default_value = "info")]
    pub log: String,
    /// Ends the process by SIGKILL at this mark; debug builds only, for tests
    #[cfg(debug_assertions)]
    #[arg(long, env = "GHOST_KILL_AT", value_name = "MARK", hide = true)]
    pub kill_at: Option<String>,
}

/// The storage systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendName {
    /// Greenhost's disk API, compatible with DigitalOcean's block storage.
    Cosmos,
}

/// How an account at the cloud is reached.
#[derive(Args, Debug)]
pub struct CosmosArgs {
    /// Base URL of the disk API, without /v2; https, or http to a loopback address
    #[arg(long, env = "GHOST_COSMOS_URL", value_name = "URL")]
    pub cosmos_url: String,
    /// File with the API token; read again when it changes or is refused
    #[arg(long, env = "GHOST_COSMOS_TOKEN_FILE", value_name = "FILE")]
    pub cosmos_token_file: PathBuf,
    /// File with the CA certificates of the API; the system's if absent
    #[arg(long, env = "GHOST_COSMOS_CA_FILE", value_name = "FILE")]
    pub cosmos_ca_file: Option<PathBuf>,
    /// Most requests to the API in a minute
    #[arg(
        long,
        env = "GHOST_COSMOS_REQUESTS_PER_MINUTE",
        value_name = "NUMBER",
        default_value_t = 250
    )]
    pub cosmos_requests_per_minute: u32,
}

/// What the controller half takes.
#[derive(Args, Debug)]
pub struct ControllerArgs {
    /// Shared options.
    #[command(flatten)]
    pub shared: SharedArgs,
    /// Storage system
    #[arg(long, env = "GHOST_BACKEND", value_enum, default_value = "cosmos")]
    pub backend: BackendName,
    /// The account at the cloud.
    #[command(flatten)]
    pub cosmos: CosmosArgs,
    /// Size of a volume for which none is asked
    #[arg(long, env = "GHOST_DEFAULT_SIZE", value_name = "SIZE", default_value = "10Gi")]
    pub default_size: String,
}

/// What the node half takes.
#[derive(Args, Debug)]
pub struct NodeArgs {
    /// Shared options.
    #[command(flatten)]
    pub shared: SharedArgs,
    /// The cloud's id of this machine; asked of the metadata service if absent
    #[arg(long, env = "GHOST_NODE_ID", value_name = "ID")]
    pub node_id: Option<String>,
    /// Provider's metadata service
    #[arg(
        long,
        env = "GHOST_METADATA_URL",
        value_name = "URL",
        default_value = "http://169.254.169.254"
    )]
    pub metadata_url: String,
    /// Folder of the device nodes
    #[arg(long, env = "GHOST_DEV_ROOT", value_name = "DIR", default_value = "/dev")]
    pub dev_root: PathBuf,
    /// Where a disk appears in that folder; {name} and {id} are the volume's at the cloud
    #[arg(
        long,
        env = "GHOST_DISK_LINK",
        value_name = "TEMPLATE",
        default_value = "disk/by-id/scsi-0DO_Volume_{name}"
    )]
    pub disk_link: String,
    /// Where the kernel tells of its devices
    #[arg(long, env = "GHOST_SYSFS_ROOT", value_name = "DIR", default_value = "/sys")]
    pub sysfs_root: PathBuf,
    /// Use disks that do not say who they are, where there is no choice between two: see docs/devices.md
    #[arg(long, env = "GHOST_ALLOW_UNIDENTIFIED")]
    pub allow_unidentified: bool,
    /// Folder that the kubelet keeps its volumes below; mounts made there must reach the machine
    #[arg(long, env = "GHOST_KUBELET_DIR", value_name = "DIR", default_value = "/var/lib/kubelet")]
    pub kubelet_dir: PathBuf,
    /// The kubelet's registration folder, such as /var/lib/kubelet/plugins_registry; if absent,
    /// somebody else registers the driver
    #[arg(long, env = "GHOST_KUBELET_REGISTRATION_DIR", value_name = "DIR")]
    pub kubelet_registration_dir: Option<PathBuf>,
    /// The driver's own socket as the kubelet sees it; the path of --endpoint if absent
    #[arg(
        long,
        env = "GHOST_KUBELET_REGISTRATION_PATH",
        value_name = "SOCKET",
        requires = "kubelet_registration_dir"
    )]
    pub kubelet_registration_path: Option<PathBuf>,
    /// Folder for the notes that tell of a format cut short; must outlive this process
    #[arg(
        long,
        env = "GHOST_FORMAT_NOTES_DIR",
        value_name = "DIR",
        default_value = "/var/lib/ghost/format-notes"
    )]
    pub format_notes_dir: PathBuf,
}
