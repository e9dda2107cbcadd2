//! The budget of requests: so many an hour, which headers tell, and so many a minute, which
//! nothing tells until it is spent.

use std::time::Duration;

use hyper::HeaderMap;
use hyper::header::HeaderValue;
use jiff::{SignedDuration, Timestamp};

/// How many requests the account has.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In an hour.
    pub per_hour: u64,
    /// In a minute; `None` for no such limit.
    pub per_minute: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_hour: 5000, per_minute: None }
    }
}

/// The state of the budget. Each period begins with the first request after the last one ended.
#[derive(Clone, Debug)]
pub(super) struct Budget {
    hour: Period,
    minute: Option<Period>,
}

#[derive(Clone, Debug)]
struct Period {
    length: SignedDuration,
    limit: u64,
    began: Timestamp,
    used: u64,
}

impl Budget {
    pub(super) fn new(limits: Limits) -> Self {
        let period = |length, limit| Period { length, limit, began: Timestamp::MIN, used: 0 };
        Self {
            hour: period(SignedDuration::from_hours(1), limits.per_hour),
            minute: limits.per_minute.map(|limit| period(SignedDuration::from_mins(1), limit)),
        }
    }

    /// Takes one request out of the budget, or says after how long there is one again.
    pub(super) fn take(&mut self, now: Timestamp) -> Result<(), Duration> {
        let mut periods: Vec<_> =
            std::iter::once(&mut self.hour).chain(self.minute.as_mut()).collect();
        for period in &mut periods {
            period.turn(now);
        }
        if let Some(wait) = periods.iter().filter_map(|period| period.wait(now)).max() {
            return Err(wait);
        }
        for period in periods {
            period.used += 1;
        }
        Ok(())
    }

    /// Writes what is left of the hour.
    pub(super) fn describe(&self, now: Timestamp, headers: &mut HeaderMap) {
        let mut hour = self.hour.clone();
        hour.turn(now);
        let reset = u64::try_from(hour.end().as_second()).unwrap_or(0);
        for (name, value) in [
            ("ratelimit-limit", hour.limit),
            ("ratelimit-remaining", hour.limit.saturating_sub(hour.used)),
            ("ratelimit-reset", reset),
        ] {
            headers.insert(name, HeaderValue::from(value));
        }
    }
}

impl Period {
    fn end(&self) -> Timestamp {
        self.began.checked_add(self.length).unwrap_or(Timestamp::MAX)
    }

    fn turn(&mut self, now: Timestamp) {
        if now >= self.end() {
            self.began = now;
            self.used = 0;
        }
    }

    fn wait(&self, now: Timestamp) -> Option<Duration> {
        let spent = self.used >= self.limit;
        spent.then(|| Duration::try_from(self.end().duration_since(now)).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spent_minute_says_how_long_it_lasts_and_does_not_touch_the_hour() {
        let second = |value| Timestamp::from_second(value).expect("in range");
        let mut budget = Budget::new(Limits { per_hour: 4, per_minute: Some(2) });
        let start = 1_000_000;
        assert_eq!(budget.take(second(start)), Ok(()));
        assert_eq!(budget.take(second(start + 10)), Ok(()));
        assert_eq!(budget.take(second(start + 15)), Err(Duration::from_secs(45)));
        let mut headers = HeaderMap::new();
        budget.describe(second(start + 15), &mut headers);
        assert_eq!(headers["ratelimit-remaining"], "2");
        assert_eq!(headers["ratelimit-reset"], (start + 3600).to_string());
        assert_eq!(budget.take(second(start + 60)), Ok(()));
        assert_eq!(budget.take(second(start + 61)), Ok(()));
        assert_eq!(budget.take(second(start + 130)), Err(Duration::from_secs(3470)));
        assert_eq!(budget.take(second(start + 3600)), Ok(()));
    }
}
