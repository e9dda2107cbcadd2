//! The cloud's request budget: whether the next request may be sent now, or when.
//!
//! The API gives a number of requests an hour, which its headers tell and which other programs
//! spend too, and a number a minute, which nothing tells. Both are kept here *before* a refusal,
//! and a refusal's `Retry-After` is kept after one. This is a pure state machine under times that
//! are handed in; who may go first is the affair of [`Pace`](super::pace::Pace).
//!
//! When the cloud counted a request is not known, only that it did so between sending and answer.
//! So a request takes its place in the minute from when it is sent until a minute after it was
//! answered: however the cloud cuts its minutes, it never counts more than the limit.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::header::{DATE, HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// The wait after a refusal that does not say how long.
const UNNAMED_WAIT: Duration = Duration::from_secs(2);
/// The longest wait that is believed. A longer one is a mistake of the other side's clock.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);
/// What part of the minute new work leaves to what is begun already: one in so many requests.
const RESERVE: usize = 16;
/// The most requests of the hour that new work leaves, however many a minute takes.
const MOST_KEPT: u64 = 100;
/// How many requests may be under way while it is not known what is left of the hour.
const UNKNOWN_AT_ONCE: usize = 4;

/// How urgent a request is; the lesser goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Urgency {
    /// Looks at what is: it lets what is begun come to its end.
    Look,
    /// Takes something away that others may be waiting for.
    Release,
    /// Begins something new.
    Begin,
}

/// A request that has been sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sent(u64);

/// What an answer tells of the budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Heard {
    /// The request was refused, and none is welcome for so long.
    pub(super) refused: Option<Duration>,
    /// What is left of the hour.
    pub(super) remaining: Option<u64>,
    /// How long that hour lasts.
    reset: Duration,
    /// When it ends, as the cloud tells it: which hour it is.
    hour: i64,
}

/// When requests may be sent.
#[derive(Debug)]
pub(super) struct Budget {
    per_minute: usize,
    next: u64,
    in_flight: usize,
    /// When the requests of the last minute were answered.
    answered: VecDeque<Instant>,
    hour: Hour,
    closed_until: Option<Instant>,
}

#[derive(Debug)]
enum Hour {
    /// No answer has told anything yet.
    Unknown,
    /// This cloud does not tell.
    Untold,
    Told {
        remaining: u64,
        /// Of this hour; the least that was told of one is what is left.
        hour: i64,
        /// Which request's answer told it: of two hours, the latest that was sent knows best.
        by: u64,
        resets: Instant,
    },
}

impl Budget {
    pub(super) fn new(per_minute: usize) -> Self {
        Self {
            per_minute,
            next: 0,
            in_flight: 0,
            answered: VecDeque::new(),
            hour: Hour::Unknown,
            closed_until: None,
        }
    }

    /// Takes leave to send one request now, or says when to ask again: at a time, or with `None`
    /// when an answer comes.
    pub(super) fn take(
        &mut self,
        now: Instant,
        urgency: Urgency,
    ) -> std::result::Result<Sent, Option<Instant>> {
        if let Some(until) = self.closed(now) {
            return Err(Some(until));
        }
        let reserve = |whole: usize| if urgency == Urgency::Begin { whole / RESERVE } else { 0 };
        let used = self.used(now);
        let limit = self.per_minute - reserve(self.per_minute);
        if used >= limit {
            // So many have to leave the minute first, the oldest before the others.
            return Err(self.answered.get(used - limit).map(|oldest| *oldest + MINUTE));
        }
        match self.hour {
            Hour::Unknown if self.in_flight >= UNKNOWN_AT_ONCE => return Err(None),
            Hour::Told { remaining, resets, .. } => {
                let in_flight = u64::try_from(self.in_flight).unwrap_or(u64::MAX);
                let kept = u64::try_from(reserve(self.per_minute)).unwrap_or(0).min(MOST_KEPT);
                if remaining.saturating_sub(in_flight) <= kept {
                    return Err(Some(resets));
                }
            }
            Hour::Unknown | Hour::Untold => {}
        }
        self.in_flight += 1;
        self.next += 1;
        Ok(Sent(self.next))
    }

    fn used(&mut self, now: Instant) -> usize {
        while self.answered.front().is_some_and(|at| now.duration_since(*at) >= MINUTE) {
            self.answered.pop_front();
        }
        self.in_flight + self.answered.len()
    }

    /// Until when nothing may be sent, whatever it is.
    pub(super) fn closed(&mut self, now: Instant) -> Option<Instant> {
        if let Hour::Told { resets, .. } = self.hour
            && resets <= now
        {
            self.hour = Hour::Unknown;
        }
        self.closed_until = self.closed_until.filter(|until| *until > now);
        let spent = match self.hour {
            Hour::Told { remaining: 0, resets, .. } => Some(resets),
            _ => None,
        };
        self.closed_until.max(spent)
    }

    /// The request was not sent after all.
    pub(super) fn unused(&mut self, _: Sent) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    /// Learns from the answer to a request; nothing was heard when none came.
    pub(super) fn answered(&mut self, sent: &Sent, now: Instant, heard: Option<Heard>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.answered.push_back(now);
        let Some(heard) = heard else {
            // The cloud may have counted it all the same.
            if let Hour::Told { remaining, .. } = &mut self.hour {
                *remaining = remaining.saturating_sub(1);
            }
            return;
        };
        if let Some(wait) = heard.refused {
            let until = now + wait;
            self.closed_until = Some(self.closed_until.map_or(until, |other| other.max(until)));
        }
        match (heard.remaining, &mut self.hour) {
            (Some(told), Hour::Told { remaining, hour, by, .. }) if *hour == heard.hour => {
                *remaining = told.min(*remaining);
                *by = sent.0.max(*by);
            }
            (Some(_), Hour::Told { by, .. }) if *by > sent.0 => {}
            (Some(remaining), _) => {
                let resets = now + heard.reset;
                self.hour = Hour::Told { remaining, hour: heard.hour, by: sent.0, resets };
            }
            (None, Hour::Unknown) => self.hour = Hour::Untold,
            (None, _) => {}
        }
    }
}

impl Heard {
    /// Reads the headers of an answer with this status.
    pub(super) fn new(status: u16, headers: &HeaderMap) -> Self {
        let cloud_now = cloud_now(headers);
        let hour = number(headers, "ratelimit-reset").unwrap_or(0);
        let reset = u64::try_from(hour.saturating_sub(cloud_now)).unwrap_or(0);
        Self {
            refused: (status == 429).then(|| pause(headers)),
            remaining: number(headers, "ratelimit-remaining").and_then(|n| u64::try_from(n).ok()),
            // The times have whole seconds.
            reset: Duration::from_secs(reset.saturating_add(1)).min(LONGEST_WAIT),
            hour,
        }
    }
}

/// The pause that a refusal asks for.
pub(super) fn pause(headers: &HeaderMap) -> Duration {
    retry_after(headers).unwrap_or(UNNAMED_WAIT).min(LONGEST_WAIT)
}

/// The wait that `Retry-After` names, in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_second();
    let wait = date.saturating_sub(cloud_now(headers));
    Some(Duration::from_secs(u64::try_from(wait).unwrap_or(0)))
}

/// The time by the cloud's own clock, which its other times are told by; ours where it tells none.
fn cloud_now(headers: &HeaderMap) -> i64 {
    let told = headers.get(DATE).and_then(|date| date.to_str().ok());
    let told = told.and_then(|text| jiff::fmt::rfc2822::parse(text).ok());
    told.map_or_else(|| Timestamp::now().as_second(), |date| date.timestamp().as_second())
}

fn number(headers: &HeaderMap, name: &str) -> Option<i64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::Urgency::{Begin, Look};
    use super::*;

    const DATED: (&str, &str) = ("date", "Fri, 15 Jan 2027 08:00:00 GMT");

    fn heard(status: u16, pairs: &[(&'static str, &'static str)]) -> Option<Heard> {
        let headers = pairs.iter().map(|(name, value)| {
            (name.parse().expect("a header name"), value.parse().expect("a header value"))
        });
        Some(Heard::new(status, &headers.collect()))
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A budget whose first answer has told nothing, and when that was.
    fn untold(per_minute: usize) -> (Budget, Instant) {
        let start = Instant::now();
        let mut budget = Budget::new(per_minute + 1);
        let sent = budget.take(start, Look).expect("the first");
        budget.answered(&sent, start, heard(200, &[]));
        (budget, start)
    }

    #[test]
    fn a_request_takes_its_place_from_its_sending_until_a_minute_after_its_answer() {
        let (mut budget, start) = untold(2);
        let first = budget.take(start, Look).expect("the second");
        let second = budget.take(start, Look).expect("the third");
        assert_eq!(budget.take(start + seconds(5), Look), Err(Some(start + MINUTE)));
        // The very first one has left, the others have no answer yet.
        let third = budget.take(start + seconds(60), Look).expect("the fourth");
        assert_eq!(budget.take(start + seconds(100), Look), Err(None), "until an answer comes");
        budget.answered(&second, start + seconds(100), heard(200, &[]));
        let until = Err(Some(start + seconds(160)));
        assert_eq!(budget.take(start + seconds(101), Look), until);
        budget.answered(&first, start + seconds(110), None);
        budget.answered(&third, start + seconds(111), heard(200, &[]));
        assert_eq!(budget.take(start + seconds(159), Look), until);
        assert!(budget.take(start + seconds(160), Look).is_ok());
    }

    #[test]
    fn new_work_leaves_a_part_of_the_minute_to_what_is_begun() {
        let (mut budget, start) = untold(31);
        for number in 0..29 {
            let sent = budget.take(start, Begin).unwrap_or_else(|_| panic!("{number}"));
            budget.answered(&sent, start + seconds(number), heard(200, &[]));
        }
        // The first of the two that are too many leaves after a minute, with the very first one.
        assert_eq!(budget.take(start + seconds(30), Begin), Err(Some(start + MINUTE)));
        assert!(budget.take(start + seconds(30), Look).is_ok());
        assert!(budget.take(start + seconds(30), Look).is_ok());
        assert!(budget.take(start + seconds(30), Look).is_err());
    }

    #[test]
    fn b54_retry_after_is_kept_in_each_of_its_forms() {
        for (value, wait) in [
            ("7", 7),
            ("0", 0),
            ("99999", 3600),
            ("Fri, 15 Jan 2027 08:00:30 GMT", 30),
            ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
            ("soon", 2),
        ] {
            let (mut budget, now) = untold(100);
            let sent = budget.take(now, Look).expect("a turn");
            budget.answered(&sent, now, heard(429, &[DATED, ("retry-after", value)]));
            let after = budget.take(now, Look).map(drop);
            let expected = if wait == 0 { Ok(()) } else { Err(Some(now + seconds(wait))) };
            assert_eq!(after, expected, "{value}");
        }
    }

    #[test]
    fn a_spent_hour_closes_until_its_reset_by_the_clouds_clock() {
        let now = Instant::now();
        let mut budget = Budget::new(100);
        let reset = ("ratelimit-reset", "1800000100");
        let sent = budget.take(now, Look).expect("a turn");
        let left = heard(200, &[DATED, ("ratelimit-remaining", "8"), reset]);
        budget.answered(&sent, now, left);
        // New work leaves six, and what is under way is counted as spent.
        let _first = budget.take(now, Begin).expect("one of eight");
        let second = budget.take(now, Begin).expect("another");
        let reset_at = now + seconds(101);
        assert_eq!(budget.take(now, Begin), Err(Some(reset_at)));
        let third = budget.take(now, Look).expect("what is begun may go on");
        budget.answered(&third, now, heard(200, &[DATED, ("ratelimit-remaining", "0"), reset]));
        // Told later, and more: by an answer that was counted earlier, whenever it was sent.
        budget.answered(&second, now, heard(200, &[DATED, ("ratelimit-remaining", "9"), reset]));
        assert_eq!(budget.take(now, Look), Err(Some(reset_at)));
        assert_eq!(budget.closed(now), Some(reset_at));
        assert!(budget.take(reset_at, Look).is_ok());
    }

    #[test]
    fn few_are_under_way_until_the_cloud_has_told_what_is_left() {
        let now = Instant::now();
        let mut budget = Budget::new(100);
        let sent: Vec<Sent> =
            (0..UNKNOWN_AT_ONCE).map(|_| budget.take(now, Look).expect("a turn")).collect();
        assert_eq!(budget.take(now, Look), Err(None));
        budget.answered(&sent[0], now, heard(200, &[]));
        for _ in 0..50 {
            assert!(budget.take(now, Look).is_ok(), "this cloud does not tell");
        }
    }
}
