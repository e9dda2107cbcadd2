//! What an answer is worth: the words in which a check fails.

use std::fmt::Write as _;

use tonic::{Code, Status};

/// Why a check failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was asked of the driver.
    pub asked: String,
    /// What came of it.
    pub came: String,
    /// What the specification demands.
    pub demanded: String,
}

/// Why a check ended early.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The driver is wrong.
    Failed(Failure),
    /// The check turned out not to apply.
    Skipped(String),
}

/// What a check, or a step of it, comes to.
pub(crate) type Verdict<T = ()> = Result<T, Ended>;

/// A call and its answer.
#[derive(Debug)]
pub(crate) struct Asked<T> {
    /// The call, in words.
    pub(crate) asked: String,
    /// What was answered.
    pub(crate) answer: Result<T, Status>,
}

impl<T> Asked<T> {
    /// The answer of a call that must succeed.
    pub(crate) fn ok(self, demanded: &str) -> Verdict<T> {
        self.answer.map_err(|status| failed(self.asked, shown(&status), demanded))
    }

    /// The status of a call that must be refused with one of these codes.
    pub(crate) fn refused(self, codes: &[Code], demanded: &str) -> Verdict<Status> {
        match self.answer {
            Err(status) if codes.contains(&status.code()) => Ok(status),
            Err(status) => Err(failed(self.asked, shown(&status), expecting(codes, demanded))),
            Ok(_) => Err(failed(self.asked, "OK", expecting(codes, demanded))),
        }
    }

    /// The answer of a call that may succeed or be refused with one of these codes.
    pub(crate) fn ok_or(self, codes: &[Code], demanded: &str) -> Verdict<Option<T>> {
        match self.answer {
            Ok(answer) => Ok(Some(answer)),
            Err(status) if codes.contains(&status.code()) => Ok(None),
            Err(status) => {
                let demanded = format!("OK or {}", expecting(codes, demanded));
                Err(failed(self.asked, shown(&status), demanded))
            }
        }
    }

    /// Whether the answer leaves open what became of the call.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.answer.as_ref().is_err_and(|status| is_unsettled(status.code()))
    }
}

/// Whether a call with this code may still be running, or is to be made again.
pub(crate) fn is_unsettled(code: Code) -> bool {
    matches!(code, Code::Aborted | Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled)
}

/// Whether a call with this code certainly changed nothing.
pub(crate) fn changed_nothing(code: Code) -> bool {
    !is_unsettled(code) && !matches!(code, Code::Internal | Code::Unknown | Code::DataLoss)
}

/// A failure in these words.
pub(crate) fn failed(
    asked: impl Into<String>,
    came: impl Into<String>,
    demanded: impl Into<String>,
) -> Ended {
    Ended::Failed(Failure { asked: asked.into(), came: came.into(), demanded: demanded.into() })
}

/// Fails unless it holds.
pub(crate) fn demand(
    holds: bool,
    asked: impl Into<String>,
    came: impl Into<String>,
    demanded: impl Into<String>,
) -> Verdict {
    if holds { Ok(()) } else { Err(failed(asked, came, demanded)) }
}

/// A status as a person reads it.
pub(crate) fn shown(status: &Status) -> String {
    let message: String = status.message().chars().take(600).collect();
    format!("{} {message:?}", code_name(status.code()))
}

fn expecting(codes: &[Code], demanded: &str) -> String {
    let mut text = String::new();
    for (place, code) in codes.iter().enumerate() {
        let _ = write!(text, "{}{}", if place == 0 { "" } else { " or " }, code_name(*code));
    }
    format!("{text}: {demanded}")
}

/// A code's name as the specification writes it.
pub(crate) fn code_name(code: Code) -> String {
    let mut name = String::new();
    for letter in format!("{code:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() && code != Code::Ok {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_names_of_the_specification() {
        assert_eq!(code_name(Code::Ok), "OK");
        assert_eq!(code_name(Code::FailedPrecondition), "FAILED_PRECONDITION");
        assert_eq!(code_name(Code::NotFound), "NOT_FOUND");
    }

    #[test]
    fn a_wrong_code_says_what_was_asked_what_came_and_what_is_demanded() {
        let asked =
            Asked::<()> { asked: "DeleteVolume {}".into(), answer: Err(Status::not_found("no")) };
        let ended = asked.refused(&[Code::Aborted, Code::OutOfRange], "it is so").expect_err("bad");
        let Ended::Failed(failure) = ended else { panic!("it failed") };
        assert_eq!(failure.asked, "DeleteVolume {}");
        assert_eq!(failure.came, "NOT_FOUND \"no\"");
        assert_eq!(failure.demanded, "ABORTED or OUT_OF_RANGE: it is so");
    }
}
