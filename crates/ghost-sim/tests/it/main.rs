//! The simulator held to the API's document and to its rules, in-process and as a real program
//! with real sockets, files and loop devices.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answers;
mod connection;
mod device;
mod document;
mod guest;
mod in_process;
mod metadata;
mod program;
mod restart;
mod rules;
