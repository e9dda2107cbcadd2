//! Requests in, responses out: the API's paths, shapes, paging, tokens and budgets over the state.
//!
//! There are no sockets here and no disks. A request is answered at a time that is handed in, and
//! an [`Outcome`] says what the far end would see and when, and which [`Effect`]s it has on disks.
//! The wire types are the simulator's own, written from the API's document. The principal type is
//! [`Api`].

use std::collections::BTreeMap;
use std::time::Duration;

use hyper::body::Bytes;
use hyper::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Request, Response, StatusCode};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::fault::{ActionFault, DropMoment, FaultEffect, Faults, Verdict};
use crate::state::{Cloud, Effect, Identifiers};

mod action;
mod budget;
mod call;
mod control;
mod droplet;
mod page;
mod problem;
mod request_log;
mod route;
mod snapshot;
mod volume;
mod wire;

pub use budget::Limits;

use budget::Budget;
use call::{Answer, Body, Call};
use problem::Problem;
use request_log::RequestLog;
use route::{Found, Operation};

/// What stands for the route in the log when a path has none.
const NO_ROUTE: &str = "(none)";

/// How the API is offered.
#[derive(Clone, Debug)]
pub struct Config {
    /// The token that every request of the API needs.
    pub token: String,
    /// The budget of requests.
    pub limits: Limits,
    /// How much later than acted on every request is answered.
    pub latency: Duration,
    /// `http` or `https`, for links.
    pub scheme: &'static str,
}

/// The API over one cloud.
#[derive(Debug)]
pub struct Api {
    cloud: Cloud,
    config: Config,
    faults: Faults,
    budget: Budget,
    log: RequestLog,
    request_ids: Identifiers,
}

/// What became of a request.
#[derive(Debug)]
pub struct Outcome {
    /// What the far end sees.
    pub delivery: Delivery,
    /// How much later it sees that.
    pub delay: Duration,
    /// What has to happen to disks before it sees that.
    pub effects: Vec<Effect>,
}

/// What the far end of a request sees.
#[derive(Debug)]
pub enum Delivery {
    /// An answer.
    Answer(Response<Bytes>),
    /// The connection is closed without an answer.
    Closed,
}

type Result<T> = std::result::Result<T, Problem>;

impl Api {
    /// The API over this cloud. The seed decides the ids that requests get.
    #[must_use]
    pub fn new(cloud: Cloud, config: Config, faults: Faults, seed: u64) -> Self {
        let budget = Budget::new(config.limits);
        let request_ids = Identifiers::new(seed);
        Self { cloud, config, faults, budget, log: RequestLog::default(), request_ids }
    }

    /// The routes that a fault rule may name.
    #[must_use]
    pub fn routes() -> Vec<&'static str> {
        route::templates()
    }

    /// The cloud behind it.
    #[must_use]
    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    /// The cloud behind it, to be changed by hand.
    pub fn cloud_mut(&mut self) -> &mut Cloud {
        &mut self.cloud
    }

    /// Sets the token that is accepted from now on.
    pub fn set_token(&mut self, token: String) {
        self.config.token = token;
    }

    /// Ends every action that is due, then acts on one request and answers it.
    pub fn handle(&mut self, now: Timestamp, request: &Request<Bytes>) -> Outcome {
        let mut effects = self.end_due_actions(now);
        let method = request.method().as_str();
        let found = route::find(method, request.uri().path());
        let (template, metadata) = match &found {
            Found::Operation(Operation::Control(control), _, variables) => {
                let variables = variables.clone();
                let call = Call { now, request, variables, action_fault: None };
                let result = self.control(*control, &call, &mut effects);
                let response = self.respond(result);
                return Outcome {
                    delivery: Delivery::Answer(response),
                    delay: Duration::ZERO,
                    effects,
                };
            }
            Found::Operation(operation, template, _) => {
                (*template, *operation == Operation::Metadata)
            }
            Found::WrongMethod(template, _) => (*template, false),
            Found::Nothing => (NO_ROUTE, false),
        };
        let Verdict { delay, effect: fault } = self.faults.judge(method, template);
        let delay = delay.saturating_add(self.config.latency);
        if fault == Some(FaultEffect::Drop(DropMoment::Before)) {
            self.log.add(now, method, template, None);
            return Outcome { delivery: Delivery::Closed, delay, effects };
        }
        let result = match &fault {
            Some(FaultEffect::Status { status, retry_after_s }) => {
                Err(faulty(*status, *retry_after_s))
            }
            fault => {
                let action_fault = match fault {
                    Some(FaultEffect::Action(fault)) => Some(*fault),
                    _ => None,
                };
                self.admit_and_answer(found, now, request, action_fault, &mut effects)
            }
        };
        let mut response = self.respond(result);
        if !metadata {
            self.budget.describe(now, response.headers_mut());
        }
        if fault == Some(FaultEffect::Drop(DropMoment::After)) {
            self.log.add(now, method, template, None);
            return Outcome { delivery: Delivery::Closed, delay, effects };
        }
        match fault {
            Some(FaultEffect::Garbage) => {
                *response.body_mut() = Bytes::from_static(b"{\"garbage");
            }
            Some(FaultEffect::Replace(values)) => replace(response.body_mut(), values),
            _ => {}
        }
        self.log.add(now, method, template, Some(response.status().as_u16()));
        Outcome { delivery: Delivery::Answer(response), delay, effects }
    }

    /// Takes back what the last request did, since the disks did not follow, and answers it so.
    pub fn take_back(&mut self, before: Cloud, last: Outcome, reason: &str) -> Outcome {
        self.cloud.restore(before);
        let Delivery::Answer(answer) = last.delivery else {
            return Outcome { effects: Vec::new(), ..last };
        };
        let mut response = self.respond(Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the simulator's disks failed: {reason}"),
        )));
        for (name, value) in answer.headers() {
            if name.as_str().starts_with("ratelimit-") {
                response.headers_mut().insert(name, value.clone());
            }
        }
        // Only requests of the API have these headers, and only they are in the log.
        if response.headers().contains_key("ratelimit-limit") {
            self.log.correct_last(response.status().as_u16());
        }
        Outcome { delivery: Delivery::Answer(response), delay: last.delay, effects: Vec::new() }
    }

    fn end_due_actions(&mut self, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        while let Some(action) = self.cloud.due_action(now) {
            effects.extend(self.cloud.end_action(action));
        }
        effects
    }

    fn admit_and_answer(
        &mut self,
        found: Found,
        now: Timestamp,
        request: &Request<Bytes>,
        action_fault: Option<ActionFault>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        if !matches!(found, Found::Operation(Operation::Metadata, ..)) {
            self.check_token(request)?;
            self.budget.take(now).map_err(|wait| Problem::too_many("too many requests", wait))?;
        }
        match found {
            Found::Operation(operation, _, variables) => {
                let call = Call { now, request, variables, action_fault };
                self.answer(operation, &call, effects)
            }
            Found::WrongMethod(template, methods) => {
                let message = format!("{template} has no {}", request.method());
                let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, message);
                Err(Problem { allow: Some(methods.join(", ")), ..problem })
            }
            Found::Nothing => {
                let message = format!("there is no resource {}", request.uri().path());
                Err(Problem::new(StatusCode::NOT_FOUND, message))
            }
        }
    }

    fn check_token(&self, request: &Request<Bytes>) -> Result<()> {
        let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let (scheme, token) = header.and_then(|value| value.split_once(' ')).unwrap_or_default();
        // RFC 9110 §11.1: the scheme's case does not matter.
        let accepted = scheme.eq_ignore_ascii_case("bearer")
            && !self.config.token.is_empty()
            && token.trim() == self.config.token;
        if accepted {
            return Ok(());
        }
        Err(Problem::new(StatusCode::UNAUTHORIZED, "unable to authenticate you"))
    }

    fn answer(
        &mut self,
        operation: Operation,
        call: &Call<'_>,
        effects: &mut Vec<Effect>,
    ) -> Result<Answer> {
        match operation {
            Operation::ListVolumes => self.list_volumes(call),
            Operation::CreateVolume => self.create_volume(call, effects),
            Operation::GetVolume => self.get_volume(call),
            Operation::DeleteVolume => self.delete_volume(call, effects),
            Operation::DeleteVolumeByName => self.delete_volume_by_name(call, effects),
            Operation::PostAction => self.post_action(call, effects),
            Operation::PostActionByName => self.post_action_by_name(call, effects),
            Operation::ListVolumeActions => self.list_volume_actions(call),
            Operation::GetVolumeAction => self.get_volume_action(call),
            Operation::GetAction => self.get_action(call),
            Operation::ListVolumeSnapshots => self.list_volume_snapshots(call),
            Operation::CreateSnapshot => self.create_snapshot(call, effects),
            Operation::ListSnapshots => self.list_snapshots(call),
            Operation::GetSnapshot => self.get_snapshot(call),
            Operation::DeleteSnapshot => self.delete_snapshot(call, effects),
            Operation::GetVolumeSnapshot => self.get_volume_snapshot(call),
            Operation::DeleteVolumeSnapshot => self.delete_volume_snapshot(call, effects),
            Operation::ListDroplets => self.list_droplets(call),
            Operation::GetDroplet => self.get_droplet(call),
            Operation::GetAccount => Ok(self.get_account()),
            Operation::ListRegions => self.list_regions(call),
            Operation::Metadata => self.metadata(call),
            Operation::Control(control) => self.control(control, call, effects),
        }
    }

    fn respond(&mut self, result: Result<Answer>) -> Response<Bytes> {
        let request_id = self.request_ids.take();
        let (answer, problem) = match result {
            Ok(answer) => (answer, None),
            Err(problem) => {
                let body = json!({
                    "id": problem.id(),
                    "message": problem.message,
                    "request_id": request_id,
                });
                (Answer::json(problem.status, body), Some(problem))
            }
        };
        let (content_type, body) = match answer.body {
            Body::Json(text) => (Some("application/json; charset=utf-8"), text),
            Body::Text(text) => (Some("text/plain; charset=utf-8"), Bytes::from(text)),
            Body::Empty => (None, Bytes::new()),
        };
        let mut response = Response::new(body);
        *response.status_mut() = answer.status;
        let headers = response.headers_mut();
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
        }
        headers.insert("x-request-id", HeaderValue::try_from(request_id).expect("a UUID is ASCII"));
        if let Some(problem) = problem {
            if let Some(seconds) = problem.retry_after_seconds() {
                headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            if let Some(allow) = problem.allow {
                headers.insert(ALLOW, HeaderValue::try_from(allow).expect("methods are ASCII"));
            }
        }
        response
    }
}

/// Replaces what is at these JSON pointers; what is not there stays so.
fn replace(body: &mut Bytes, values: BTreeMap<String, Value>) {
    let Ok(mut answer) = serde_json::from_slice::<Value>(body) else { return };
    for (pointer, value) in values {
        if let Some(place) = answer.pointer_mut(&pointer) {
            *place = value;
        }
    }
    *body = Bytes::from(answer.to_string());
}

fn faulty(status: u16, retry_after_s: Option<u64>) -> Problem {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let problem = Problem::new(status, "this request was chosen to fail");
    Problem { retry_after: retry_after_s.map(Duration::from_secs), ..problem }
}
