//! What is said of guests on the command line. The guests themselves are tested with the driver's
//! node half in them, by the guest tests of the crate `ghost`.

use serde_json::json;

use crate::program::Folder;

fn said(arguments: &[&str]) -> String {
    let folder = Folder::new();
    let Err(said) = folder.try_start(arguments) else { panic!("{arguments:?}: it started") };
    said
}

#[test]
fn a_guest_that_makes_no_sense_is_refused_with_the_reason() {
    let table: [(&[&str], &str); 8] = [
        (&["--devices", "qmp"], "--qmp"),
        (&["--qmp", "101=/run/a"], "--devices qmp"),
        (&["--no-devices", "--devices", "qmp", "--qmp", "101=/run/a"], "cannot be used with"),
        (&["--devices", "qmp", "--qmp", "/run/a"], "101=/run/guest/monitor"),
        (&["--devices", "qmp", "--qmp", "101=/run/a,bus=ide"], "\"ide\" is no bus"),
        (&["--devices", "qmp", "--qmp", "101=/run/a,readonly"], "\"readonly\" is no setting"),
        (&["--devices", "qmp", "--qmp", "99=/run/a"], "droplet 99, which is none"),
        (&["--devices", "qmp", "--qmp", "101=/run/a", "--qmp", "101=/run/b"], "two guests"),
    ];
    for (arguments, wanted) in table {
        let said = said(arguments);
        assert!(said.contains(wanted), "{arguments:?}: {said}");
    }
}

#[test]
fn a_volume_can_be_attached_to_a_guest_that_is_off_but_not_to_a_droplet_without_one() {
    let folder = Folder::new();
    let guest = format!("101={}", folder.path("monitor").display());
    let program = folder.start(&["--devices", "qmp", "--qmp", &guest]);
    let volume = program.volume("vol-1");
    let act = |kind: &str, droplet: u64| {
        let action = json!({"type": kind, "droplet_id": droplet, "region": "ams1"});
        let path = format!("/v2/volumes/{volume}/actions");
        let (_, answer) = program.send("POST", &path, &action);
        answer["action"]["status"].as_str().unwrap_or_default().to_owned()
    };
    assert_ne!(act("attach", 102), "completed");
    assert_eq!(act("attach", 101), "completed");
    assert_eq!(act("detach", 101), "completed");
}
