//! The one place where a gRPC code is named.
//!
//! What a code makes the sidecars do next is a contract: `CANCELLED`, `DEADLINE_EXCEEDED`,
//! `UNAVAILABLE` and `ABORTED` mean that the work may still be running, and for all but the
//! provisioner so does `RESOURCE_EXHAUSTED`; every other code means that it is over and nothing is
//! left behind.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "this is the one place that chooses codes"
)]

use tonic::{Code, Response, Status};

use crate::error::{Error, ErrorKind, Result};

/// The most bytes of a status's message. It travels in a header, of which clients of gRPC take 8 KiB
/// all in all, and a byte that is not ASCII takes three there.
const MESSAGE_LIMIT: usize = 2000;
/// How many of them are its end, where the cause and the cloud's id of the request stand.
const MESSAGE_END: usize = 500;

/// The code of a kind of error.
fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Conflict => Code::AlreadyExists,
        ErrorKind::OutOfRange => Code::OutOfRange,
        ErrorKind::Precondition => Code::FailedPrecondition,
        ErrorKind::Exhausted => Code::ResourceExhausted,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::Refused => Code::PermissionDenied,
        ErrorKind::Unsupported => Code::Unimplemented,
        ErrorKind::Busy | ErrorKind::StaleToken => Code::Aborted,
        // Nobody knows how far the work came that a bug or a panic has ended.
        ErrorKind::Unavailable | ErrorKind::Bug => Code::Unavailable,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Failed => Code::Internal,
    }
}

/// The answer of a call: what it made of the result, or the status of its error.
///
/// The status has the error's whole chain, because people see nothing else of it.
pub(super) fn answer<T>(result: Result<T>) -> std::result::Result<Response<T>, Status> {
    result
        .map(Response::new)
        .map_err(|error| Status::new(code(error.kind()), within_limit(error.chain())))
}

/// The text, or its beginning and its end if it is too long: some of it may be anybody's words.
fn within_limit(text: String) -> String {
    if text.len() <= MESSAGE_LIMIT {
        return text;
    }
    let head = text.floor_char_boundary(MESSAGE_LIMIT - MESSAGE_END);
    let tail = text.ceil_char_boundary(text.len() - MESSAGE_END);
    format!("{} […] {}", &text[..head], &text[tail..])
}

/// The answer of a call that this driver does not offer.
pub(super) fn not_offered<T>(call: &str) -> std::result::Result<Response<T>, Status> {
    answer(Err(Error::unsupported(format!("this driver does not offer {call}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_the_code_that_the_documents_promise() {
        let table: Vec<(&str, Code)> =
            ErrorKind::ALL.into_iter().map(|kind| (kind.label(), code(kind))).collect();
        let expected = [
            ("invalid", Code::InvalidArgument),
            ("not_found", Code::NotFound),
            ("conflict", Code::AlreadyExists),
            ("out_of_range", Code::OutOfRange),
            ("precondition", Code::FailedPrecondition),
            ("exhausted", Code::ResourceExhausted),
            ("unauthenticated", Code::Unauthenticated),
            ("refused", Code::PermissionDenied),
            ("unsupported", Code::Unimplemented),
            ("busy", Code::Aborted),
            ("stale_token", Code::Aborted),
            ("unavailable", Code::Unavailable),
            ("timeout", Code::DeadlineExceeded),
            ("failed", Code::Internal),
            ("bug", Code::Unavailable),
        ];
        assert_eq!(table, expected);
        for kind in ErrorKind::ALL {
            let open = matches!(
                code(kind),
                Code::Cancelled | Code::DeadlineExceeded | Code::Unavailable | Code::Aborted
            );
            assert_eq!(kind.is_open(), open, "{}", kind.label());
        }
    }

    #[test]
    fn a_message_that_is_too_long_keeps_its_beginning_and_its_end() {
        for filling in ["x", "ü", "日"] {
            let text = format!("cannot ask: {} (request id r-1)", filling.repeat(5000));
            let short = within_limit(text);
            assert!(short.len() < MESSAGE_LIMIT + 10, "{}", short.len());
            assert!(short.starts_with("cannot ask: ") && short.ends_with("(request id r-1)"));
        }
        assert_eq!(within_limit("x".repeat(2000)).len(), 2000);
    }

    #[test]
    fn a_status_has_the_whole_chain_and_no_details() {
        let error = Error::failed("cannot mount").with_source(std::io::Error::other("no space"));
        let status = answer::<()>(Err(error)).expect_err("an error");
        assert_eq!(status.message(), "cannot mount: no space");
        assert!(status.details().is_empty());
    }
}
