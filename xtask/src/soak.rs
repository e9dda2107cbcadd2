//! Many lives of volumes on real loop devices, while the cloud drops, refuses and fails: nothing
//! may be left of them, and the processes may not grow.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tonic::Status;
use xtask::command::{build, target};
use xtask::interrupt;
use xtask::leftover::{loops_below, mounts_below};
use xtask::playground::{NODES, Options, Playground};
use xtask::volume_life::{Controller, Node, Volume, mounted};

use crate::bench::Http;
use crate::setup;

/// How many volumes live side by side.
const LANES: u64 = 4;
/// After how many lives the processes are looked at.
const LOOK_EVERY: u64 = 1000;
/// After how many lives the faults are put anew.
const FAULTS_EVERY: u64 = 20;
/// By how much resident memory may differ between the first thousand lives and the last: what the
/// allocator keeps of the largest moment so far.
const FLAT: f64 = 1.10;
/// The wait before a call is repeated that was not final.
const AGAIN: Duration = Duration::from_millis(20);
/// What is written to each volume, in bytes.
const CONTENT: usize = 1 << 16;

/// Runs so many lives and says what was left.
pub(crate) fn run(lives: u64) -> Result<()> {
    setup::need_root("the soak")?;
    setup::need_programs(&["mkfs.ext4", "losetup", "blkid"])?;
    build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(soak(lives))
}

async fn soak(lives: u64) -> Result<()> {
    let programs = target().join("debug");
    let world =
        Playground::start(Options { programs, action_time: "0ms", devices: true, log: "warn" })?;
    let mut looks = vec![Look::at(&world)?];
    let begun = Instant::now();
    let next = AtomicU64::new(0);
    println!("\n{:>7}{:>9}  {}", "lives", "seconds", Look::head());
    while next.load(Ordering::Relaxed) < lives {
        let until = (next.load(Ordering::Relaxed) + LOOK_EVERY).min(lives);
        let lanes = (0..LANES).map(|lane| walk(&world, lane, &next, until));
        futures_util::future::try_join_all(lanes).await?;
        // A lane takes a number before it looks whether that is one too many.
        next.store(until, Ordering::Relaxed);
        let look = Look::at(&world)?;
        println!("{until:>7}{:>9.0}  {look}", begun.elapsed().as_secs_f64());
        looks.push(look);
    }
    put_faults(&world, &json!([]))?;
    check(&world, &looks[1], looks.last().context("there was a look")?)?;
    println!("\n{lives} lives: no mount, loop device or volume is left, nothing has grown");
    Ok(())
}

/// One lane: lives one after the other.
async fn walk(world: &Playground, lane: u64, next: &AtomicU64, until: u64) -> Result<()> {
    let machine = NODES[usize::try_from(lane)? % NODES.len()];
    let mut controller = Controller(world.controller().await?);
    let mut node = Node(world.node(machine).await?);
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= until {
            return Ok(());
        }
        interrupt::check()?;
        if number.is_multiple_of(FAULTS_EVERY) {
            put_faults(world, &faults(number))?;
        }
        let staging = world.path(&format!("staging-{number}"));
        live(&mut controller, &mut node, number, machine, &staging)
            .await
            .with_context(|| format!("life {number}"))?;
    }
}

async fn live(
    controller: &mut Controller,
    node: &mut Node,
    number: u64,
    machine: u64,
    staging: &PathBuf,
) -> Result<()> {
    let name = format!("soak-{number}");
    let mut volume =
        repeated(async || controller.clone().create(&name, 1, mounted("ext4")).await).await?;
    for round in 0..2 {
        let attached: Volume = repeated(async || {
            let mut attached = volume.clone();
            controller.clone().attach(&mut attached, machine).await?;
            Ok(attached)
        })
        .await?;
        volume = attached;
        repeated(async || node.clone().stage(&volume, staging).await).await?;
        let file = staging.join("content");
        if round == 0 {
            write(&file, number)?;
        } else {
            ensure!(read(&file)? == content(number), "the content is another one");
        }
        repeated(async || node.clone().unstage(&volume, staging).await).await?;
        repeated(async || controller.clone().detach(&volume, machine).await).await?;
        // The second round only now and then: it shows that what was written is there.
        if !number.is_multiple_of(10) {
            break;
        }
    }
    repeated(async || controller.clone().delete(&volume).await).await?;
    Ok(fs::remove_dir(staging).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?)
}

/// Calls until it succeeds, as the sidecars and the kubelet do.
async fn repeated<T>(call: impl AsyncFn() -> Result<T, Status>) -> Result<T> {
    use tonic::Code::{Aborted, DeadlineExceeded, Internal, Unavailable};
    for _ in 0..200 {
        match call().await {
            Ok(answer) => return Ok(answer),
            // INTERNAL: the cloud's action failed.
            Err(status)
                if [Aborted, DeadlineExceeded, Internal, Unavailable].contains(&status.code()) =>
            {
                tokio::time::sleep(AGAIN).await;
            }
            Err(status) => return Err(status.into()),
        }
    }
    anyhow::bail!("it has not succeeded in 200 tries")
}

fn content(number: u64) -> Vec<u8> {
    number.to_le_bytes().into_iter().cycle().take(CONTENT).collect()
}

fn write(file: &Path, number: u64) -> Result<()> {
    let mut file = fs::File::create(file)?;
    file.write_all(&content(number))?;
    Ok(file.sync_all()?)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    fs::File::open(file)?.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Each kind of fault once within the next requests, at places that move with the number.
fn faults(number: u64) -> Value {
    let actions = "/v2/volumes/{volume_id}/actions";
    let effects = [
        ("*", json!({"drop": "before"})),
        ("*", json!({"drop": "after"})),
        ("*", json!({"status": 503})),
        ("*", json!({"status": 429, "retry_after_s": 0})),
        ("*", json!({"body": "garbage"})),
        ("*", json!({"delay_ms": 30})),
        (actions, json!({"action": "fail"})),
    ];
    let rules = (0..).zip(effects).map(|(position, (route, effect)): (u64, _)| {
        let after = (number / FAULTS_EVERY * 7 + position * 13) % 60;
        json!({"route": route, "after": after, "times": 1, "effect": effect})
    });
    rules.collect()
}

fn put_faults(world: &Playground, rules: &Value) -> Result<()> {
    Http::connect(world)?.exchange("PUT", "/sim/v1/faults", &rules.to_string())?;
    Ok(())
}

/// What a process holds.
#[derive(Clone, Copy)]
struct Process {
    kib: u64,
    files: usize,
    threads: usize,
}

/// The controller and the nodes, at a moment at which nothing is asked of them.
struct Look(Vec<Process>);

impl Look {
    fn at(world: &Playground) -> Result<Self> {
        let controller = world.controller_pid().context("the controller runs")?;
        let nodes = NODES.iter().map(|node| world.node_pid(*node).context("the node runs"));
        let pids = std::iter::once(Ok(controller)).chain(nodes);
        Ok(Self(pids.map(|pid| Process::look(pid?)).collect::<Result<_>>()?))
    }

    fn head() -> String {
        let of = |name| format!("{name:<36}");
        ["controller", "node 101", "node 102"].map(of).concat()
    }
}

impl std::fmt::Display for Look {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for Process { kib, files, threads } in &self.0 {
            let shown = format!("{kib} KiB, {files} files, {threads} threads");
            write!(f, "{shown:<36}")?;
        }
        Ok(())
    }
}

impl Process {
    fn look(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let number = |key: &str| -> Result<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(key));
            let word = line.and_then(|line| line.split_whitespace().next());
            Ok(word.with_context(|| format!("{key} of process {pid}"))?.parse()?)
        };
        Ok(Self {
            kib: number("VmRSS:")?,
            files: fs::read_dir(format!("/proc/{pid}/fd"))?.count(),
            threads: usize::try_from(number("Threads:")?)?,
        })
    }
}

fn check(world: &Playground, first: &Look, last: &Look) -> Result<()> {
    let folder = world.path("");
    let (mounts, loops) = (mounts_below(&folder), loops_below(&folder));
    ensure!(mounts.is_empty(), "mounts are left: {mounts:?}");
    ensure!(loops.is_empty(), "loop devices are left: {loops:?}");
    let state: Value =
        serde_json::from_str(&Http::connect(world)?.exchange("GET", "/sim/v1/state", "")?)?;
    for kind in ["volumes", "snapshots"] {
        let left = state[kind].as_array().context("the simulator answers lists")?;
        ensure!(left.is_empty(), "{kind} are left: {left:?}");
    }
    for (first, last) in first.0.iter().zip(&last.0) {
        // Connections of this command come and go; more than a few are a leak.
        ensure!(last.files <= first.files + 4, "{} files became {}", first.files, last.files);
        ensure!(last.threads <= first.threads + 4, "threads: {}, {}", first.threads, last.threads);
        #[expect(clippy::cast_precision_loss, reason = "some MiB")]
        let grown = last.kib as f64 / first.kib as f64;
        ensure!(grown <= FLAT, "{} KiB became {} KiB", first.kib, last.kib);
    }
    Ok(())
}
