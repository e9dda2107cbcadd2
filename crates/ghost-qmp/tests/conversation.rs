//! Conversations with a QEMU that is played by the test, which can therefore misbehave.
#![allow(missing_docs, reason = "a test binary")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::PathBuf;
use std::time::Duration;

use ghost_qmp::disk::{Bus, Disk, UnplugLimit};
use ghost_qmp::{Error, Monitor};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixListener;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};

const SHORT: Duration = Duration::from_millis(50);
const LONG: Duration = Duration::from_secs(20);

/// The other end of the conversation.
struct Played {
    commands: tokio::io::Lines<BufReader<OwnedReadHalf>>,
    writer: OwnedWriteHalf,
}

impl Played {
    async fn say(&mut self, message: &Value) {
        self.writer.write_all(format!("{message}\r\n").as_bytes()).await.unwrap();
    }

    /// The next command, which is expected to be this one; answers its arguments and its id.
    async fn hear(&mut self, command: &str) -> (Value, Value) {
        let line = self.commands.next_line().await.unwrap().unwrap();
        let heard: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(heard["execute"], command, "{line}");
        (heard["arguments"].clone(), heard["id"].clone())
    }

    /// Hears this command and answers it; its arguments.
    async fn answer(&mut self, command: &str, value: &Value) -> Value {
        let (arguments, id) = self.hear(command).await;
        self.say(&json!({"return": value, "id": id})).await;
        arguments
    }

    async fn refuse(&mut self, command: &str, description: &str) {
        let (_, id) = self.hear(command).await;
        let error = json!({"class": "GenericError", "desc": description});
        self.say(&json!({"error": error, "id": id})).await;
    }

    async fn devices(&mut self, devices: &[(&str, &str)]) {
        let list: Vec<Value> =
            devices.iter().map(|(name, kind)| json!({"name": name, "type": kind})).collect();
        self.answer("qom-list", &json!(list)).await;
    }
}

async fn conversation() -> (TempDir, Monitor, Played) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("qmp");
    let listener = UnixListener::bind(&socket).unwrap();
    let play = async {
        let (reader, writer) = listener.accept().await.unwrap().0.into_split();
        let mut played = Played { commands: BufReader::new(reader).lines(), writer };
        played.say(&json!({"QMP": {"version": {}, "capabilities": []}})).await;
        played.answer("qmp_capabilities", &json!({})).await;
        played
    };
    let (monitor, played) = tokio::join!(Monitor::connect(&socket, LONG), play);
    (folder, monitor.unwrap(), played)
}

fn disk(bus: Bus) -> Disk {
    Disk {
        key: "v-1".to_owned(),
        file: PathBuf::from("/volumes/v-1"),
        bus,
        name: "pvc-1".to_owned(),
        write_protected: false,
    }
}

#[tokio::test]
async fn an_absent_and_a_mute_qemu_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("qmp");
    let error = Monitor::connect(&socket, LONG).await.unwrap_err();
    assert!(matches!(error, Error::Absent { .. }), "{error}");
    let _listener = UnixListener::bind(&socket).unwrap();
    let error = Monitor::connect(&socket, SHORT).await.unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
}

#[tokio::test]
async fn events_between_a_command_and_its_answer_are_kept() {
    let (_folder, mut monitor, mut played) = conversation().await;
    let play = async {
        let (_, id) = played.hear("stop").await;
        played.say(&json!({"event": "STOP"})).await;
        played.say(&json!({"event": "DEVICE_DELETED", "data": {"device": "a"}})).await;
        // The late answer of a command that was given up.
        played.say(&json!({"return": "another's", "id": 999})).await;
        played.say(&json!({"return": "done", "id": id})).await;
    };
    let (answer, ()) = tokio::join!(monitor.execute("stop", json!({})), play);
    assert_eq!(answer.unwrap(), "done");
    let gone = monitor.event("DEVICE_DELETED", LONG, |data| data["device"] == "a").await.unwrap();
    assert_eq!(gone.data["device"], "a");
    let error = monitor.event("DEVICE_DELETED", SHORT, |_| true).await.unwrap_err();
    assert!(matches!(error, Error::Silent { .. }), "{error}");
    let left = monitor.take_events();
    assert_eq!(left.iter().map(|event| event.name.as_str()).collect::<Vec<_>>(), ["STOP"]);
}

#[tokio::test]
async fn a_refusal_is_told_and_an_end_is_noticed() {
    let (_folder, mut monitor, mut played) = conversation().await;
    let (answer, ()) =
        tokio::join!(monitor.execute("nonsense", json!({})), played.refuse("nonsense", "what?"));
    let error = answer.unwrap_err();
    assert!(matches!(&error, Error::Refused { description, .. } if description == "what?"));
    drop(played);
    let error = monitor.execute("stop", json!({})).await.unwrap_err();
    assert!(matches!(error, Error::BrokenOff { .. }), "{error}");
}

#[tokio::test]
async fn a_disk_that_finds_no_room_leaves_no_open_file() {
    let (_folder, mut monitor, mut played) = conversation().await;
    let play = async {
        let ports = [("port1", "child<pcie-root-port>"), ("disk-other", "child<scsi-hd>")];
        played.devices(&ports).await;
        played.refuse("blockdev-del", "Failed to find node with node-name='nv1'").await;
        let block = played.answer("blockdev-add", &json!({})).await;
        assert_eq!((&block["node-name"], &block["read-only"]), (&json!("nv1"), &json!(false)));
        assert_eq!(block["file"]["filename"], "/volumes/v-1");
        played.devices(&ports).await;
        played.devices(&[("child[0]", "link<virtio-blk-pci>")]).await;
        let closed = played.answer("blockdev-del", &json!({})).await;
        assert_eq!(closed["node-name"], "nv1");
    };
    let disk = disk(Bus::Virtio);
    let (plugged, ()) = tokio::join!(monitor.plug(&disk), play);
    let error = plugged.unwrap_err();
    assert!(error.to_string().contains("no free PCIe port"), "{error}");
}

#[tokio::test]
async fn a_disk_is_out_only_when_the_guest_has_let_go() {
    let (_folder, mut monitor, mut played) = conversation().await;
    let plugged = [("disk-v-1", "child<scsi-hd>")];
    // It hangs: nothing comes, and the file stays open.
    let play = async {
        played.devices(&plugged).await;
        played.answer("device_del", &json!({})).await;
    };
    let limit = UnplugLimit(SHORT);
    let (unplugged, ()) = tokio::join!(monitor.unplug("v-1", limit), play);
    assert!(matches!(unplugged.unwrap_err(), Error::Silent { .. }));
    // Asked again, QEMU says that it was asked before; then the guest lets go.
    let play = async {
        played.devices(&plugged).await;
        played.refuse("device_del", "Device disk-v-1 is already in the process of unplug").await;
        played.say(&json!({"event": "DEVICE_DELETED", "data": {"path": "/part/of/it"}})).await;
        played.say(&json!({"event": "DEVICE_DELETED", "data": {"device": "disk-v-1"}})).await;
        played.answer("blockdev-del", &json!({})).await;
    };
    let (unplugged, ()) = tokio::join!(monitor.unplug("v-1", UnplugLimit(LONG)), play);
    unplugged.unwrap();
}
