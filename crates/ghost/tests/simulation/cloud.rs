//! The cloud of one schedule: `ghost-sim`'s state machine under virtual time, behind a wire that
//! loses, delays and repeats nothing but what the seed says.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use ghost::backend::cosmos::{Failure, Request, Response};
use ghost_sim::api::{Api, Config, Delivery, Limits};
use ghost_sim::fault::Faults;
use ghost_sim::state::{
    self, ActionKind, ActionRequest, ActionStatus, Ending, Settings, VolumeKey, VolumeRequest,
};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, DATE, HeaderMap, HeaderValue};
use jiff::Timestamp;
use secrecy::ExposeSecret;
use tokio::time::Instant;

use crate::schedule::Schedule;

mod wire;

pub(crate) use wire::Wire;

/// Any moment will do, if it is always the same.
const EPOCH: i64 = 1_790_000_000;
/// The droplets that volumes are attached to.
const DROPLETS: std::ops::RangeInclusive<u64> = 101..=103;
/// The name of a volume that is none of the driver's.
const FOREIGN: &str = "foreign";
/// What a refusal for want of budget says, as opposed to one for want of a pause.
const NO_BUDGET: &str = "too many requests";

/// What is true of a volume from some moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Truth {
    pub(crate) attached: Option<u64>,
    /// The droplet that a running action will attach it to.
    pub(crate) coming: Option<u64>,
    pub(crate) gigabytes: u64,
}

/// A cloud that all controllers of a schedule share.
#[derive(Clone)]
pub(crate) struct Cloud(Arc<Mutex<Inner>>);

struct Inner {
    api: Api,
    began: Instant,
    random: Rng,
    schedule: Schedule,
    calm: bool,
    last_crash: Option<Instant>,
    volumes: BTreeMap<String, Vec<(Instant, Truth)>>,
    violations: Vec<String>,
    trace: Vec<String>,
    fingerprint: DefaultHasher,
    requests: u64,
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    NotSent,
    LostBefore,
    LostAfter,
    GatewayTimeout,
    Status(u16, Option<u64>),
    Garbage,
    ActionSticks,
    ActionFails,
}

impl Cloud {
    pub(crate) fn new(schedule: &Schedule, random: Rng) -> Self {
        let settings = Settings {
            action_time: schedule.action_time,
            one_event_per_droplet: schedule.one_event_per_droplet,
            read_lag: schedule.read_lag,
            snapshot_pause: schedule.snapshot_pause,
            snapshot_ready_after: schedule.snapshot_ready_after,
            ..Settings::default()
        };
        let limits = Limits { per_hour: 5000, per_minute: Some(schedule.per_minute) };
        let config =
            Config { token: "t".to_owned(), limits, latency: Duration::ZERO, scheme: "https" };
        let mut cloud = state::Cloud::new(settings, schedule.seed);
        let foreign = VolumeRequest {
            name: Some(FOREIGN.to_owned()),
            region: Some("ams1".to_owned()),
            size_gigabytes: Some(1),
            ..VolumeRequest::default()
        };
        let epoch = Timestamp::from_second(EPOCH).expect("in range");
        cloud.create_volume(foreign, epoch).expect("the first volume");
        Self(Arc::new(Mutex::new(Inner {
            api: Api::new(cloud, config, Faults::default(), schedule.seed),
            began: Instant::now(),
            random,
            schedule: schedule.clone(),
            calm: false,
            last_crash: None,
            volumes: BTreeMap::new(),
            violations: Vec::new(),
            trace: Vec::new(),
            fingerprint: DefaultHasher::new(),
            requests: 0,
        })))
    }

    /// No more faults; what hangs at the cloud is given up there.
    pub(crate) fn calm_down(&self) {
        let mut inner = self.lock();
        inner.calm = true;
        // One that was put for an action which the cloud then refused is still there.
        inner.put_faults("[]".to_owned());
        let hanging: Vec<u64> = running(&inner.api).map(|action| action.id).collect();
        for action in hanging {
            inner.api.cloud_mut().fail_action(action);
        }
        inner.note("the faults end");
        inner.observe();
    }

    /// Somebody else attaches or detaches a volume of theirs, if the cloud lets them.
    pub(crate) fn foreign_event(&self) {
        let mut inner = self.lock();
        inner.end_due();
        let volumes = inner.api.cloud().all_volumes();
        let foreign = volumes.iter().find(|volume| volume.name == FOREIGN).expect("theirs");
        let (id, on) = (foreign.id.clone(), foreign.attached());
        let droplet = on.unwrap_or_else(|| inner.random.u64(DROPLETS));
        let request = ActionRequest {
            kind: Some(if on.is_some() { "detach" } else { "attach" }.to_owned()),
            droplet_id: i64::try_from(droplet).ok(),
            ..ActionRequest::default()
        };
        let now = inner.now();
        let key = VolumeKey::Id(id);
        let begun = inner.api.cloud_mut().start_action(&key, &request, Ending::Completes, now);
        inner.note(&format!("somebody does something on droplet {droplet}: {begun:?}"));
    }

    pub(crate) fn is_calm(&self) -> bool {
        self.lock().calm
    }

    pub(crate) fn crashed(&self, which: usize) {
        let mut inner = self.lock();
        inner.last_crash = Some(Instant::now());
        inner.note(&format!("controller {which} dies"));
    }

    pub(crate) fn note(&self, text: &str) {
        self.lock().note(text);
    }

    pub(crate) fn violated(&self, text: String) {
        let mut inner = self.lock();
        inner.note(&format!("VIOLATION: {text}"));
        inner.violations.push(text);
    }

    /// Whether something was true of the volume at some moment since then.
    pub(crate) fn ever(&self, id: &str, since: Instant, is_it: impl Fn(&Truth) -> bool) -> bool {
        let mut inner = self.lock();
        inner.end_due();
        let Some(history) = inner.volumes.get(id) else { return false };
        let before = history.iter().rposition(|(from, _)| *from <= since).unwrap_or(0);
        history[before..].iter().any(|(_, truth)| is_it(truth))
    }

    /// The volume as it is now.
    pub(crate) fn truth(&self, id: &str) -> Option<Truth> {
        let mut inner = self.lock();
        inner.end_due();
        let exists = inner.api.cloud().all_volumes().iter().any(|volume| volume.id == id);
        exists.then(|| inner.volumes[id].last().expect("never empty").1)
    }

    /// Every volume's id and name, and where it is attached.
    pub(crate) fn volumes(&self) -> Vec<(String, String, Option<u64>)> {
        let mut inner = self.lock();
        inner.end_due();
        let volumes = inner.api.cloud().all_volumes().iter().filter(|v| v.name != FOREIGN);
        volumes.map(|v| (v.id.clone(), v.name.clone(), v.attached())).collect()
    }

    /// Every snapshot's id and name.
    pub(crate) fn snapshots(&self) -> Vec<(String, String)> {
        let inner = self.lock();
        let snapshots = inner.api.cloud().all_snapshots().iter();
        snapshots.map(|snapshot| (snapshot.id.clone(), snapshot.name.clone())).collect()
    }

    pub(crate) fn outcome(&self) -> Outcome {
        let mut inner = self.lock();
        Outcome {
            violations: std::mem::take(&mut inner.violations),
            trace: std::mem::take(&mut inner.trace),
            fingerprint: inner.fingerprint.finish(),
            requests: inner.requests,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How a schedule went.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) violations: Vec<String>,
    pub(crate) trace: Vec<String>,
    /// The same for the same course of events.
    pub(crate) fingerprint: u64,
    /// What reached the cloud.
    pub(crate) requests: u64,
}

fn running(api: &Api) -> impl Iterator<Item = &state::Action> {
    api.cloud().all_actions().iter().filter(|action| action.status == ActionStatus::InProgress)
}

impl Inner {
    fn now(&self) -> Timestamp {
        let epoch = Timestamp::from_second(EPOCH).expect("in range");
        epoch + jiff::SignedDuration::try_from(self.began.elapsed()).expect("hours at most")
    }

    fn note(&mut self, text: &str) {
        let line = format!("{:9.3} {text}", self.began.elapsed().as_secs_f64());
        line.hash(&mut self.fingerprint);
        if self.schedule.traced {
            self.trace.push(line);
        }
    }

    fn end_due(&mut self) {
        let now = self.now();
        while let Some(action) = self.api.cloud().due_action(now) {
            self.api.cloud_mut().end_action(action);
        }
        self.observe();
    }

    /// Writes down what has become true.
    fn observe(&mut self) {
        let now = Instant::now();
        for volume in self.api.cloud().all_volumes() {
            let coming = running(&self.api)
                .find(|action| action.kind == ActionKind::Attach && action.volume == volume.id)
                .and_then(|action| action.droplet);
            let truth = Truth { attached: volume.attached(), coming, gigabytes: volume.gigabytes };
            let history = self.volumes.entry(volume.id.clone()).or_default();
            if history.last().is_none_or(|(_, last)| *last != truth) {
                history.push((now, truth));
            }
        }
    }

    fn fate(&mut self, request: &Request) -> Fate {
        if self.calm || self.random.f64() >= self.schedule.fault_rate {
            return Fate::Answered;
        }
        let is_action = request.path.ends_with("/actions") && request.body.is_some();
        match self.random.u8(0..if is_action { 10 } else { 8 }) {
            0 => Fate::NotSent,
            1 => Fate::LostBefore,
            2 | 3 => Fate::LostAfter,
            4 => Fate::GatewayTimeout,
            5 => Fate::Status(503, None),
            6 => Fate::Status(429, Some(self.random.u64(1..5))),
            7 => Fate::Garbage,
            8 => Fate::ActionSticks,
            _ => Fate::ActionFails,
        }
    }

    fn act(&mut self, request: &Request, fate: Fate) -> Result<Response, Failure> {
        self.requests += 1;
        // What was on its way when the faults ended is not to begin what never ends.
        let fate = match fate {
            Fate::ActionSticks | Fate::ActionFails if self.calm => Fate::Answered,
            fate => fate,
        };
        self.note(&format!(
            "{} {} {} {fate:?}",
            request.method,
            request.path,
            String::from_utf8_lossy(request.body.as_deref().unwrap_or_default())
        ));
        let lost = || Failure::NoAnswer("the connection broke".to_owned());
        match fate {
            Fate::NotSent => return Err(Failure::NotSent("no route".to_owned())),
            Fate::LostBefore => return Err(lost()),
            Fate::Status(status, retry_after) => {
                let mut headers = self.date();
                headers.extend(retry_after.map(|s| (hyper::header::RETRY_AFTER, s.into())));
                return Ok(Response { status, headers, body: b"{}".to_vec() });
            }
            Fate::ActionSticks => self.put_fault("stick"),
            Fate::ActionFails => self.put_fault("fail"),
            Fate::Answered | Fate::LostAfter | Fate::GatewayTimeout | Fate::Garbage => {}
        }
        self.end_due();
        let now = self.now();
        let outcome = self.api.handle(now, &incoming(request));
        self.observe();
        let Delivery::Answer(answer) = outcome.delivery else { return Err(lost()) };
        let body = answer.body().to_vec();
        let status = answer.status().as_u16();
        self.note(&format!("    {status} {}", String::from_utf8_lossy(&body)));
        if status == 429 && String::from_utf8_lossy(&body).contains(NO_BUDGET) {
            self.over_budget();
        }
        let mut headers = answer.headers().clone();
        headers.extend(self.date());
        match fate {
            Fate::LostAfter => Err(lost()),
            Fate::GatewayTimeout => {
                Ok(Response { status: 504, headers: self.date(), body: b"<html>".to_vec() })
            }
            Fate::Garbage => Ok(Response { status, headers, body: b"{\"garbage".to_vec() }),
            _ => Ok(Response { status, headers, body }),
        }
    }

    /// What a controller spent before it died, its successor cannot know: for a minute that is no
    /// fault of its own.
    fn over_budget(&mut self) {
        let minute = Duration::from_secs(60);
        if self.last_crash.is_none_or(|crash| crash.elapsed() > minute) {
            self.note("VIOLATION: over budget");
            self.violations.push("the budget was exceeded".to_owned());
        }
    }

    fn put_fault(&mut self, action: &str) {
        self.put_faults(format!(
            r#"[{{"method":"POST","route":"/v2/volumes/{{volume_id}}/actions","times":1,
                 "effect":{{"action":"{action}"}}}}]"#
        ));
    }

    /// In the place of those that are there.
    fn put_faults(&mut self, rule: String) {
        let put = hyper::Request::put("/sim/v1/faults").body(Bytes::from(rule)).expect("a request");
        let now = self.now();
        let Delivery::Answer(answer) = self.api.handle(now, &put).delivery else { return };
        assert!(answer.status().is_success(), "{answer:?}");
    }

    fn date(&self) -> HeaderMap {
        date(self.now())
    }
}

/// The header that tells the cloud's time.
pub(crate) fn date(now: Timestamp) -> HeaderMap {
    let text = now.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
    HeaderMap::from_iter([(DATE, HeaderValue::try_from(text).expect("ASCII"))])
}

/// The request as the cloud's server sees it.
pub(crate) fn incoming(request: &Request) -> hyper::Request<Bytes> {
    hyper::Request::builder()
        .method(request.method.clone())
        .uri(&request.path)
        .header(AUTHORIZATION, format!("Bearer {}", request.token.expose_secret()))
        .header(hyper::header::CONTENT_TYPE, "application/json")
        .body(Bytes::from(request.body.clone().unwrap_or_default()))
        .expect("a request")
}
