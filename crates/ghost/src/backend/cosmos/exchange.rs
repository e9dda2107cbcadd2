//! One exchange with the cloud: a request goes out, a response or a failure comes back.
//!
//! Everything above this seam can run without sockets; below it is HTTP, done by reqwest. Nothing
//! is repeated here, because whether a request may be sent again depends on what it does.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use jiff::Timestamp;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderValue};
use reqwest::{Certificate, Method};
use secrecy::{ExposeSecret, SecretString};
use url::Url;

use crate::error::{Error, Result};

/// How long a connection may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);
/// How long a whole exchange may take. The slowest answer of such an API takes a few seconds.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(30);
/// The largest answer that is read, in bytes; a page of 200 volumes has some 200 KiB.
const ANSWER_LIMIT: usize = 16 << 20;

/// A request to the cloud.
#[derive(Debug)]
pub struct Request {
    /// Its method.
    pub method: Method,
    /// Its path, encoded, with the query behind it: `/v2/volumes?page=1`.
    pub path: String,
    /// Its JSON, if it has a body.
    pub body: Option<Vec<u8>>,
    /// The bearer token.
    pub token: SecretString,
}

/// The cloud's response, whatever its status.
#[derive(Debug)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, read whole.
    pub body: Vec<u8>,
}

impl Response {
    /// The cloud's own time when it answered, if it tells.
    #[must_use]
    pub fn date(&self) -> Option<Timestamp> {
        let text = self.headers.get(DATE)?.to_str().ok()?;
        jiff::fmt::rfc2822::parse(text).ok().map(|date| date.timestamp())
    }
}

/// Why there is no response.
#[derive(Debug)]
pub enum Failure {
    /// The request did not leave: nothing has changed.
    NotSent(String),
    /// It left, and no whole response came: what it did is not known.
    NoAnswer(String),
}

/// The way to the cloud.
#[async_trait]
pub trait Exchange: Send + Sync + 'static {
    /// Sends the request and reads the whole response.
    async fn exchange(&self, request: Request) -> std::result::Result<Response, Failure>;
}

/// The way over HTTP.
#[derive(Debug)]
pub struct Http {
    client: reqwest::Client,
    base: Url,
}

impl Http {
    /// A client for the API at `base`, trusting the certificates in `ca_file`, or those of the
    /// system without one.
    ///
    /// # Errors
    /// `Invalid` when the URL is not `https`, or `http` to a loopback address, or when there is no
    /// usable certificate.
    pub fn new(base: Url, ca_file: Option<&Path>) -> Result<Self> {
        check_base(&base)?;
        let mut builder = reqwest::Client::builder()
            .user_agent(concat!("ghost/", env!("CARGO_PKG_VERSION")))
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT_LIMIT)
            .timeout(EXCHANGE_LIMIT);
        if base.scheme() == "http" {
            // Nothing is trusted, nothing is loaded: the system's certificates are not needed.
            builder = builder.tls_certs_only([]).no_proxy();
        } else if let Some(path) = ca_file {
            builder = builder.tls_certs_only(read_certificates(path)?);
        }
        let client = builder.build().map_err(|error| {
            Error::invalid(
                "cannot set up TLS; is there a CA bundle on this system, or a --cosmos-ca-file?",
            )
            .with_source(error)
        })?;
        Ok(Self { client, base })
    }

    fn url(&self, path: &str) -> std::result::Result<Url, Failure> {
        let text = format!("{}{path}", self.base.as_str().trim_end_matches('/'));
        Url::parse(&text).map_err(|error| Failure::NotSent(format!("{text:?}: {error}")))
    }
}

fn check_base(base: &Url) -> Result<()> {
    let loopback = match base.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    if !base.username().is_empty() || base.password().is_some() {
        return Err(Error::invalid("the cosmos URL must not hold a user name or a password"));
    }
    match base.scheme() {
        "https" if base.host().is_some() => Ok(()),
        "http" if loopback => Ok(()),
        "http" => Err(Error::invalid(format!(
            "the cosmos URL {base} is plain http, which would show the token to the network; use \
             https (http is for loopback addresses only)"
        ))),
        scheme => Err(Error::invalid(format!(
            "the cosmos URL {base} has the scheme {scheme:?}; expected https://HOST"
        ))),
    }
}

fn read_certificates(path: &Path) -> Result<Vec<Certificate>> {
    let unusable = || format!("the CA file {} is not usable", path.display());
    let pem = std::fs::read(path).map_err(|e| Error::invalid(unusable()).with_source(e))?;
    let certificates = Certificate::from_pem_bundle(&pem)
        .map_err(|e| Error::invalid(unusable()).with_source(e))?;
    if certificates.is_empty() {
        return Err(Error::invalid(format!("{}: it holds no PEM certificate", unusable())));
    }
    Ok(certificates)
}

#[async_trait]
impl Exchange for Http {
    async fn exchange(&self, request: Request) -> std::result::Result<Response, Failure> {
        let url = self.url(&request.path)?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {}", request.token.expose_secret()))
            .map_err(|_| Failure::NotSent("the token cannot be sent in a header".to_owned()))?;
        bearer.set_sensitive(true);
        let mut builder = self.client.request(request.method, url).header(AUTHORIZATION, bearer);
        if let Some(body) = request.body {
            builder = builder.header(CONTENT_TYPE, "application/json").body(body);
        }
        let mut response = builder.send().await.map_err(failure)?;
        let status = response.status().as_u16();
        let headers = std::mem::take(response.headers_mut());
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failure)? {
            if body.len() + chunk.len() > ANSWER_LIMIT {
                return Err(Failure::NoAnswer(format!("more than {ANSWER_LIMIT} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        conceal(&mut body, request.token.expose_secret());
        Ok(Response { status, headers, body })
    }
}

/// Overwrites the token where a body repeats it, as one does that tells a request's headers: parts of
/// bodies end up in errors and logs.
fn conceal(body: &mut [u8], token: &str) {
    let token = token.as_bytes();
    let mut at = 0;
    while !token.is_empty() && at + token.len() <= body.len() {
        if body[at..].starts_with(token) {
            body[at..at + token.len()].fill(b'*');
        }
        at += 1;
    }
}

fn failure(error: reqwest::Error) -> Failure {
    let not_sent = error.is_connect() || error.is_builder();
    let text = chain(&error.without_url());
    if not_sent { Failure::NotSent(text) } else { Failure::NoAnswer(text) }
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;

    /// What comes of an exchange with a cloud that reads the request and then does as it likes.
    async fn exchanged<F>(
        cloud: impl FnOnce(TcpStream) -> F,
    ) -> std::result::Result<Response, Failure>
    where
        F: Future<Output = ()>,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        let http = Http::new(Url::parse(&url).expect("a URL"), None).expect("a client");
        let request = Request {
            method: Method::POST,
            path: "/v2/volumes".to_owned(),
            body: Some(b"{}".to_vec()),
            token: "a-token".to_owned().into(),
        };
        let served = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut read = [0; 4096];
            assert!(stream.read(&mut read).await.expect("a request") > 0);
            cloud(stream).await;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            outcome = http.exchange(request) => outcome,
            () = served => unreachable!("it never ends"),
        }
    }

    const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";

    /// Nothing happens any more, and the clock jumps to the next limit.
    async fn nothing() {
        tokio::time::pause();
        std::future::pending::<()>().await;
    }

    #[tokio::test]
    async fn b50_a_cloud_that_does_not_answer_or_stops_half_way_is_not_waited_for_for_ever() {
        for sent in [&b""[..], b"HTTP/1.1 2", HEAD] {
            let begun = tokio::time::Instant::now();
            let stalled = exchanged(|mut stream| async move {
                stream.write_all(sent).await.expect("sent");
                nothing().await;
            });
            assert!(matches!(stalled.await, Err(Failure::NoAnswer(_))));
            assert!(begun.elapsed() >= EXCHANGE_LIMIT, "it is the limit that ends it");
            tokio::time::resume();
        }
        // One byte now and then is no answer either.
        let dripping = exchanged(|mut stream| async move {
            stream.write_all(HEAD).await.expect("sent");
            stream.write_all(b"content-length: 100000\r\n\r\n").await.expect("sent");
            tokio::time::pause();
            while stream.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        assert!(matches!(dripping.await, Err(Failure::NoAnswer(_))));
    }

    #[tokio::test]
    async fn an_answer_that_is_cut_or_too_long_is_none() {
        let cut = exchanged(|mut stream| async move {
            stream.write_all(HEAD).await.expect("sent");
            stream.write_all(b"content-length: 100\r\n\r\n{}").await.expect("sent");
        });
        assert!(matches!(cut.await, Err(Failure::NoAnswer(_))));
        let endless = exchanged(|mut stream| async move {
            stream.write_all(HEAD).await.expect("sent");
            stream.write_all(b"\r\n").await.expect("sent");
            while stream.write_all(&[b' '; 1 << 16]).await.is_ok() {}
        });
        let Err(Failure::NoAnswer(reason)) = endless.await else { panic!("it was read whole") };
        assert_eq!(reason, "more than 16777216 bytes");
    }

    #[test]
    fn b45_a_token_in_an_answer_is_overwritten() {
        let concealed = |body: &str, token: &str| {
            let mut body = body.as_bytes().to_vec();
            conceal(&mut body, token);
            String::from_utf8(body).expect("text")
        };
        assert_eq!(concealed("Bearer abc, abc and abcabc", "abc"), "Bearer ***, *** and ******");
        assert_eq!(concealed("ab", "abc"), "ab");
        assert_eq!(concealed("abc", ""), "abc");
    }

    #[test]
    fn plain_http_is_refused_unless_it_stays_on_this_machine() {
        for (url, accepted) in [
            ("https://api.example.org", true),
            ("https://api.example.org/prefix/", true),
            ("http://127.0.0.1:8080", true),
            ("http://[::1]:8080", true),
            ("http://localhost:8080", true),
            ("http://api.example.org", false),
            ("http://10.0.0.1", false),
            ("http://localhost.example.org", false),
            ("https://user:pass@api.example.org", false),
            ("ftp://127.0.0.1", false),
            ("unix:///run/x", false),
        ] {
            let checked = check_base(&Url::parse(url).expect("a URL"));
            assert_eq!(checked.is_ok(), accepted, "{url}: {checked:?}");
        }
    }
}
