//! One check's dealings with the driver: its calls, the names that it uses, and what it has made
//! and owes to take away.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use tonic::{Code, Status};

use crate::ask::{Ask, Made, Makes};
use crate::driver::{Driver, Half};
use crate::options::Options;
use crate::verdict::{Asked, changed_nothing};

mod clean;
mod volume;

pub(crate) use volume::{Used, with_mode};

/// The first and the longest pause between two attempts.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// How an answer is lost.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Loss {
    /// The call's deadline passes.
    Deadline(Duration),
    /// The caller goes away with its connection.
    Connection(Duration),
}

/// The ways to lose an answer that every check of lost answers goes through.
pub(crate) const LOSSES: [Loss; 6] = [
    Loss::Deadline(Duration::from_millis(2)),
    Loss::Connection(Duration::from_millis(2)),
    Loss::Deadline(Duration::from_millis(8)),
    Loss::Connection(Duration::from_millis(8)),
    Loss::Deadline(Duration::from_millis(40)),
    Loss::Connection(Duration::from_millis(40)),
];

/// What was seen of all answers, for the checks that are about all of them.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Calls refused without a word.
    pub(crate) without_message: Vec<String>,
    /// Calls refused with details.
    pub(crate) with_details: Vec<String>,
    /// Calls refused with a message that has one of the secrets that were given to the suite.
    pub(crate) with_secret: Vec<String>,
}

/// One check's dealings with the driver.
pub(crate) struct Trial {
    pub(crate) driver: Arc<Driver>,
    pub(crate) options: Arc<Options>,
    pub(crate) seen: Arc<Mutex<Seen>>,
    /// What is part of every name of this check.
    prefix: String,
    number: AtomicUsize,
    owed: Mutex<Vec<Owed>>,
    /// Whether no other call is to be made.
    stopped: AtomicBool,
}

/// What is to be taken away.
#[derive(Clone)]
enum Owed {
    /// Something that may be there.
    Known(Made),
    /// Something that may be there and whose id no answer has told.
    Unknown(Makes, usize),
    /// A folder of this suite.
    Folder(PathBuf),
}

impl Trial {
    pub(crate) fn new(
        driver: Arc<Driver>,
        options: Arc<Options>,
        seen: Arc<Mutex<Seen>>,
        prefix: String,
    ) -> Self {
        let (number, owed) = (AtomicUsize::new(0), Mutex::default());
        Self { driver, options, seen, prefix, number, owed, stopped: AtomicBool::new(false) }
    }

    /// A name that nobody else uses.
    pub(crate) fn name(&self, label: &str) -> String {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        format!("{}-{number}-{label}", self.prefix)
    }

    /// Makes no other call, so that the check ends with the one that runs. A call that was left
    /// alone instead could be served after everything has been taken away.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Makes the call, again and again until its answer is final.
    pub(crate) async fn ask<A: Ask>(&self, request: A) -> Asked<A::Answer> {
        self.ask_at(A::HALF, request).await
    }

    /// The same at a certain socket.
    pub(crate) async fn ask_at<A: Ask>(&self, half: Half, request: A) -> Asked<A::Answer> {
        let begun = Instant::now();
        let mut pause = PAUSE.0;
        loop {
            let asked = self.once_at(half, request.clone()).await;
            if !asked.is_unsettled() || self.is_stopped() || begun.elapsed() > self.options.patience
            {
                return asked;
            }
            tokio::time::sleep(pause).await;
            pause = PAUSE.1.min(pause * 2);
        }
    }

    /// Makes the call once.
    pub(crate) async fn once<A: Ask>(&self, request: A) -> Asked<A::Answer> {
        self.once_at(A::HALF, request).await
    }

    async fn once_at<A: Ask>(&self, half: Half, request: A) -> Asked<A::Answer> {
        let (asked, undoes) = (request.shown(), request.undoes());
        if self.is_stopped() {
            return Asked { asked, answer: Err(Status::cancelled("interrupted")) };
        }
        let owed = self.owe(request.makes());
        let answer = self.send(half, request).await.map_err(|status| self.hide(status, &asked));
        match &answer {
            Ok(answer) => {
                if let Some(owed) = owed {
                    self.learn(&owed, A::id(answer), A::RPC);
                }
                if let Some(gone) = undoes {
                    self.forget(&gone);
                }
            }
            Err(status) => {
                self.look_at(status, &asked);
                if let (Some(owed), true) = (owed, changed_nothing(status.code())) {
                    self.disown(&owed);
                }
            }
        }
        Asked { asked, answer }
    }

    /// Makes the call and loses its answer.
    pub(crate) async fn lose<A: Ask>(&self, request: A, loss: Loss) {
        if self.is_stopped() {
            return;
        }
        self.owe(request.makes());
        let (own, after) = match loss {
            Loss::Deadline(after) => (Ok(self.driver.channel(A::HALF)), after),
            Loss::Connection(after) => (self.driver.another(A::HALF).await, after),
        };
        // A driver that cannot be reached any more will show that at the next call.
        let Ok(channel) = own else { return };
        let limit = match loss {
            Loss::Deadline(after) => after,
            Loss::Connection(_) => self.options.call_limit,
        };
        let _ = tokio::time::timeout(after, request.send(channel, limit)).await;
    }

    async fn send<A: Ask>(&self, half: Half, request: A) -> Result<A::Answer, Status> {
        let limit = self.options.call_limit;
        let call = request.send(self.driver.channel(half), limit);
        tokio::time::timeout(limit + PAUSE.1, call).await.unwrap_or_else(|_| {
            Err(Status::deadline_exceeded(format!("no answer within {limit:?}")))
        })
    }

    /// The status without the secrets that were given to the suite, which must not print them.
    #[expect(clippy::disallowed_methods, reason = "it is the status that came, less a secret")]
    fn hide(&self, status: Status, asked: &str) -> Status {
        let secrets = self.options.secrets.values().filter(|secret| !secret.is_empty());
        let shown: Vec<&String> = secrets.filter(|one| status.message().contains(*one)).collect();
        if shown.is_empty() {
            return status;
        }
        let mut seen = self.seen.lock().expect("nobody panics while holding it");
        seen.with_secret.push(asked.to_owned());
        let hidden = |text: String, secret: &&String| text.replace(secret.as_str(), "<a secret>");
        Status::new(status.code(), shown.iter().fold(status.message().to_owned(), hidden))
    }

    fn look_at(&self, status: &Status, asked: &str) {
        let mut seen = self.seen.lock().expect("nobody panics while holding it");
        // A service that a driver does not have is answered for by its gRPC library.
        let own = status.code() != Code::Unimplemented;
        if own && status.message().trim().is_empty() {
            seen.without_message.push(asked.to_owned());
        }
        if !status.details().is_empty() {
            seen.with_details.push(asked.to_owned());
        }
    }

    /// Notes what a call may make, before it is made.
    fn owe(&self, makes: Makes) -> Option<Owed> {
        let owed = match makes {
            Makes::Nothing => return None,
            Makes::Known(made) => Owed::Known(made),
            unknown => Owed::Unknown(unknown, self.number.fetch_add(1, Ordering::Relaxed)),
        };
        self.owed().push(owed.clone());
        Some(owed)
    }

    /// Notes the id of what a call has made.
    fn learn(&self, owed: &Owed, id: Option<String>, rpc: &str) {
        let (Owed::Unknown(..), Some(id)) = (owed, id) else { return };
        let made = if rpc == "CreateVolume" { Made::Volume(id) } else { Made::Snapshot(id) };
        self.disown(owed);
        self.owed().push(Owed::Known(made));
    }

    /// Takes a call's note back.
    fn disown(&self, gone: &Owed) {
        let mut owed = self.owed();
        let same = |one: &Owed| match (one, gone) {
            (Owed::Known(one), Owed::Known(other)) => one == other,
            (Owed::Unknown(_, one), Owed::Unknown(_, other)) => one == other,
            _ => false,
        };
        if let Some(place) = owed.iter().rposition(same) {
            owed.remove(place);
        }
    }

    /// Strikes off what is gone.
    fn forget(&self, gone: &Made) {
        self.owed().retain(|owed| match (owed, gone) {
            // From all nodes.
            (
                Owed::Known(Made::Attachment { volume, .. }),
                Made::Attachment { volume: other, node },
            ) if node.is_empty() => volume != other,
            (Owed::Known(made), gone) => made != gone,
            _ => true,
        });
    }

    fn owed(&self) -> MutexGuard<'_, Vec<Owed>> {
        self.owed.lock().expect("nobody panics while holding it")
    }
}
