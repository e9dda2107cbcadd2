//! Figures of a static release build against the simulator, each beside its floor: the time that
//! the bare system calls or HTTP exchanges of the same work take in the same run.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use xtask::command::{build_static, output, program, run as run_command};
use xtask::playground::{NODES, Options, Playground, probe};
use xtask::volume_life::{Controller, Node, Volume, mounted};

pub(crate) use self::floor::Http;
use crate::setup;

mod floor;
mod storm;

pub(crate) use storm::Storm;

const ROUNDS: usize = 40;

/// Builds, and has the release build of this program measure: the far end of every call is it, and
/// what it takes to read an answer is part of the figures.
pub(crate) fn run() -> Result<()> {
    setup::need_root("the benchmark")?;
    setup::need_programs(&["mkfs.ext4", "losetup", "blkid"])?;
    let programs = build_static()?;
    // With the same arguments, and so the same benchmark.
    let own = std::env::args_os().skip(2);
    let mut measure = program(programs.join("xtask"));
    run_command(measure.arg("bench").arg("--measure").arg(&programs).args(own))
}

/// Which benchmark, where not all that take moments.
#[derive(clap::Subcommand, Clone, Debug)]
pub(crate) enum Which {
    /// A thousand attachments within the budget of a cloud; takes 13 minutes
    AttachStorm(Storm),
    /// Seven volumes for one droplet that takes one event at a time; takes 4 minutes
    OneDroplet,
}

/// Measures and prints.
pub(crate) fn measure(programs: &Path, which: Option<&Which>) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match which {
        Some(Which::AttachStorm(asked)) => {
            return runtime.block_on(storm::attach_storm(programs, asked));
        }
        Some(Which::OneDroplet) => return runtime.block_on(storm::one_droplet(programs)),
        None => {}
    }
    println!("\n{:<44}{:>10}{:>10}{:>10}{:>8}", "", "p50", "floor", "goal", "×floor");
    runtime.block_on(with_devices(programs))?;
    runtime.block_on(without_devices(programs))?;
    let size = fs::metadata(programs.join("ghost"))?.len();
    amount("static stripped binary", size, 8);
    Ok(())
}

fn options(programs: &Path, devices: bool) -> Options {
    Options { programs: programs.to_owned(), action_time: "0ms", devices, log: "info" }
}

/// Attaching, staging, publishing.
async fn with_devices(programs: &Path) -> Result<()> {
    let playground = Playground::start(options(programs, true))?;
    let mut controller = Controller(playground.controller().await?);
    let mut node = Node(playground.node(NODES[0]).await?);
    let mut http = Http::connect(&playground)?;
    let (staging, pod) = (playground.path("staging"), playground.path("pod"));
    let mut volume = controller.create("bench", 1, mounted("ext4")).await?;

    let (mut attach, mut attach_floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        attach.push(timed(controller.attach(&mut volume, NODES[0])).await?);
        controller.detach(&volume, NODES[0]).await?;
        attach_floor.push(bare_attach(&mut http, &volume)?);
        controller.detach(&volume, NODES[0]).await?;
    }
    time("publish (attach, simulated disk plugged)", attach, attach_floor, 10.0);

    controller.attach(&mut volume, NODES[0]).await?;
    node.stage(&volume, &staging).await?;
    let (mut publish, mut publish_floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        publish.push(timed(node.publish(&volume, &staging, &pod)).await?);
        node.unpublish(&volume, &pod).await?;
        publish_floor.push(floor::bind(&staging, &pod)?);
    }
    time("node publish", publish, publish_floor, 1.0);

    let (mut stage, mut stage_floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        node.unstage(&volume, &staging).await?;
        stage.push(timed(node.stage(&volume, &staging)).await?);
        node.unstage(&volume, &staging).await?;
        stage_floor.push(bare_stage(&playground, &volume, &staging)?);
    }
    time("stage of a formatted ext4 disk", stage, stage_floor, 15.0);
    node.unstage(&volume, &staging).await?;
    controller.detach(&volume, NODES[0]).await?;
    controller.delete(&volume).await?;
    Ok(())
}

/// Starting, listing, resident memory: nothing here needs a disk.
async fn without_devices(programs: &Path) -> Result<()> {
    let mut playground = Playground::start(options(programs, false))?;
    let mut start = Vec::new();
    for _ in 0..10 {
        start.push(start_to_probe(programs, &playground).await?);
    }
    let bare = (0..10).map(|_| bare_start(programs)).collect::<Result<Vec<_>>>()?;
    time("start to first Probe", start, bare, 5.0);

    playground.kill_controller()?;
    playground.start_controller(&[])?;
    let mut controller = Controller(playground.controller().await?);
    controller.count().await?;
    amount("controller, resident, idle", resident(&playground)?, 6);
    for number in 0..1000 {
        let volume = controller.create(&format!("bench-{number}"), 1, mounted("ext4")).await?;
        controller.delete(&volume).await?;
    }
    amount("controller, resident, after 1000 volumes", resident(&playground)?, 10);

    for number in 0..1000 {
        controller.create(&format!("bench-{number}"), 1, mounted("ext4")).await?;
    }
    let mut http = Http::connect(&playground)?;
    let (mut list, mut list_floor) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        list.push(timed(controller.count()).await?);
        let begun = Instant::now();
        for page in 1..=5 {
            http.exchange("GET", &format!("/v2/volumes?per_page=200&page={page}"), "")?;
        }
        list_floor.push(begun.elapsed());
    }
    time("ListVolumes of 1000", list, list_floor, 10.0);
    Ok(())
}

/// The two exchanges that an attachment takes.
fn bare_attach(http: &mut Http, volume: &Volume) -> Result<Duration> {
    let begun = Instant::now();
    let path = format!("/v2/volumes/{}", volume.id);
    let body = format!("{{\"type\":\"attach\",\"droplet_id\":{}}}", NODES[0]);
    http.exchange("POST", &format!("{path}/actions"), &body)?;
    http.exchange("GET", &path, "")?;
    Ok(begun.elapsed())
}

/// The tools and the system call that a stage takes: a probe, a check, a mount.
fn bare_stage(playground: &Playground, volume: &Volume, staging: &Path) -> Result<Duration> {
    use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
    let name = volume.context.get("volumeName").context("the context names the volume")?;
    let link = format!("disk/by-id/scsi-0DO_Volume_{name}");
    let device = fs::canonicalize(playground.dev_root(NODES[0]).join(link))?;
    let begun = Instant::now();
    output(program("blkid").args(["-p", "-o", "export"]).arg(&device))?;
    output(program("e2fsck").arg("-p").arg(&device))?;
    fs::create_dir(staging)?;
    mount(&device, staging, "ext4", MountFlags::empty(), None)?;
    let took = begun.elapsed();
    unmount(staging, UnmountFlags::empty())?;
    fs::remove_dir(staging)?;
    Ok(took)
}

async fn start_to_probe(programs: &Path, playground: &Playground) -> Result<Duration> {
    let socket = playground.path("start.sock");
    let mut command = program(programs.join("ghost"));
    command
        .arg("controller")
        .arg(format!("--endpoint=unix://{}", socket.display()))
        .args(["--cosmos-url", playground.url(), "--cosmos-token-file"])
        .arg(playground.path("token"))
        .stderr(Stdio::null());
    let begun = Instant::now();
    let mut child = command.spawn()?;
    let answered = loop {
        if probe(&socket).await.is_ok() {
            break begun.elapsed();
        }
        // The socket's folder could be watched, but what is measured here is a few milliseconds.
        tokio::time::sleep(Duration::from_micros(100)).await;
    };
    child.kill()?;
    child.wait()?;
    Ok(answered)
}

/// What the kernel takes to start this very file and let it end.
fn bare_start(programs: &Path) -> Result<Duration> {
    let begun = Instant::now();
    output(program(programs.join("ghost")).arg("--version"))?;
    Ok(begun.elapsed())
}

async fn timed<T, E>(work: impl Future<Output = std::result::Result<T, E>>) -> Result<Duration>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let begun = Instant::now();
    work.await?;
    Ok(begun.elapsed())
}

/// The resident memory of the controller, in bytes.
fn resident(playground: &Playground) -> Result<u64> {
    let pid = playground.controller_pid().context("the controller runs")?;
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")).context("VmRSS in kB")?;
    Ok(kib.trim().parse::<u64>()? << 10)
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1000.0
}

fn time(what: &str, times: Vec<Duration>, floor: Vec<Duration>, goal: f64) {
    let (time, floor) = (median(times), median(floor));
    let met = if time <= goal { "" } else { "  missed" };
    println!("{what:<44}{time:>7.2} ms{floor:>7.2} ms{goal:>7.0} ms{:>8.1}{met}", time / floor);
}

fn amount(what: &str, bytes: u64, goal: u64) {
    let kib = bytes >> 10;
    let met = if bytes <= goal << 20 { "" } else { "  missed" };
    let mib = format!("{}.{:02}", kib >> 10, ((kib & 1023) * 100) >> 10);
    println!("{what:<44}{mib:>6} MiB{:>10}{goal:>6} MiB{met}", "");
}
