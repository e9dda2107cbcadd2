//! The gRPC edge: protobuf comes in, is decoded once into the words of the domain, and an answer or
//! a status goes out. Nothing is decided here but what a request means.

mod controller;
mod decode;
mod encode;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod identity;
mod node;
mod node_identity;
mod server;
mod status;

pub use controller::ControllerService;
pub use identity::{IdentityService, Plugin};
pub use node::NodeService;
pub use node_identity::NodeIdentity;
pub use server::{Endpoint, Listener, probe, serve};
