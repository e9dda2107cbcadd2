//! The one error of the driver: what it means for the caller, what happened, and why.
//!
//! [`ErrorKind`] is small and closed, and speaks of the *caller of the operation*: may they try
//! again, did they ask for the impossible, is something in the way. Where an outside error becomes
//! one of these is one place per module boundary; which gRPC code a kind becomes is decided in
//! `csi/status.rs` alone.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// The result of a domain operation.
pub type Result<T> = std::result::Result<T, Error>;

/// What an error means for the caller of an operation.
///
/// Two rules hold everywhere: an unknown outcome is never a final kind, and a known failure is
/// never a retryable one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The request is malformed or contradicts itself.
    Invalid,
    /// The volume or node does not exist.
    NotFound,
    /// It exists, but not as asked.
    Conflict,
    /// The size is not possible here.
    OutOfRange,
    /// The present state forbids it: attached elsewhere, foreign data, still in use.
    Precondition,
    /// Quota, capacity or the attach limit is used up.
    Exhausted,
    /// The cloud rejects our token, also after it was read once more.
    Unauthenticated,
    /// The cloud denies this token the permission.
    Refused,
    /// This backend does not offer the operation.
    Unsupported,
    /// Another operation on the same thing is under way.
    Busy,
    /// The token of a list is no longer known; the caller starts the list again.
    StaleToken,
    /// The outcome is unknown, or will be known later: asking again is right.
    Unavailable,
    /// Our own limit passed while the work goes on.
    Timeout,
    /// The machine or the cloud tried and said no.
    Failed,
    /// An invariant of the driver is broken, and it is not known how far the work came.
    Bug,
}

impl ErrorKind {
    /// All kinds, for tables and tests.
    pub const ALL: [Self; 15] = [
        Self::Invalid,
        Self::NotFound,
        Self::Conflict,
        Self::OutOfRange,
        Self::Precondition,
        Self::Exhausted,
        Self::Unauthenticated,
        Self::Refused,
        Self::Unsupported,
        Self::Busy,
        Self::StaleToken,
        Self::Unavailable,
        Self::Timeout,
        Self::Failed,
        Self::Bug,
    ];

    /// Whether it is open what came or will come of it: no caller may take it for an end.
    #[must_use]
    pub fn is_open(self) -> bool {
        matches!(
            self,
            Self::Busy | Self::StaleToken | Self::Unavailable | Self::Timeout | Self::Bug
        )
    }

    /// The kind's name in logs and metrics, in snake case.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::OutOfRange => "out_of_range",
            Self::Precondition => "precondition",
            Self::Exhausted => "exhausted",
            Self::Unauthenticated => "unauthenticated",
            Self::Refused => "refused",
            Self::Unsupported => "unsupported",
            Self::Busy => "busy",
            Self::StaleToken => "stale_token",
            Self::Unavailable => "unavailable",
            Self::Timeout => "timeout",
            Self::Failed => "failed",
            Self::Bug => "bug",
        }
    }
}

/// A failed operation: kind, message for a person, and the cause where there is one.
///
/// `Display` prints the message without its source; [`Error::chain`] prints both.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

macro_rules! constructors {
    ($($name:ident => $kind:ident),* $(,)?) => {
        impl Error {
            $(
                #[doc = concat!("An error of the kind [`ErrorKind::", stringify!($kind), "`].")]
                pub fn $name(message: impl Into<String>) -> Self {
                    Self::new(ErrorKind::$kind, message)
                }
            )*
        }
    };
}

constructors! {
    invalid => Invalid,
    not_found => NotFound,
    conflict => Conflict,
    out_of_range => OutOfRange,
    precondition => Precondition,
    exhausted => Exhausted,
    unsupported => Unsupported,
    busy => Busy,
    stale_token => StaleToken,
    unavailable => Unavailable,
    timeout => Timeout,
    failed => Failed,
    bug => Bug,
}

impl Error {
    /// An error of this kind.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    /// The same error with its cause. The message must not repeat the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl StdError + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// What the error means for the caller.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The same error as another kind, where a caller knows better what it means.
    #[must_use]
    pub fn into_kind(mut self, kind: ErrorKind) -> Self {
        self.kind = kind;
        self
    }

    /// The same error with words in front that say what was being done.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// The message and all its causes, joined by `: `.
    #[must_use]
    pub fn chain(&self) -> String {
        let mut text = self.message.clone();
        let mut next = self.source();
        while let Some(cause) = next {
            text.push_str(": ");
            text.push_str(&cause.to_string());
            next = cause.source();
        }
        text
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chain_names_every_cause_once() {
        let error =
            Error::failed("cannot stage").with_source(std::io::Error::other("disk on fire"));
        assert_eq!(error.to_string(), "cannot stage");
        assert_eq!(error.chain(), "cannot stage: disk on fire");
        assert_eq!(error.context("volume v").chain(), "volume v: cannot stage: disk on fire");
    }
}
