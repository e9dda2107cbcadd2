//! Compiles the files of `proto` without protoc: protox reads it, tonic's generator writes the Rust.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto");
    let descriptors = protox::compile(["proto/csi.proto"], ["proto"])?;
    #[allow(clippy::disallowed_methods, reason = "this is how cargo speaks to build scripts")]
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    std::fs::write(out.join("csi.descriptor"), descriptors.encode_to_vec())?;

    // A message with secrets must not be printable at all: it gets no `Debug`.
    let unprintable = with_secrets(&std::fs::read_to_string("proto/csi.proto")?);
    tonic_prost_build::configure().skip_debug(unprintable).compile_fds(descriptors)?;

    let registration = protox::compile(["proto/registration.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(registration)?;
    Ok(())
}

/// The full names of the messages that have a field marked as a secret.
fn with_secrets(proto: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut message = "";
    for line in proto.lines() {
        if let Some(rest) = line.strip_prefix("message ") {
            message = rest.trim_end_matches(" {");
        }
        if line.contains("(csi_secret) = true") {
            names.push(format!(".csi.v1.{message}"));
        }
    }
    names
}
