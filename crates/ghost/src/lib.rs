//! ghost: a CSI driver for the disks of a VPS provider.
//!
//! Read the modules in this order: [`error`] and [`volume`] are the words; [`backend`] is what a
//! storage can do; [`controller`] and [`node`] keep CSI's promises over it and over the host;
//! [`operation`] says what may run when, and [`caller`] for whom; [`csi`] is the edge to
//! gRPC; [`kubelet`] makes a node's half known; [`metadata`], [`telemetry`], [`cli`], [`config`] and [`run`] wire it together. `ARCHITECTURE.md` has the whole picture.
#![forbid(unsafe_code)]

pub mod error;
pub mod volume;

pub mod backend;
pub mod controller;
pub mod node;

pub mod caller;
pub mod operation;

pub mod csi;
pub mod kubelet;
pub mod metadata;
pub mod telemetry;

pub mod cli;
pub mod config;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
#[cfg(debug_assertions)]
pub mod mark;
pub mod run;
