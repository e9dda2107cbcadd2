//! Real connections: how they break, TLS, the token file and large bodies.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::{Value, json};

use crate::program::{Folder, Program, TOKEN, eventually};

/// Sends a request by hand; all that comes back until the far end closes the connection.
fn raw(program: &Program, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(program.authority()).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {TOKEN}\r\n\
         Content-Length: {length}\r\nConnection: close\r\n\r\n{body}",
        program.authority()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    // A reset after the answer would be as good an end as a close.
    let _ended = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn a_dropped_connection_is_closed_without_a_byte_before_or_after_acting() {
    let folder = Folder::new();
    let program = folder.start(&["--no-devices"]);
    for (moment, acted) in [("before", 0), ("after", 1)] {
        let rule = json!([{ "method": "POST", "route": "/v2/volumes", "times": 1,
            "effect": { "drop": moment } }]);
        program.succeed("PUT", "/sim/v1/faults", &rule);
        let body = json!({ "name": moment, "region": "ams1", "size_gigabytes": 1 });
        assert_eq!(raw(&program, "POST /v2/volumes", &body.to_string()), "", "{moment}");
        let path = format!("/v2/volumes?name={moment}");
        assert_eq!(program.succeed("GET", &path, &Value::Null)["meta"]["total"], acted, "{moment}");
    }
    let answer = raw(&program, "GET /v2/account", "");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.to_lowercase().contains("\r\ndate: "), "{answer}");
}

#[test]
fn a_delayed_request_is_acted_on_at_once_even_if_nobody_waits_for_the_answer() {
    let folder = Folder::new();
    let program = folder.start(&["--no-devices"]);
    let rule = json!([{ "method": "POST", "times": 1, "effect": { "delay_ms": 3_600_000 } }]);
    program.succeed("PUT", "/sim/v1/faults", &rule);
    let url = format!("{}/v2/volumes", program.url);
    let body = json!({ "name": "late", "region": "ams1", "size_gigabytes": 1 }).to_string();
    let waiting = std::thread::spawn(move || {
        let client = reqwest::blocking::Client::builder().timeout(Duration::from_secs(2));
        client.build().unwrap().post(url).bearer_auth(TOKEN).body(body).send()
    });
    let there =
        || program.succeed("GET", "/v2/volumes?name=late", &Value::Null)["meta"]["total"] == 1;
    eventually("the volume is there", there);
    assert!(waiting.join().unwrap().is_err_and(|error| error.is_timeout()), "not answered yet");
    assert!(there());
}

#[test]
fn an_answer_waits_for_the_latency_and_the_delay() {
    let folder = Folder::new();
    let program = folder.start(&["--no-devices", "--latency", "20ms"]);
    let begun = std::time::Instant::now();
    program.succeed("GET", "/v2/account", &Value::Null);
    assert!(begun.elapsed() >= Duration::from_millis(20));
    program.succeed("PUT", "/sim/v1/faults", &json!([{ "effect": { "delay_ms": 30 } }]));
    let begun = std::time::Instant::now();
    program.succeed("GET", "/v2/account", &Value::Null);
    assert!(begun.elapsed() >= Duration::from_millis(50));
}

#[test]
fn faults_can_be_there_from_the_start_and_bad_ones_are_refused() {
    let folder = Folder::new();
    let file = folder.path("faults.json");
    let faults = file.to_str().unwrap();
    fs::write(&file, r#"[{"times":1,"effect":{"status":503,"retry_after_s":4}}]"#).unwrap();
    let program = folder.start(&["--no-devices", "--faults", faults]);
    assert_eq!(program.send("GET", "/v2/account", &Value::Null).0, 503);
    assert_eq!(program.send("GET", "/v2/account", &Value::Null).0, 200);
    drop(program);
    fs::write(&file, r#"[{"route":"/v2/volumen","effect":{"status":503}}]"#).unwrap();
    let Err(said) = folder.try_start(&["--no-devices", "--faults", faults]) else {
        panic!("it started")
    };
    assert!(said.contains("/v2/volumen") && said.contains("faults.json"), "{said}");
}

#[test]
fn a_changed_token_file_counts_from_the_next_request_on() {
    let folder = Folder::new();
    let program = folder.start(&["--no-devices"]);
    let with = |token: &str| {
        let url = format!("{}/v2/account", program.url);
        let client = reqwest::blocking::Client::new();
        client.get(url).bearer_auth(token).send().unwrap().status().as_u16()
    };
    assert_eq!((with(TOKEN), with("other")), (200, 401));
    fs::write(folder.path("token"), "other").unwrap();
    assert_eq!((with(TOKEN), with("other")), (401, 200));
    fs::rename(folder.path("token"), folder.path("gone")).unwrap();
    assert_eq!(with("other"), 200, "a token that cannot be read stays what it was");
    fs::write(folder.path("token"), "\n").unwrap();
    assert_eq!((with("other"), with("")), (200, 401), "an empty file is no token");
    drop(program);
    let Err(said) = folder.try_start(&["--no-devices"]) else { panic!("it started") };
    assert!(said.contains("is empty"), "{said}");
}

#[test]
fn a_body_that_is_too_large_is_refused() {
    let folder = Folder::new();
    let program = folder.start(&["--no-devices"]);
    let body = json!({ "name": "x".repeat(1 << 20) });
    let (status, answer) = program.send("POST", "/v2/volumes", &body);
    assert_eq!((status, &answer["id"]), (413, &json!("payload_too_large")));
}

#[test]
fn budgets_are_what_the_command_line_says() {
    let folder = Folder::new();
    let program = folder.start(&["--no-devices", "--requests-per-minute", "3"]);
    let statuses: Vec<u16> =
        (0..4).map(|_| program.send("GET", "/v2/account", &Value::Null).0).collect();
    assert_eq!(statuses, [200, 200, 200, 429]);
}

#[test]
fn over_tls_only_who_trusts_the_certificate_is_answered() {
    let folder = Folder::new();
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, key) = (folder.path("certificate.pem"), folder.path("key.pem"));
    fs::write(&certificate, made.cert.pem()).unwrap();
    fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let (certificate, key) = (certificate.to_str().unwrap(), key.to_str().unwrap());
    let tls = ["--no-devices", "--tls-cert-file", certificate, "--tls-key-file", key];
    let program = folder.start(&tls);
    assert!(program.url.starts_with("https://127.0.0.1:"), "{}", program.url);
    let url = format!("{}/v2/regions?per_page=2", program.url);
    let trusted = reqwest::Certificate::from_pem(made.cert.pem().as_bytes()).unwrap();
    let client = reqwest::blocking::Client::builder().tls_certs_only([trusted]).build().unwrap();
    let answer = client.get(&url).bearer_auth(TOKEN).send().unwrap();
    assert_eq!(answer.status(), 200);
    let body: Value = serde_json::from_slice(&answer.bytes().unwrap()).unwrap();
    let next = body["links"]["pages"]["next"].as_str().unwrap();
    assert!(next.starts_with(&program.url), "links stay on TLS: {next}");
    let stranger = reqwest::blocking::Client::new();
    assert!(stranger.get(&url).bearer_auth(TOKEN).send().is_err(), "the certificate is not known");
    assert_eq!(raw(&program, "GET /v2/account", "").find("HTTP/1.1 200"), None, "no plain HTTP");
    drop(program);
    let Err(said) = folder.try_start(&[&tls[..3], &["--tls-key-file", certificate]].concat())
    else {
        panic!("it started")
    };
    assert!(said.contains("certificate.pem"), "{said}");
}
