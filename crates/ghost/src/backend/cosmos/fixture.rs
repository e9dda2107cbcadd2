//! A client over a cloud that a closure plays, for the tests of this folder.

use async_trait::async_trait;
use reqwest::header::{DATE, HeaderMap, HeaderValue};

use super::client::Client;
use super::exchange::{Exchange, Failure, Request, Response};
use super::token::TokenFile;

/// A client of this cloud, with a budget that no test comes near.
pub(super) fn client<E: Exchange>(cloud: E) -> Client<E> {
    Client::new(cloud, token(), 1000, fastrand::Rng::with_seed(1), Box::new(()))
}

/// A token that any such cloud takes.
pub(super) fn token() -> TokenFile {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "t").expect("written");
    TokenFile::open(token).expect("a token")
}

/// Answers every request by its path.
pub(super) struct Played<F>(pub(super) F);

#[async_trait]
impl<F> Exchange for Played<F>
where
    F: Fn(&str) -> Response + Send + Sync + 'static,
{
    async fn exchange(&self, request: Request) -> std::result::Result<Response, Failure> {
        // As with every real cloud, others have their turn meanwhile.
        tokio::task::yield_now().await;
        Ok(self.0(&request.path))
    }
}

/// An answer with this status and body; with the time of the cloud, if it tells that.
pub(super) fn response(status: u16, date: Option<&str>, body: impl Into<Vec<u8>>) -> Response {
    let mut headers = HeaderMap::new();
    if let Some(date) = date {
        headers.insert(DATE, HeaderValue::from_str(date).expect("a date is ASCII"));
    }
    Response { status, headers, body: body.into() }
}
