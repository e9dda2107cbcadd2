//! A far end of the wire that does as it likes: a listener on this machine that reads requests and
//! answers whatever bytes a test wants, which no HTTP library would let it do.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// A request as it came in.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// `GET /v2/volumes?name=a`.
    pub(crate) line: String,
    /// All that stands above the body, as it was sent.
    pub(crate) head: String,
    /// The body.
    pub(crate) body: String,
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// These bytes, and the connection is closed.
    Bytes(String),
    /// These bytes, and then nothing until the far end lets go of all that it holds.
    Stall(String),
    /// These bytes, and then the others for ever.
    Endless(String, &'static str),
    /// These bytes, and then one at a time, each after a moment, for ever.
    Drip(String),
}

/// The far end. It is gone when it is dropped.
pub(crate) struct FarEnd {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    held: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl FarEnd {
    /// One that answers what stands in the first of the two at the moment.
    pub(crate) async fn changing() -> (Arc<Mutex<String>>, Self) {
        let now = Arc::new(Mutex::new(String::new()));
        let answered = now.clone();
        let far_end = Self::start(move |_| Reply::Bytes(answered.lock().unwrap().clone())).await;
        (now, far_end)
    }

    /// Listens, and answers each request with what `reply` says.
    pub(crate) async fn start(reply: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, reply) = (Arc::new(Mutex::new(Vec::new())), Arc::new(reply));
        let (held, released) = watch::channel(true);
        let log = asked.clone();
        #[expect(clippy::disallowed_methods, reason = "the far end ends with the test")]
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (reply, log, released) = (reply.clone(), log.clone(), released.clone());
                connections.spawn(async move {
                    // Whoever asks may hang up at any moment; that is not this end's affair.
                    let _ = serve(stream, &*reply, &log, released).await;
                });
            }
        });
        Self { url, asked, held, task }
    }

    /// What was asked so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// How many requests began with these words.
    pub(crate) fn count(&self, words: &str) -> usize {
        self.asked().iter().filter(|asked| asked.line.starts_with(words)).count()
    }

    /// Closes every connection that is held, and holds none from now on.
    pub(crate) fn let_go(&self) {
        self.held.send_replace(false);
    }
}

impl Drop for FarEnd {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    reply: &(dyn Fn(&Asked) -> Reply + Send + Sync),
    log: &Mutex<Vec<Asked>>,
    mut held: watch::Receiver<bool>,
) -> std::io::Result<()> {
    let Some(asked) = read(&mut stream).await? else { return Ok(()) };
    log.lock().unwrap().push(asked.clone());
    match reply(&asked) {
        Reply::Bytes(bytes) => stream.write_all(bytes.as_bytes()).await?,
        Reply::Stall(bytes) => {
            stream.write_all(bytes.as_bytes()).await?;
            let _ = held.wait_for(|held| !held).await;
        }
        Reply::Endless(bytes, rest) => {
            stream.write_all(bytes.as_bytes()).await?;
            loop {
                stream.write_all(rest.as_bytes()).await?;
            }
        }
        Reply::Drip(bytes) => {
            stream.write_all(bytes.as_bytes()).await?;
            loop {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                stream.write_all(b" ").await?;
            }
        }
    }
    stream.shutdown().await
}

/// Reads one request, or nothing if there is none.
async fn read(stream: &mut TcpStream) -> std::io::Result<Option<Asked>> {
    let mut bytes = Vec::new();
    let head_end = loop {
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&bytes[..head_end]).into_owned();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>().unwrap())
    });
    while bytes.len() < head_end + length.unwrap_or(0) {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    }
    let line = head.lines().next().unwrap_or_default();
    Ok(Some(Asked {
        line: line.trim_end_matches(" HTTP/1.1").to_owned(),
        body: String::from_utf8_lossy(&bytes[head_end..]).into_owned(),
        head,
    }))
}

/// A JSON answer of this status.
pub(crate) fn json(status: u16, body: &str) -> String {
    answer(status, "application/json", body)
}

/// An answer of this status and kind of content, given at noon of the year's first day, which then
/// closes the connection.
pub(crate) fn answer(status: u16, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status} Told\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\
         date: Thu, 01 Jan 2026 12:00:00 GMT\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// A success with this body.
pub(crate) fn ok(body: &Value) -> String {
    json(200, &body.to_string())
}
