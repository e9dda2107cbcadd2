//! The way to the cluster over TLS.

use std::fs;

use serde_json::json;

use crate::world::World;

#[tokio::test]
async fn the_cluster_is_trusted_by_the_certificate_of_the_kubeconfig_alone() {
    let world = World::start();
    let certified = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let path = |name: &str| world.path(name).display().to_string();
    fs::write(path("certificate"), certified.cert.pem()).unwrap();
    fs::write(path("key"), certified.signing_key.serialize_pem()).unwrap();
    // Any server that speaks TLS and JSON will do: that it lists nothing shows that it was asked.
    let mut server = World::start().parts;
    server.kill_all().unwrap();
    let tls = ["--tls-cert-file", &path("certificate"), "--tls-key-file", &path("key")];
    server.start_simulator(&tls).unwrap();

    for (authority, reason) in
        [(true, "no API server: unable to authenticate you"), (false, "certificate")]
    {
        let mut cluster = json!({ "server": server.url() });
        if authority {
            cluster["certificate-authority"] = json!(path("certificate"));
        }
        let kubeconfig = json!({
            "clusters": [{ "name": "c", "cluster": cluster }],
            "contexts": [{ "name": "c", "context": { "cluster": "c", "user": "u" } }],
            "users": [{ "name": "u", "user": { "token": "t" } }],
            "current-context": "c",
        });
        fs::write(path("kubeconfig"), kubeconfig.to_string()).unwrap();
        let run = world.orphans(&["--kubeconfig", &path("kubeconfig")], "");
        run.told(1, "the list of PersistentVolumes could not be read whole");
        run.told(1, reason);
    }
}
