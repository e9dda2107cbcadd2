//! What is printed, and what is refused before anything is asked.

use serde_json::Value;

use crate::account::Account;
use crate::world::World;

#[tokio::test]
async fn the_list_has_a_form_for_people_and_one_for_programs() {
    let account = Account::prepare().await;
    let world = &account.world;
    let table = world.orphans(&account.in_cluster(&[]), "");
    let rows: Vec<Vec<&str>> = table
        .stdout
        .lines()
        .map(|line| line.split("   ").map(str::trim).filter(|cell| !cell.is_empty()).collect())
        .collect();
    assert_eq!(rows[0], ["KIND", "NAME", "SIZE", "AGE", "FOR", "STATE"]);
    for row in [
        ["volume", "prod-pvc-orphan", "10 GiB", "3d", "shop/data", "orphan"],
        ["volume", "prod-pvc-attached", "10 GiB", "3d", "shop/data", "kept: attached to node 101"],
        [
            "volume",
            "manual",
            "1 GiB",
            "3d",
            "-",
            "kept: not made by this cluster: its tags fit, its name does not",
        ],
        ["snapshot", "prod-snapshot-orphan", "10 GiB", "3d", "-", "orphan"],
    ] {
        assert!(rows.contains(&row.to_vec()), "{row:?} is not in {}", table.stdout);
    }
    assert_eq!(rows.iter().filter(|row| row.contains(&"a clone")).count(), 1);
    for absent in ["prod-pvc-used", "prod2-", "crowd"] {
        assert!(!table.stdout.contains(absent), "{}", table.stdout);
    }
    table.told(3, "; 8 kept, 5 in use, 3 made by others");

    let wide = world.orphans(&account.in_cluster(&["-o", "wide"]), "");
    assert!(wide.stdout.contains(&world.id("volume", "prod-pvc-orphan").await), "{wide:?}");

    let json = world.orphans(&account.in_cluster(&["-o", "json"]), "");
    let json: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!((&json["cluster"], &json["inUse"]), (&"prod".into(), &5.into()));
    let items = json["items"].as_array().unwrap();
    let item = |name: &str| items.iter().find(|item| item["name"] == name).unwrap();
    let orphan = item("prod-pvc-orphan");
    assert_eq!(orphan["orphan"], true);
    assert_eq!(orphan["sizeBytes"], 10_u64 << 30);
    assert_eq!(orphan["madeFor"], "shop/data");
    assert!(orphan["ageSeconds"].as_u64().unwrap() >= 72 * 3600);
    let attached = item("prod-pvc-attached");
    assert_eq!((&attached["orphan"], &attached["attachedTo"][0]), (&false.into(), &"101".into()));
    assert_eq!(attached["reason"], "attached to node 101");
}

#[tokio::test]
async fn wrong_usage_is_refused_before_anything_is_asked() {
    let world = World::start();
    for (options, reason) in [
        (&["--handles=x"][..], "--cluster-id"),
        (&["--cluster-id=a-b", "--handles=x"], "--cluster-id: cluster id \"a-b\" must"),
        (&["--cluster-id=a", "--minimum-age=1m"], "--minimum-age 1m: at least 10m"),
        (&["--cluster-id=a", "--minimum-age=soon"], "expected a duration such as 24h"),
        (&["--cluster-id=a", "--delete", "-o", "json"], "cannot be used with"),
        (&["--cluster-id=a", "--handles=x", "--context=y"], "cannot be used with"),
        (&["--cluster-id=a", "--driver-name=A_B"], "--driver-name"),
        (&["--cluster-id=a", "--cosmos-requests-per-minute=0"], "nothing could be asked"),
    ] {
        world.run(options, "").told(2, reason);
    }
    let token = ["--cluster-id=a", "--handles=x"];
    world.run(&token, "").told(1, "--handles x: the file cannot be read");
    let no_cluster = world.run(&["--cluster-id=a"], "");
    no_cluster.told(1, "there is no kubeconfig, and this is no pod either");
    std::fs::create_dir_all(world.path("home/.kube")).unwrap();
    std::fs::write(world.path("home/.kube/config"), "{").unwrap();
    world.run(&["--cluster-id=a"], "").told(1, "the kubeconfig is not usable");
}
