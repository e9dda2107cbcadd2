//! What can go wrong with a call to the cloud, and what that means: the one place where an answer
//! of the API becomes an [`Error`] of the domain.

use std::time::Duration;

use super::wire::ErrorBody;
use crate::error::{Error, ErrorKind};

/// A failed call to the cloud.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApiError {
    /// It was not sent, or not acted on: nothing has changed.
    #[error("{call} was not sent: {reason}")]
    NotSent {
        /// The call, as `POST /v2/volumes`.
        call: String,
        /// Why.
        reason: String,
    },
    /// It was sent and no whole answer came: it may have been acted on or not.
    #[error("no answer to {call}: {reason}")]
    NoAnswer {
        /// The call.
        call: String,
        /// What happened instead.
        reason: String,
    },
    /// The cloud asks to wait longer than is sensible within one call.
    #[error("the cloud's request budget is used up; {call} may be sent again in {} s", .wait.as_secs())]
    Budget {
        /// The call.
        call: String,
        /// How long.
        wait: Duration,
    },
    /// Nobody waits for it any more, so it was not sent.
    #[error("{call} was not sent, because nobody waits for it any more")]
    Unwanted {
        /// The call.
        call: String,
    },
    /// The cloud wants a pause before this may be done again; it was not done.
    #[error("the cloud wants a pause before {call}; it may be sent again in {} s", .wait.as_secs())]
    Pause {
        /// The call.
        call: String,
        /// How long.
        wait: Duration,
    },
    /// The cloud answered with an error in its own form.
    #[error("{call}: {status} {id}: {message}{}", request_id_text(.request_id.as_deref()))]
    Answer {
        /// The call.
        call: String,
        /// The HTTP status.
        status: u16,
        /// The API's error id, such as `not_found`.
        id: String,
        /// The API's words. They differ between versions and decide nothing.
        message: String,
        /// The API's id of the request, for its support.
        request_id: Option<String>,
    },
    /// Something answered, but not in the API's form: a proxy, or a wrong base URL.
    #[error("{call}: the answer ({status}) is not in the API's form: {detail}; is the URL right?")]
    Foreign {
        /// The call.
        call: String,
        /// The HTTP status.
        status: u16,
        /// What was wrong with it.
        detail: String,
    },
}

fn request_id_text(id: Option<&str>) -> String {
    id.map(|id| format!(" (request id {id})")).unwrap_or_default()
}

impl ApiError {
    /// The error of an answer that is no success.
    pub(super) fn from_answer(call: &str, status: u16, body: &[u8]) -> Self {
        match serde_json::from_slice::<ErrorBody>(body) {
            Ok(ErrorBody { id, message, request_id }) => {
                Self::Answer { call: call.to_owned(), status, id, message, request_id }
            }
            Err(_) => Self::Foreign {
                call: call.to_owned(),
                status,
                detail: "no error with id and message".to_owned(),
            },
        }
    }

    /// The HTTP status, where the API itself gave one.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Answer { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the API itself says that what was named does not exist.
    pub(super) fn is_not_found(&self) -> bool {
        self.status() == Some(404)
    }

    /// Whether the API itself refused what was asked as it now stands (409, 422), so that reading
    /// the state again tells why.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self.status(), Some(409 | 422))
    }

    /// What it means where the operation knows no better.
    fn kind(&self) -> ErrorKind {
        match self {
            Self::NotSent { .. }
            | Self::NoAnswer { .. }
            | Self::Budget { .. }
            | Self::Unwanted { .. }
            | Self::Pause { .. }
            | Self::Foreign { .. } => ErrorKind::Unavailable,
            Self::Answer { status, .. } => match status {
                400 => ErrorKind::Invalid,
                401 => ErrorKind::Unauthenticated,
                403 => ErrorKind::Refused,
                404 => ErrorKind::NotFound,
                409 => ErrorKind::Conflict,
                422 => ErrorKind::Precondition,
                429 | 500..=599 => ErrorKind::Unavailable,
                // A redirect or something that the API never answers: not known to be final.
                _ => ErrorKind::Unavailable,
            },
        }
    }

    /// The same failure as another kind.
    pub(super) fn meaning(self, kind: ErrorKind, message: impl Into<String>) -> Error {
        Error::new(kind, message).with_source(self)
    }
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Self {
        Self::new(error.kind(), "the cloud refused or could not be asked").with_source(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: &[u8] = br#"{"id":"not_found","message":"gone","request_id":"r-1"}"#;

    #[test]
    fn b54_no_failure_of_the_cloud_is_final_unless_the_api_itself_said_so() {
        for status in [429, 500, 502, 503, 504] {
            let error = Error::from(ApiError::from_answer("GET /v2/volumes", status, ENVELOPE));
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{status}");
        }
        for status in [200, 302, 404, 409, 422] {
            let error = ApiError::from_answer("GET /v2/volumes", status, b"<html>nginx</html>");
            assert!(!error.is_not_found() && !error.is_refusal());
            assert_eq!(Error::from(error).kind(), ErrorKind::Unavailable, "{status}");
        }
    }

    #[test]
    fn the_message_names_the_call_and_ends_with_the_request_id() {
        let error = Error::from(ApiError::from_answer("GET /v2/volumes/v", 404, ENVELOPE));
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert!(error.chain().contains("GET /v2/volumes/v: 404 not_found: gone"));
        assert!(error.chain().ends_with("(request id r-1)"), "{}", error.chain());
    }
}
