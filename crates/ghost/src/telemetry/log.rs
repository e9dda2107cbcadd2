//! Logs: JSON lines in a cluster, text on a terminal, on standard error.

use std::io::IsTerminal;

use tracing_subscriber::filter::{ParseError, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::error::{Error, Result};

/// The form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// For machines: one JSON object a line.
    Json,
}

/// Which lines are written: `info`, or `info,ghost::backend=debug` and the like.
#[derive(Clone, Debug)]
pub struct Filter(Targets);

impl Filter {
    /// Reads a filter.
    ///
    /// # Errors
    /// `Invalid` with an example.
    pub fn parse(text: &str) -> Result<Self> {
        text.parse().map(Self).map_err(|error: ParseError| {
            Error::invalid(format!(
                "log filter {text:?} is not understood; expected a level or \
                 \"info,ghost::backend=debug\""
            ))
            .with_source(error)
        })
    }
}

/// Starts logging. Only the first start of a process counts.
pub fn start(format: Format, filter: Filter) {
    // The protocol's own layers print whole frames, which hold secrets: they are never heard.
    let targets = filter
        .0
        .with_target("h2", tracing::Level::WARN)
        .with_target("hyper", tracing::Level::WARN)
        .with_target("hyper_util", tracing::Level::WARN)
        .with_target("reqwest", tracing::Level::WARN)
        .with_target("tonic", tracing::Level::WARN)
        .with_target("tower", tracing::Level::WARN)
        .with_target("rustls", tracing::Level::WARN);
    let lines = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let registry = tracing_subscriber::registry().with(targets);
    let started = match format {
        Format::Json => registry.with(lines.json().flatten_event(true)).try_init(),
        Format::Text => registry.with(lines.with_ansi(std::io::stderr().is_terminal())).try_init(),
    };
    if started.is_err() {
        tracing::debug!("the log has been started before");
    }
}
