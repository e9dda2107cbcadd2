//! (in work)

use anyhow::Result;

pub(crate) fn run() -> Result<()> {
    anyhow::bail!("in work")
}
