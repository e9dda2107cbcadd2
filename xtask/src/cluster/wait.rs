//! Waiting for what no event tells.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use xtask::interrupt;

/// How often it is looked.
const PAUSE: Duration = Duration::from_millis(20);

/// How long something may take at most.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limit(pub(super) Duration);

impl Limit {
    /// What takes no time on a quiet machine.
    pub(super) const SHORT: Self = Self(Duration::from_secs(60));
    /// What Kubernetes does in its own time.
    pub(super) const LONG: Self = Self(Duration::from_secs(240));
}

/// Looks until there is something to be seen, and answers it.
pub(super) fn until<T>(
    what: &str,
    limit: Limit,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let begun = Instant::now();
    loop {
        interrupt::check()?;
        if let Some(seen) = look()? {
            return Ok(seen);
        }
        if begun.elapsed() > limit.0 {
            bail!("waited {} s in vain for {what}", limit.0.as_secs());
        }
        thread::sleep(PAUSE);
    }
}
