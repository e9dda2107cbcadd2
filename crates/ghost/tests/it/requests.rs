//! Every request of the driver is one that the API's document describes: seen by a proxy between
//! the driver and the cloud.

use std::sync::{Arc, Mutex};

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use serde_json::Value;
use xtask::volume_life::mounted;

use crate::world::World;

/// The document as the simulator's own tests read it.
#[path = "../../../ghost-sim/tests/it/document.rs"]
#[allow(dead_code, reason = "only the part about requests is needed here")]
mod document;

use document::Document;

#[derive(Clone)]
struct Proxy {
    cloud: String,
    client: reqwest::Client,
    seen: Arc<Mutex<Vec<Seen>>>,
}

#[derive(Debug)]
struct Seen {
    method: String,
    path: String,
    query: Option<String>,
    body: Vec<u8>,
}

async fn forward(State(proxy): State<Proxy>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let body = to_bytes(body, 1 << 20).await.unwrap();
    proxy.seen.lock().unwrap().push(Seen {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        body: body.to_vec(),
    });
    let url = format!("{}{}", proxy.cloud, head.uri);
    let mut sent = proxy.client.request(head.method, url).body(body);
    for name in ["authorization", "content-type"] {
        if let Some(value) = head.headers.get(name) {
            sent = sent.header(name, value);
        }
    }
    let answer = sent.send().await.unwrap();
    let mut response = Response::builder().status(answer.status());
    for (name, value) in answer.headers() {
        if !matches!(name.as_str(), "content-length" | "transfer-encoding" | "connection") {
            response = response.header(name, value);
        }
    }
    response.body(Body::from(answer.bytes().await.unwrap())).unwrap()
}

/// The template of the document that a path is one of. The form of ids is nobody's business.
fn template<'a>(document: &'a [(String, String)], seen: &Seen) -> Option<&'a str> {
    let matches = |template: &str| {
        let (want, have) = (template.split('/'), seen.path.split('/'));
        want.clone().count() == have.clone().count()
            && want.zip(have).all(|(want, have)| want.starts_with('{') || want == have)
    };
    let fitting = document.iter().filter(|(method, path)| *method == seen.method && matches(path));
    // The most exact one: `/v2/volumes/actions` is no volume's id.
    fitting.map(|(_, path)| path.as_str()).min_by_key(|path| path.matches('{').count())
}

/// The operation that the request is, as `METHOD template`, or what is wrong with it.
fn kind_in(document: &Document, seen: &Seen) -> Result<String, String> {
    let operations = document.operations();
    let template = template(&operations, seen).ok_or("the document has no such request")?;
    let known = document.query_parameters(&seen.method, template);
    for pair in seen.query.iter().flat_map(|query| query.split('&')) {
        let name = pair.split('=').next().unwrap();
        if !known.iter().any(|known| known == name) {
            return Err(format!("it has no parameter {name:?}"));
        }
    }
    if !seen.body.is_empty() {
        let body: Value = serde_json::from_slice(&seen.body).map_err(|error| error.to_string())?;
        if let Some(fault) = document.fault_in_request(&seen.method, template, &body) {
            return Err(fault);
        }
    }
    Ok(format!("{} {template}", seen.method))
}

#[test]
fn a_request_that_is_not_in_the_document_does_not_pass() {
    let document = Document::read();
    let seen = |method: &str, path: &str, query: Option<&str>, body: &str| Seen {
        method: method.to_owned(),
        path: path.to_owned(),
        query: query.map(str::to_owned),
        body: body.as_bytes().to_vec(),
    };
    let create = r#"{"name": "a", "size_gigabytes": 1, "region": "ams1"}"#;
    for good in [
        seen("GET", "/v2/volumes", Some("page=1&per_page=200"), ""),
        seen("POST", "/v2/volumes", None, create),
    ] {
        assert!(kind_in(&document, &good).is_ok(), "{good:?}: {:?}", kind_in(&document, &good));
    }
    for bad in [
        seen("GET", "/v2/disks", None, ""),
        seen("PATCH", "/v2/volumes", None, create),
        seen("GET", "/v2/volumes", Some("label=a"), ""),
        seen("POST", "/v2/volumes", None, r#"{"name": "a", "size_gigabytes": "1"}"#),
        seen("POST", "/v2/volumes", None, "{"),
        seen("POST", "/v2/volumes/a/actions", None, r#"{"type": "explode"}"#),
    ] {
        assert!(kind_in(&document, &bad).is_err(), "{bad:?}");
    }
}

#[tokio::test]
async fn every_request_of_the_driver_is_in_the_document() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&["--volume-limit", "3"]).unwrap();
    let proxy = Proxy {
        cloud: world.parts.url().to_owned(),
        client: reqwest::Client::builder().tls_certs_only([]).build().unwrap(),
        seen: Arc::default(),
    };
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let router = axum::Router::new().fallback(forward).with_state(proxy.clone());
    #[expect(clippy::disallowed_methods, reason = "the proxy ends with the test")]
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    world.parts.start_controller_at(&url, &["--cluster-id", "c1"]).unwrap();

    let mut controller = world.controller().await;
    let mut volumes = Vec::new();
    for name in ["pvc-a", "An odd näme / of a claim", "pvc-c"] {
        volumes.push(controller.create(name, 1, mounted("ext4")).await.unwrap());
    }
    // The account is full, which its own numbers explain.
    let status = controller.create("pvc-d", 1, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted, "{status}");
    let volume = &mut volumes[0];
    controller.attach(volume, 101).await.unwrap();
    controller.attach(volume, 102).await.unwrap_err();
    controller.delete(volume).await.unwrap_err();
    controller.grow(volume, 2).await.unwrap();
    controller.detach(volume, 101).await.unwrap();
    controller.attach(&mut volumes[1], 999_999).await.unwrap_err();
    assert_eq!(controller.count().await.unwrap(), 3);
    for volume in &volumes {
        controller.delete(volume).await.unwrap();
    }
    server.abort();

    let document = Document::read();
    let seen = proxy.seen.lock().unwrap();
    let mut kinds = std::collections::BTreeSet::new();
    for request in seen.iter() {
        match kind_in(&document, request) {
            Ok(kind) => kinds.insert(kind),
            Err(fault) => panic!("{fault}: {request:?}"),
        };
    }
    for kind in [
        "GET /v2/volumes",
        "POST /v2/volumes",
        "GET /v2/volumes/{volume_id}",
        "DELETE /v2/volumes/{volume_id}",
        "POST /v2/volumes/{volume_id}/actions",
        "GET /v2/droplets/{droplet_id}",
        "GET /v2/account",
    ] {
        assert!(kinds.contains(kind), "{kind} was never sent; seen were {kinds:?}");
    }
}
