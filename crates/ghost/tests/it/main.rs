//! The real binaries over real sockets, with real loop devices and mounts, against the simulated
//! cloud over HTTP. Needs root; without it each test says so, and fails where `CI` is set.
#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_types, reason = "these tests compare the codes that are answered")]
#![allow(clippy::print_stderr, reason = "a test that is left out says so")]

mod calls;
mod capabilities;
mod capacity;
mod cases;
mod catalogue;
mod clones;
mod cloud_cases;
mod crash;
mod disk_cases;
mod drops;
mod every_call;
mod far_end;
mod health;
mod hostile;
mod hung_tool;
mod inputs;
mod life;
mod limits;
mod node_cases;
mod parameters;
mod peer;
mod process;
mod requests;
mod restored;
mod resume;
mod secrets;
mod size_cases;
mod snapshots;
mod snapshots_cut_off;
mod snapshots_ready;
mod world;
mod xen;
