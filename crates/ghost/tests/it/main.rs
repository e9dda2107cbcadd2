//! The real binaries over real sockets, with real loop devices and mounts, against the simulated
//! cloud over HTTP. Needs root; without it each test says so, and fails where `CI` is set.
#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod cases;
mod crash;
mod drops;
mod life;
mod requests;
mod secrets;
mod world;
