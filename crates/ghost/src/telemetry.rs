//! What the driver tells of itself: logs, metrics, and an admin address with both health and numbers.

mod admin;
mod log;
mod metrics;

pub use admin::serve as serve_admin;
pub use log::{Filter, Format, start as start_log};
pub use metrics::Metrics;
