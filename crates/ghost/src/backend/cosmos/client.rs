//! Calls to the cloud's API, one function for all: paced, authorised, and repeated where that is
//! known to be harmless.
//!
//! A request that reads, or deletes one thing by its id, may be sent again after any failure. One
//! that makes or changes something is sent again only when it is certain that it was not acted on:
//! it never left, or was refused for want of budget or a fresh token.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::budget::{self, Heard, Urgency};
use super::error::ApiError;
use super::exchange::{Exchange, Failure, Request, Response};
use super::pace::{Pace, Permit};
use super::token::TokenFile;
use crate::caller;

/// How long one call may wait for budget. One that changes something waits only as long as somebody
/// waits for it; the sidecars' longest wait before they ask again is 5 minutes.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long after it was first sent a call may be sent again.
const TRY_FOR: Duration = Duration::from_secs(10);
/// The longest that looks are spared, however many calls they take: who waits has to see something
/// within one operation.
const LONGEST_SPARE: Duration = Duration::from_secs(30);
const MINUTE: Duration = Duration::from_secs(60);
/// The first wait between tries; it doubles.
const FIRST_WAIT: Duration = Duration::from_millis(200);
/// The most times that one request is sent.
const TRIES: u32 = 4;

/// What stays as it is in a path segment or a query value (RFC 3986, "unreserved").
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Is told of each answer, for metrics.
pub trait Meter: Send + Sync + 'static {
    /// A request of this route was answered with this status; 0 when there was no answer.
    fn answered(&self, route: &'static str, status: u16);
    /// What the cloud says is left of the hour's budget.
    fn remaining(&self, requests: u64);
}

/// Nobody is told.
impl Meter for () {
    fn answered(&self, _: &'static str, _: u16) {}
    fn remaining(&self, _: u64) {}
}

/// The API of one account.
pub(super) struct Client<E> {
    exchange: E,
    token: TokenFile,
    pace: Pace,
    per_minute: usize,
    random: Mutex<fastrand::Rng>,
    /// The cloud's time at its last answer that told it.
    time: Mutex<Option<Timestamp>>,
    meter: Box<dyn Meter>,
}

/// A call that is to be made.
pub(super) struct Call {
    method: Method,
    /// The route's template, for metrics: never an id.
    route: &'static str,
    path: String,
    body: Option<Vec<u8>>,
    repeatable: bool,
    urgency: Urgency,
    /// Whether "too many requests" may be said of this route alone.
    own_pause: bool,
}

impl Call {
    pub(super) fn get(route: &'static str, path: String) -> Self {
        let repeatable = true;
        Self { repeatable, urgency: Urgency::Look, ..Self::new(Method::GET, route, path) }
    }

    pub(super) fn delete(route: &'static str, path: String) -> Self {
        Self { repeatable: true, ..Self::new(Method::DELETE, route, path) }
    }

    pub(super) fn post(route: &'static str, path: String, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("our own wire types are always JSON");
        Self { body: Some(body), ..Self::new(Method::POST, route, path) }
    }

    fn new(method: Method, route: &'static str, path: String) -> Self {
        let urgency = Urgency::Begin;
        Self { method, route, path, body: None, repeatable: false, urgency, own_pause: false }
    }

    /// The same, as urgent as this.
    pub(super) fn urgent(self, urgency: Urgency) -> Self {
        Self { urgency, ..self }
    }

    /// The same, where the cloud may demand a pause between two calls about the same thing: then it
    /// is not sent again, and all other calls go on.
    pub(super) fn with_own_pause(self) -> Self {
        Self { own_pause: true, ..self }
    }

    fn describe(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// A text as one segment of a path or one value of a query.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

impl<E: Exchange> Client<E> {
    pub(super) fn new(
        exchange: E,
        token: TokenFile,
        per_minute: usize,
        random: fastrand::Rng,
        meter: Box<dyn Meter>,
    ) -> Self {
        let (pace, random) = (Pace::new(per_minute), Mutex::new(random));
        Self { exchange, token, pace, per_minute, random, time: Mutex::default(), meter }
    }

    /// The cloud's own time when it answered last, if it told it.
    pub(super) fn time(&self) -> Option<Timestamp> {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the call and reads its JSON.
    pub(super) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ApiError> {
        let describe = call.describe();
        let response = self.call(call).await?;
        serde_json::from_slice(&response.body).map_err(|error| ApiError::Foreign {
            call: describe,
            status: response.status,
            detail: error.to_string(),
        })
    }

    /// Makes the call and answers its successful response.
    pub(super) async fn call(&self, call: Call) -> Result<Response, ApiError> {
        let mut give_up = None;
        let mut token = self.token.current();
        let mut refused_once = false;
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            let permit = self.turn(&call).await?;
            let give_up = *give_up.get_or_insert_with(|| Instant::now() + TRY_FOR);
            let error = match self.send(&call, &token, permit).await {
                Ok(response) if response.status == 401 && !refused_once => {
                    refused_once = true;
                    match self.token.instead_of(&token) {
                        Some(other) => {
                            token = other;
                            continue;
                        }
                        None => return Err(self.answer(&call, &response)),
                    }
                }
                Ok(response) if response.status == 429 && call.own_pause => {
                    let wait = budget::pause(&response.headers);
                    return Err(ApiError::Pause { call: call.describe(), wait });
                }
                // The budget is closed by now for as long as the cloud says.
                Ok(response) if response.status == 429 => {
                    if attempt < TRIES {
                        continue;
                    }
                    return Err(self.answer(&call, &response));
                }
                Ok(response) if (200..300).contains(&response.status) => return Ok(response),
                Ok(response) => {
                    let error = self.answer(&call, &response);
                    if response.status < 500 {
                        return Err(error);
                    }
                    error
                }
                Err(error) => error,
            };
            let harmless = call.repeatable || matches!(error, ApiError::NotSent { .. });
            if !harmless || attempt >= TRIES || Instant::now() + wait >= give_up {
                return Err(error);
            }
            tokio::time::sleep(self.jitter(wait)).await;
            wait *= 2;
        }
        unreachable!("the loop ends by returning")
    }

    /// A random duration between half of this and the whole, so that many do not come at once.
    pub(super) fn jitter(&self, wait: Duration) -> Duration {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        wait.mul_f64(0.5 + random.f64() / 2.0)
    }

    /// Waits while new work is waiting for budget, but at most so long that calls like the last
    /// ones would not take more than this part of it.
    pub(super) async fn spare(&self, since: Instant, calls: usize, part: u32) {
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        let each = MINUTE / u32::try_from(self.per_minute).unwrap_or(u32::MAX).max(1);
        let until = since + each.saturating_mul(calls).saturating_mul(part).min(LONGEST_SPARE);
        let _ = tokio::time::timeout_at(until, self.pace.plenty()).await;
    }

    /// Waits until there is budget for a call as urgent as this, but not longer than a call does.
    pub(super) async fn welcome(&self, urgency: Urgency) {
        if let Ok(permit) = self.pace.turn(urgency, Instant::now() + PATIENCE).await {
            permit.unused();
        }
    }

    async fn turn(&self, call: &Call) -> Result<Permit<'_>, ApiError> {
        let turn = self.pace.turn(call.urgency, Instant::now() + PATIENCE);
        if call.urgency == Urgency::Look {
            return turn.await.map_err(|wait| ApiError::Budget { call: call.describe(), wait });
        }
        tokio::select! {
            biased;
            () = caller::all_gone() => Err(ApiError::Unwanted { call: call.describe() }),
            turn = turn => turn.map_err(|wait| ApiError::Budget { call: call.describe(), wait }),
        }
    }

    async fn send(
        &self,
        call: &Call,
        token: &secrecy::SecretString,
        permit: Permit<'_>,
    ) -> Result<Response, ApiError> {
        let begun = Instant::now();
        let request = Request {
            method: call.method.clone(),
            path: call.path.clone(),
            body: call.body.clone(),
            token: token.clone(),
        };
        let outcome = self.exchange.exchange(request).await;
        let status = outcome.as_ref().map_or(0, |response| response.status);
        self.meter.answered(call.route, status);
        let millis = begun.elapsed().as_secs_f64() * 1000.0;
        match outcome {
            Ok(response) => {
                tracing::debug!(request = call.describe(), status, millis, "the cloud answered");
                if let Some(date) = response.date() {
                    *self.time.lock().unwrap_or_else(PoisonError::into_inner) = Some(date);
                }
                // A pause of this route alone tells nothing of the budget.
                let counts = if status == 429 && call.own_pause { 200 } else { status };
                let mut heard = Heard::new(counts, &response.headers);
                // So that not all programs of an account come back at the same moment.
                heard.refused = heard.refused.map(|wait| wait + self.jitter(wait / 10));
                permit.answered(heard);
                if let Some(remaining) = heard.remaining {
                    self.meter.remaining(remaining);
                }
                Ok(response)
            }
            Err(failure) => {
                let call = call.describe();
                let error = match failure {
                    Failure::NotSent(reason) => ApiError::NotSent { call, reason },
                    Failure::NoAnswer(reason) => ApiError::NoAnswer { call, reason },
                };
                tracing::debug!(%error, millis, "the cloud did not answer");
                Err(error)
            }
        }
    }

    fn answer(&self, call: &Call, response: &Response) -> ApiError {
        ApiError::from_answer(&call.describe(), response.status, &response.body)
    }
}
