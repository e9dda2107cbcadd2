//! The driver's node half in a guest.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use ghost_qmp::disk::{Bus, Disk};
use tonic::transport::{Channel, Endpoint};

use super::{Guest, quoted, recipe, tail};
use crate::command::{output, program};

impl Guest {
    /// Brings the driver in and starts its node half with these arguments, besides the endpoint.
    /// When one runs already, it is ended first.
    ///
    /// # Errors
    /// When it does not start; it tells its log.
    pub async fn start_node(&mut self, driver: &Path, arguments: &[&str]) -> Result<()> {
        self.bring(driver, "/run/ghost/ghost").await?;
        self.end_node().await?;
        let arguments: Vec<String> = arguments.iter().map(|argument| quoted(argument)).collect();
        // Its log goes through a serial port, so that it is there when the guest is not any more.
        let script = format!(
            "rm -f /run/ghost/csi.sock; setsid /run/ghost/ghost node \
             --endpoint=unix:///run/ghost/csi.sock {} >/dev/ttyS1 2>&1 & echo $! >/run/ghost/pid",
            arguments.join(" ")
        );
        self.succeed(&script).await?;
        let is_up = "socat -u OPEN:/dev/null UNIX-CONNECT:/run/ghost/csi.sock || \
                     ! kill -0 $(cat /run/ghost/pid)";
        self.until(is_up).await?;
        let runs = self.run("kill -0 $(cat /run/ghost/pid)").await?;
        ensure!(runs.code == 0, "the node has ended:\n{}", tail(&self.folder.join("node.log")));
        Ok(())
    }

    /// Ends the node half by SIGKILL, if it runs.
    ///
    /// # Errors
    /// When the guest does not answer.
    pub async fn end_node(&self) -> Result<()> {
        let script = "if [ -f /run/ghost/pid ]; then p=$(cat /run/ghost/pid); \
                      kill -9 $p; while kill -0 $p; do sleep 0.02; done; rm /run/ghost/pid; fi";
        self.succeed(script).await.map(drop)
    }

    /// A channel to the node half.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn node(&self) -> Result<Channel> {
        let address = format!("http://127.0.0.1:{}", self.port(recipe::NODE_PORT)?);
        Endpoint::from_shared(address)?
            .connect()
            .await
            .context("the node in the guest does not answer")
    }

    /// What the node half has logged so far.
    pub fn node_log(&self) -> String {
        fs::read_to_string(self.folder.join("node.log")).unwrap_or_default()
    }

    /// Copies a program of this machine into the guest, unless it is there.
    async fn bring(&mut self, file: &Path, path: &str) -> Result<()> {
        if self.run(&format!("test -x {path}")).await?.code == 0 {
            return Ok(());
        }
        let stripped = self.folder.join("program");
        output(program("strip").arg("-o").arg(&stripped).arg(file))?;
        let bytes = fs::metadata(&stripped)?.len();
        // A disk is made of whole sectors.
        fs::OpenOptions::new().write(true).open(&stripped)?.set_len(bytes.next_multiple_of(512))?;
        let disk = Disk {
            key: "program".to_owned(),
            file: stripped,
            bus: Bus::Virtio,
            name: "program".to_owned(),
            write_protected: true,
        };
        self.plug(&disk).await?;
        self.until("test -b /dev/disk/by-id/virtio-program").await?;
        let copy = format!(
            "head -c {bytes} /dev/disk/by-id/virtio-program >{path}.new && chmod 755 {path}.new \
             && mv {path}.new {path}"
        );
        self.succeed(&copy).await?;
        self.unplug(&disk.key).await
    }
}
