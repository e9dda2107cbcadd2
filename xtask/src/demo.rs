//! The story of one volume, told step by step with what is really there.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};
use xtask::command::{build, target};
use xtask::leftover::{loops_below, mounts_below};
use xtask::playground::{NODES, Options, Playground, probe};
use xtask::volume_life::{Answer, Controller, GIB, Node, Volume, mounted};

use crate::setup;

/// How long the simulated cloud takes for an action: long enough to be cut short.
const ACTION_TIME: &str = "150ms";
/// How much is written, in bytes.
const CONTENT: usize = 8 << 20;

/// Tells the story. Nothing of it is left afterwards.
pub(crate) fn run() -> Result<()> {
    setup::need_root("the demo")?;
    setup::need_programs(&["mkfs.ext4", "mkfs.xfs", "losetup", "blkid"])?;
    build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut playground = Playground::start(Options {
        programs: target().join("debug"),
        action_time: ACTION_TIME,
        devices: true,
        log: "info",
    })?;
    let folder = playground.path("");
    println!();
    let told = runtime.block_on(story(&mut playground));
    // The clients' connections first: a part that is told to stop waits for them.
    drop(runtime);
    let pids = playground.pids();
    drop(playground);
    let left = left_behind(&folder, &pids);
    let shown = if left.is_empty() {
        "no mount, no loop device, no process, no file".to_owned()
    } else {
        left.join(", ")
    };
    println!("      left behind: {shown}");
    told?;
    ensure!(left.is_empty(), "the demo left something behind: {shown}");
    Ok(())
}

fn left_behind(folder: &Path, pids: &[u32]) -> Vec<String> {
    let mut left: Vec<String> =
        mounts_below(folder).iter().map(|target| format!("mount {}", target.display())).collect();
    left.extend(loops_below(folder));
    left.extend(
        pids.iter()
            .filter(|pid| Path::new(&format!("/proc/{pid}")).exists())
            .map(|pid| format!("process {pid}")),
    );
    if folder.exists() {
        left.push(format!("folder {}", folder.display()));
    }
    left
}

/// Tells one step: what is done, how long it took, and what is there now.
struct Teller {
    step: usize,
}

impl Teller {
    async fn step<T>(
        &mut self,
        what: &str,
        doing: impl Future<Output = Result<T>>,
        seen: impl FnOnce(&T) -> Result<String>,
    ) -> Result<T> {
        self.step += 1;
        let begun = Instant::now();
        let done = doing.await.with_context(|| what.to_owned())?;
        let took = begun.elapsed();
        println!("{:>4}  {what:<50}{:>9}", self.step, millis(took));
        for line in seen(&done)?.lines() {
            println!("      {line}");
        }
        Ok(done)
    }
}

/// The answer of a call, as a step takes it.
async fn status<T>(call: impl Future<Output = Answer<T>>) -> Result<T> {
    Ok(call.await?)
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

async fn story(playground: &mut Playground) -> Result<()> {
    let filesystem = if setup::has_resource_capability() {
        "ext4"
    } else {
        println!(
            "      (xfs instead of ext4: growing a mounted ext4 needs CAP_SYS_RESOURCE here)\n"
        );
        "xfs"
    };
    let mut tell = Teller { step: 0 };
    let mut controller = Controller(playground.controller().await?);
    let [mut one, mut two] =
        [Node(playground.node(NODES[0]).await?), Node(playground.node(NODES[1]).await?)];
    let dev = NODES.map(|node| playground.dev_root(node));
    let staging = NODES.map(|node| playground.path(&format!("staging-{node}")));
    let pod = NODES.map(|node| playground.path(&format!("pod-{node}")));

    let mut volume = tell
        .step(
            "a claim: a volume of 1 GiB is made",
            status(controller.create("pvc-demo", 1, mounted(filesystem))),
            |volume| Ok(format!("volume {}", volume.id)),
        )
        .await?;
    tell.step(
        "the cloud attaches it to node 101",
        status(controller.attach(&mut volume, 101)),
        |()| device(&dev[0]),
    )
    .await?;
    tell.step("node 101 formats and mounts it", status(one.stage(&volume, &staging[0])), |()| {
        mount_line(&staging[0])
    })
    .await?;
    tell.step(
        "a pod on node 101 gets it",
        status(one.publish(&volume, &staging[0], &pod[0])),
        |()| mount_line(&pod[0]),
    )
    .await?;
    let sum = tell
        .step("the pod writes 8 MiB", async { write(&pod[0]) }, |sum| Ok(format!("sha256 {sum}")))
        .await?;
    tell.step(
        "the pod ends; unmounted, then detached",
        async {
            one.unpublish(&volume, &pod[0]).await?;
            one.unstage(&volume, &staging[0]).await?;
            Ok(controller.detach(&volume, 101).await?)
        },
        |()| device(&dev[0]),
    )
    .await?;
    tell.step(
        "a new pod on node 102: attached and mounted",
        async {
            controller.attach(&mut volume, 102).await?;
            two.stage(&volume, &staging[1]).await?;
            Ok(two.publish(&volume, &staging[1], &pod[1]).await?)
        },
        |()| Ok(format!("{}\n{}", device(&dev[1])?, mount_line(&pod[1])?)),
    )
    .await?;
    tell.step("the pod reads", async { read(&pod[1]) }, |read| same(read, &sum)).await?;
    tell.step(
        "the claim grows to 2 GiB, while in use",
        async {
            controller.grow(&volume, 2).await?;
            two.grow(&volume, &pod[1], 2).await?;
            Ok(two.total(&volume, &pod[1]).await?)
        },
        |total| {
            ensure!(*total > GIB * 3 / 2, "the filesystem still has {total} bytes");
            Ok(format!("the filesystem has {} MiB; {}", total >> 20, device(&dev[1])?))
        },
    )
    .await?;

    tell.step(
        "kill -9 of everything, in the middle of a move",
        cut_short(playground, &mut controller, &mut two, &volume, &staging[1], &pod[1]),
        |()| Ok("cloud, controller and both nodes are dead".to_owned()),
    )
    .await?;
    tell.step("all of it is started again", async { playground.start_parts() }, |()| {
        Ok(String::new())
    })
    .await?;
    ensure!(probe(&playground.controller_socket()).await?, "the controller is not ready");
    controller = Controller(playground.controller().await?);
    one = Node(playground.node(NODES[0]).await?);
    tell.step(
        "the move is asked for again, and finished",
        async {
            controller.detach(&volume, 102).await?;
            controller.attach(&mut volume, 101).await?;
            one.stage(&volume, &staging[0]).await?;
            Ok(one.publish(&volume, &staging[0], &pod[0]).await?)
        },
        |()| Ok(format!("{}\n{}", device(&dev[0])?, mount_line(&pod[0])?)),
    )
    .await?;
    tell.step("the pod reads", async { read(&pod[0]) }, |read| same(read, &sum)).await?;
    tell.step(
        "the claim goes: unmounted, detached, deleted",
        async {
            one.unpublish(&volume, &pod[0]).await?;
            one.unstage(&volume, &staging[0]).await?;
            controller.detach(&volume, 101).await?;
            controller.delete(&volume).await?;
            Ok(controller.count().await?)
        },
        |count| {
            ensure!(*count == 0, "{count} volumes are left at the cloud");
            Ok("no volume is left at the cloud".to_owned())
        },
    )
    .await?;
    Ok(())
}

/// Begins the move from node 102 to node 101 and kills everything while the cloud detaches.
async fn cut_short(
    playground: &mut Playground,
    controller: &mut Controller,
    node: &mut Node,
    volume: &Volume,
    staging: &Path,
    pod: &Path,
) -> Result<()> {
    node.unpublish(volume, pod).await?;
    node.unstage(volume, staging).await?;
    let mut detaching = controller.clone();
    let moved = volume.clone();
    let detach = async move { detaching.detach(&moved, 102).await };
    let kill = async {
        // The action takes 150 ms; half of it has gone by.
        tokio::time::sleep(Duration::from_millis(75)).await;
        playground.kill_all()
    };
    let (detached, killed) = tokio::join!(detach, kill);
    killed?;
    ensure!(detached.is_err(), "the detach was over before it could be cut short");
    Ok(())
}

/// What a node's device folder leads to.
fn device(dev: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in fs::read_dir(dev.join("disk/by-id")).into_iter().flatten() {
        let entry = entry?;
        let node = fs::canonicalize(entry.path())?;
        let name = node.file_name().context("a device has a name")?.to_string_lossy().into_owned();
        let sectors = fs::read_to_string(format!("/sys/block/{name}/size"))?;
        let mib = sectors.trim().parse::<u64>()? >> 11;
        write!(text, "{} → {} ({mib} MiB)", entry.file_name().display(), node.display())?;
    }
    Ok(if text.is_empty() { "no disk on that node any more".to_owned() } else { text })
}

/// What the kernel says is mounted at a path.
fn mount_line(path: &Path) -> Result<String> {
    let table = fs::read_to_string("/proc/self/mounts")?;
    let wanted = path.to_string_lossy();
    let line = table.lines().find(|line| line.split(' ').nth(1) == Some(&*wanted));
    let mut words = line.with_context(|| format!("nothing is mounted at {wanted}"))?.split(' ');
    let (source, _, kind, options) =
        (words.next(), words.next(), words.next(), words.next().unwrap_or_default());
    let short: PathBuf = path.file_name().map(PathBuf::from).unwrap_or_default();
    let access = options.split(',').next().unwrap_or_default();
    Ok(format!(
        "{} on {} as {} ({access})",
        source.unwrap_or_default(),
        short.display(),
        kind.unwrap_or_default()
    ))
}

fn write(folder: &Path) -> Result<String> {
    let content: Vec<u8> = (0..CONTENT).map(|at| (at * 31 % 251).to_le_bytes()[0]).collect();
    let path = folder.join("data");
    fs::write(&path, content)?;
    fs::File::open(&path)?.sync_all()?;
    read(folder)
}

fn read(folder: &Path) -> Result<String> {
    let mut text = String::new();
    for byte in &Sha256::digest(fs::read(folder.join("data"))?)[..12] {
        write!(text, "{byte:02x}")?;
    }
    Ok(text)
}

fn same(read: &str, written: &str) -> Result<String> {
    ensure!(read == written, "read {read}, but {written} was written");
    Ok(format!("sha256 {read}, as written"))
}
