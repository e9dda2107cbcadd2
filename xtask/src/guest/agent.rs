//! Commands in a guest: each connection to its agent is a shell, which is given a script.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// What a script came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code.
    pub code: i32,
    /// What it wrote to its output and its error output.
    pub output: Vec<u8>,
}

impl Outcome {
    /// What it wrote, as text without the blanks at its ends.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).trim().to_owned()
    }
}

/// Runs a script by the agent behind this port of this machine.
///
/// # Errors
/// When the agent does not answer, or the script has not ended in time.
pub(super) async fn run(port: u16, script: &str, limit: Duration) -> Result<Outcome> {
    timeout(limit, converse(port, script))
        .await
        .with_context(|| format!("the guest has not ended this within {limit:?}: {script}"))?
        .with_context(|| format!("the guest's agent broke off at: {script}"))
}

async fn converse(port: u16, script: &str) -> Result<Outcome> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    // The last line tells the exit code; nothing else that is written ends like it.
    let framed = format!("exec 2>&1; (\n{script}\n) </dev/null; printf '\\n\\0%d\\n' $?; exit\n");
    stream.write_all(framed.as_bytes()).await?;
    let mut output = Vec::new();
    stream.read_to_end(&mut output).await?;
    let Some(at) = output.windows(2).rposition(|bytes| bytes == b"\n\0") else {
        bail!("no exit code came");
    };
    let code = std::str::from_utf8(&output[at + 2..])?.trim().parse()?;
    output.truncate(at);
    Ok(Outcome { code, output })
}
