//! What was asked of the simulator: each request, and how many there were of each kind.

use std::collections::{BTreeMap, VecDeque};

use jiff::Timestamp;
use serde_json::{Value, json};

/// So many requests are kept one by one; the counts go on.
const REQUESTS_KEPT: usize = 100_000;

/// The log. Requests to the control surface are not in it.
#[derive(Clone, Debug, Default)]
pub(super) struct RequestLog {
    requests: VecDeque<Entry>,
    counts: BTreeMap<String, u64>,
}

#[derive(Clone, Debug)]
struct Entry {
    time: Timestamp,
    method: String,
    route: &'static str,
    status: Option<u16>,
}

impl RequestLog {
    /// Adds a request. The status is absent when the connection was closed without an answer.
    pub(super) fn add(
        &mut self,
        time: Timestamp,
        method: &str,
        route: &'static str,
        status: Option<u16>,
    ) {
        *self.counts.entry(format!("{method} {route}")).or_default() += 1;
        if self.requests.len() == REQUESTS_KEPT {
            self.requests.pop_front();
        }
        self.requests.push_back(Entry { time, method: method.to_owned(), route, status });
    }

    /// Sets the status that the latest request was answered with after all.
    pub(super) fn correct_last(&mut self, status: u16) {
        if let Some(entry) = self.requests.back_mut() {
            entry.status = Some(status);
        }
    }

    pub(super) fn show(&self) -> Value {
        let requests: Vec<Value> = self
            .requests
            .iter()
            .map(|entry| {
                json!({
                    "time": entry.time.to_string(),
                    "method": entry.method,
                    "route": entry.route,
                    "status": entry.status,
                })
            })
            .collect();
        json!({ "requests": requests, "counts": self.counts })
    }
}
