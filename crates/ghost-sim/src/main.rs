//! `ghost-sim serve`: what was typed, put together and run until a signal.
#![forbid(unsafe_code)]

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ghost_sim::api::{Api, Config, Limits};
use ghost_sim::disk::{Devices, GuestAddress};
use ghost_sim::fault::Faults;
use ghost_sim::serve::{Asker, Server};
use ghost_sim::simulator::Simulator;
use ghost_sim::state::{DeviceSlots, Settings};
use ghost_sim::token::TokenFile;
use jiff::SignedDuration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::filter::LevelFilter;

/// The simulated cloud, for development.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves the block storage API until SIGINT or SIGTERM.
    Serve(Box<Serve>),
}

#[derive(Args)]
struct Serve {
    /// The address to listen on; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Where the metadata service listens, without TLS: http://169.254.169.254 at a real cloud.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "metadata_of")]
    metadata_listen: Option<SocketAddr>,
    /// Which droplet asks the metadata service from this address; repeated for each droplet.
    #[arg(long, value_name = "ADDRESS[/BITS]=DROPLET", requires = "metadata_listen")]
    metadata_of: Vec<Asker>,
    /// The folder that everything is kept in; made if it is not there.
    #[arg(long, value_name = "DIR")]
    state_dir: PathBuf,
    /// The file with the token that requests must carry; read again when it changes.
    #[arg(long, value_name = "FILE")]
    token_file: PathBuf,
    /// How many droplets there are.
    #[arg(long, default_value_t = 3)]
    droplets: u64,
    /// The number of the first droplet.
    #[arg(long, default_value_t = 101, value_parser = clap::value_parser!(u64).range(1..=i64::MAX as u64))]
    first_droplet: u64,
    /// The region of the droplets.
    #[arg(long, default_value = "ams1")]
    region: String,
    /// How long an action takes; 0: it is completed when answered.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    action_time: Duration,
    /// How much longer it takes at most; how much of that, each action draws by the seed.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    action_spread: Duration,
    /// Where what is drawn begins; without this it differs each time.
    #[arg(long)]
    seed: Option<u64>,
    /// How much later than acted on a request is answered.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    latency: Duration,
    /// The budget of a minute, which no header tells; none without this.
    #[arg(long, value_name = "N")]
    requests_per_minute: Option<u64>,
    /// The budget of an hour.
    #[arg(long, value_name = "N", default_value_t = 5000)]
    requests_per_hour: u64,
    /// How many volumes one droplet takes.
    #[arg(long, value_name = "N", default_value_t = 7)]
    volumes_per_droplet: usize,
    /// How many volumes the account may have; no limit without this.
    #[arg(long, value_name = "N")]
    volume_limit: Option<u64>,
    /// A full account says so (403) before it looks at the name of a new volume (409).
    #[arg(long)]
    limit_before_name: bool,
    /// A droplet refuses an attach or detach while another one runs on it.
    #[arg(long)]
    one_event_per_droplet: bool,
    /// By how much lists and attachments lag behind when read.
    #[arg(long, default_value = "0ms", value_parser = duration)]
    read_lag: Duration,
    /// How long a volume refuses its next snapshot after one was made.
    #[arg(long, default_value = "0s", value_parser = duration)]
    snapshot_pause: Duration,
    /// How long after it was made a snapshot cannot be restored yet, and tells no size.
    #[arg(long, default_value = "0s", value_parser = duration)]
    snapshot_ready_after: Duration,
    /// What tells the slot that a volume has on its droplet, as before Xen hosts: xvdf and so on.
    #[arg(long, value_enum)]
    device_slots: Option<DeviceSlots>,
    /// The certificate chain for TLS, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    tls_cert_file: Option<PathBuf>,
    /// The certificate's private key, as PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    tls_key_file: Option<PathBuf>,
    /// A JSON list of fault rules to start with.
    #[arg(long, value_name = "FILE")]
    faults: Option<PathBuf>,
    /// What an attached volume becomes.
    #[arg(long, value_enum, default_value_t = DeviceKind::Loop)]
    devices: DeviceKind,
    /// The QEMU guest that is a droplet, by a QMP socket of its own; repeated for each guest.
    #[arg(long, value_name = "DROPLET=SOCKET[,bus=scsi|virtio|nvme][,read-only]")]
    #[arg(required_if_eq("devices", "qmp"))]
    qmp: Vec<GuestAddress>,
    /// Volumes are only spoken of: no files, no devices, no root.
    #[arg(long, conflicts_with_all = ["devices", "qmp"])]
    no_devices: bool,
    /// How much is logged to the standard error: error, warn, info, debug, trace or off.
    #[arg(long, default_value = "info")]
    log: LevelFilter,
}

/// How attached volumes become devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DeviceKind {
    /// A loop device of this machine, and a link to it below the state folder; needs root.
    Loop,
    /// The same with a device node of the droplet's own: the folder droplets/<id>/dev can be bound
    /// over /dev for processes that are to see the disks of that droplet alone.
    DropletLoop,
    /// A disk that is plugged into the QEMU guest that --qmp names.
    Qmp,
}

#[tokio::main]
async fn main() -> ExitCode {
    let Command::Serve(arguments) = Arguments::parse().command;
    tracing_subscriber::fmt()
        .with_max_level(arguments.log)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    match serve(*arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn serve(arguments: Serve) -> Result<()> {
    // Before anything is made, so that no signal can come too early to be cleaned up after.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;

    let tls_files = arguments.tls_cert_file.as_deref().zip(arguments.tls_key_file.as_deref());
    let server = Server::bind(arguments.listen, tls_files).await?;
    let url = server.url()?;
    let metadata = match arguments.metadata_listen {
        None => None,
        Some(address) => Some(Server::bind_metadata(address, arguments.metadata_of).await?),
    };
    let metadata_url = metadata.as_ref().map(Server::url).transpose()?;
    let faults = match &arguments.faults {
        None => Faults::default(),
        Some(path) => {
            let json =
                std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
            let parsed = Faults::parse(&json, &Api::routes()).map_err(anyhow::Error::msg);
            parsed.with_context(|| format!("cannot use {}", path.display()))?
        }
    };
    let config = Config {
        token: String::new(),
        limits: Limits {
            per_hour: arguments.requests_per_hour,
            per_minute: arguments.requests_per_minute,
        },
        latency: arguments.latency,
        scheme: if tls_files.is_some() { "https" } else { "http" },
    };
    let settings = Settings {
        region: arguments.region,
        droplets: arguments.droplets,
        first_droplet: arguments.first_droplet,
        action_time: arguments.action_time,
        action_spread: arguments.action_spread,
        volumes_per_droplet: arguments.volumes_per_droplet,
        volume_limit: arguments.volume_limit,
        limit_before_name: arguments.limit_before_name,
        one_event_per_droplet: arguments.one_event_per_droplet,
        read_lag: arguments.read_lag,
        snapshot_pause: arguments.snapshot_pause,
        snapshot_ready_after: arguments.snapshot_ready_after,
        device_slots: arguments.device_slots,
    };
    let seed = arguments.seed.unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    let token = TokenFile::new(arguments.token_file);
    let devices = match arguments.devices {
        _ if arguments.no_devices => Devices::None,
        DeviceKind::Loop | DeviceKind::DropletLoop => {
            ensure!(arguments.qmp.is_empty(), "--qmp names guests, which need --devices qmp");
            match arguments.devices {
                DeviceKind::DropletLoop => Devices::DropletLoop,
                _ => Devices::Loop,
            }
        }
        DeviceKind::Qmp => {
            let last = settings.first_droplet.saturating_add(settings.droplets);
            let known = settings.first_droplet..last;
            for guest in &arguments.qmp {
                let droplet = guest.droplet;
                ensure!(known.contains(&droplet), "--qmp names droplet {droplet}, which is none");
            }
            Devices::Qmp(arguments.qmp)
        }
    };
    let simulator =
        Simulator::start(&arguments.state_dir, settings, config, faults, token, &devices, seed)
            .await?;
    let simulator = Arc::new(simulator);

    let stop = CancellationToken::new();
    let signalled = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::info!("stopping");
        stop.cancel();
    };
    let announced = announce(&url, metadata_url.as_deref());
    if announced.is_ok() {
        let serving = server.run(simulator.clone(), stop.clone());
        let telling = async {
            if let Some(metadata) = metadata {
                metadata.run(simulator.clone(), stop.clone()).await;
            }
        };
        let following = simulator.follow_guests(&stop);
        tokio::join!(serving, telling, simulator.end_actions(&stop), following, signalled);
    }
    announced.and(simulator.release().await.context("a loop device may be left behind"))
}

/// The line on the standard output for whoever started this and waits for it, and a second one
/// where there is a metadata service.
fn announce(url: &str, metadata_url: Option<&str>) -> Result<()> {
    let mut lines = format!("listening on {url}\n");
    if let Some(url) = metadata_url {
        lines = format!("{lines}telling droplets at {url}\n");
    }
    let mut output = io::stdout();
    output
        .write_all(lines.as_bytes())
        .and_then(|()| output.flush())
        .context("cannot write to the standard output")
}

/// A duration with its unit, such as `250ms`, `10s` or `1m30s`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed: SignedDuration =
        text.parse().map_err(|_| "a duration looks like 250ms, 10s or 1m30s".to_owned())?;
    Duration::try_from(parsed).map_err(|_| "a duration cannot be negative".to_owned())
}
