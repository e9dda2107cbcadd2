//! The cloud's request budget: how soon the next request may be sent.
//!
//! The API gives a number of requests an hour, which its headers tell, and a number a minute,
//! which they do not. Both are kept here before a refusal, and a refusal's `Retry-After` is kept
//! after one.

use std::collections::VecDeque;
use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use tokio::time::Instant;

const MINUTE: Duration = Duration::from_secs(60);
/// The wait after a refusal that does not say how long.
const UNNAMED_WAIT: Duration = Duration::from_secs(2);
/// The longest wait that is believed. A longer one is a mistake of the other side's clock.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

/// When requests may be sent.
#[derive(Debug)]
pub(super) struct Budget {
    per_minute: usize,
    /// When the requests of the last minute were sent.
    sent: VecDeque<Instant>,
    closed_until: Option<Instant>,
}

impl Budget {
    pub(super) fn new(per_minute: usize) -> Self {
        Self { per_minute, sent: VecDeque::new(), closed_until: None }
    }

    /// Takes leave to send one request now, or says how long to wait before asking again.
    pub(super) fn take(&mut self, now: Instant) -> Result<(), Duration> {
        if let Some(until) = self.closed_until.filter(|until| *until > now) {
            return Err(until - now);
        }
        self.closed_until = None;
        while self.sent.front().is_some_and(|sent| now.duration_since(*sent) >= MINUTE) {
            self.sent.pop_front();
        }
        if let (true, Some(oldest)) = (self.sent.len() >= self.per_minute, self.sent.front()) {
            return Err(MINUTE - now.duration_since(*oldest));
        }
        self.sent.push_back(now);
        Ok(())
    }

    /// Learns from the headers of an answer. Answers what is left of the hour, if they tell.
    pub(super) fn learn(
        &mut self,
        status: u16,
        headers: &HeaderMap,
        now: Instant,
        unix_now: i64,
    ) -> Option<u64> {
        let remaining = number(headers, "ratelimit-remaining").and_then(|n| u64::try_from(n).ok());
        if status == 429 {
            let wait = retry_after(headers, unix_now).unwrap_or(UNNAMED_WAIT);
            self.close(now + wait.min(LONGEST_WAIT));
        } else if remaining == Some(0) {
            let reset = number(headers, "ratelimit-reset").unwrap_or(0);
            let wait = u64::try_from(reset.saturating_sub(unix_now)).unwrap_or(0);
            self.close(now + Duration::from_secs(wait).min(LONGEST_WAIT));
        }
        remaining
    }

    fn close(&mut self, until: Instant) {
        self.closed_until = Some(self.closed_until.map_or(until, |present| present.max(until)));
    }
}

/// The pause that a refusal asks for.
pub(super) fn pause(headers: &HeaderMap, now: jiff::Timestamp) -> Duration {
    retry_after(headers, now.as_second()).unwrap_or(UNNAMED_WAIT).min(LONGEST_WAIT)
}

/// The wait that `Retry-After` names, in seconds or as a date.
fn retry_after(headers: &HeaderMap, unix_now: i64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(text).ok()?.timestamp().as_second();
    Some(Duration::from_secs(u64::try_from(date.saturating_sub(unix_now)).unwrap_or(0)))
}

fn number(headers: &HeaderMap, name: &str) -> Option<i64> {
    headers.get(name)?.to_str().ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| {
                (name.parse().expect("a header name"), value.parse().expect("a header value"))
            })
            .collect()
    }

    #[test]
    fn the_minute_limit_is_kept_before_the_first_refusal() {
        let start = Instant::now();
        let mut budget = Budget::new(3);
        for second in 0..3 {
            assert_eq!(budget.take(start + Duration::from_secs(second)), Ok(()));
        }
        assert_eq!(budget.take(start + Duration::from_secs(10)), Err(Duration::from_secs(50)));
        assert_eq!(budget.take(start + Duration::from_secs(60)), Ok(()));
        assert_eq!(budget.take(start + Duration::from_secs(60)), Err(Duration::from_secs(1)));
    }

    #[test]
    fn b54_retry_after_is_kept_in_each_of_its_forms() {
        let unix_now = 1_800_000_000;
        for (value, wait) in [
            ("7", 7),
            ("0", 0),
            ("99999", 3600),
            ("Fri, 15 Jan 2027 08:00:30 GMT", 30),
            ("Fri, 15 Jan 2027 07:00:00 GMT", 0),
            ("soon", 2),
        ] {
            let now = Instant::now();
            let mut budget = Budget::new(100);
            budget.learn(429, &headers(&[("retry-after", value)]), now, unix_now);
            let expected = if wait == 0 { Ok(()) } else { Err(Duration::from_secs(wait)) };
            assert_eq!(budget.take(now), expected, "{value}");
        }
    }

    #[test]
    fn a_spent_hour_closes_until_its_reset() {
        let now = Instant::now();
        let mut budget = Budget::new(100);
        let told = headers(&[("ratelimit-remaining", "0"), ("ratelimit-reset", "1800000100")]);
        assert_eq!(budget.learn(200, &told, now, 1_800_000_000), Some(0));
        assert_eq!(budget.take(now), Err(Duration::from_secs(100)));
        assert_eq!(budget.take(now + Duration::from_secs(100)), Ok(()));
        assert_eq!(budget.learn(200, &headers(&[]), now, 1_800_000_000), None);
    }
}
