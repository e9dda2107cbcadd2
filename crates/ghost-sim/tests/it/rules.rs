//! The rules of the API, on the state without disks and under a stepped clock.

use std::time::Duration;

use ghost_sim::api::{Delivery, Limits};
use ghost_sim::state::{Effect, Settings};
use serde_json::{Value, json};

use crate::in_process::{InProcess, TOKEN};

fn cloud(settings: Settings) -> InProcess {
    InProcess::new(settings, Limits::default())
}

fn attach(droplet: u64) -> String {
    json!({ "type": "attach", "droplet_id": droplet }).to_string()
}

fn detach(droplet: u64) -> String {
    json!({ "type": "detach", "droplet_id": droplet }).to_string()
}

fn actions(volume: &str) -> String {
    format!("/v2/volumes/{volume}/actions")
}

fn droplets_of(cloud: &mut InProcess, volume: &str) -> Value {
    cloud.succeed("GET", &format!("/v2/volumes/{volume}"), "")["volume"]["droplet_ids"].take()
}

#[test]
fn a_new_volume_is_held_to_the_rules() {
    let mut cloud = cloud(Settings { volume_limit: Some(3), ..Settings::default() });
    cloud.volume("taken");
    let mut refused = |change: Value| {
        let mut body = json!({ "name": "new", "region": "ams1", "size_gigabytes": 1 });
        for (key, value) in change.as_object().unwrap() {
            body[key] = value.clone();
        }
        cloud.refused("POST", "/v2/volumes", &body.to_string()).0
    };
    for (change, status) in [
        (json!({ "name": "taken" }), 409),
        (json!({ "name": "Upper" }), 422),
        (json!({ "name": "9first" }), 422),
        (json!({ "name": "a".repeat(65) }), 422),
        (json!({ "name": null }), 422),
        (json!({ "region": "atlantis" }), 422),
        (json!({ "region": null }), 422),
        (json!({ "size_gigabytes": 0 }), 422),
        (json!({ "size_gigabytes": 16385 }), 422),
        (json!({ "size_gigabytes": -1 }), 422),
        (json!({ "size_gigabytes": null }), 422),
        (json!({ "snapshot_id": "absent" }), 404),
        (json!({ "filesystem_type": "ext4" }), 422),
    ] {
        assert_eq!(refused(change.clone()), status, "{change}");
    }
    let elsewhere = r#"{"name":"taken","region":"fra1","size_gigabytes":16384}"#;
    cloud.succeed("POST", "/v2/volumes", elsewhere);
    cloud.volume("third");
    let fourth = r#"{"name":"fourth","region":"ams1","size_gigabytes":1}"#;
    assert_eq!(cloud.refused("POST", "/v2/volumes", fourth), (403, "forbidden".to_owned()));
    assert_eq!(cloud.succeed("GET", "/v2/account", "")["account"]["volume_limit"], 3);
}

#[test]
fn a_full_account_tells_of_a_taken_name_or_of_its_limit_as_it_is_set() {
    for (limit_before_name, status) in [(false, 409), (true, 403)] {
        let settings = Settings { volume_limit: Some(1), limit_before_name, ..Settings::default() };
        let mut cloud = cloud(settings);
        cloud.volume("taken");
        let again = r#"{"name":"taken","region":"ams1","size_gigabytes":1}"#;
        assert_eq!(cloud.refused("POST", "/v2/volumes", again).0, status);
    }
}

#[test]
fn an_account_without_a_limit_shows_none() {
    let mut cloud = cloud(Settings::default());
    assert!(cloud.succeed("GET", "/v2/account", "")["account"].get("volume_limit").is_none());
}

#[test]
fn a_volume_is_on_one_droplet_at_most_and_not_deleted_while_it_is() {
    let mut cloud = cloud(Settings::default());
    let volume = cloud.volume("one");
    let path = format!("/v2/volumes/{volume}");
    assert_eq!(cloud.refused("POST", &actions(&volume), &detach(101)).0, 422);
    assert_eq!(cloud.act(&volume, &attach(101))["status"], "completed");
    assert_eq!(cloud.refused("POST", &actions(&volume), &attach(101)).0, 422);
    assert_eq!(cloud.refused("POST", &actions(&volume), &attach(102)).0, 422);
    assert_eq!(cloud.refused("POST", &actions(&volume), &detach(102)).0, 422);
    assert_eq!(cloud.refused("DELETE", &path, ""), (409, "conflict".to_owned()));
    let by_name = "/v2/volumes?name=one&region=ams1";
    assert_eq!(cloud.refused("DELETE", by_name, ""), (409, "conflict".to_owned()));
    assert_eq!(droplets_of(&mut cloud, &volume), json!([101]));
    let droplet = cloud.succeed("GET", "/v2/droplets/101", "");
    assert_eq!(droplet["droplet"]["volume_ids"], json!([volume]));
    cloud.act(&volume, &detach(101));
    assert_eq!(droplets_of(&mut cloud, &volume), json!([]));
    cloud.succeed("DELETE", &path, "");
    assert_eq!(cloud.refused("GET", &path, ""), (404, "not_found".to_owned()));
    cloud.volume("one");
}

#[test]
fn a_refused_attach_does_not_say_where_the_volume_is() {
    let mut cloud = cloud(Settings::default());
    let volume = cloud.volume("one");
    cloud.act(&volume, &attach(102));
    let answer = cloud.send("POST", &actions(&volume), &attach(101));
    let text = String::from_utf8(answer.body().to_vec()).unwrap();
    let request_id = answer.headers()["x-request-id"].to_str().unwrap();
    assert!(!text.replace(request_id, "").contains("102"), "{text}");
}

#[test]
fn actions_by_name_need_the_region_and_do_not_resize() {
    let mut cloud = cloud(Settings::default());
    cloud.volume("one");
    let path = "/v2/volumes/actions";
    let body = |kind: &str, region: Value| {
        json!({ "type": kind, "droplet_id": 101, "volume_name": "one", "region": region,
            "size_gigabytes": 5 })
        .to_string()
    };
    assert_eq!(cloud.refused("POST", path, &body("attach", Value::Null)).0, 422);
    assert_eq!(cloud.refused("POST", path, &body("attach", json!("fra1"))).0, 404);
    assert_eq!(cloud.refused("POST", path, &body("resize", json!("ams1"))).0, 422);
    assert_eq!(cloud.refused("POST", path, &body("explode", json!("ams1"))).0, 422);
    let done = cloud.succeed("POST", path, &body("attach", json!("ams1")));
    assert_eq!(done["action"]["type"], "attach_volume");
    cloud.succeed("POST", path, &body("detach", json!("ams1")));
}

#[test]
fn a_droplet_takes_seven_volumes_those_on_their_way_included() {
    let mut cloud = cloud(Settings { action_time: Duration::from_secs(5), ..Settings::default() });
    let volumes: Vec<String> = (0..8).map(|number| cloud.volume(&format!("v{number}"))).collect();
    for volume in &volumes[..7] {
        assert_eq!(cloud.act(volume, &attach(101))["status"], "in-progress");
    }
    assert_eq!(cloud.refused("POST", &actions(&volumes[7]), &attach(101)).0, 422);
    cloud.step(Duration::from_secs(5));
    assert_eq!(cloud.refused("POST", &actions(&volumes[7]), &attach(101)).0, 422);
    cloud.act(&volumes[0], &detach(101));
    assert_eq!(cloud.refused("POST", &actions(&volumes[7]), &attach(101)).0, 422, "still there");
    cloud.step(Duration::from_secs(5));
    cloud.act(&volumes[7], &attach(101));
}

#[test]
fn volume_and_droplet_have_to_be_in_one_region() {
    let mut cloud = cloud(Settings::default());
    let body = r#"{"name":"far","region":"fra1","size_gigabytes":1}"#;
    let volume = cloud.succeed("POST", "/v2/volumes", body)["volume"]["id"].clone();
    let volume = volume.as_str().unwrap();
    assert_eq!(cloud.refused("POST", &actions(volume), &attach(101)).0, 422);
    let near = cloud.volume("near");
    let wrong = r#"{"type":"attach","droplet_id":101,"region":"fra1"}"#;
    assert_eq!(cloud.refused("POST", &actions(&near), wrong).0, 422);
}

#[test]
fn a_droplet_that_is_off_takes_volumes_all_the_same() {
    let mut cloud = cloud(Settings::default());
    let volume = cloud.volume("one");
    cloud.succeed("PUT", "/sim/v1/droplets/101", r#"{"status":"off"}"#);
    assert_eq!(cloud.succeed("GET", "/v2/droplets/101", "")["droplet"]["status"], "off");
    cloud.act(&volume, &attach(101));
    cloud.act(&volume, &detach(101));
    cloud.succeed("PUT", "/sim/v1/droplets/101", r#"{"status":"active"}"#);
    assert_eq!(cloud.succeed("GET", "/v2/droplets/101", "")["droplet"]["status"], "active");
    assert_eq!(cloud.refused("PUT", "/sim/v1/droplets/9", r#"{"status":"off"}"#).0, 404);
}

#[test]
fn what_was_made_can_be_said_to_be_older() {
    let mut cloud = cloud(Settings::default());
    let volume = cloud.volume("one");
    let made = cloud.succeed("POST", &format!("/v2/volumes/{volume}/snapshots"), r#"{"name":"s"}"#);
    let snapshot = made["snapshot"]["id"].as_str().unwrap().to_owned();
    let old = r#"{"created_at":"2020-02-02T00:00:00Z"}"#;
    cloud.succeed("PUT", &format!("/sim/v1/volumes/{volume}"), old);
    cloud.succeed("PUT", &format!("/sim/v1/snapshots/{snapshot}"), old);
    let state = cloud.succeed("GET", "/sim/v1/state", "");
    for kind in ["volumes", "snapshots"] {
        assert_eq!(state[kind][0]["created_at"], "2020-02-02T00:00:00Z");
        assert_eq!(cloud.refused("PUT", &format!("/sim/v1/{kind}/absent"), old).0, 404);
    }
    assert_eq!(cloud.refused("PUT", &format!("/sim/v1/volumes/{volume}"), r#"{"age":1}"#).0, 422);
}

#[test]
fn an_action_moves_the_volume_when_its_time_is_over() {
    let mut cloud = cloud(Settings { action_time: Duration::from_secs(10), ..Settings::default() });
    let volume = cloud.volume("one");
    let action = cloud.act(&volume, &attach(101));
    assert_eq!((&action["status"], &action["completed_at"]), (&json!("in-progress"), &Value::Null));
    let path = format!("/v2/actions/{}", action["id"]);
    for refused in [attach(102), detach(101), r#"{"type":"resize","size_gigabytes":2}"#.to_owned()]
    {
        assert_eq!(cloud.refused("POST", &actions(&volume), &refused).0, 422, "{refused}");
    }
    assert_eq!(cloud.refused("DELETE", &format!("/v2/volumes/{volume}"), "").0, 409);
    cloud.step(Duration::from_millis(9_999));
    assert_eq!(cloud.succeed("GET", &path, "")["action"]["status"], "in-progress");
    assert_eq!(droplets_of(&mut cloud, &volume), json!([]));
    cloud.step(Duration::from_millis(1));
    let outcome = cloud.exchange(Some(TOKEN), "GET", &path, "");
    assert!(matches!(&outcome.effects[..], [Effect::Attach(there)] if there.droplet == 101));
    assert_eq!(cloud.succeed("GET", &path, "")["action"]["status"], "completed");
    assert_eq!(droplets_of(&mut cloud, &volume), json!([101]));
    let second = cloud.act(&volume, &detach(101));
    assert!(second["id"].as_u64() > action["id"].as_u64(), "ids grow");
    let all = cloud.succeed("GET", &actions(&volume), "");
    assert_eq!(all["meta"]["total"], 2);
}

#[test]
fn one_event_at_a_time_if_the_cloud_is_like_that() {
    for one_event_per_droplet in [false, true] {
        let action_time = Duration::from_secs(10);
        let settings = Settings { action_time, one_event_per_droplet, ..Settings::default() };
        let mut cloud = cloud(settings);
        let (one, two) = (cloud.volume("one"), cloud.volume("two"));
        cloud.act(&one, &attach(101));
        assert_eq!(cloud.succeed("GET", "/v2/droplets/101", "")["droplet"]["locked"], true);
        let answer = cloud.send("POST", &actions(&two), &attach(101)).status().as_u16();
        assert_eq!(answer, if one_event_per_droplet { 422 } else { 202 });
        if one_event_per_droplet {
            cloud.act(&two, &attach(102));
            cloud.step(action_time);
            cloud.act(&one, &detach(101));
        }
    }
}

#[test]
fn a_volume_only_grows() {
    let mut cloud = cloud(Settings::default());
    let volume = cloud.volume("one");
    let resize = |size: i64| json!({ "type": "resize", "size_gigabytes": size }).to_string();
    cloud.act(&volume, &resize(5));
    for size in [5, 4, 0, -1, 16385] {
        assert_eq!(cloud.refused("POST", &actions(&volume), &resize(size)).0, 422, "{size}");
    }
    assert_eq!(cloud.refused("POST", &actions(&volume), r#"{"type":"resize"}"#).0, 422);
    cloud.act(&volume, &attach(101));
    cloud.act(&volume, &resize(16384));
    let read = cloud.succeed("GET", &format!("/v2/volumes/{volume}"), "");
    assert_eq!(read["volume"]["size_gigabytes"], 16384);
}

#[test]
fn a_snapshot_keeps_its_size_and_outlives_its_volume() {
    let mut cloud = cloud(Settings::default());
    let volume = cloud.volume("one");
    let path = format!("/v2/volumes/{volume}/snapshots");
    let first = cloud.succeed("POST", &path, r#"{"name":"same"}"#)["snapshot"]["id"].clone();
    let second = cloud.succeed("POST", &path, r#"{"name":"same"}"#)["snapshot"]["id"].clone();
    assert_ne!(first, second, "names need not be unique");
    for body in [r#"{"name":""}"#, r#"{"name":" "}"#, "{}"] {
        assert_eq!(cloud.refused("POST", &path, body).0, 422, "{body}");
    }
    cloud.act(&volume, r#"{"type":"resize","size_gigabytes":7}"#);
    cloud.succeed("DELETE", &format!("/v2/volumes/{volume}"), "");
    assert_eq!(cloud.succeed("GET", "/v2/snapshots?resource_type=volume", "")["meta"]["total"], 2);
    assert_eq!(cloud.succeed("GET", "/v2/snapshots?resource_type=droplet", "")["meta"]["total"], 0);
    assert_eq!(cloud.refused("GET", "/v2/snapshots?resource_type=pet", "").0, 422);
    assert_eq!(cloud.refused("GET", &path, "").0, 404);
    let body =
        json!({ "name": "copy", "region": "ams1", "size_gigabytes": 99, "snapshot_id": first });
    let outcome = cloud.exchange(Some(TOKEN), "POST", "/v2/volumes", &body.to_string());
    assert!(matches!(
        &outcome.effects[..],
        [Effect::CreateVolume { gigabytes: 1, source: Some(source), .. }] if first == source.as_str()
    ));
    let far = json!({ "name": "far", "region": "fra1", "size_gigabytes": 1, "snapshot_id": first });
    assert_eq!(cloud.refused("POST", "/v2/volumes", &far.to_string()).0, 422);
}

#[test]
fn a_snapshot_of_a_droplet_is_among_the_others_and_never_a_volumes() {
    let mut cloud = cloud(Settings::default());
    let volume = cloud.volume("one");
    cloud.succeed("POST", &format!("/v2/volumes/{volume}/snapshots"), r#"{"name":"s"}"#);
    let path = "/sim/v1/droplets/101/snapshots";
    let made = cloud.succeed("POST", path, r#"{"name":"backup","tags":["ghost"]}"#);
    let made = &made["snapshot"];
    assert_eq!((&made["resource_type"], &made["resource_id"]), (&json!("droplet"), &json!("101")));
    assert_eq!(cloud.refused("POST", "/sim/v1/droplets/9/snapshots", r#"{"name":"b"}"#).0, 404);
    assert_eq!(cloud.refused("POST", path, "{}").0, 422);
    let of_volume = format!("/v2/volumes/{volume}/snapshots");
    for (list, total) in [
        ("/v2/snapshots", 2),
        ("/v2/snapshots?resource_type=volume", 1),
        ("/v2/snapshots?resource_type=droplet", 1),
        (of_volume.as_str(), 1),
    ] {
        assert_eq!(cloud.succeed("GET", list, "")["meta"]["total"], total, "{list}");
    }
    let id = made["id"].as_str().unwrap();
    let body = json!({ "name": "copy", "region": "ams1", "size_gigabytes": 1, "snapshot_id": id });
    assert_eq!(cloud.refused("POST", "/v2/volumes", &body.to_string()).0, 404);
    // By id it is found, and deleted, where snapshots of everything are; there only.
    for method in ["GET", "DELETE"] {
        let path = format!("/v2/volumes/snapshots/{id}");
        assert_eq!(cloud.refused(method, &path, "").0, 404, "{method}");
    }
    assert_eq!(&cloud.succeed("GET", &format!("/v2/snapshots/{id}"), "")["snapshot"], made);
    cloud.succeed("DELETE", &format!("/v2/snapshots/{id}"), "");
    assert_eq!(cloud.succeed("GET", "/v2/snapshots", "")["meta"]["total"], 1);
}

#[test]
fn snapshots_of_a_volume_pause_if_the_cloud_is_like_that() {
    let pause = Duration::from_secs(600);
    let mut cloud = cloud(Settings { snapshot_pause: pause, ..Settings::default() });
    let (one, two) = (cloud.volume("one"), cloud.volume("two"));
    let path = |volume: &str| format!("/v2/volumes/{volume}/snapshots");
    cloud.succeed("POST", &path(&one), r#"{"name":"a"}"#);
    cloud.succeed("POST", &path(&two), r#"{"name":"a"}"#);
    cloud.step(Duration::from_millis(100_500));
    let answer = cloud.send("POST", &path(&one), r#"{"name":"b"}"#);
    assert_eq!(
        (answer.status().as_u16(), &answer.headers()["retry-after"]),
        (429, &"500".parse().unwrap())
    );
    cloud.step(Duration::from_millis(499_500));
    cloud.succeed("POST", &path(&one), r#"{"name":"b"}"#);
}

#[test]
fn a_snapshot_is_not_ready_at_once_if_the_cloud_is_like_that() {
    let snapshot_ready_after = Duration::from_secs(60);
    let mut cloud = cloud(Settings { snapshot_ready_after, ..Settings::default() });
    let path = format!("/v2/volumes/{}/snapshots", cloud.volume("one"));
    let made = cloud.succeed("POST", &path, r#"{"name":"s"}"#)["snapshot"].take();
    assert_eq!(made["min_disk_size"], 0);
    let (id, one) = (made["id"].clone(), format!("/v2/snapshots/{}", made["id"].as_str().unwrap()));
    let copy = json!({ "name": "copy", "region": "ams1", "size_gigabytes": 1, "snapshot_id": id })
        .to_string();
    cloud.step(Duration::from_secs(59));
    assert_eq!(cloud.refused("POST", "/v2/volumes", &copy).0, 422);
    for (wait, size) in [(0, 0), (1, 1)] {
        cloud.step(Duration::from_secs(wait));
        assert_eq!(cloud.succeed("GET", &one, "")["snapshot"]["min_disk_size"], size);
        assert_eq!(cloud.succeed("GET", &path, "")["snapshots"][0]["min_disk_size"], size);
    }
    cloud.succeed("POST", "/v2/volumes", &copy);
}

#[test]
fn reads_lag_but_names_are_settled_at_once() {
    let lag = Duration::from_secs(3);
    let mut cloud = cloud(Settings { read_lag: lag, ..Settings::default() });
    let volume = cloud.volume("one");
    let total =
        |cloud: &mut InProcess| cloud.succeed("GET", "/v2/volumes", "")["meta"]["total"].take();
    assert_eq!(total(&mut cloud), 0);
    let again = r#"{"name":"one","region":"ams1","size_gigabytes":1}"#;
    assert_eq!(cloud.refused("POST", "/v2/volumes", again).0, 409);
    cloud.step(lag);
    assert_eq!(total(&mut cloud), 1);
    assert_eq!(cloud.act(&volume, &attach(101))["status"], "completed");
    assert_eq!(droplets_of(&mut cloud, &volume), json!([]), "read as it was");
    assert_eq!(cloud.refused("POST", &actions(&volume), &attach(102)).0, 422, "decided as it is");
    let state = cloud.succeed("GET", "/sim/v1/state", "");
    assert_eq!(state["volumes"][0]["droplet_ids"], json!([101]), "the control surface has no lag");
    cloud.step(lag);
    assert_eq!(droplets_of(&mut cloud, &volume), json!([101]));
    cloud.act(&volume, &detach(101));
    cloud.act(&volume, &attach(102));
    assert_eq!(droplets_of(&mut cloud, &volume), json!([101]));
    cloud.step(lag);
    assert_eq!(droplets_of(&mut cloud, &volume), json!([102]));
}

#[test]
fn actions_fail_and_stick_when_told_to_and_leave_the_volume_as_it_was() {
    let mut cloud = cloud(Settings { action_time: Duration::from_secs(1), ..Settings::default() });
    let volume = cloud.volume("one");
    let route = "/v2/volumes/{volume_id}/actions";
    for (kind, body) in
        [("attach", attach(101)), ("resize", r#"{"type":"resize","size_gigabytes":9}"#.to_owned())]
    {
        let rule = json!([{ "method": "POST", "route": route, "times": 1, "effect": { "action": "fail" } }]);
        cloud.succeed("PUT", "/sim/v1/faults", &rule.to_string());
        let path = format!("/v2/actions/{}", cloud.act(&volume, &body)["id"]);
        assert_eq!(cloud.succeed("GET", &path, "")["action"]["status"], "in-progress");
        cloud.step(Duration::from_secs(1));
        let outcome = cloud.exchange(Some(TOKEN), "GET", &path, "");
        assert_eq!(outcome.effects, [], "{kind}");
        assert_eq!(cloud.succeed("GET", &path, "")["action"]["status"], "errored", "{kind}");
    }
    let read = cloud.succeed("GET", &format!("/v2/volumes/{volume}"), "");
    assert_eq!(
        (&read["volume"]["droplet_ids"], &read["volume"]["size_gigabytes"]),
        (&json!([]), &json!(1))
    );

    cloud.succeed("PUT", "/sim/v1/faults", r#"[{"method":"POST","effect":{"action":"stick"}}]"#);
    let path = format!("/v2/actions/{}", cloud.act(&volume, &attach(101))["id"]);
    cloud.step(Duration::from_secs(1_000_000));
    assert_eq!(cloud.succeed("GET", &path, "")["action"]["status"], "in-progress");
    assert_eq!(droplets_of(&mut cloud, &volume), json!([]));
}

#[test]
fn connections_break_before_or_after_acting_and_garbage_is_acted_on() {
    let mut cloud = cloud(Settings::default());
    for (name, effect, acted) in [
        ("before", json!({ "drop": "before" }), false),
        ("after", json!({ "drop": "after" }), true),
        ("garbage", json!({ "body": "garbage" }), true),
        ("status", json!({ "status": 503 }), false),
    ] {
        let rule =
            json!([{ "method": "POST", "route": "/v2/volumes", "times": 1, "effect": effect }]);
        cloud.succeed("PUT", "/sim/v1/faults", &rule.to_string());
        let body = json!({ "name": name, "region": "ams1", "size_gigabytes": 1 }).to_string();
        let outcome = cloud.exchange(Some(TOKEN), "POST", "/v2/volumes", &body);
        assert_eq!(outcome.effects.len(), usize::from(acted), "{name}");
        match outcome.delivery {
            Delivery::Closed => assert!(["before", "after"].contains(&name), "{name}"),
            Delivery::Answer(answer) if name == "garbage" => {
                assert_eq!(answer.status(), 201);
                assert!(serde_json::from_slice::<Value>(answer.body()).is_err());
            }
            Delivery::Answer(answer) => {
                assert_eq!((answer.status().as_u16(), name), (503, "status"));
            }
        }
        let found = cloud.succeed("GET", &format!("/v2/volumes?name={name}"), "");
        assert_eq!(found["meta"]["total"], u64::from(acted), "{name}");
    }
}

#[test]
fn the_budget_of_an_hour_is_told_and_that_of_a_minute_is_not() {
    let limits = Limits { per_hour: 5, per_minute: Some(2) };
    let mut cloud = InProcess::new(Settings::default(), limits);
    let status = |cloud: &mut InProcess| {
        let answer = cloud.send("GET", "/v2/account", "");
        let header =
            |name: &str| answer.headers().get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(header("ratelimit-limit").as_deref(), Some("5"));
        (answer.status().as_u16(), header("ratelimit-remaining").unwrap(), header("retry-after"))
    };
    let told =
        |status, left: &str, wait: Option<&str>| (status, left.to_owned(), wait.map(str::to_owned));
    assert_eq!(status(&mut cloud), told(200, "4", None));
    assert_eq!(status(&mut cloud), told(200, "3", None));
    assert_eq!(status(&mut cloud), told(429, "3", Some("60")), "nothing told of it");
    cloud.step(Duration::from_millis(59_500));
    assert_eq!(status(&mut cloud), told(429, "3", Some("1")), "whole seconds, never too few");
    for left in ["2", "1", "0"] {
        cloud.step(Duration::from_secs(60));
        assert_eq!(status(&mut cloud), told(200, left, None));
    }
    cloud.step(Duration::from_secs(60));
    let (code, left, wait) = status(&mut cloud);
    assert_eq!((code, left.as_str()), (429, "0"));
    cloud.step(Duration::from_secs(wait.unwrap().parse().unwrap()));
    assert_eq!(status(&mut cloud), told(200, "4", None));
    assert_eq!(cloud.send("GET", "/droplets/101/metadata/v1/id", "").status(), 200);
    assert_eq!(status(&mut cloud), told(200, "3", None), "metadata costs nothing");
}

#[test]
fn metadata_and_control_need_no_token() {
    let mut cloud = cloud(Settings { region: "lon1".to_owned(), ..Settings::default() });
    let text = |cloud: &mut InProcess, item: &str| {
        let answer = cloud.send_as(None, "GET", &format!("/droplets/102/metadata/v1/{item}"), "");
        assert_eq!(answer.headers()["content-type"], "text/plain; charset=utf-8");
        String::from_utf8(answer.body().to_vec()).unwrap()
    };
    assert_eq!(text(&mut cloud, "id"), "102");
    assert_eq!(text(&mut cloud, "region"), "lon1");
    assert_eq!(text(&mut cloud, "hostname"), "droplet-102");
    for absent in [
        "/droplets/104/metadata/v1/id",
        "/droplets/x/metadata/v1/id",
        "/droplets/102/metadata/v1/secret",
    ] {
        assert_eq!(cloud.send_as(None, "GET", absent, "").status(), 404, "{absent}");
    }
    assert_eq!(cloud.send_as(None, "GET", "/sim/v1/state", "").status(), 200);
    assert_eq!(cloud.send_as(None, "GET", "/v2/volumes", "").status(), 401);
}

#[test]
fn the_log_counts_requests_by_route_and_not_its_own() {
    let mut cloud = cloud(Settings::default());
    let volume = cloud.volume("one");
    cloud.succeed("GET", &format!("/v2/volumes/{volume}"), "");
    cloud.refused("GET", "/v2/volumes/absent", "");
    cloud.refused("GET", "/nowhere", "");
    cloud.succeed("PUT", "/sim/v1/faults", r#"[{"effect":{"drop":"before"}}]"#);
    cloud.exchange(Some(TOKEN), "GET", "/v2/account", "");
    let log = cloud.succeed("GET", "/sim/v1/requests", "");
    assert_eq!(
        log["counts"],
        json!({
            "POST /v2/volumes": 1, "GET /v2/volumes/{volume_id}": 2, "GET (none)": 1,
            "GET /v2/account": 1,
        })
    );
    let statuses: Vec<&Value> =
        log["requests"].as_array().unwrap().iter().map(|request| &request["status"]).collect();
    assert_eq!(statuses, [&json!(201), &json!(200), &json!(404), &json!(404), &Value::Null]);
    cloud.succeed("DELETE", "/sim/v1/requests", "");
    assert_eq!(
        cloud.succeed("GET", "/sim/v1/requests", ""),
        json!({ "requests": [], "counts": {} })
    );
}

#[test]
fn everything_is_removed_with_what_runs_on_it() {
    let mut cloud = cloud(Settings::default());
    let (one, two) = (cloud.volume("one"), cloud.volume("two"));
    cloud.act(&one, &attach(101));
    cloud.succeed("POST", &format!("/v2/volumes/{one}/snapshots"), r#"{"name":"s"}"#);
    cloud.succeed(
        "PUT",
        "/sim/v1/faults",
        r#"[{"method":"POST","times":1,"effect":{"action":"stick"}}]"#,
    );
    cloud.act(&two, &attach(101));
    let outcome = cloud.exchange(None, "DELETE", "/sim/v1/everything", "");
    assert!(matches!(
        &outcome.effects[..],
        [
            Effect::Detach(_),
            Effect::RemoveVolume { .. },
            Effect::RemoveVolume { .. },
            Effect::RemoveSnapshot { .. }
        ]
    ));
    let state = cloud.succeed("GET", "/sim/v1/state", "");
    for what in ["volumes", "snapshots", "actions"] {
        assert_eq!(state[what], json!([]), "{what}");
    }
    assert_eq!(state["droplets"].as_array().unwrap().len(), 3);
    cloud.volume("one");
}

#[test]
fn a_refused_fault_rule_changes_nothing_and_says_what_is_wrong() {
    let mut cloud = cloud(Settings::default());
    cloud.succeed("PUT", "/sim/v1/faults", r#"[{"effect":{"delay_ms":7}}]"#);
    let before = cloud.succeed("GET", "/sim/v1/faults", "");
    let answer =
        cloud.send("PUT", "/sim/v1/faults", r#"[{"route":"/v2/volume","effect":{"status":500}}]"#);
    assert_eq!(answer.status(), 400);
    assert!(String::from_utf8_lossy(answer.body()).contains("/v2/volume"));
    assert_eq!(cloud.succeed("GET", "/sim/v1/faults", ""), before);
    let outcome = cloud.exchange(Some(TOKEN), "GET", "/v2/account", "");
    assert_eq!(outcome.delay, Duration::from_millis(7));
}

#[test]
fn the_same_seed_and_the_same_requests_give_the_same_answers() {
    let run = || {
        let mut cloud = cloud(Settings::default());
        let volume = cloud.volume("one");
        cloud.act(&volume, &attach(101));
        let answer = cloud.send("GET", "/v2/volumes", "");
        format!("{answer:?}")
    };
    assert_eq!(run(), run());
}
