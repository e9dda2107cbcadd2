//! Calls to the cloud's API, one function for all: paced, authorised, and repeated where that is
//! known to be harmless.
//!
//! A request that reads, or deletes one thing by its id, may be sent again after any failure. One
//! that makes or changes something is sent again only when it is certain that it was not acted on:
//! it never left, or was refused for want of budget or a fresh token.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::budget::{self, Budget};
use super::error::ApiError;
use super::exchange::{Exchange, Failure, Request, Response};
use super::token::TokenFile;

/// How long one call may wait for budget and between its tries, all in all. The sidecars give a
/// whole operation 15 s unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(10);
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

/// The API of one account.
pub(super) struct Client<E> {
    exchange: E,
    token: TokenFile,
    budget: Mutex<Budget>,
    random: Mutex<fastrand::Rng>,
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
    /// Whether "too many requests" may be said of this route alone.
    own_pause: bool,
}

impl Call {
    pub(super) fn get(route: &'static str, path: String) -> Self {
        Self { method: Method::GET, route, path, body: None, repeatable: true, own_pause: false }
    }

    pub(super) fn delete(route: &'static str, path: String) -> Self {
        Self { method: Method::DELETE, route, path, body: None, repeatable: true, own_pause: false }
    }

    pub(super) fn post(route: &'static str, path: String, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("our own wire types are always JSON");
        let body = Some(body);
        Self { method: Method::POST, route, path, body, repeatable: false, own_pause: false }
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
        let budget = Mutex::new(Budget::new(per_minute));
        Self { exchange, token, budget, random: Mutex::new(random), meter }
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
        let give_up = Instant::now() + PATIENCE;
        let mut token = self.token.current();
        let mut refused_once = false;
        let mut wait = FIRST_WAIT;
        for attempt in 1.. {
            self.wait_for_budget(&call, give_up).await?;
            let error = match self.send(&call, &token).await {
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
                    let wait = budget::pause(&response.headers, jiff::Timestamp::now());
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

    async fn wait_for_budget(&self, call: &Call, give_up: Instant) -> Result<(), ApiError> {
        loop {
            let wait = match self.budget().take(Instant::now()) {
                Ok(()) => return Ok(()),
                Err(wait) => wait,
            };
            if Instant::now() + wait > give_up {
                return Err(ApiError::Budget { call: call.describe(), wait });
            }
            tokio::time::sleep(wait).await;
        }
    }

    async fn send(&self, call: &Call, token: &secrecy::SecretString) -> Result<Response, ApiError> {
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
                let unix_now = jiff::Timestamp::now().as_second();
                // A pause of this route alone tells nothing of the budget.
                let counts = if status == 429 && call.own_pause { 200 } else { status };
                let learnt =
                    self.budget().learn(counts, &response.headers, Instant::now(), unix_now);
                if let Some(remaining) = learnt {
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

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
