//! A thousand attachments over a thousand droplets within the cloud's budget, and seven on one
//! droplet that takes one event at a time: how long, how many calls, how many refused.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use futures_util::stream::{self, StreamExt as _};
use ghost_csi as pb;
use jiff::Timestamp;
use pb::controller_client::ControllerClient;
use serde_json::{Value, json};
use tonic::Request;
use tonic::transport::Channel;
use xtask::interrupt;
use xtask::playground::{Options, Playground, connect, probe};
use xtask::volume_life::mounted;

use super::floor::Http;

/// With how many volumes the goals are meant.
const VOLUMES: usize = 1000;
const FIRST_DROPLET: u64 = 101;
/// The cloud's budget in a minute, and in an hour.
const PER_MINUTE: &str = "250";
const PER_HOUR: &str = "5000";
const ACTION: Duration = Duration::from_secs(5);
/// How many calls external-attacher makes at once by default, and how long it waits for one.
const ATTACHER_THREADS: usize = 10;
const ATTACHER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long one waits who asks for all at once.
const PATIENT: Duration = Duration::from_secs(3600);
/// How a run ends that was slower, or asked more, than it should.
const MISSED: &str = "a goal was missed";
/// How often a peer that does not answer yet is asked.
const PROBE_AGAIN: Duration = Duration::from_millis(200);

/// How many attachments there are, and by whom.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Storm {
    /// How many volumes, each for a droplet of its own; the goals are for a thousand
    #[arg(long, default_value_t = VOLUMES, value_name = "NUMBER")]
    volumes: usize,
    #[command(flatten)]
    peer: Peer,
}

/// Another driver that runs already, with a cloud that is told to it beforehand.
#[derive(clap::Args, Clone, Debug)]
struct Peer {
    /// The socket of another driver's controller, for rows of its own
    #[arg(long, value_name = "SOCKET", requires = "peer_cloud", requires = "peer_token_file")]
    peer_endpoint: Option<PathBuf>,
    /// Where that driver expects the cloud: 127.0.0.1:PORT
    #[arg(long, value_name = "ADDRESS")]
    peer_cloud: Option<String>,
    /// The file with the token that it uses
    #[arg(long, value_name = "FILE")]
    peer_token_file: Option<PathBuf>,
}

/// Who is measured.
enum Driver<'a> {
    Own,
    Peer { socket: &'a Path, cloud: &'a str, token_file: &'a Path },
}

/// What one run came to.
struct Figures {
    took: Duration,
    each: Vec<Duration>,
    calls: usize,
    refused: usize,
}

/// Attaches all volumes: all at once, and as external-attacher does.
pub(crate) async fn attach_storm(programs: &Path, asked: &Storm) -> Result<()> {
    let Storm { volumes, peer } = asked.clone();
    println!("{volumes} attachments of {} s, {PER_MINUTE} requests a minute", ACTION.as_secs());
    println!(
        "\n{:<28}{:>9}{:>9}{:>8}{:>9}{:>8}{:>9}{:>9}",
        "", "took", "floor", "×floor", "median", "calls", "refused", "goal"
    );
    let measure = async |name: &str, driver: &Driver<'_>, callers: usize| {
        row(name, storm(programs, driver, volumes, callers).await?, volumes, callers)
    };
    let at_once = measure("ghost, all at once", &Driver::Own, volumes).await?;
    let in_turn = measure("ghost, 10 callers", &Driver::Own, ATTACHER_THREADS).await?;
    if let Peer {
        peer_endpoint: Some(socket),
        peer_cloud: Some(cloud),
        peer_token_file: Some(token_file),
    } = &peer
    {
        let driver = Driver::Peer { socket, cloud, token_file };
        measure("peer, all at once", &driver, volumes).await?;
        measure("peer, 10 callers", &driver, ATTACHER_THREADS).await?;
    }
    // A peer may miss what it likes.
    ensure!(at_once && in_turn, MISSED);
    Ok(())
}

/// Prints one row and says whether its goals were met; there are none but for a thousand volumes.
fn row(name: &str, figures: Figures, volumes: usize, callers: usize) -> Result<bool> {
    let all = callers >= volumes;
    let count = u32::try_from(volumes)?;
    let floor = if all {
        ACTION.max(Duration::from_secs(60) * count / PER_MINUTE.parse::<u32>()?)
    } else {
        ACTION * count.div_ceil(u32::try_from(callers)?)
    };
    let (goal, most_calls) = if all { (300.0, 1100) } else { (520.0, usize::MAX) };
    let (took, floor) = (figures.took.as_secs_f64(), floor.as_secs_f64());
    let met = took <= goal && figures.refused == 0 && figures.calls <= most_calls;
    let (goal, met) = match volumes {
        VOLUMES => (format!("{goal:.0} s"), met),
        _ => ("none".to_owned(), true),
    };
    println!(
        "{name:<28}{took:>7.1} s{floor:>7.1} s{:>8.2}{:>7.1} s{:>8}{:>9}{goal:>9}{}",
        took / floor,
        median(figures.each).as_secs_f64(),
        figures.calls,
        figures.refused,
        if met { "" } else { "  missed" }
    );
    Ok(met)
}

async fn storm(
    programs: &Path,
    driver: &Driver<'_>,
    count: usize,
    callers: usize,
) -> Result<Figures> {
    let programs = programs.to_owned();
    let mut world =
        Playground::empty(Options { programs, action_time: "5s", devices: false, log: "info" })?;
    let token = match driver {
        Driver::Own => None,
        Driver::Peer { token_file, .. } => Some(std::fs::read_to_string(token_file)?),
    };
    if let Some(token) = &token {
        world.set_token(token)?;
    }
    let droplets = count.to_string();
    world.start_simulator(&["--droplets", &droplets])?;
    let volumes = make_volumes(&world, count)?;
    // Anew, with the budget untouched.
    world.kill_all()?;
    let mut options = vec!["--droplets", &droplets, "--requests-per-minute", PER_MINUTE];
    options.extend(["--requests-per-hour", PER_HOUR]);
    if let Driver::Peer { cloud, .. } = driver {
        options.extend(["--listen", cloud]);
    }
    world.start_simulator(&options)?;
    let channel = match driver {
        Driver::Own => {
            world.start_controller(&["--cosmos-requests-per-minute", PER_MINUTE])?;
            connect(&world.controller_socket()).await?
        }
        Driver::Peer { socket, .. } => {
            while !probe(socket).await.unwrap_or(false) {
                tokio::time::sleep(PROBE_AGAIN).await;
            }
            connect(socket).await?
        }
    };
    let limit = if callers < count { ATTACHER_TIMEOUT } else { PATIENT };
    let begun = Instant::now();
    let attachments = volumes.iter().zip(FIRST_DROPLET..);
    let each = stream::iter(attachments)
        .map(|(volume, droplet)| attach(channel.clone(), volume, droplet, limit))
        .buffer_unordered(callers)
        .collect::<Vec<Result<Duration>>>()
        .await;
    let took = begun.elapsed();
    let each = each.into_iter().collect::<Result<Vec<Duration>>>()?;
    let state = read(&world, "/sim/v1/state")?;
    let attached = list(&state["volumes"])?
        .iter()
        .filter(|volume| volume["droplet_ids"].as_array().is_some_and(|ids| ids.len() == 1));
    ensure!(attached.count() == volumes.len(), "not all are attached");
    let (calls, refused) = requests(&world)?;
    Ok(Figures { took, each, calls, refused })
}

/// Attaches as a sidecar does: asks again until it is done; answers how long that took.
async fn attach(channel: Channel, volume: &str, droplet: u64, limit: Duration) -> Result<Duration> {
    let mut controller = ControllerClient::new(channel);
    let begun = Instant::now();
    loop {
        interrupt::check()?;
        let mut request = Request::new(pb::ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: droplet.to_string(),
            volume_capability: Some(mounted("ext4")),
            ..Default::default()
        });
        request.set_timeout(limit);
        match controller.controller_publish_volume(request).await {
            Ok(_) => return Ok(begun.elapsed()),
            Err(status) if is_final(&status) => {
                return Err(status).with_context(|| format!("volume {volume}"));
            }
            Err(_) => {}
        }
    }
}

/// Whether a sidecar would not simply ask again.
fn is_final(status: &tonic::Status) -> bool {
    use tonic::Code::{Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable};
    let again = [Aborted, Cancelled, DeadlineExceeded, ResourceExhausted, Unavailable];
    !again.contains(&status.code())
}

/// Seven volumes for one droplet: equal durations once, drawn ones many times.
pub(crate) async fn one_droplet(programs: &Path) -> Result<()> {
    println!("7 attachments to one droplet that takes one event at a time");
    println!(
        "\n{:<36}{:>10}{:>8}{:>18}{:>8}",
        "", "× their sum", "goal", "calls per attach", "goal"
    );
    let (ratio, calls) = seven(programs, "5s", "0ms", 0).await?;
    let equal = seven_row("5 s each", ratio, calls, (1.15, 4.0));
    // Every world waits most of the time, so several are measured at once.
    let runs = stream::iter(0..20)
        .map(|seed| seven(programs, "2s", "6s", seed))
        .buffer_unordered(5)
        .collect::<Vec<Result<(f64, f64)>>>()
        .await;
    let runs = runs.into_iter().collect::<Result<Vec<(f64, f64)>>>()?;
    let mean = |pick: fn(&(f64, f64)) -> f64| runs.iter().map(pick).sum::<f64>() / 20.0;
    let (ratio, calls) = (mean(|run| run.0), mean(|run| run.1));
    let drawn = seven_row("2 to 8 s, mean of 20 runs", ratio, calls, (1.25, 5.0));
    ensure!(equal && drawn, MISSED);
    Ok(())
}

/// Prints a row and says whether its goals were met.
fn seven_row(name: &str, ratio: f64, calls: f64, goal: (f64, f64)) -> bool {
    let met = ratio <= goal.0 && calls <= goal.1;
    let word = if met { "" } else { "  missed" };
    println!("{name:<36}{ratio:>11.3}{:>8}{calls:>18.2}{:>8}{word}", goal.0, goal.1);
    met
}

/// The time by the sum of the actions, and the calls by their number.
async fn seven(
    programs: &Path,
    action_time: &'static str,
    spread: &str,
    seed: u64,
) -> Result<(f64, f64)> {
    let programs = programs.to_owned();
    let mut world =
        Playground::empty(Options { programs, action_time, devices: false, log: "info" })?;
    let seed = seed.to_string();
    world.start_simulator(&[
        "--one-event-per-droplet",
        "--action-spread",
        spread,
        "--seed",
        &seed,
    ])?;
    world.start_controller(&[])?;
    let volumes = make_volumes(&world, 7)?;
    let mut http = Http::connect(&world)?;
    http.exchange("DELETE", "/sim/v1/requests", "")?;
    let channel = connect(&world.controller_socket()).await?;
    let begun = Instant::now();
    let attachments =
        volumes.iter().map(|volume| attach(channel.clone(), volume, FIRST_DROPLET, PATIENT));
    futures_util::future::try_join_all(attachments).await?;
    let took = begun.elapsed().as_secs_f64();
    let (calls, refused) = requests(&world)?;
    ensure!(refused == 0, "{refused} requests were refused");
    let state = read(&world, "/sim/v1/state")?;
    let mut sum = 0.0;
    for action in list(&state["actions"])? {
        let time = |key: &str| -> Result<Timestamp> {
            Ok(action[key].as_str().with_context(|| format!("{key} of an action"))?.parse()?)
        };
        let lasted = time("completed_at")?.duration_since(time("started_at")?);
        sum += lasted.as_secs_f64();
    }
    Ok((took / sum, f64::from(u32::try_from(calls)?) / 7.0))
}

fn make_volumes(world: &Playground, count: usize) -> Result<Vec<String>> {
    let mut http = Http::connect(world)?;
    let mut ids = Vec::new();
    for number in 0..count {
        let name = format!("storm-{number}");
        let body = json!({"name": name, "region": "ams1", "size_gigabytes": 1}).to_string();
        let made: Value = serde_json::from_str(&http.exchange("POST", "/v2/volumes", &body)?)?;
        ids.push(made["volume"]["id"].as_str().context("the volume's id")?.to_owned());
    }
    Ok(ids)
}

/// How many requests there were, and how many the cloud refused.
fn requests(world: &Playground) -> Result<(usize, usize)> {
    let answer = read(world, "/sim/v1/requests")?;
    let mut by_status = BTreeMap::<u64, usize>::new();
    for request in list(&answer["requests"])? {
        *by_status.entry(request["status"].as_u64().unwrap_or(0)).or_default() += 1;
    }
    let refused = by_status.iter().filter(|(status, _)| **status >= 400).map(|(_, count)| count);
    Ok((by_status.values().sum(), refused.sum()))
}

fn read(world: &Playground, path: &str) -> Result<Value> {
    let mut http = Http::connect(world)?;
    Ok(serde_json::from_str(&http.exchange("GET", path, "")?)?)
}

fn list(value: &Value) -> Result<&Vec<Value>> {
    value.as_array().context("the simulator answers a list")
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}
