//! The one place of these commands that starts programs.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// What static builds are built for.
const TRIPLE: &str = "x86_64-unknown-linux-gnu";

/// A program that is about to be started in the project's root folder.
pub fn program(name: impl AsRef<OsStr>) -> Command {
    #[expect(clippy::disallowed_methods, reason = "this is the one place that starts programs")]
    let mut command = Command::new(name);
    command.current_dir(root());
    command
}

/// Says what is run, runs it, and fails when it fails.
pub fn run(command: &mut Command) -> Result<()> {
    println!("$ {}", shown(command));
    let status = command.status().with_context(|| format!("cannot run {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", shown(command));
    }
    Ok(())
}

/// Runs it and answers what it printed.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", shown(command)))?;
    if !output.status.success() {
        bail!(
            "{} failed ({}): {}",
            shown(command),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The command as it would be typed, with paths below the project shown from there.
fn shown(command: &Command) -> String {
    let root = format!("{}/", root().display());
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words.map(|word| word.to_string_lossy().replace(&root, "")).collect();
    words.join(" ")
}

/// The project's root folder.
pub fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.parent().expect("this crate is a folder of the project").to_owned()
}

/// The folder that cargo builds into.
pub fn target() -> PathBuf {
    // This program was started from `<target>/<profile>/xtask`.
    std::env::current_exe()
        .ok()
        .and_then(|own| Some(own.parent()?.parent()?.to_owned()))
        .unwrap_or_else(|| root().join("target"))
}

/// A fresh command of the cargo that runs this.
pub fn cargo() -> Command {
    program("cargo")
}

/// Builds the driver and the simulator, showing cargo's own progress.
pub fn build() -> Result<()> {
    run(cargo().args(["build", "--workspace"]))
}

/// Builds the static release programs, each one file that needs no library of its machine, and
/// answers the folder that they are in. Always the whole workspace, so that no crate is built twice
/// with other features.
pub fn build_static() -> Result<PathBuf> {
    let flags = "-C target-feature=+crt-static -C relocation-model=static";
    run(cargo()
        .args(["build", "--release", "--workspace", "--quiet", "--target", TRIPLE])
        .env("RUSTFLAGS", flags))?;
    Ok(target().join(TRIPLE).join("release"))
}
