//! How long the cloud's actions take, learnt from those that were waited for: when to look next, so
//! that few looks are needed and none comes much too late.
//!
//! What is known of an action is between which two looks it ended. If one duration explains all of
//! the last ones, it is searched for by halving until it is known well enough, and the next look
//! comes just then. An action that was over at the first look may have been over long before; so the
//! next one is looked at when it cannot be over yet if all take the same time, and now and then one
//! of many is. While only one or two are known, which proves little, an early look is made besides,
//! in case that the next one takes less. If they differ, the first look comes when one in four would
//! be over, and the following ones each a quarter later. Pure; times are durations since the action
//! began.

use std::collections::VecDeque;
use std::time::Duration;

/// How many actions are remembered.
const REMEMBERED: usize = 48;
/// So many that agree tell that the next will not differ by much.
const ENOUGH: usize = 12;
/// The first look when nothing is known, and how much later each next one comes.
const FIRST: Duration = Duration::from_millis(500);
const BLIND_GROWTH: f64 = 1.5;
/// How much later each next look comes when durations differ. Measured on durations that differ
/// fourfold: later looks or no early ones cost more time than they spare in calls.
const GROWTH: f64 = 1.25;
/// When an early look comes while only one, only two are known, as parts of the time after which
/// none was over.
const EARLY: [f64; 2] = [0.8, 0.9];
/// The longest time between two looks for no better reason.
const LONGEST: Duration = Duration::from_secs(10);
/// A look that came so much later than planned, and by more than a quarter, tells little of how long
/// the action took.
const LATE: Duration = Duration::from_millis(250);
/// How well a duration is known well enough, as part of it.
const PRECISION: f64 = 0.025;
/// Durations that differ by no more than this, as part of them, count as one: a busy machine sees
/// none exactly.
const NEAR: f64 = 0.03;
/// How much later than what is known of that one duration the look comes, as part of it.
const MARGIN: f64 = 0.005;
/// Looks that are this close together show the same.
const SAME: Duration = Duration::from_millis(1);

/// The last actions of one kind.
#[derive(Debug, Default)]
pub(super) struct Durations {
    last: VecDeque<Ended>,
    /// How many there were in all, and how many when one was last looked at early.
    learnt: usize,
    probed: usize,
}

/// When an action ended: after a look that did not show it, by one that did.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ended {
    pub(super) after: Duration,
    pub(super) by: Duration,
}

/// When to look next, since the action began.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) at: Duration,
    /// It would tell nothing if it waited for others.
    pub(super) is_probe: bool,
    /// It is made to learn how long actions take, and may well show nothing.
    pub(super) is_guess: bool,
}

impl Next {
    pub(super) const NOW: Self = Self { at: Duration::ZERO, is_probe: false, is_guess: false };
}

impl Durations {
    /// Remembers one whose last look was planned for this time. One that was seen much later tells
    /// little, and counts only where nothing is known.
    pub(super) fn learn(&mut self, ended: Ended, planned: Duration) {
        let is_late = ended.by > planned + (planned / 4).max(LATE);
        if is_late && !self.last.is_empty() {
            return;
        }
        self.learnt += 1;
        self.last.push_back(ended);
        if self.last.len() > REMEMBERED {
            self.last.pop_front();
        }
    }

    /// When to look next at an action that had not ended after this time, while so many are waited
    /// for.
    pub(super) fn next(&mut self, elapsed: Duration, waiting: usize) -> Next {
        if let Some(at) = self.probe(elapsed, waiting) {
            return Next { at, is_probe: true, is_guess: false };
        }
        let (at, is_guess) = self.planned(elapsed);
        Next { at: at.max(elapsed + SAME), is_probe: false, is_guess }
    }

    /// By when none was over and when one was, if one duration explains all.
    fn one_duration(&self) -> Option<(Duration, Duration)> {
        let after = self.last.iter().map(|ended| ended.after).max()?;
        let by = self.last.iter().map(|ended| ended.by).min()?;
        (after < by.mul_f64(1.0 + NEAR)).then_some((after, by))
    }

    /// When one of those that are waited for is looked at early, to see that what is known still
    /// holds: the others would soon have made it forgotten that none was over by then.
    fn probe(&mut self, elapsed: Duration, waiting: usize) -> Option<Duration> {
        let (after, by) = self.one_duration()?;
        // A little earlier, or every second one would be over by chance.
        let at = after.mul_f64(1.0 - MARGIN);
        let mut recent = self.last.iter().rev().take(REMEMBERED / 2);
        let is_due = at > elapsed
            && is_known(after, by)
            && self.learnt >= self.probed + waiting
            && !recent.any(|ended| ended.after >= at);
        if is_due {
            self.probed = self.learnt;
        }
        is_due.then_some(at)
    }

    /// When the next look comes, and whether it is a guess.
    fn planned(&self, elapsed: Duration) -> (Duration, bool) {
        let later = |factor: f64| elapsed.mul_f64(factor).min(elapsed + LONGEST);
        if self.last.is_empty() {
            return (later(BLIND_GROWTH).max(FIRST), true);
        }
        if let Some((after, by)) = self.one_duration() {
            let early = EARLY.get(self.last.len() - 1).map(|part| after.mul_f64(*part));
            if let Some(early) = early.filter(|early| *early > elapsed) {
                return (early, true);
            }
            let last_told_little = self.last.back().is_some_and(|last| last.after.is_zero());
            let middle = after + by.saturating_sub(after) / 2;
            let early = if last_told_little && after > elapsed { after } else { middle };
            let then = after.max(by).mul_f64(1.0 + MARGIN);
            let is_known = is_known(after, by);
            let at = if !is_known && early > elapsed {
                return (early, true);
            } else if then > elapsed {
                then
            } else if self.last.len() >= ENOUGH && elapsed < by.mul_f64(1.0 + 2.0 * NEAR) {
                later(1.0 + 2.0 * MARGIN)
            } else {
                later(GROWTH)
            };
            return (at, false);
        }
        let mut middles: Vec<Duration> =
            self.last.iter().map(|ended| ended.after + (ended.by - ended.after) / 2).collect();
        middles.sort();
        (middles[middles.len() / 4].max(later(GROWTH)), false)
    }
}

fn is_known(after: Duration, by: Duration) -> bool {
    by.saturating_sub(after) <= by.mul_f64(PRECISION)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits for actions one after the other; answers the time by their sum, and the looks at one.
    fn wait_for(actions: &[Duration]) -> (f64, f64) {
        let (mut durations, mut waited, mut looks) = (Durations::default(), Duration::ZERO, 0.0);
        for action in actions {
            let (mut after, mut by) = (Duration::ZERO, durations.next(Duration::ZERO, 1).at);
            looks += 1.0;
            while by < *action {
                (after, by) = (by, durations.next(by, 1).at);
                looks += 1.0;
            }
            waited += by;
            durations.learn(Ended { after, by }, by);
        }
        let sum: Duration = actions.iter().sum();
        let count = f64::from(u32::try_from(actions.len()).expect("few"));
        (waited.as_secs_f64() / sum.as_secs_f64(), looks / count)
    }

    #[test]
    fn actions_that_take_the_same_time_are_soon_known_with_one_look() {
        for millis in [40, 300, 1000, 5000, 5003, 20_000, 61_000] {
            let (time, looks) = wait_for(&[Duration::from_millis(millis); 200]);
            let blind = FIRST.as_secs_f64() / 5.0 / Duration::from_millis(millis).as_secs_f64();
            assert!(time < 1.03_f64.max(1.0 + blind), "{millis} ms: {time}");
            assert!(looks < 1.5, "{millis} ms: {looks} looks");
        }
    }

    #[test]
    fn actions_that_a_busy_machine_sees_take_a_little_more_or_less_cost_little_more() {
        let mut random = fastrand::Rng::with_seed(1);
        let actions: Vec<Duration> =
            (0..1000).map(|_| Duration::from_millis(random.u64(5000..5060))).collect();
        let (time, looks) = wait_for(&actions);
        assert!(time < 1.03 && looks < 1.15, "{time}, {looks} looks");
    }

    #[test]
    fn seven_actions_of_a_stranger_are_waited_for_with_few_looks() {
        let (time, looks) = wait_for(&[Duration::from_secs(5); 7]);
        assert!(time < 1.08 && looks < 2.8, "{time}, {looks} looks");
    }

    #[test]
    fn actions_of_many_durations_cost_some_looks_more() {
        let (mut time, mut looks) = (0.0, 0.0);
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let actions: Vec<Duration> =
                (0..7).map(|_| Duration::from_millis(random.u64(2000..8000))).collect();
            let one = wait_for(&actions);
            time += one.0 / 100.0;
            looks += one.1 / 100.0;
        }
        assert!(time < 1.21 && looks < 4.0, "{time}, {looks} looks");
    }

    #[test]
    fn a_late_look_counts_only_while_nothing_is_known() {
        let seconds = Duration::from_secs;
        let (mut durations, late) = (Durations::default(), seconds(1));
        durations.learn(Ended { after: late, by: seconds(5) }, late);
        let first = durations.next(Duration::ZERO, 1).at;
        assert!(first > FIRST, "it is known that none is over by then: {first:?}");
        durations.learn(Ended { after: seconds(20), by: seconds(40) }, late);
        assert_eq!(durations.next(Duration::ZERO, 1).at, first);
    }

    #[test]
    fn looks_always_go_on_and_never_too_far() {
        let mut durations = Durations::default();
        let hour = Duration::from_secs(3600);
        for ended in [(0, 0), (0, 1), (5, 5), (100, 120), (2, 3)] {
            let (after, by) = (Duration::from_secs(ended.0), Duration::from_secs(ended.1));
            durations.learn(Ended { after, by }, by);
            let mut elapsed = Duration::ZERO;
            while elapsed < hour {
                let next = durations.next(elapsed, 1).at;
                let limit = elapsed.max(Duration::from_secs(120)) + LONGEST;
                assert!(next > elapsed && next <= limit, "{elapsed:?}: {next:?}");
                elapsed = next;
            }
        }
    }
}
