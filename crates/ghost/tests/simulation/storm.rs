//! How long many attachments take within the cloud's budget, under virtual time: what the
//! benchmark measures in minutes, held in seconds. The wire takes a few milliseconds each way.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use futures_util::stream::{self, StreamExt as _};
use ghost::backend::cosmos::{Exchange, Failure, Request, Response};
use ghost::csi::ControllerService;
use ghost_csi as pb;
use ghost_sim::api::{Api, Config, Delivery, Limits};
use ghost_sim::fault::Faults;
use ghost_sim::state::{self, Settings};
use jiff::Timestamp;
use pb::controller_server::Controller as _;
use tokio::time::Instant;

use crate::claim::capability;
use crate::cloud::{date, incoming};
use crate::in_virtual_time;
use crate::world::{controller, is_final, unwatched};

/// Any moment will do.
const EPOCH: i64 = 1_790_000_000;
/// The longest that a request or its answer is on its way.
const WAY: u64 = 8;
/// How long external-attacher waits for one call.
const ATTACHER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long one waits who asks for all at once.
const PATIENT: Duration = Duration::from_secs(3600);
const FIRST_DROPLET: u64 = 101;
const PER_MINUTE: u64 = 250;

/// A cloud without faults, and what it was asked.
#[derive(Clone)]
struct Calm(Arc<Mutex<Inner>>);

struct Inner {
    api: Api,
    began: Instant,
    random: Rng,
    calls: usize,
    refused: usize,
}

impl Inner {
    fn now(&self) -> Timestamp {
        let epoch = Timestamp::from_second(EPOCH).expect("in range");
        epoch + jiff::SignedDuration::try_from(self.began.elapsed()).expect("hours at most")
    }

    fn way(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(1..=WAY))
    }
}

#[async_trait]
impl Exchange for Calm {
    async fn exchange(&self, request: Request) -> Result<Response, Failure> {
        let (there, back) = {
            let mut inner = self.0.lock().expect("sound");
            (inner.way(), inner.way())
        };
        tokio::time::sleep(there).await;
        let response = {
            let mut inner = self.0.lock().expect("sound");
            let now = inner.now();
            while let Some(action) = inner.api.cloud().due_action(now) {
                inner.api.cloud_mut().end_action(action);
            }
            let Delivery::Answer(answer) = inner.api.handle(now, &incoming(&request)).delivery
            else {
                return Err(Failure::NoAnswer("there are no faults".to_owned()));
            };
            let status = answer.status().as_u16();
            inner.calls += 1;
            inner.refused += usize::from(status >= 400);
            let mut headers = answer.headers().clone();
            headers.extend(date(now));
            Response { status, headers, body: answer.body().to_vec() }
        };
        tokio::time::sleep(back).await;
        Ok(response)
    }
}

/// What is attached where, and what the cloud is like.
struct Storm {
    volumes: u64,
    /// On as many droplets as there are volumes, or all on one that takes one event at a time.
    one_droplet: bool,
    callers: usize,
    action_time: Duration,
    action_spread: Duration,
    seed: u64,
}

#[derive(Debug)]
struct Figures {
    took: Duration,
    /// All actions one after the other.
    sum: Duration,
    calls: usize,
    refused: usize,
}

impl Storm {
    fn run(&self) -> Figures {
        in_virtual_time(async |token| self.attach(token).await)
    }

    async fn attach(&self, token: &Path) -> Figures {
        let settings = Settings {
            droplets: if self.one_droplet { 1 } else { self.volumes },
            action_time: self.action_time,
            action_spread: self.action_spread,
            one_event_per_droplet: true,
            ..Settings::default()
        };
        let limits = Limits { per_hour: 5000, per_minute: None };
        let config =
            Config { token: "t".to_owned(), limits, latency: Duration::ZERO, scheme: "https" };
        let mut cloud = state::Cloud::new(settings, self.seed);
        let epoch = Timestamp::from_second(EPOCH).unwrap();
        let ids: Vec<String> = (0..self.volumes)
            .map(|number| {
                let volume = state::VolumeRequest {
                    name: Some(format!("storm-{number}")),
                    region: Some("ams1".to_owned()),
                    size_gigabytes: Some(1),
                    ..state::VolumeRequest::default()
                };
                cloud.create_volume(volume, epoch).unwrap().0.id.clone()
            })
            .collect();
        let limits = Limits { per_minute: Some(PER_MINUTE), ..limits };
        let cloud = Calm(Arc::new(Mutex::new(Inner {
            api: Api::new(cloud, Config { limits, ..config }, Faults::default(), self.seed),
            began: Instant::now(),
            random: Rng::with_seed(self.seed),
            calls: 0,
            refused: 0,
        })));
        let per_minute = usize::try_from(PER_MINUTE).unwrap();
        let service = unwatched(&controller(cloud.clone(), token, per_minute, self.seed));
        let limit = if self.callers < ids.len() { ATTACHER_TIMEOUT } else { PATIENT };
        let began = Instant::now();
        let droplets = (FIRST_DROPLET..).map(|d| if self.one_droplet { FIRST_DROPLET } else { d });
        stream::iter(ids.iter().zip(droplets))
            .map(|(volume, droplet)| attach(&service, volume, droplet, limit))
            .buffer_unordered(self.callers)
            .collect::<()>()
            .await;
        let took = began.elapsed();
        let inner = cloud.0.lock().expect("sound");
        assert!(inner.api.cloud().all_volumes().iter().all(|volume| volume.attached().is_some()));
        let actions = inner.api.cloud().all_actions().iter();
        let sum = actions.map(|a| a.completed_at.unwrap().duration_since(a.started_at));
        Figures {
            took,
            sum: Duration::try_from(sum.sum::<jiff::SignedDuration>()).unwrap(),
            calls: inner.calls,
            refused: inner.refused,
        }
    }
}

/// Attaches as a sidecar does: asks again until it is done.
async fn attach(service: &ControllerService, volume: &str, droplet: u64, limit: Duration) {
    loop {
        let mut request = tonic::Request::new(pb::ControllerPublishVolumeRequest {
            volume_id: volume.to_owned(),
            node_id: droplet.to_string(),
            volume_capability: Some(capability()),
            ..Default::default()
        });
        request.set_timeout(limit);
        let answer = service.controller_publish_volume(request);
        match tokio::time::timeout(limit, answer).await {
            Ok(Ok(_)) => return,
            Ok(Err(status)) => assert!(!is_final(status.code()), "{status}"),
            Err(_) => {}
        }
    }
}

fn thousand(callers: usize, seed: u64) -> Figures {
    let (action_time, action_spread) = (Duration::from_secs(5), Duration::ZERO);
    let storm =
        Storm { volumes: 1000, one_droplet: false, callers, action_time, action_spread, seed };
    let figures = storm.run();
    eprintln!(
        "{callers} callers, seed {seed}: {:.1} s, {} calls",
        figures.took.as_secs_f64(),
        figures.calls
    );
    assert_eq!(figures.refused, 0);
    figures
}

#[test]
fn a_thousand_attachments_at_once_take_little_more_than_their_requests() {
    for seed in 0..2 {
        let figures = thousand(1000, seed);
        assert!(figures.took <= Duration::from_secs(260) && figures.calls <= 1100, "{figures:?}");
    }
}

#[test]
fn ten_callers_attach_a_thousand_at_the_pace_of_the_actions() {
    let took: Duration = (0..4).map(|seed| thousand(10, seed).took).sum();
    assert!(took / 4 <= Duration::from_secs(520), "{took:?}");
}

#[test]
fn seven_attachments_to_one_droplet_take_little_more_than_one_after_the_other() {
    let seven = |least, spread, seed| {
        let (action_time, action_spread) =
            (Duration::from_secs(least), Duration::from_secs(spread));
        let storm =
            Storm { volumes: 7, one_droplet: true, callers: 7, action_time, action_spread, seed };
        let figures = storm.run();
        assert_eq!(figures.refused, 0);
        let calls = f64::from(u32::try_from(figures.calls).unwrap()) / 7.0;
        (figures.took.as_secs_f64() / figures.sum.as_secs_f64(), calls)
    };
    let (time, calls) = seven(5, 0, 0);
    eprintln!("5 s each: {time:.3} x their sum, {calls:.2} calls");
    assert!(time <= 1.15 && calls <= 4.0, "{time}, {calls} calls");
    let many: Vec<(f64, f64)> = (0..200).map(|seed| seven(2, 6, seed)).collect();
    let mean = |pick: fn(&(f64, f64)) -> f64| many.iter().map(pick).sum::<f64>() / 200.0;
    let (time, calls) = (mean(|one| one.0), mean(|one| one.1));
    eprintln!("2 to 8 s: {time:.3} x their sum, {calls:.2} calls");
    assert!(time <= 1.25 && calls <= 5.0, "{time}, {calls} calls");
}
