//! The driver as a process: its admin address, how it stops, and how it reaches the cloud by TLS.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tonic::Code;
use xtask::volume_life::mounted;

use crate::world::World;

/// The status and the text that are at an address.
pub(crate) async fn get(url: String) -> (u16, String) {
    let client = reqwest::Client::builder().tls_certs_only([]).build().unwrap();
    let answer = client.get(url).send().await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// An address that nothing listens at. Another process could take it before it is used; then the
/// driver says so and the test fails.
pub(crate) fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

#[tokio::test]
async fn the_admin_address_tells_health_and_numbers() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_simulator(&[]).unwrap();
    let (controller, node) = (free_address(), free_address());
    world.parts.start_controller(&["--admin-addr", &controller]).unwrap();
    world.fault("*", "*", 1000, &json!({"status": 500})).await;
    world.parts.start_node(101, &["--admin-addr", &node]).unwrap();

    assert_eq!(get(format!("http://{controller}/healthz")).await, (200, "ok\n".to_owned()));
    assert_eq!(get(format!("http://{controller}/readyz")).await, (200, "ok\n".to_owned()));
    // The node lives, but does not yet know who it is.
    assert_eq!(get(format!("http://{node}/healthz")).await.0, 200);
    assert_eq!(get(format!("http://{node}/readyz")).await.0, 503);

    world.no_faults().await;
    let mut client = world.controller().await;
    client.create("pvc-metrics", 1, mounted("ext4")).await.unwrap();
    let (status, text) = get(format!("http://{controller}/metrics")).await;
    assert_eq!(status, 200);
    for line in [
        "ghost_operations_total{operation=\"create_volume\",outcome=\"ok\"} 1",
        "ghost_cloud_requests_total{route=\"/v2/volumes\",status=\"201\"} 1",
        "ghost_cloud_rate_remaining",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
}

#[tokio::test]
async fn a_controller_that_is_told_to_stop_finishes_what_it_does() {
    let mut world = World::empty("1s", false, "info");
    world.parts.start_simulator(&[]).unwrap();
    world.parts.start_controller(&[]).unwrap();
    let mut controller = world.controller().await;
    let mut volume = controller.create("pvc-stop", 1, mounted("ext4")).await.unwrap();
    let pid = world.parts.controller_pid().unwrap();
    let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    let log = world.path("controller.log");
    let mut other = controller.clone();
    let told = async {
        // Only after the attachment has been asked for.
        world.action_begun().await;
        kill_process(pid, Signal::TERM).unwrap();
        while !fs::read_to_string(&log).unwrap().contains("told to stop") {
            tokio::task::yield_now().await;
        }
        other.create("pvc-late", 1, mounted("ext4")).await
    };
    let (attached, late) = tokio::join!(controller.attach(&mut volume, 101), told);
    attached.unwrap();
    assert_eq!(late.unwrap_err().code(), Code::Unavailable);
    assert_eq!(world.parts.controller_death().unwrap(), None, "it ended by itself");
    assert!(!world.parts.controller_socket().exists());
}

#[tokio::test]
async fn the_cloud_is_reached_by_tls_with_a_ca_of_ones_own() {
    let mut world = World::empty("0ms", false, "info");
    let key = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let (certificate, secret) = (world.path("tls.crt"), world.path("tls.key"));
    fs::write(&certificate, key.cert.pem()).unwrap();
    fs::write(&secret, key.signing_key.serialize_pem()).unwrap();
    let (certificate, secret) = (certificate.to_str().unwrap(), secret.to_str().unwrap());
    world
        .parts
        .start_simulator(&["--tls-cert-file", certificate, "--tls-key-file", secret])
        .unwrap();
    assert!(world.parts.url().starts_with("https://"), "{}", world.parts.url());
    world.parts.start_controller(&["--cosmos-ca-file", certificate]).unwrap();
    let mut controller = world.controller().await;
    let volume = controller.create("pvc-tls", 1, mounted("ext4")).await.unwrap();
    controller.delete(&volume).await.unwrap();

    // Without that CA nobody is trusted, and nothing was made for certain, so it is not final.
    world.parts.kill_controller().unwrap();
    let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    let unrelated = world.path("unrelated.crt");
    fs::write(&unrelated, other.cert.pem()).unwrap();
    world.parts.start_controller(&["--cosmos-ca-file", unrelated.to_str().unwrap()]).unwrap();
    let mut controller = world.controller().await;
    let status = controller.create("pvc-tls", 1, mounted("ext4")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}
