//! What one seed says: the cloud's nature, how much goes wrong, and who does what.

use std::time::Duration;

use fastrand::Rng;

/// In which way the driver is wrong, to show that the simulation sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Variant {
    /// It is not.
    Right,
    /// Operations on one volume run side by side.
    NoLock,
    /// A refused action counts as done.
    TrustsRefusal,
    /// An accepted action counts as done.
    ForgetsAction,
    /// A server's failure counts as the final word.
    FinalOnServerError,
    /// Requests are not held back.
    NoBudget,
}

/// One schedule.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    pub(crate) variant: Variant,
    /// Whether each event is written down.
    pub(crate) traced: bool,
    pub(crate) volumes: usize,
    pub(crate) per_minute: u64,
    pub(crate) action_time: Duration,
    pub(crate) one_event_per_droplet: bool,
    pub(crate) read_lag: Duration,
    pub(crate) snapshot_pause: Duration,
    pub(crate) snapshot_ready_after: Duration,
    /// How long it takes on the average, while faults are on, until somebody else does something on a
    /// droplet.
    pub(crate) foreign_events: Duration,
    /// How many of the requests meet a fault while faults are on.
    pub(crate) fault_rate: f64,
    /// How long faults are on.
    pub(crate) faults_for: Duration,
    /// How long a controller lives on the average, while faults are on.
    pub(crate) life: Duration,
}

impl Schedule {
    pub(crate) fn new(seed: u64, variant: Variant, traced: bool) -> Self {
        let mut random = Rng::with_seed(seed);
        let one_of = |random: &mut Rng, millis: &[u64]| {
            Duration::from_millis(*random.choice(millis).expect("not empty"))
        };
        Self {
            seed,
            variant,
            traced,
            volumes: random.usize(1..=4),
            per_minute: *random.choice(&[40, 120, 250]).expect("not empty"),
            action_time: one_of(&mut random, &[0, 200, 1000, 5000, 12_000]),
            one_event_per_droplet: random.bool(),
            read_lag: one_of(&mut random, &[0, 0, 300, 2000]),
            snapshot_pause: one_of(&mut random, &[0, 0, 20_000]),
            fault_rate: *random.choice(&[0.0, 0.05, 0.2, 0.4]).expect("not empty"),
            faults_for: Duration::from_secs(random.u64(20..300)),
            life: Duration::from_secs(random.u64(5..200)),
            snapshot_ready_after: one_of(&mut random, &[0, 0, 5_000]),
            foreign_events: one_of(&mut random, &[1000, 5000, 60_000]),
        }
    }
}
