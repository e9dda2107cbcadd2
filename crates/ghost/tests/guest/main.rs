//! The node half in a QEMU guest: a kernel and a udev of its own, and disks that the simulated
//! cloud plugs in and out. Needs QEMU and an image of a guest, which is made at the first run and
//! needs root then. Where that cannot be had each test says so, and fails where `CI` is set.
#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_types, reason = "these tests compare the codes that are answered")]
#![allow(clippy::print_stderr, reason = "a test that is left out says so")]

mod health;
mod identity;
mod life;
mod mapper;
mod removal;
mod restart;
mod world;
mod write_protection;
