//! The provider's own client libraries against the simulator: small programs of ours that use them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};
use xtask::command::{output, program, root, target};

use crate::sanity::Numbers;
use crate::setup;

/// The client for Go.
pub(crate) fn godo() -> Result<Numbers> {
    setup::need_programs(&["go"])?;
    let folder = root().join("crates/ghost-sim/tests/foreign/godo");
    let built = target().join("foreign/godo");
    output(
        program("go")
            .current_dir(folder)
            .args(["build", "-mod=readonly", "-o"])
            .arg(&built)
            .arg("."),
    )?;
    check(program(built))
}

/// The client for Python.
pub(crate) fn pydo() -> Result<Numbers> {
    setup::need_programs(&["python3"])?;
    let folder = root().join("crates/ghost-sim/tests/foreign/pydo");
    let venv = target().join("foreign/pydo");
    let pins = fs::read_to_string(folder.join("requirements.txt"))?;
    let stamp = venv.join("pins");
    if fs::read_to_string(&stamp).ok().as_ref() != Some(&pins) {
        output(program("python3").args(["-m", "venv"]).arg(&venv))?;
        let requirements = folder.join("requirements.txt");
        output(program(venv.join("bin/pip")).args(["install", "-q", "-r"]).arg(requirements))?;
        fs::write(stamp, pins)?;
    }
    let mut python = program(venv.join("bin/python"));
    python.arg(folder.join("main.py"));
    check(python)
}

struct Simulator(Child);

impl Drop for Simulator {
    fn drop(&mut self) {
        // It has no devices, so nothing is left when it is killed.
        if self.0.kill().and_then(|()| self.0.wait()).is_err() {
            eprintln!("left behind; run: kill -9 {}", self.0.id());
        }
    }
}

fn check(mut client: Command) -> Result<Numbers> {
    let folder = tempfile::tempdir()?;
    let token = folder.path().join("token");
    fs::write(&token, "token-for-foreign-clients")?;
    let (url, _simulator) = simulator(folder.path(), &token)?;
    let printed = client
        .env("SIM_URL", url)
        .env("SIM_TOKEN", "token-for-foreign-clients")
        .output()
        .context("cannot run the client")?;
    let text = String::from_utf8_lossy(&printed.stdout);
    let last = text.lines().last().unwrap_or_default();
    let mut numbers = last.split(' ').filter_map(|word| word.parse().ok());
    let (Some(passed), Some(failed)) = (numbers.next(), numbers.next()) else {
        bail!("the client did not finish:\n{text}{}", String::from_utf8_lossy(&printed.stderr));
    };
    if failed > 0 {
        println!("{text}");
    } else if passed == 0 || !printed.status.success() {
        bail!("the client disagrees with the simulator:\n{text}");
    }
    Ok(Numbers { passed, failed, skipped: 0 })
}

fn simulator(folder: &Path, token: &Path) -> Result<(String, Simulator)> {
    let mut child = program(target().join("debug/ghost-sim"))
        .args(["serve", "--no-devices", "--action-time", "20ms", "--state-dir"])
        .arg(folder.join("state"))
        .arg("--token-file")
        .arg(token)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let stdout = child.stdout.take().context("its output was asked for")?;
    let simulator = Simulator(child);
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let url = line.trim().strip_prefix("listening on ").context("the simulator did not start")?;
    Ok((url.to_owned(), simulator))
}
