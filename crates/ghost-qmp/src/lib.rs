//! Disks plugged into and out of running QEMU guests, over QEMU's machine protocol (QMP).
//!
//! For development only: the simulated cloud attaches and detaches with it, and the guest tests
//! begin and end their guests. It starts no process and knows no cloud. The principal type is
//! [`Monitor`], a conversation with one QEMU; [`disk`] is what is said there about disks.
#![forbid(unsafe_code)]

mod connection;
pub mod disk;

pub use connection::{Error, Event, Monitor, Result};
