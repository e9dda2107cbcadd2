//! The processes of a playground: waited for until they answer, and ended.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How long a part may take to answer after its start.
const START_LIMIT: Duration = Duration::from_secs(20);

/// Waits until a part listens at its socket; not any longer when it has ended.
pub(super) fn listens(child: &mut Child, socket: &Path) -> bool {
    let begun = Instant::now();
    while std::os::unix::net::UnixStream::connect(socket).is_err() {
        let ended = child.try_wait().is_ok_and(|ended| ended.is_some());
        if ended || begun.elapsed() > START_LIMIT {
            return false;
        }
        thread::sleep(Duration::from_millis(2));
    }
    true
}

pub(super) fn kill(mut child: Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

pub(super) fn death(mut child: Child) -> Result<Option<i32>> {
    let begun = Instant::now();
    while begun.elapsed() < START_LIMIT {
        if let Some(status) = child.try_wait()? {
            return Ok(status.signal());
        }
        thread::sleep(Duration::from_millis(2));
    }
    kill(child)?;
    bail!("the process did not end by itself")
}

pub(super) fn stop(child: &mut Child, left: &mut Vec<String>) {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    if child.try_wait().is_ok_and(|ended| ended.is_some()) {
        return;
    }
    let told = pid.is_some_and(|pid| kill_process(pid, Signal::TERM).is_ok());
    let begun = Instant::now();
    while told && begun.elapsed() < START_LIMIT {
        if child.try_wait().is_ok_and(|ended| ended.is_some()) {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
    if child.kill().and_then(|()| child.wait()).is_err() {
        left.push(format!("kill -9 {}", child.id()));
    }
}
