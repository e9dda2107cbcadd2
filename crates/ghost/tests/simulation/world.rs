//! The two controllers of a schedule, and calls to them as sidecars make them: with deadlines,
//! repeated, hung up, now to one and now to the other.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fastrand::Rng;
use ghost::backend::cosmos::{Cosmos, Exchange, Meter, Options, TokenFile};
use ghost::controller::{Clones, Controller, Refusals};
use ghost::csi::ControllerService;
use ghost::operation::{Observer, Operations};
use ghost::volume::{Bytes, Region, TopologyKey};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::{Code, Request, Status};

use crate::cloud::{Cloud, Wire};
use crate::schedule::{Schedule, Variant};

/// How long a sidecar's lease is, as the sidecars have it.
const LEASE: Duration = Duration::from_secs(15);

/// Everything of one schedule.
pub(crate) struct World<'a> {
    pub(crate) cloud: Cloud,
    pub(crate) schedule: &'a Schedule,
    token: &'a Path,
    lives: [RefCell<Option<Life>>; 2],
    random: RefCell<Rng>,
}

/// One life of a controller, from its start to its death.
#[derive(Clone)]
struct Life {
    controller: Controller,
    service: Arc<ControllerService>,
    is_dead: Arc<AtomicBool>,
    death: watch::Sender<bool>,
}

struct Nobody;

impl Observer for Nobody {
    fn started(&self, _: &'static str) {}
    fn ended(&self, _: &'static str, _: &'static str, _: Duration) {}
}

impl<'a> World<'a> {
    pub(crate) fn new(schedule: &'a Schedule, token: &'a Path) -> Self {
        let mut random = Rng::with_seed(schedule.seed ^ 0x5eed);
        let cloud = Cloud::new(schedule, random.fork());
        let lives = [RefCell::new(None), RefCell::new(None)];
        let world = Self { cloud, schedule, token, lives, random: RefCell::new(random) };
        world.start(0);
        world.start(1);
        world
    }

    /// Randomness of its own for someone.
    pub(crate) fn random(&self) -> Rng {
        self.random.borrow_mut().fork()
    }

    fn start(&self, which: usize) {
        let wire = Wire::new(self.cloud.clone(), self.schedule.variant);
        let is_dead = Arc::clone(&wire.is_dead);
        let half = usize::try_from(self.schedule.per_minute / 2).expect("small");
        let per_minute = match self.schedule.variant {
            Variant::NoBudget => 1_000_000,
            _ => half,
        };
        let seed = self.random.borrow_mut().u64(..);
        let controller = controller(wire, (), self.token, per_minute, seed);
        let operations = Operations::new(Arc::new(Nobody));
        let service = Arc::new(service(&controller, &operations));
        let death = watch::Sender::new(false);
        let life = Life { controller, service, is_dead, death };
        *self.lives[which].borrow_mut() = Some(life);
        self.cloud.note(&format!("controller {which} starts"));
    }

    fn kill(&self, which: usize) {
        if let Some(life) = self.lives[which].borrow_mut().take() {
            life.is_dead.store(true, Ordering::Relaxed);
            life.death.send_replace(true);
            self.cloud.crashed(which);
        }
    }

    /// Lets controllers die and start again until the time of faults is over.
    pub(crate) async fn trouble(&self) {
        let mut random = self.random();
        let over = Instant::now() + self.schedule.faults_for;
        let trouble = async {
            loop {
                let life = self.schedule.life.mul_f64(2.0 * random.f64());
                tokio::time::sleep(life.max(Duration::from_secs(1))).await;
                let which = random.usize(0..2);
                self.kill(which);
                tokio::time::sleep(Duration::from_millis(random.u64(10..20_000))).await;
                self.start(which);
            }
        };
        let mut others = self.random();
        let foreign = async {
            loop {
                let pause = self.schedule.foreign_events.mul_f64(2.0 * others.f64());
                tokio::time::sleep(pause.max(Duration::from_millis(100))).await;
                self.cloud.foreign_event();
            }
        };
        let both = async { tokio::join!(biased; trouble, foreign) };
        let _ = tokio::time::timeout_at(over, both).await;
        for which in 0..2 {
            if self.lives[which].borrow().is_none() {
                self.start(which);
            }
        }
        self.cloud.calm_down();
    }

    /// One call to that controller, with the moment it began.
    async fn call<Q, A>(
        &self,
        which: usize,
        what: &str,
        limit: Duration,
        request: Q,
        send: &impl AsyncFn(Arc<ControllerService>, Request<Q>) -> Result<A, Status>,
    ) -> (Instant, Result<A, Status>) {
        let began = Instant::now();
        let Some(life) = self.lives[which].borrow().clone() else {
            return (began, Err(Status::new(Code::Unavailable, "nobody listens")));
        };
        let service = match self.schedule.variant {
            Variant::NoLock => Arc::new(unwatched(&life.controller)),
            _ => Arc::clone(&life.service),
        };
        let mut request = Request::new(request);
        request.set_timeout(limit);
        let mut death = life.death.subscribe();
        drop(life);
        let answer = tokio::select! {
            biased;
            _ = death.wait_for(|dead| *dead) => {
                Err(Status::new(Code::Unavailable, "the connection broke"))
            }
            answer = tokio::time::timeout(limit, send(service, request)) => {
                answer.unwrap_or_else(|_| Err(Status::new(Code::DeadlineExceeded, "too late")))
            }
        };
        let said = match &answer {
            Ok(_) => "OK".to_owned(),
            Err(status) => format!("{:?}: {}", status.code(), status.message()),
        };
        self.cloud.note(&format!("{what} of controller {which}: {said}"));
        (began, answer)
    }
}

/// A controller with that way to the cloud.
pub(crate) fn controller(
    wire: impl Exchange,
    meter: impl Meter,
    token: &Path,
    requests_per_minute: usize,
    seed: u64,
) -> Controller {
    let options = Options { cluster_id: None, requests_per_minute, attach_limit: 7, seed };
    let token = TokenFile::open(token).expect("a token");
    Controller {
        backend: Arc::new(Cosmos::new(wire, token, options, Box::new(meter))),
        default_size: Bytes::from_gib(1),
        default_region: Some(Region::new("ams1").expect("a region")),
        clones: Clones::default(),
        refusals: Refusals::default(),
    }
}

/// Its gRPC service, as nobody watches it.
pub(crate) fn unwatched(controller: &Controller) -> ControllerService {
    service(controller, &Operations::new(Arc::new(Nobody)))
}

fn service(controller: &Controller, operations: &Operations) -> ControllerService {
    let key = TopologyKey::new("ghost.test");
    ControllerService::new(controller.clone(), 1, operations.clone(), key)
}

/// One sidecar, as far as it works on one thing: it has a leader among the controllers' pods.
pub(crate) struct Sidecar<'a> {
    world: &'a World<'a>,
    random: RefCell<Rng>,
    leader: Cell<usize>,
}

impl<'a> Sidecar<'a> {
    pub(crate) fn new(world: &'a World<'a>) -> Self {
        Self {
            world,
            random: RefCell::new(world.random()),
            leader: Cell::new(world.random().usize(0..2)),
        }
    }

    fn random<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.random.borrow_mut())
    }

    /// Calls until the answer is final, or until so many have not been. Each OK is checked.
    pub(crate) async fn call<Q: Clone, A>(
        &self,
        what: &str,
        request: &Q,
        tries: Option<usize>,
        send: impl AsyncFn(Arc<ControllerService>, Request<Q>) -> Result<A, Status>,
        check: impl Fn(Instant, &A),
    ) -> Option<Result<A, Status>> {
        for attempt in 0.. {
            if tries.is_some_and(|tries| attempt >= tries) {
                return None;
            }
            let calm = self.world.cloud.is_calm();
            let (flips, limit, twice, wait) = self.random(|random| {
                let flips = !calm && random.u8(0..8) == 0;
                let limit = Duration::from_millis(
                    *random.choice(&[200, 2000, 15_000, 60_000]).expect("some"),
                );
                let wait = Duration::from_millis(random.u64(50..4000));
                (flips, limit, random.u8(0..8) == 0, wait)
            });
            if flips {
                // A lease is taken over when it has run out.
                self.leader.set(1 - self.leader.get());
                tokio::time::sleep(LEASE).await;
            }
            let limit = if calm { Duration::from_secs(60) } else { limit };
            let leader = self.leader.get();
            let one = self.world.call(leader, what, limit, request.clone(), &send);
            let (began, answer) = if twice {
                let other = self.world.call(leader, what, limit, request.clone(), &send);
                let (one, (began, other)) = tokio::join!(biased; one, other);
                if let Ok(other) = &other {
                    check(began, other);
                }
                one
            } else {
                one.await
            };
            match answer {
                Ok(answer) => {
                    check(began, &answer);
                    return Some(Ok(answer));
                }
                Err(status) if is_final(status.code()) => return Some(Err(status)),
                Err(_) => tokio::time::sleep(wait).await,
            }
        }
        None
    }
}

/// What external-provisioner and external-attacher take for the end of an attempt.
pub(crate) fn is_final(code: Code) -> bool {
    !matches!(
        code,
        Code::Cancelled
            | Code::DeadlineExceeded
            | Code::Unavailable
            | Code::Aborted
            | Code::ResourceExhausted
    )
}
