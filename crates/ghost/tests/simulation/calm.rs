//! A cloud without faults, under virtual time. The wire takes a few milliseconds each way, and the
//! cloud takes up one request after the other, so that many at once come to it as a real burst does.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use fastrand::Rng;
use ghost::backend::cosmos::{Exchange, Failure, Request, Response};
use ghost_sim::api::{Api, Config, Delivery, Limits};
use ghost_sim::fault::Faults;
use ghost_sim::state::{Cloud, Settings, VolumeRequest};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::cloud::{date, incoming};

/// Any moment will do.
const EPOCH: i64 = 1_790_000_000;
/// The longest that a request or its answer is on its way.
const WAY: u64 = 8;
/// What the cloud needs for a request before it takes up the next.
const EACH: Duration = Duration::from_millis(2);
/// How many requests the cloud takes in a minute.
pub(crate) const PER_MINUTE: usize = 250;

/// A cloud without faults, and what it was asked.
#[derive(Clone)]
pub(crate) struct Calm(Arc<Mutex<Inner>>);

pub(crate) struct Inner {
    pub(crate) api: Api,
    began: Instant,
    random: Rng,
    /// When the cloud can take up the next request.
    free: Instant,
    pub(crate) calls: usize,
    pub(crate) refused: usize,
}

impl Calm {
    /// The cloud, with that many volumes, whose ids are answered.
    pub(crate) fn with_volumes(settings: Settings, volumes: u64, seed: u64) -> (Self, Vec<String>) {
        let mut cloud = Cloud::new(settings, seed);
        let epoch = Timestamp::from_second(EPOCH).unwrap();
        let ids = (0..volumes).map(|number| {
            let volume = VolumeRequest {
                name: Some(format!("pvc-{number}")),
                region: Some("ams1".to_owned()),
                size_gigabytes: Some(1),
                ..VolumeRequest::default()
            };
            cloud.create_volume(volume, epoch).unwrap().0.id.clone()
        });
        let ids = ids.collect();
        let limits =
            Limits { per_hour: 5000, per_minute: Some(u64::try_from(PER_MINUTE).unwrap()) };
        let config =
            Config { token: "t".to_owned(), limits, latency: Duration::ZERO, scheme: "https" };
        let inner = Inner {
            api: Api::new(cloud, config, Faults::default(), seed),
            began: Instant::now(),
            random: Rng::with_seed(seed),
            free: Instant::now(),
            calls: 0,
            refused: 0,
        };
        (Self(Arc::new(Mutex::new(inner))), ids)
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("sound")
    }
}

impl Inner {
    fn now(&self) -> Timestamp {
        let epoch = Timestamp::from_second(EPOCH).expect("in range");
        epoch + jiff::SignedDuration::try_from(self.began.elapsed()).expect("hours at most")
    }

    fn way(&mut self) -> Duration {
        Duration::from_millis(self.random.u64(1..=WAY))
    }

    /// When the request that comes after this time is taken up.
    fn turn(&mut self, there: Duration) -> Instant {
        let turn = (Instant::now() + there).max(self.free);
        self.free = turn + EACH;
        turn
    }
}

#[async_trait]
impl Exchange for Calm {
    async fn exchange(&self, request: Request) -> Result<Response, Failure> {
        let (turn, back) = {
            let mut inner = self.inner();
            let there = inner.way();
            (inner.turn(there), inner.way())
        };
        tokio::time::sleep_until(turn).await;
        let response = {
            let mut inner = self.inner();
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
