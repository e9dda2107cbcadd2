//! The simulator without sockets and disks, under a clock that the test steps.

use std::time::Duration;

use ghost_sim::api::{Api, Config, Delivery, Limits, Outcome};
use ghost_sim::fault::Faults;
use ghost_sim::state::{Cloud, Settings};
use hyper::body::Bytes;
use hyper::{Request, Response};
use jiff::Timestamp;
use serde_json::Value;

pub(crate) const TOKEN: &str = "in-process";

/// An API at a time that only the test moves.
pub(crate) struct InProcess {
    pub(crate) api: Api,
    pub(crate) now: Timestamp,
}

impl InProcess {
    pub(crate) fn new(settings: Settings, limits: Limits) -> Self {
        let config =
            Config { token: TOKEN.to_owned(), limits, latency: Duration::ZERO, scheme: "http" };
        let api = Api::new(Cloud::new(settings, 1), config, Faults::default(), 2);
        Self { api, now: Timestamp::from_second(1_700_000_000).unwrap() }
    }

    pub(crate) fn step(&mut self, time: Duration) {
        self.now += time;
    }

    /// Sends a request with the right token.
    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) -> Response<Bytes> {
        self.send_as(Some(TOKEN), method, path, body)
    }

    /// Sends a request with this token or with none, which has to be answered.
    pub(crate) fn send_as(
        &mut self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: &str,
    ) -> Response<Bytes> {
        match self.exchange(token, method, path, body).delivery {
            Delivery::Answer(answer) => answer,
            Delivery::Closed => panic!("{method} {path} was not answered"),
        }
    }

    pub(crate) fn exchange(
        &mut self,
        token: Option<&str>,
        method: &str,
        path: &str,
        body: &str,
    ) -> Outcome {
        let mut request = Request::builder().method(method).uri(path).header("host", "sim.test");
        if let Some(token) = token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        let request = request.body(Bytes::from(body.to_owned())).unwrap();
        self.api.handle(self.now, &request)
    }

    /// Sends a request that has to succeed; its answer's body, or null without one.
    pub(crate) fn succeed(&mut self, method: &str, path: &str, body: &str) -> Value {
        let answer = self.send(method, path, body);
        assert!(answer.status().is_success(), "{method} {path} {body}: {answer:?}");
        serde_json::from_slice(answer.body()).unwrap_or(Value::Null)
    }

    /// Sends a request that has to be refused; its status and the error's id.
    pub(crate) fn refused(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let answer = self.send(method, path, body);
        assert!(answer.status().as_u16() >= 400, "{method} {path} {body}: {answer:?}");
        let error: Value = serde_json::from_slice(answer.body()).unwrap();
        (answer.status().as_u16(), error["id"].as_str().unwrap().to_owned())
    }

    /// Makes a volume of 1 GiB in ams1; its id.
    pub(crate) fn volume(&mut self, name: &str) -> String {
        let body = format!(r#"{{"name":"{name}","region":"ams1","size_gigabytes":1}}"#);
        let made = self.succeed("POST", "/v2/volumes", &body);
        made["volume"]["id"].as_str().unwrap().to_owned()
    }

    /// Starts an action; it.
    pub(crate) fn act(&mut self, volume: &str, body: &str) -> Value {
        let path = format!("/v2/volumes/{volume}/actions");
        self.succeed("POST", &path, body)["action"].take()
    }
}
