//! The only place that starts a process: a tool of the host, with nothing of this process's
//! environment but `PATH`, in the C locale, and with what it says kept to a bound.
//!
//! A device is handed to a tool as its standard input and named [`STDIN`]. So the tool acts on the
//! device that was opened and checked, whatever its node or its links have come to lead to.
//! Nothing here is killed when its caller goes away: a `mkfs` cut short is worse than a late one.
//! The principal type is [`Command`].

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use crate::error::{Error, Result};

/// The name under which a tool finds the device that is its standard input. It is not
/// `/dev/stdin`, since not every device folder has that link.
pub(crate) const STDIN: &str = "/proc/self/fd/0";

/// Where tools are looked for when this process has no `PATH`.
const DEFAULT_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// How much of each stream is kept, in bytes: the tail, since tools name the cause last.
const KEPT_BYTES: usize = 16 * 1024;

/// How many lines of that go into an error.
const LINES_IN_ERROR: usize = 12;

/// A tool that is to be run.
#[derive(Debug)]
pub(crate) struct Command {
    program: &'static str,
    arguments: Vec<OsString>,
    stdin: Option<OwnedFd>,
    limit: Option<Duration>,
}

/// How a tool ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With this exit status.
    Exited(i32),
    /// By this signal.
    Signalled(i32),
    /// It was told to end after its time limit.
    TimedOut(Duration),
}

/// What a tool left behind.
#[derive(Debug)]
pub(crate) struct Outcome {
    program: &'static str,
    /// How it ended.
    pub(crate) ending: Ending,
    /// The last of its standard output.
    pub(crate) stdout: String,
    /// The last of its standard error.
    pub(crate) stderr: String,
}

impl Command {
    /// The tool of that name on `PATH`.
    pub(crate) fn new(program: &'static str) -> Self {
        Self { program, arguments: Vec::new(), stdin: None, limit: None }
    }

    /// Adds an argument.
    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds several arguments.
    pub(crate) fn arguments(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(OsString::from));
        self
    }

    /// Makes this open file the tool's standard input, which is otherwise empty.
    pub(crate) fn stdin(mut self, file: OwnedFd) -> Self {
        self.stdin = Some(file);
        self
    }

    /// Ends the tool after this time. Only for a tool that changes nothing.
    pub(crate) fn limit(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Runs the tool to its end. Fails only when it cannot be started or listened to; how it ended
    /// is the caller's to judge.
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the one place, and PATH is no setting of the program but of its tools"
    )]
    pub(crate) async fn run(self) -> Result<Outcome> {
        let Self { program, arguments, stdin, limit } = self;
        let shown = format!("{arguments:?}");
        let search = std::env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.into());
        let mut child = tokio::process::Command::new(program)
            .args(arguments)
            .env_clear()
            .env("PATH", search)
            .env("LC_ALL", "C")
            .stdin(stdin.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| match source.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                    Error::NoCommand { program: program.to_owned(), source }
                }
                _ => Error::io("start", program)(source),
            })?;
        // With its number, so that one that never ends can be looked at.
        tracing::debug!(program, arguments = shown, pid = child.id(), "run a tool of the host");
        let stdout = child.stdout.take().expect("standard output was piped above");
        let stderr = child.stderr.take().expect("standard error was piped above");
        let finish = async {
            let (stdout, stderr) = tokio::try_join!(tail(stdout), tail(stderr))?;
            Ok::<_, io::Error>((child.wait().await?, stdout, stderr))
        };
        let ended = match limit {
            None => finish.await,
            Some(limit) => match tokio::time::timeout(limit, finish).await {
                Ok(ended) => ended,
                Err(_) => {
                    // It is not waited for: a tool that hangs in the kernel on a dead disk cannot
                    // even be killed. The runtime collects it whenever it ends.
                    drop(child.start_kill());
                    let (stdout, stderr) = (String::new(), String::new());
                    return Ok(Outcome {
                        program,
                        ending: Ending::TimedOut(limit),
                        stdout,
                        stderr,
                    });
                }
            },
        };
        let (status, stdout, stderr) = ended.map_err(Error::io("listen to", program))?;
        let ending = match (status.code(), status.signal()) {
            (Some(code), _) => Ending::Exited(code),
            (None, signal) => Ending::Signalled(signal.unwrap_or_default()),
        };
        Ok(Outcome { program, ending, stdout, stderr })
    }

    /// Runs the tool and takes any ending but exit status 0 as a failure.
    pub(crate) async fn succeed(self) -> Result<Outcome> {
        self.run().await?.success()
    }
}

impl Outcome {
    /// Any ending but exit status 0 is a failure.
    pub(crate) fn success(self) -> Result<Self> {
        match self.ending {
            Ending::Exited(0) => Ok(self),
            _ => Err(self.into_error()),
        }
    }

    /// The failure that this ending is.
    pub(crate) fn into_error(self) -> Error {
        Error::Command {
            program: self.program.to_owned(),
            status: match self.ending {
                Ending::Exited(code) => format!("exit status {code}"),
                Ending::Signalled(signal) => format!("signal {signal}"),
                Ending::TimedOut(limit) => {
                    format!("ended after its time limit of {} s", limit.as_secs())
                }
            },
            output: self.last_words(),
        }
    }

    /// The last lines of what it said on both streams, in one line.
    pub(crate) fn last_words(&self) -> String {
        let lines: Vec<&str> = self
            .stdout
            .lines()
            .chain(self.stderr.lines())
            .map(str::trim)
            .filter(|line| !line.is_empty())
            .collect();
        match lines.len() {
            0 => "it said nothing".to_owned(),
            count => lines[count.saturating_sub(LINES_IN_ERROR)..].join("; "),
        }
    }
}

/// Reads a stream to its end and keeps the last of it.
async fn tail(mut stream: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut kept = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer).await? {
            0 => return Ok(String::from_utf8_lossy(&kept).into_owned()),
            count => kept.extend_from_slice(&buffer[..count]),
        }
        if kept.len() > 2 * KEPT_BYTES {
            kept.drain(..kept.len() - KEPT_BYTES);
        }
    }
}

#[cfg(test)]
impl Outcome {
    /// An ending made up for a test.
    pub(crate) fn made_up(program: &'static str, ending: Ending, stdout: &str) -> Self {
        Self { program, ending, stdout: stdout.to_owned(), stderr: String::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        Command::new("sh").argument("-c").argument(script)
    }

    #[tokio::test]
    async fn a_missing_tool_is_named() {
        let error = Command::new("no-such-tool-of-any-host").run().await.unwrap_err();
        assert!(
            matches!(&error, Error::NoCommand { program, .. } if program == "no-such-tool-of-any-host")
        );
    }

    #[tokio::test]
    async fn exit_status_and_signal_are_told_apart() {
        assert_eq!(shell("exit 8").run().await.unwrap().ending, Ending::Exited(8));
        assert_eq!(shell("kill -9 $$").run().await.unwrap().ending, Ending::Signalled(9));
        let error = shell("echo one; echo two >&2; exit 3").succeed().await.unwrap_err();
        assert_eq!(error.to_string(), "sh failed (exit status 3): one; two");
    }

    #[tokio::test]
    async fn the_time_limit_ends_even_a_tool_that_ignores_requests() {
        let limit = Duration::from_millis(50);
        let script = "trap '' TERM INT; while :; do sleep 1; done";
        let outcome = shell(script).limit(limit).run().await.unwrap();
        assert_eq!(outcome.ending, Ending::TimedOut(limit));
    }

    #[tokio::test]
    async fn the_environment_is_bare_and_the_input_empty() {
        let outcome = shell("cat; env | cut -d= -f1 | grep -vE '^(PWD|SHLVL|_|OLDPWD)$' | sort")
            .succeed()
            .await
            .unwrap();
        assert_eq!(outcome.stdout, "LC_ALL\nPATH\n");
    }

    #[tokio::test]
    async fn much_output_is_read_to_its_end_and_only_its_tail_is_kept() {
        let outcome = shell("seq 200000; echo the end").succeed().await.unwrap();
        assert!(outcome.stdout.len() <= 2 * KEPT_BYTES);
        assert!(outcome.stdout.ends_with("200000\nthe end\n"));
        assert!(outcome.last_words().ends_with("200000; the end"));
    }
}
