//! The Container Storage Interface, version 1.13.0: message types, clients and service traits.
//!
//! Everything here is generated from `proto/csi.proto`, which states the wire format in our own
//! words; `tests/wire.rs` compares it with the published table row by row. The meaning of the
//! calls is in the [specification](https://github.com/container-storage-interface/spec).
//!
//! Messages that carry secrets have no `Debug`, so that no log can print one by accident.
#![forbid(unsafe_code)]
#![allow(clippy::all, reason = "generated code")]

tonic::include_proto!("csi.v1");

/// The API by which a plugin makes itself known to the kubelet, from `proto/registration.proto`.
pub mod registration {
    tonic::include_proto!("pluginregistration");
}

/// A moment, as messages have it.
pub use prost_types::Timestamp;

/// The compiled description of the protocol, as a serialized `FileDescriptorSet`.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/csi.descriptor"));
