//! `kubectl ghost orphans`: the real program, the real driver's volumes and snapshots, the simulated
//! cloud over HTTP, and an API server that speaks lists.
#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![allow(clippy::disallowed_types, reason = "these tests compare the codes that are answered")]

mod account;
mod answers;
mod api_server;
mod lists;
mod look_alikes;
mod output;
mod tls;
mod world;
