//! Conformance checks for any driver of the Container Storage Interface.
//!
//! The suite is given the sockets of a driver, asks it what it claims, and checks what the
//! specification demands of a driver with these claims: above all what csi-sanity does not ask,
//! such as lost answers, lists that change while they are read, names that look alike, and calls
//! that run at once. It knows the protocol and nothing of any driver.
//!
//! [`Driver::connect`] finds out whom it is about; [`run`] makes the checks that apply, one after
//! the other, and says of each what became of it. A check takes away what it made, whether it went
//! well or not. The suite has no opinion on speed, and does not judge what only an orchestrator
//! can see.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_types, reason = "this crate judges codes, which is its purpose")]

mod ask;
mod check;
mod driver;
mod list;
mod mounts;
mod options;
mod suite;
mod trial;
mod verdict;

pub use check::{Check, checks};
pub use driver::Driver;
pub use options::{Access, Options};
pub use suite::{Outcome, Report, Result, run};
pub use verdict::Failure;
