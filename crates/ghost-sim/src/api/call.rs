//! One request as the handlers see it, and what they answer.

use hyper::body::Bytes;
use hyper::header::HOST;
use hyper::{Request, StatusCode, Uri};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::problem::Problem;
use super::{Api, Result};
use crate::fault::ActionFault;

/// An answer before it is written.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Body,
}

/// What an answer carries.
pub(super) enum Body {
    /// JSON as text.
    Json(Bytes),
    Text(String),
    Empty,
}

/// One request with what is known about it.
pub(super) struct Call<'request> {
    pub(super) now: Timestamp,
    pub(super) request: &'request Request<Bytes>,
    /// What stands in the variable places of the route.
    pub(super) variables: Vec<String>,
    /// What goes wrong with an action that it starts.
    pub(super) action_fault: Option<ActionFault>,
}

impl Answer {
    pub(super) fn json(status: StatusCode, body: impl Serialize) -> Self {
        let text = serde_json::to_vec(&body).expect("keys are text and numbers are finite");
        Self { status, body: Body::Json(text.into()) }
    }

    pub(super) fn ok(body: impl Serialize) -> Self {
        Self::json(StatusCode::OK, body)
    }

    pub(super) fn text(body: impl Into<String>) -> Self {
        Self { status: StatusCode::OK, body: Body::Text(body.into()) }
    }

    pub(super) fn no_content() -> Self {
        Self { status: StatusCode::NO_CONTENT, body: Body::Empty }
    }
}

impl Call<'_> {
    pub(super) fn uri(&self) -> &Uri {
        self.request.uri()
    }

    /// What stands in the variable place of this number.
    pub(super) fn variable(&self, position: usize) -> &str {
        self.variables.get(position).map_or("", String::as_str)
    }

    /// The number that stands there; whatever is no number names nothing.
    pub(super) fn number(&self, position: usize, what: &str) -> Result<u64> {
        let text = self.variable(position);
        let absent =
            |_| Problem::new(StatusCode::NOT_FOUND, format!("{what} {text:?} does not exist"));
        text.parse().map_err(absent)
    }

    /// The body, which has to be JSON of this shape.
    pub(super) fn body<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_slice(self.request.body()).map_err(|error| {
            let well_formed = error.classify() == serde_json::error::Category::Data;
            let status = if well_formed {
                StatusCode::UNPROCESSABLE_ENTITY
            } else {
                StatusCode::BAD_REQUEST
            };
            Problem::new(status, format!("the body cannot be read: {error}"))
        })
    }
}

impl Api {
    /// Where this request found the API: `http://host:port`.
    pub(super) fn base(&self, call: &Call<'_>) -> String {
        let uri = call.request.uri();
        let scheme = uri.scheme_str().unwrap_or(self.config.scheme);
        let host = call.request.headers().get(HOST).and_then(|host| host.to_str().ok());
        let authority = uri.authority().map(hyper::http::uri::Authority::as_str).or(host);
        format!("{scheme}://{}", authority.unwrap_or("localhost"))
    }
}
