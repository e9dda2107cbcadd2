//! Every answer of every operation, held to the API's document.

use std::collections::HashSet;

use ghost_sim::api::Limits;
use ghost_sim::state::{Effect, Settings};
use serde_json::{Value, json};

use crate::document::Document;
use crate::in_process::{InProcess, TOKEN};

const ABSENT: &str = "00000000-0000-4000-8000-00000000dead";

/// An operation of the document with a request for it that succeeds.
struct Sample {
    method: &'static str,
    template: &'static str,
    path: String,
    body: String,
}

/// A cloud with something of everything, and a request for each operation; those that delete
/// come last.
fn samples() -> (InProcess, Vec<Sample>) {
    let mut cloud = InProcess::new(Settings::default(), Limits::default());
    let volume = cloud.volume("one");
    cloud.volume("to-delete-by-name");
    let to_delete = cloud.volume("to-delete");
    let action = cloud.act(&volume, r#"{"type":"attach","droplet_id":101}"#)["id"].clone();
    let mut snapshot = || {
        let path = format!("/v2/volumes/{volume}/snapshots");
        let made = cloud.succeed("POST", &path, r#"{"name":"same","tags":["a"]}"#);
        made["snapshot"]["id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (snapshot(), snapshot());
    let sample = |method, template: &'static str, body: Value| {
        let path = template
            .replace("{volume_id}", &volume)
            .replace("{snapshot_id}", &first)
            .replace("{action_id}", &action.to_string())
            .replace("{droplet_id}", "101");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        Sample { method, template, path, body }
    };
    let at = |path: String, sample: Sample| Sample { path, ..sample };
    let new = json!({
        "name": "new", "size_gigabytes": 10, "region": "ams1", "description": "text", "tags": ["t"],
    });
    let detach = json!({ "type": "detach", "droplet_id": 101 });
    let by_name = json!({
        "type": "attach", "droplet_id": 102, "volume_name": "to-delete-by-name", "region": "ams1",
    });
    let samples = vec![
        sample("GET", "/v2/volumes", Value::Null),
        sample("POST", "/v2/volumes", new),
        sample("GET", "/v2/volumes/{volume_id}", Value::Null),
        sample("GET", "/v2/volumes/{volume_id}/actions", Value::Null),
        sample("GET", "/v2/volumes/{volume_id}/actions/{action_id}", Value::Null),
        sample("GET", "/v2/actions/{action_id}", Value::Null),
        sample("GET", "/v2/droplets", Value::Null),
        sample("GET", "/v2/droplets/{droplet_id}", Value::Null),
        sample("POST", "/v2/volumes/{volume_id}/actions", detach),
        sample("POST", "/v2/volumes/actions", by_name.clone()),
        at(
            "/v2/volumes/actions".to_owned(),
            sample("POST", "/v2/volumes/actions", {
                let mut detach = by_name;
                detach["type"] = json!("detach");
                detach
            }),
        ),
        sample("POST", "/v2/volumes/{volume_id}/snapshots", json!({ "name": "same" })),
        sample("GET", "/v2/volumes/{volume_id}/snapshots", Value::Null),
        sample("GET", "/v2/volumes/snapshots/{snapshot_id}", Value::Null),
        sample("GET", "/v2/snapshots", Value::Null),
        sample("GET", "/v2/snapshots/{snapshot_id}", Value::Null),
        sample("GET", "/v2/account", Value::Null),
        sample("GET", "/v2/regions", Value::Null),
        sample("DELETE", "/v2/snapshots/{snapshot_id}", Value::Null),
        at(
            format!("/v2/volumes/snapshots/{second}"),
            sample("DELETE", "/v2/volumes/snapshots/{snapshot_id}", Value::Null),
        ),
        at(
            "/v2/volumes?name=to-delete-by-name&region=ams1".to_owned(),
            sample("DELETE", "/v2/volumes", Value::Null),
        ),
        at(
            format!("/v2/volumes/{to_delete}"),
            sample("DELETE", "/v2/volumes/{volume_id}", Value::Null),
        ),
    ];
    (cloud, samples)
}

#[test]
fn every_operation_of_the_document_succeeds_as_it_says() {
    let document = Document::read();
    let (mut cloud, samples) = samples();
    let mut tried = HashSet::new();
    for Sample { method, template, path, body } in samples {
        if !body.is_empty() {
            let body = serde_json::from_str(&body).unwrap();
            assert_eq!(document.fault_in_request(method, template, &body), None, "{template}");
        }
        let answer = cloud.send(method, &path, &body);
        assert!(answer.status().is_success(), "{method} {path}: {answer:?}");
        assert_eq!(document.fault_in(method, template, &answer), None, "{method} {template}");
        tried.insert((method.to_owned(), template.to_owned()));
    }
    for operation in document.operations() {
        assert!(tried.contains(&operation), "{operation:?} was not tried");
    }
}

#[test]
fn every_operation_fails_as_the_document_says() {
    let document = Document::read();
    let count = samples().1.len();
    for position in 0..count {
        let spent = Limits { per_hour: 0, per_minute: None };
        let (_, mut all) = samples();
        let Sample { method, template, path, body } = all.swap_remove(position);
        let check = |name: &str, status: u16, answer: &hyper::Response<hyper::body::Bytes>| {
            assert_eq!(answer.status(), status, "{name}: {method} {path}: {answer:?}");
            let fault = document.fault_in(method, template, answer);
            assert_eq!(fault, None, "{name}: {method} {template}");
            let error: Value = serde_json::from_slice(answer.body()).unwrap();
            assert_eq!(error["request_id"], answer.headers()["x-request-id"].to_str().unwrap());
        };
        let (mut cloud, _) = samples();
        check("no token", 401, &cloud.send_as(None, method, &path, &body));
        check("a wrong token", 401, &cloud.send_as(Some("wrong"), method, &path, &body));
        check("an empty token", 401, &cloud.send_as(Some(""), method, &path, &body));

        let mut poor = InProcess::new(Settings::default(), spent);
        let answer = poor.send(method, &path, &body);
        check("a spent budget", 429, &answer);
        assert!(answer.headers().contains_key("retry-after"));

        for status in [400_u16, 403, 404, 429, 500, 502, 503] {
            let rule = json!([{ "method": method, "route": template, "times": 1,
                "effect": { "status": status, "retry_after_s": 7 } }]);
            cloud.succeed("PUT", "/sim/v1/faults", &rule.to_string());
            let answer = cloud.send(method, &path, &body);
            check("a fault", status, &answer);
            assert_eq!(answer.headers()["retry-after"], "7");
        }
        let answer = cloud.send("PATCH", &path, &body);
        check("a wrong method", 405, &answer);
        assert!(answer.headers()["allow"].to_str().unwrap().contains(method));
    }
}

#[test]
fn what_is_unknown_is_not_found_in_the_words_of_the_document() {
    let document = Document::read();
    let (mut cloud, samples) = samples();
    let volume = samples[2].path.rsplit('/').next().unwrap().to_owned();
    let new =
        format!(r#"{{"name":"x","size_gigabytes":1,"region":"ams1","snapshot_id":"{ABSENT}"}}"#);
    let mut tried = HashSet::new();
    let mut check = |method: &str, template: &str, path: &str, body: &str| {
        let answer = cloud.send(method, path, body);
        assert_eq!(answer.status(), 404, "{method} {path}: {answer:?}");
        assert_eq!(document.fault_in(method, template, &answer), None, "{method} {template}");
        let error: Value = serde_json::from_slice(answer.body()).unwrap();
        assert_eq!(error["id"], "not_found");
        tried.insert((method.to_owned(), template.to_owned()));
    };
    check("POST", "/v2/volumes", "/v2/volumes", &new);
    check("DELETE", "/v2/volumes", "/v2/volumes?name=absent&region=ams1", "");
    check("DELETE", "/v2/volumes", "/v2/volumes?name=one&region=fra1", "");
    let by_name = r#"{"type":"attach","droplet_id":101,"volume_name":"absent","region":"ams1"}"#;
    check("POST", "/v2/volumes/actions", "/v2/volumes/actions", by_name);
    let actions = "/v2/volumes/{volume_id}/actions";
    let attach = |droplet: &str| format!(r#"{{"type":"attach","droplet_id":{droplet}}}"#);
    check("POST", actions, &actions.replace("{volume_id}", ABSENT), &attach("101"));
    for droplet in ["104", "100", "0", "-1"] {
        check("POST", actions, &actions.replace("{volume_id}", &volume), &attach(droplet));
    }
    let detach = r#"{"type":"detach","droplet_id":999}"#;
    check("POST", actions, &actions.replace("{volume_id}", &volume), detach);
    for (method, template) in [
        ("GET", "/v2/volumes/{volume_id}"),
        ("DELETE", "/v2/volumes/{volume_id}"),
        ("GET", "/v2/volumes/{volume_id}/actions"),
        ("GET", "/v2/volumes/{volume_id}/actions/{action_id}"),
        ("GET", "/v2/volumes/{volume_id}/snapshots"),
        ("GET", "/v2/volumes/snapshots/{snapshot_id}"),
        ("DELETE", "/v2/volumes/snapshots/{snapshot_id}"),
        ("GET", "/v2/snapshots/{snapshot_id}"),
        ("DELETE", "/v2/snapshots/{snapshot_id}"),
        ("GET", "/v2/droplets/{droplet_id}"),
        ("GET", "/v2/actions/{action_id}"),
    ] {
        for absent in [ABSENT, "7", "%2E%2E%2Fx", "99999999999999999999999"] {
            let path = ["{volume_id}", "{snapshot_id}", "{droplet_id}", "{action_id}"]
                .iter()
                .fold(template.to_owned(), |path, variable| path.replace(variable, absent));
            check(method, template, &path, "");
        }
    }
    check(
        "POST",
        "/v2/volumes/{volume_id}/snapshots",
        &format!("/v2/volumes/{ABSENT}/snapshots"),
        r#"{"name":"s"}"#,
    );
    check(
        "GET",
        "/v2/volumes/{volume_id}/actions/{action_id}",
        &format!("/v2/volumes/{volume}/actions/1"),
        "",
    );
    for (method, path) in document.operations() {
        let named = document.names(&method, &path, 404);
        let done = tried.contains(&(method.clone(), path.clone()));
        assert!(!named || done, "{method} {path} was not tried");
    }
    let answer = cloud.send("GET", "/v2/nothing", "");
    assert_eq!(answer.status(), 404);
    assert!(answer.headers().contains_key("ratelimit-remaining"));
}

#[test]
fn objects_have_all_the_properties_of_the_document_and_no_others() {
    let document = Document::read();
    let (mut cloud, samples) = samples();
    let path = |position: usize| samples[position].path.clone();
    let keys = |value: &Value| {
        let mut keys: Vec<String> = value.as_object().unwrap().keys().cloned().collect();
        keys.sort();
        keys
    };
    let volume = cloud.succeed("GET", &path(2), "");
    assert_eq!(keys(&volume["volume"]), document.properties("volume_full"));
    let action = cloud.succeed("GET", &path(5), "");
    assert_eq!(keys(&action["action"]), document.properties("volumeAction"));
    let snapshot = cloud.succeed("GET", &path(15), "");
    assert_eq!(keys(&snapshot["snapshot"]), document.properties("snapshots"));
    let droplet = cloud.succeed("GET", &path(7), "");
    let optional = ["disk_info", "gpu_info"];
    let mut expected = document.properties("droplet");
    expected.retain(|name| !optional.contains(&name.as_str()));
    assert_eq!(keys(&droplet["droplet"]), expected);
    assert_eq!(keys(&volume["volume"]["region"]), document.properties("region"));
}

#[test]
fn forty_five_volumes_come_in_pages_of_twenty() {
    let document = Document::read();
    let mut cloud = InProcess::new(Settings::default(), Limits::default());
    let made: Vec<String> = (0..45).map(|number| cloud.volume(&format!("v-{number}"))).collect();
    let mut path = "/v2/volumes?region=ams1".to_owned();
    let (mut sizes, mut listed) = (Vec::new(), Vec::new());
    loop {
        let answer = cloud.send("GET", &path, "");
        assert_eq!(document.fault_in("GET", "/v2/volumes", &answer), None);
        let page: Value = serde_json::from_slice(answer.body()).unwrap();
        let volumes = page["volumes"].as_array().unwrap();
        assert_eq!(page["meta"]["total"], 45);
        sizes.push(volumes.len());
        listed.extend(volumes.iter().map(|volume| volume["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["links"]["pages"]["next"].as_str() else { break };
        path = next.strip_prefix("http://sim.test").expect("an absolute URL").to_owned();
        assert!(path.contains("region=ams1"), "the filter is kept: {path}");
    }
    assert_eq!(sizes, [20, 20, 5]);
    assert_eq!(listed, made, "each once, in the order of their creation");
    let one = cloud.succeed("GET", "/v2/volumes?name=v-7", "");
    assert_eq!(one["volumes"][0]["id"], made[7].as_str());
    assert_eq!(one["meta"]["total"], 1);
    assert_eq!(cloud.succeed("GET", "/v2/volumes?region=fra1", "")["meta"]["total"], 0);
    assert_eq!(cloud.refused("GET", "/v2/volumes?per_page=none", "").0, 422);
}

#[test]
fn a_body_that_cannot_be_read_is_a_bad_request_and_one_of_another_shape_unprocessable() {
    let (mut cloud, samples) = samples();
    for sample in samples.iter().filter(|sample| sample.method == "POST") {
        for broken in ["", "{", "{\"name\":", "nonsense", "{\"type\":\"attach\",}"] {
            let refused = cloud.refused("POST", &sample.path, broken);
            assert_eq!(refused, (400, "bad_request".to_owned()), "{} {broken}", sample.path);
        }
        for other in ["null", "3", r#"{"name":5,"type":5}"#, r#"{"name":["x"],"type":{}}"#] {
            let refused = cloud.refused("POST", &sample.path, other);
            let expected = (422, "unprocessable_entity".to_owned());
            assert_eq!(refused, expected, "{} {other}", sample.path);
        }
    }
}

#[test]
fn a_failed_disk_takes_the_request_back_and_answers_500() {
    let document = Document::read();
    let mut cloud = InProcess::new(Settings::default(), Limits::default());
    let before = cloud.api.cloud().clone();
    let body = r#"{"name":"x","region":"ams1","size_gigabytes":1}"#;
    let outcome = cloud.exchange(Some(TOKEN), "POST", "/v2/volumes", body);
    assert!(matches!(outcome.effects[..], [Effect::CreateVolume { gigabytes: 1, .. }]));
    let outcome = cloud.api.take_back(before, outcome, "no space");
    let ghost_sim::api::Delivery::Answer(answer) = outcome.delivery else { panic!("no answer") };
    assert_eq!(answer.status(), 500);
    assert_eq!(document.fault_in("POST", "/v2/volumes", &answer), None);
    assert_eq!(cloud.succeed("GET", "/v2/volumes", "")["meta"]["total"], 0);
    let log = cloud.succeed("GET", "/sim/v1/requests", "");
    assert_eq!(log["requests"][0]["status"], 500);
}
