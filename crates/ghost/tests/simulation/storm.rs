//! How long many attachments take within the cloud's budget, under virtual time: what the
//! benchmark measures in minutes, held in seconds.

use std::path::Path;
use std::time::Duration;

use futures_util::stream::{self, StreamExt as _};
use ghost::csi::ControllerService;
use ghost_csi as pb;
use ghost_sim::state::Settings;
use pb::controller_server::Controller as _;
use tokio::time::Instant;

use crate::calm::{Calm, PER_MINUTE};
use crate::claim::capability;
use crate::in_virtual_time;
use crate::world::{controller, is_final, unwatched};

/// How long external-attacher waits for one call.
const ATTACHER_TIMEOUT: Duration = Duration::from_secs(15);
/// How long one waits who asks for all at once.
const PATIENT: Duration = Duration::from_secs(3600);
const FIRST_DROPLET: u64 = 101;

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
        let (cloud, ids) = Calm::with_volumes(settings, self.volumes, self.seed);
        let service = unwatched(&controller(cloud.clone(), (), token, PER_MINUTE, self.seed));
        let limit = if self.callers < ids.len() { ATTACHER_TIMEOUT } else { PATIENT };
        let began = Instant::now();
        let droplets = (FIRST_DROPLET..).map(|d| if self.one_droplet { FIRST_DROPLET } else { d });
        stream::iter(ids.iter().zip(droplets))
            .map(|(volume, droplet)| attach(&service, volume, droplet, limit))
            .buffer_unordered(self.callers)
            .collect::<()>()
            .await;
        let took = began.elapsed();
        let inner = cloud.inner();
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
pub(crate) async fn attach(
    service: &ControllerService,
    volume: &str,
    droplet: u64,
    limit: Duration,
) {
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
        assert!(figures.took <= Duration::from_secs(260) && figures.calls <= 1070, "{figures:?}");
    }
}

#[test]
fn ten_callers_attach_a_thousand_at_the_pace_of_the_actions() {
    for seed in 0..4 {
        let figures = thousand(10, seed);
        assert!(figures.took <= Duration::from_secs(520), "{figures:?}");
    }
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
