//! One conversation with one QEMU: commands, their answers, and the events in between.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::time::{Instant, timeout_at};

/// How long QEMU may take for an answer. It answers at once unless it is stuck, or waits for its
/// own disk.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// Events that nobody asked about are kept up to this number; older ones are forgotten.
const EVENTS_KEPT: usize = 256;

/// What can go wrong in a conversation.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nobody listens at the socket: there is no QEMU, or it has ended.
    #[error("no QEMU listens at {}: {error}", .socket.display())]
    Absent {
        /// The socket.
        socket: PathBuf,
        /// Why it cannot be connected to.
        error: io::Error,
    },
    /// The conversation broke off: QEMU has ended, or has another conversation instead.
    #[error("QEMU at {} broke off: {error}", .socket.display())]
    BrokenOff {
        /// The socket.
        socket: PathBuf,
        /// What was seen.
        error: io::Error,
    },
    /// What was waited for did not come.
    #[error("QEMU at {} gave no {awaited} within {} s", .socket.display(), .limit.as_secs())]
    Silent {
        /// The socket.
        socket: PathBuf,
        /// What was waited for.
        awaited: String,
        /// For how long.
        limit: Duration,
    },
    /// QEMU said no.
    #[error("QEMU refuses {command}: {description} ({class})")]
    Refused {
        /// The command.
        command: String,
        /// The kind of refusal, such as `DeviceNotFound`.
        class: String,
        /// QEMU's words.
        description: String,
    },
}

/// The answer of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Something that happened in a QEMU, told by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// What happened, such as `DEVICE_DELETED`.
    pub name: String,
    /// The details.
    pub data: Value,
}

/// A conversation with one QEMU, which has only one at a time at each of its sockets.
///
/// One that was cut off in the middle, by a limit or by dropping a future, must not be used again:
/// a late answer is skipped, but whether its command was carried out is not known.
#[derive(Debug)]
pub struct Monitor {
    socket: PathBuf,
    reader: BufReader<OwnedReadHalf>,
    writer: OwnedWriteHalf,
    /// What has been read of a line that is not complete yet.
    line: Vec<u8>,
    events: VecDeque<Event>,
    last_command: u64,
}

impl Monitor {
    /// Connects to the socket and begins the conversation.
    ///
    /// # Errors
    /// `Absent` when nobody listens there; `Silent` when QEMU does not greet within `limit`, as one
    /// that is in another conversation at this socket does not.
    pub async fn connect(socket: &Path, limit: Duration) -> Result<Self> {
        let absent = |error| Error::Absent { socket: socket.to_owned(), error };
        let (reader, writer) = UnixStream::connect(socket).await.map_err(absent)?.into_split();
        let mut monitor = Self {
            socket: socket.to_owned(),
            reader: BufReader::new(reader),
            writer,
            line: Vec::new(),
            events: VecDeque::new(),
            last_command: 0,
        };
        monitor.message(Instant::now() + limit, "greeting", limit).await?;
        monitor.execute("qmp_capabilities", json!({})).await?;
        Ok(monitor)
    }

    /// Has QEMU carry out a command and answers what it returns.
    ///
    /// # Errors
    /// `Refused` when QEMU says no; otherwise the conversation is over.
    pub async fn execute(&mut self, command: &str, arguments: Value) -> Result<Value> {
        self.last_command += 1;
        let id = self.last_command;
        let mut line = json!({"execute": command, "arguments": arguments, "id": id}).to_string();
        line.push('\n');
        let sent = self.writer.write_all(line.as_bytes()).await;
        sent.map_err(|error| self.broken_off(error))?;
        let deadline = Instant::now() + ANSWER_LIMIT;
        loop {
            let mut answer = self.message(deadline, command, ANSWER_LIMIT).await?;
            if let Some(event) = event(&answer) {
                self.keep(event);
            } else if answer.get("id") == Some(&json!(id)) {
                let Some(error) = answer.get("error") else {
                    return Ok(answer.remove("return").unwrap_or_default());
                };
                let text = |key: &str| error[key].as_str().unwrap_or_default().to_owned();
                return Err(Error::Refused {
                    command: command.to_owned(),
                    class: text("class"),
                    description: text("desc"),
                });
            }
        }
    }

    /// Waits for an event, or takes it if it came earlier.
    ///
    /// # Errors
    /// `Silent` when it has not come within `limit`; the conversation can go on then. Otherwise the
    /// conversation is over.
    pub async fn event(
        &mut self,
        name: &str,
        limit: Duration,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<Event> {
        let fits = |event: &Event| event.name == name && is_wanted(&event.data);
        if let Some(at) = self.events.iter().position(&fits) {
            return Ok(self.events.remove(at).expect("it was found there"));
        }
        let deadline = Instant::now() + limit;
        loop {
            let message = self.message(deadline, name, limit).await?;
            match event(&message) {
                Some(event) if fits(&event) => return Ok(event),
                Some(event) => self.keep(event),
                None => {}
            }
        }
    }

    /// Takes the events that came so far and that nobody waited for.
    pub fn take_events(&mut self) -> Vec<Event> {
        self.events.drain(..).collect()
    }

    /// Forgets events that came earlier, so that a later [`Self::event`] means what comes from now.
    pub fn forget(&mut self, name: &str, is_meant: impl Fn(&Value) -> bool) {
        self.events.retain(|event| event.name != name || !is_meant(&event.data));
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() == EVENTS_KEPT {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// The next line that QEMU writes. What was read of one that is not complete stays for later.
    async fn message(
        &mut self,
        deadline: Instant,
        awaited: &str,
        limit: Duration,
    ) -> Result<Map<String, Value>> {
        let read = timeout_at(deadline, self.reader.read_until(b'\n', &mut self.line)).await;
        match read {
            Err(_) => Err(Error::Silent {
                socket: self.socket.clone(),
                awaited: awaited.to_owned(),
                limit,
            }),
            Ok(Err(error)) => Err(self.broken_off(error)),
            Ok(Ok(_)) if self.line.last() != Some(&b'\n') => {
                Err(self.broken_off(io::ErrorKind::UnexpectedEof.into()))
            }
            Ok(Ok(_)) => {
                let line = std::mem::take(&mut self.line);
                serde_json::from_slice(&line).map_err(|error| self.broken_off(error.into()))
            }
        }
    }

    fn broken_off(&self, error: io::Error) -> Error {
        Error::BrokenOff { socket: self.socket.clone(), error }
    }
}

fn event(message: &Map<String, Value>) -> Option<Event> {
    let name = message.get("event")?.as_str()?.to_owned();
    Some(Event { name, data: message.get("data").cloned().unwrap_or_default() })
}
