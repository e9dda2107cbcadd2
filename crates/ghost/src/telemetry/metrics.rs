//! The numbers of this process, in Prometheus' text form. No label ever holds a volume's id.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use crate::backend::cosmos::Meter;
use crate::operation::Observer;

/// The upper ends of the time buckets, in seconds: from a system call to a mkfs of a large disk.
const SECONDS: [f64; 10] = [0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0, 120.0, 600.0];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    operation: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CloudAnswer {
    route: &'static str,
    status: u16,
}

type NoLabels = [(&'static str, &'static str); 0];
type Histograms = Family<Operation, Histogram, fn() -> Histogram>;

/// All numbers. Clones share them.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    ended: Family<Outcome, Counter<u64, AtomicU64>>,
    seconds: Histograms,
    running: Family<Operation, Gauge<i64, AtomicI64>>,
    answers: Family<CloudAnswer, Counter<u64, AtomicU64>>,
    /// Without a value until the cloud has told one: nought would say that all is spent.
    remaining: Family<NoLabels, Gauge<i64, AtomicI64>>,
}

impl Metrics {
    /// All numbers at nought.
    #[must_use]
    pub fn new() -> Self {
        let ended = Family::default();
        let seconds: Histograms = Family::new_with_constructor(|| Histogram::new(SECONDS));
        let running = Family::default();
        let answers = Family::default();
        let remaining = Family::default();
        let mut registry = Registry::with_prefix("ghost");
        registry.register("operations", "Operations that have ended", ended.clone());
        registry.register("operation_seconds", "Time that operations took", seconds.clone());
        registry.register("operations_running", "Operations that are running", running.clone());
        registry.register("cloud_requests", "Requests to the cloud; 0: no answer", answers.clone());
        registry.register(
            "cloud_rate_remaining",
            "Requests that the cloud says are left of this hour",
            remaining.clone(),
        );
        Self { registry: Arc::new(registry), ended, seconds, running, answers, remaining }
    }

    /// The numbers as text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("a String takes what is written to it");
        text
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn started(&self, operation: &'static str) {
        self.running.get_or_create(&Operation { operation }).inc();
    }

    fn ended(&self, operation: &'static str, outcome: &'static str, took: Duration) {
        self.running.get_or_create(&Operation { operation }).dec();
        self.seconds.get_or_create(&Operation { operation }).observe(took.as_secs_f64());
        self.ended.get_or_create(&Outcome { operation, outcome }).inc();
    }
}

impl Meter for Metrics {
    fn answered(&self, route: &'static str, status: u16) {
        self.answers.get_or_create(&CloudAnswer { route, status }).inc();
    }

    fn remaining(&self, requests: u64) {
        self.remaining.get_or_create(&[]).set(i64::try_from(requests).unwrap_or(i64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn every_number() -> String {
        let metrics = Metrics::new();
        metrics.started("create_volume");
        metrics.ended("create_volume", "ok", Duration::from_millis(3));
        metrics.answered("/v2/volumes", 201);
        metrics.remaining(4998);
        metrics.text()
    }

    #[test]
    fn the_numbers_have_the_names_that_the_documents_promise() {
        let text = every_number();
        for line in [
            "ghost_operations_total{operation=\"create_volume\",outcome=\"ok\"} 1",
            "ghost_operations_running{operation=\"create_volume\"} 0",
            "ghost_operation_seconds_count{operation=\"create_volume\"} 1",
            "ghost_cloud_requests_total{route=\"/v2/volumes\",status=\"201\"} 1",
            "ghost_cloud_rate_remaining 4998",
        ] {
            assert!(text.lines().any(|have| have == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn nothing_is_said_to_remain_before_the_cloud_has_told_it() {
        let text = Metrics::new().text();
        assert!(!text.lines().any(|line| line.starts_with("ghost_cloud_rate_remaining")), "{text}");
    }

    #[test]
    fn alerts_dashboard_and_document_name_numbers_that_exist_and_the_document_all() {
        let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        let text = every_number();
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let exist: BTreeSet<&str> =
            samples.filter_map(|line| line.split(['{', ' ']).next()).collect();
        for file in [
            "charts/ghost/templates/rules.yaml",
            "charts/ghost/dashboards/ghost.json",
            "docs/monitoring.md",
        ] {
            let content = std::fs::read_to_string(format!("{root}/{file}")).expect("it is there");
            let words = content.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            let named: BTreeSet<&str> = words.filter(|word| word.starts_with("ghost_")).collect();
            assert!(!named.is_empty(), "{file} names no number");
            for name in &named {
                assert!(exist.contains(name), "{file} names {name}, which does not exist");
            }
            if file.ends_with(".md") {
                let missing: Vec<_> = exist.difference(&named).collect();
                assert!(missing.is_empty(), "{file} does not name {missing:?}");
            }
        }
    }
}
