//! Runs tools that claim the device for themselves.

use std::os::fd::OwnedFd;

use crate::command::{Command, Ending, Outcome};
use crate::device::{self, BlockDevice};
use crate::error::Result;

/// How often a tool is run again that met another claim.
const AGAIN: u32 = 3;
/// What the tools say of a device that is claimed, each in its own way: they run in the C locale.
const CLAIMED: [&str; 2] = ["Device or resource busy", "in use"];

/// Runs a tool, which gets the device as its standard input, while nobody else claims the device.
///
/// A claim that was just given up may come back for a moment, see [`device::claim`]; also that by
/// which it was seen that there is none. The tool has done nothing then, and is run again. Whoever
/// claims the device for longer is told by the tool.
pub(super) async fn run(
    device: &BlockDevice,
    tool: impl Fn(OwnedFd) -> Command,
) -> Result<Outcome> {
    let mut again = 0;
    loop {
        device::wait_until_unclaimed(device).await;
        let outcome = tool(device::duplicate(device)?).run().await?;
        if again == AGAIN || !met_a_claim(&outcome) {
            return Ok(outcome);
        }
        again += 1;
        tracing::debug!(device = %device.path.display(), said = outcome.last_words(), "again");
    }
}

fn met_a_claim(outcome: &Outcome) -> bool {
    let said = |words: &&str| outcome.stdout.contains(*words) || outcome.stderr.contains(*words);
    !matches!(outcome.ending, Ending::Exited(0)) && CLAIMED.iter().any(said)
}
