//! A QEMU process: how it is started, loaded with a saved state, and ended.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ghost_qmp::Monitor;
use serde_json::json;

use super::image::Image;
use super::{PAUSE, quoted, recipe};
use crate::command::program;
use crate::interrupt;

/// The socket of the monitor that is left to the simulated cloud.
pub(super) const CLOUD_MONITOR: &str = "cloud.qmp";
/// How long QEMU may take for what takes it a second.
const LIMIT: Duration = Duration::from_secs(60);

/// A process of QEMU, and the conversation with it.
#[derive(Debug)]
pub(super) struct Machine {
    process: Child,
    pub(super) monitor: Monitor,
    /// By port of the guest, the port of this machine that leads there.
    ports: BTreeMap<u16, u16>,
}

/// How a machine begins.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Beginning {
    Boot,
    Restore,
}

impl Machine {
    /// Starts a machine that keeps its sockets and logs in this folder.
    ///
    /// # Errors
    /// When QEMU does not start, or the saved state is not loaded; it tells QEMU's words.
    pub(super) async fn start(image: &Image, folder: &Path, beginning: Beginning) -> Result<Self> {
        interrupt::check()?;
        let own = folder.join("own.qmp");
        for socket in [&own, &folder.join(CLOUD_MONITOR)] {
            if socket.exists() {
                fs::remove_file(socket)?;
            }
        }
        let mut command = program(recipe::QEMU);
        command.args(recipe::machine()).arg("-kernel").arg(image.file("vmlinux"));
        command.arg("-initrd").arg(image.file("initrd"));
        let root = image.file("root.raw");
        let root = json!({
            "driver": "raw", "node-name": "root", "read-only": true,
            "file": {"driver": "file", "filename": root.to_string_lossy()},
        });
        command.args(["-blockdev", &root.to_string()]);
        for log in ["console", "node"] {
            let path = folder.join(format!("{log}.log"));
            command.arg("-chardev").arg(format!("file,id={log},path={},append=on", path.display()));
            command.args(["-serial", &format!("chardev:{log}")]);
        }
        for socket in [&own, &folder.join(CLOUD_MONITOR)] {
            command.arg("-qmp").arg(format!("unix:{},server=on,wait=off", socket.display()));
        }
        if beginning == Beginning::Restore {
            let state = quoted(&image.state().to_string_lossy());
            command.args(["-incoming", &format!("exec:cat {state}")]);
        }
        let output = File::create(folder.join("qemu.log"))?;
        let mut process =
            command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output).spawn()?;
        let monitor = match greeting(&mut process, &own).await {
            Ok(monitor) => monitor,
            Err(error) => {
                process.kill()?;
                process.wait()?;
                return Err(error.context(super::tail(&folder.join("qemu.log"))));
            }
        };
        let mut machine = Self { process, monitor, ports: BTreeMap::new() };
        match machine.begin(beginning).await {
            Ok(()) => Ok(machine),
            Err(error) => machine.end().and(Err(error)),
        }
    }

    async fn begin(&mut self, beginning: Beginning) -> Result<()> {
        self.ports = forwarded(&mut self.monitor).await?;
        if beginning == Beginning::Restore {
            let begun = Instant::now();
            while !self.monitor.is_loaded().await? {
                ensure!(begun.elapsed() < LIMIT, "the guest's saved state is not loaded");
                tokio::time::sleep(PAUSE).await;
            }
            self.resume().await?;
        }
        Ok(())
    }

    /// Ends the process, as a power cut ends a machine.
    pub(super) fn end(mut self) -> Result<()> {
        self.process.kill()?;
        self.process.wait()?;
        Ok(())
    }

    /// Whether the process has ended by itself.
    pub(super) fn has_ended(&mut self) -> Result<bool> {
        Ok(self.process.try_wait()?.is_some())
    }

    /// The port of this machine that leads to one of the guest's.
    pub(super) fn port(&self, inside: u16) -> Result<u16> {
        self.ports.get(&inside).copied().with_context(|| format!("port {inside} leads nowhere"))
    }

    /// Has the guest boot again at once.
    pub(super) async fn reset(&mut self) -> Result<()> {
        self.monitor.forget("RESET", |_| true);
        self.monitor.execute("system_reset", json!({})).await?;
        self.monitor.event("RESET", LIMIT, |_| true).await?;
        Ok(())
    }

    /// Stops the processors.
    pub(super) async fn pause(&mut self) -> Result<()> {
        self.monitor.execute("stop", json!({})).await?;
        Ok(())
    }

    /// Lets the processors go on.
    pub(super) async fn resume(&mut self) -> Result<()> {
        self.monitor.execute("cont", json!({})).await?;
        Ok(())
    }

    /// Saves the guest as it is into a file; it does not go on.
    pub(super) async fn save(&mut self, file: &Path) -> Result<()> {
        self.pause().await?;
        let uri = format!("exec:cat >{}", quoted(&file.to_string_lossy()));
        self.monitor.execute("migrate", json!({"uri": uri})).await?;
        let begun = Instant::now();
        loop {
            let state = self.monitor.execute("query-migrate", json!({})).await?;
            match state["status"].as_str() {
                Some("completed") => return Ok(()),
                Some("failed") => bail!("the guest cannot be saved: {state}"),
                _ => ensure!(begun.elapsed() < LIMIT, "the guest is not saved: {state}"),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The conversation with a QEMU that was just started.
async fn greeting(process: &mut Child, socket: &Path) -> Result<Monitor> {
    let begun = Instant::now();
    loop {
        match Monitor::connect(socket, LIMIT).await {
            Err(ghost_qmp::Error::Absent { .. }) if begun.elapsed() < LIMIT => {
                if let Some(status) = process.try_wait()? {
                    bail!("QEMU has ended ({status})");
                }
                tokio::time::sleep(PAUSE).await;
            }
            other => return Ok(other?),
        }
    }
}

/// By port of the guest, the port of this machine that QEMU chose for it.
async fn forwarded(monitor: &mut Monitor) -> Result<BTreeMap<u16, u16>> {
    let answer =
        monitor.execute("human-monitor-command", json!({"command-line": "info usernet"})).await?;
    let ports = parse_forwarded(answer.as_str().unwrap_or_default());
    ensure!(ports.len() == 2, "QEMU does not tell its ports: {answer}");
    Ok(ports)
}

/// Reads lines such as `TCP[HOST_FORWARD]  13       127.0.0.1 39405       10.0.2.15     7     0     0`.
fn parse_forwarded(text: &str) -> BTreeMap<u16, u16> {
    let port = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [kind, _, _, outside, _, inside, ..] = words[..] else { return None };
        kind.contains("HOST_FORWARD").then_some(())?;
        Some((inside.parse().ok()?, outside.parse().ok()?))
    };
    text.lines().filter_map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ports_are_read_from_what_qemu_prints() {
        let text = "Hub -1 (net0):\r\n  Protocol[State]    FD  Source Address  Port   Dest. \
                    Address  Port RecvQ SendQ\r\n  TCP[HOST_FORWARD]  13       127.0.0.1 39405  \
                    10.0.2.15     7     0     0\r\n";
        assert_eq!(parse_forwarded(text), BTreeMap::from([(7, 39405)]));
    }
}
