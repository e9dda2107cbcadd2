//! Why a request is not answered as hoped, as status, error id and text.

use std::time::Duration;

use hyper::StatusCode;

use crate::state::Refusal;

/// One error answer before it is written.
#[derive(Clone, Debug)]
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) message: String,
    pub(super) retry_after: Option<Duration>,
    pub(super) allow: Option<String>,
}

impl Problem {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status, message: message.into(), retry_after: None, allow: None }
    }

    pub(super) fn too_many(message: impl Into<String>, retry_after: Duration) -> Self {
        let problem = Self::new(StatusCode::TOO_MANY_REQUESTS, message);
        Self { retry_after: Some(retry_after), ..problem }
    }

    /// The API's own word for this status.
    pub(super) fn id(&self) -> &'static str {
        match self.status.as_u16() {
            400 => "bad_request",
            401 => "unauthorized",
            403 => "forbidden",
            404 => "not_found",
            405 => "method_not_allowed",
            409 => "conflict",
            413 => "payload_too_large",
            422 => "unprocessable_entity",
            429 => "too_many_requests",
            500 => "server_error",
            503 => "service_unavailable",
            status if status < 500 => "client_error",
            _ => "server_error",
        }
    }

    /// The seconds of a `Retry-After` header: whole ones, never too few, at least one.
    pub(super) fn retry_after_seconds(&self) -> Option<u64> {
        self.retry_after.map(|wait| {
            let begun = u64::from(wait.subsec_nanos() > 0);
            wait.as_secs().saturating_add(begun).max(1)
        })
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match &refusal {
            Refusal::NotFound(_) => StatusCode::NOT_FOUND,
            Refusal::Conflict(_) => StatusCode::CONFLICT,
            Refusal::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Refusal::Forbidden(_) => StatusCode::FORBIDDEN,
            Refusal::TooSoon { retry_after, .. } => {
                return Self::too_many(refusal.to_string(), *retry_after);
            }
        };
        Self::new(status, refusal.to_string())
    }
}
