//! What is left after an end, orderly or not, and what a new start makes of it.

use std::fs;
use std::os::unix::process::ExitStatusExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::program::{Folder, Program, command, eventually, may_use_devices};

fn snapshot(program: &Program, volume: &str) -> String {
    let path = format!("/v2/volumes/{volume}/snapshots");
    let made = program.succeed("POST", &path, &json!({ "name": "kept" }));
    made["snapshot"]["id"].as_str().unwrap().to_owned()
}

fn state(program: &Program) -> Value {
    program.succeed("GET", "/sim/v1/state", &Value::Null)
}

#[test]
fn the_state_outlives_a_kill_and_an_orderly_end() {
    let folder = Folder::new();
    let mut program = folder.start(&["--no-devices"]);
    for number in 0..3 {
        program.volume(&format!("v{number}"));
    }
    let volume = program.volume("attached");
    program.attach(&volume, 102);
    snapshot(&program, &volume);
    program.succeed("PUT", "/sim/v1/droplets/103", &json!({ "status": "off" }));
    let before = state(&program);
    for signal in [Signal::KILL, Signal::INT, Signal::TERM] {
        let ended = program.end(signal);
        let expected = (signal == Signal::KILL).then_some(signal.as_raw());
        assert_eq!((ended.signal(), ended.success()), (expected, expected.is_none()));
        program = folder.start(&["--no-devices"]);
        assert_eq!(state(&program), before, "{signal:?}");
    }
    let ids: Vec<&str> =
        before["volumes"].as_array().unwrap().iter().map(|v| v["id"].as_str().unwrap()).collect();
    assert!(!ids.contains(&program.volume("later").as_str()), "no id is given out twice");
}

#[test]
fn an_action_that_ran_when_the_program_was_killed_ends_after_the_restart() {
    let folder = Folder::new();
    let program = folder.start(&["--no-devices", "--action-time", "100ms"]);
    let volume = program.volume("one");
    let path = format!("/v2/volumes/{volume}/actions");
    program.succeed("POST", &path, &json!({ "type": "attach", "droplet_id": 101 }));
    program.end(Signal::KILL);
    let program = folder.start(&["--no-devices"]);
    eventually("the volume is attached", || program.read(&volume)["droplet_ids"] == json!([101]));
}

#[test]
fn two_programs_do_not_share_a_folder() {
    let folder = Folder::new();
    let _program = folder.start(&["--no-devices"]);
    let Err(said) = folder.try_start(&["--no-devices"]) else { panic!("it started") };
    assert!(said.contains("in use by another simulator"), "{said}");
}

#[test]
fn a_state_that_cannot_be_read_or_does_not_fit_is_refused_and_left_alone() {
    let folder = Folder::new();
    let program = folder.start(&["--no-devices"]);
    let volume = program.volume("one");
    program.attach(&volume, 103);
    drop(program);
    let file = folder.path("state/state.json");
    let good = fs::read(&file).unwrap();
    for arguments in [["--no-devices", "--droplets", "2"], ["--no-devices", "--region", "fra1"]] {
        let Err(said) = folder.try_start(&arguments) else { panic!("it started") };
        assert!(said.contains(&volume) && said.contains("103"), "{said}");
    }
    fs::write(&file, &good[..good.len() / 2]).unwrap();
    let Err(said) = folder.try_start(&["--no-devices"]) else { panic!("it started") };
    assert!(said.contains("state.json"), "{said}");
    assert_eq!(fs::read(&file).unwrap(), good[..good.len() / 2]);
    fs::write(&file, &good).unwrap();
    assert_eq!(folder.start(&["--no-devices"]).read(&volume)["droplet_ids"], json!([103]));
}

#[test]
fn after_a_kill_the_same_device_serves_on_and_after_an_orderly_end_there_is_none() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let mut program = folder.start(&[]);
    let (kept, other) = (program.volume("kept"), program.volume("other"));
    program.attach(&kept, 101);
    program.attach(&other, 102);
    let device = fs::read_link(folder.link(101, "kept")).unwrap();
    fs::write(&device, "written before the kill").unwrap();

    program.end(Signal::KILL);
    assert_eq!(folder.devices().len(), 2, "a kill leaves them");
    // What a kill may leave half done: a device that should not be, a link that leads nowhere,
    // files that nothing knows, a device cut off but not yet detached.
    let stray = folder.volume("stray");
    fs::write(&stray, vec![0; 1 << 20]).unwrap();
    fs::write(folder.path("state/snapshots/stray"), "x").unwrap();
    command("losetup").arg("--find").arg(&stray).status().unwrap();
    std::os::unix::fs::symlink("/dev/null", folder.link(102, "stray")).unwrap();
    fs::remove_file(folder.link(102, "other")).unwrap();
    program = folder.start(&[]);
    assert_eq!(fs::read_link(folder.link(101, "kept")).unwrap(), device, "the same one");
    assert!(fs::metadata(folder.link(102, "other")).is_ok(), "its link is back");
    assert!(fs::symlink_metadata(folder.link(102, "stray")).is_err());
    assert!(!stray.exists() && !folder.path("state/snapshots/stray").exists());
    eventually("only the attached volumes have devices", || folder.devices().len() == 2);

    for signal in [Signal::INT, Signal::TERM] {
        let ended = program.end(signal);
        assert!(ended.success(), "{ended:?}");
        eventually("no device is left", || folder.devices().is_empty());
        assert!(fs::symlink_metadata(folder.link(101, "kept")).is_err(), "no link is left");
        program = folder.start(&[]);
        let content = fs::read(folder.link(101, "kept")).unwrap();
        assert!(content.starts_with(b"written before the kill"));
        assert!(fs::metadata(folder.link(102, "other")).is_ok());
    }
}

#[test]
fn content_is_not_thrown_away_because_the_state_is_missing() {
    if !may_use_devices() {
        return;
    }
    let folder = Folder::new();
    let program = folder.start(&[]);
    let volume = program.volume("precious");
    drop(program);
    fs::rename(folder.path("state/state.json"), folder.path("state.json")).unwrap();
    let Err(said) = folder.try_start(&[]) else { panic!("it started") };
    assert!(said.contains("no state.json"), "{said}");
    assert!(folder.volume(&volume).exists());
    fs::rename(folder.path("state.json"), folder.path("state/state.json")).unwrap();
    fs::rename(folder.volume(&volume), folder.path("away")).unwrap();
    let Err(said) = folder.try_start(&[]) else { panic!("it started") };
    assert!(said.contains(&volume) && said.contains("missing"), "{said}");
    fs::rename(folder.path("away"), folder.volume(&volume)).unwrap();
    folder.start(&[]);
}
