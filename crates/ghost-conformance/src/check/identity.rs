//! Who the plugin says it is.

use ghost_csi as pb;

use super::{Check, Need, check};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!("identity.probe", "Probe succeeds at every socket and says ready", [], probe),
    check!("identity.name", "the name is a domain name of at most 63 characters", [], name),
    check!(
        "identity.one-plugin",
        "both sockets name the same plugin and version",
        [Need::Controller, Need::Node],
        one_plugin
    ),
    check!("identity.stable", "the same question has the same answer twice", [], stable),
    check!(
        "identity.node-info",
        "NodeGetInfo has an id of at most 256 bytes and no negative limit",
        [Need::Node],
        node_info
    ),
];

async fn probe(trial: &Trial) -> Verdict {
    for half in trial.driver.halves() {
        let asked = trial.ask_at(half, pb::ProbeRequest {}).await;
        let answer = asked.ok("a plugin that works answers its Probe")?;
        demand(
            answer.ready != Some(false),
            format!("Probe at the {half:?} socket"),
            "ready: false",
            "the plugin is ready before it is tested",
        )?;
    }
    Ok(())
}

async fn name(trial: &Trial) -> Verdict {
    for half in trial.driver.halves() {
        let asked = trial.ask_at(half, pb::GetPluginInfoRequest {}).await;
        let answer = asked.ok("the plugin says who it is")?;
        let name = &answer.name;
        let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let inner = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let sound = name.len() <= 63
            && edge(name.chars().next())
            && edge(name.chars().last())
            && name.chars().all(inner);
        demand(
            sound,
            "GetPluginInfo",
            format!("name: {name:?}"),
            "at most 63 characters, letters and digits at the ends, dashes and dots between",
        )?;
        demand(
            !answer.vendor_version.is_empty(),
            "GetPluginInfo",
            "vendor_version: \"\"",
            "vendor_version is required",
        )?;
    }
    Ok(())
}

async fn one_plugin(trial: &Trial) -> Verdict {
    let mut told = Vec::new();
    for half in trial.driver.halves() {
        let asked = trial.ask_at(half, pb::GetPluginInfoRequest {}).await;
        let answer = asked.ok("the plugin says who it is")?;
        told.push((answer.name, answer.vendor_version));
    }
    demand(
        told.windows(2).all(|pair| pair[0] == pair[1]),
        "GetPluginInfo at both sockets",
        format!("{told:?}"),
        "the same name and version",
    )
}

async fn stable(trial: &Trial) -> Verdict {
    for half in trial.driver.halves() {
        let mut told = Vec::new();
        for _ in 0..2 {
            let info = trial.ask_at(half, pb::GetPluginInfoRequest {}).await;
            let claims = trial.ask_at(half, pb::GetPluginCapabilitiesRequest {}).await;
            let claims = claims.ok("the plugin says what it can")?.capabilities;
            told.push(format!("{:?} {claims:?}", info.ok("the plugin says who it is")?));
        }
        same("GetPluginInfo and GetPluginCapabilities", &told)?;
    }
    if trial.driver.halves().contains(&crate::driver::Half::Node) {
        let mut told = Vec::new();
        for _ in 0..2 {
            let asked = trial.ask(pb::NodeGetInfoRequest {}).await;
            let info = asked.ok("the node says who it is")?;
            let topology = info.accessible_topology.unwrap_or_default().segments;
            let sorted: std::collections::BTreeMap<_, _> = topology.into_iter().collect();
            told.push(format!("{:?} {} {sorted:?}", info.node_id, info.max_volumes_per_node));
        }
        same("NodeGetInfo", &told)?;
    }
    Ok(())
}

fn same(asked: &str, told: &[String]) -> Verdict {
    demand(
        told.windows(2).all(|pair| pair[0] == pair[1]),
        format!("{asked}, twice"),
        told.join(", then "),
        "the same answer",
    )
}

async fn node_info(trial: &Trial) -> Verdict {
    let asked = trial.ask(pb::NodeGetInfoRequest {}).await;
    let info = asked.ok("the node says who it is")?;
    demand(
        !info.node_id.is_empty() && info.node_id.len() <= 256,
        "NodeGetInfo",
        format!("node_id: {:?}", info.node_id),
        "node_id is required, and has at most 256 bytes",
    )?;
    demand(
        info.max_volumes_per_node >= 0,
        "NodeGetInfo",
        format!("max_volumes_per_node: {}", info.max_volumes_per_node),
        "the number is not negative; zero leaves it to the orchestrator",
    )
}
