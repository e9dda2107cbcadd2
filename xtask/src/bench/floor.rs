//! The floors that figures are held against: the bare work that they cannot do without.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use xtask::playground::Playground;

/// A bare connection to the cloud: requests written and responses read, and nothing else.
pub(crate) struct Http {
    stream: BufReader<TcpStream>,
    token: String,
}

impl Http {
    pub(crate) fn connect(world: &Playground) -> Result<Self> {
        let address =
            world.url().strip_prefix("http://").context("the simulator speaks plain http")?;
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), token: world.token().to_owned() })
    }

    /// Sends one request and reads the whole response; answers its body.
    pub(crate) fn exchange(&mut self, method: &str, path: &str, body: &str) -> Result<String> {
        write!(
            self.stream.get_mut(),
            "{method} {path} HTTP/1.1\r\nhost: cloud\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        )?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let good = line.starts_with("HTTP/1.1 2");
        let mut length = 0;
        loop {
            let mut header = String::new();
            self.stream.read_line(&mut header)?;
            if header.trim().is_empty() {
                break;
            }
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        let text = String::from_utf8(bytes)?;
        if good { Ok(text) } else { bail!("{method} {path}: {line}{text}") }
    }
}

/// The system calls of a publication: a folder made, a bind mount, and the same taken away, of
/// which only the first half counts.
pub(crate) fn bind(source: &Path, target: &Path) -> Result<Duration> {
    let begun = Instant::now();
    std::fs::create_dir(target)?;
    mount_bind(source, target)?;
    let took = begun.elapsed();
    unmount(target, UnmountFlags::empty())?;
    std::fs::remove_dir(target)?;
    Ok(took)
}
