//! The history of one volume's attachment, kept so far back as a lagging read may look.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where a volume has been since when. The principal item of this module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct AttachmentHistory(Vec<Stay>);

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Stay {
    since: Timestamp,
    droplet: Option<u64>,
}

impl AttachmentHistory {
    /// Where the volume is now.
    pub(super) fn current(&self) -> Option<u64> {
        self.0.last().and_then(|stay| stay.droplet)
    }

    /// Where the volume was at that time.
    pub(super) fn at(&self, time: Timestamp) -> Option<u64> {
        self.0.iter().rev().find(|stay| stay.since <= time).and_then(|stay| stay.droplet)
    }

    /// Moves the volume, and forgets what was over before `horizon`.
    pub(super) fn move_to(&mut self, droplet: Option<u64>, now: Timestamp, horizon: Timestamp) {
        let first_needed = self.0.iter().rposition(|stay| stay.since <= horizon).unwrap_or(0);
        self.0.drain(..first_needed);
        self.0.push(Stay { since: now, droplet });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_time_shows_the_earlier_place() {
        let second = |value| Timestamp::from_second(value).expect("in range");
        let mut history = AttachmentHistory::default();
        assert_eq!(history.at(second(5)), None);
        history.move_to(Some(1), second(10), second(0));
        history.move_to(None, second(20), second(5));
        history.move_to(Some(2), second(30), second(25));
        assert_eq!(history.current(), Some(2));
        assert_eq!(history.at(second(29)), None);
        assert_eq!(history.at(second(30)), Some(2));
        assert_eq!(history.0.len(), 2, "what no read can see any more is forgotten");
    }
}
