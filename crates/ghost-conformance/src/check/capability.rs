//! Whether the claims fit together, and whether they are true.

use std::collections::BTreeSet;

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;
use pb::node_service_capability::rpc::Type as NodeRpc;
use pb::plugin_capability::service::Type as Service;
use pb::plugin_capability::volume_expansion::Type as Expansion;
use tonic::Code;

use super::{Check, Need, check};
use crate::driver::{Half, controller_rpcs, expansions, node_rpcs, services};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand, failed};

mod served;

use served::{Served, served};

pub(super) static CHECKS: &[Check] = &[
    check!("capability.known", "every claim is known and made once", [], known),
    check!(
        "capability.controller-service",
        "CONTROLLER_SERVICE is claimed where there is a controller",
        [Need::Controller],
        controller_service
    ),
    check!(
        "capability.dependencies",
        "no capability is claimed without the one that it rests on",
        [Need::Controller],
        dependencies
    ),
    check!(
        "capability.expansion",
        "EXPAND_VOLUME and the plugin's ways of expansion go together",
        [],
        expansion
    ),
    check!(
        "capability.node-topology",
        "the node tells its topology when the plugin claims constraints, and only then",
        [Need::Node],
        node_topology
    ),
    check!(
        "capability.volume-topology",
        "a volume's topology has the node's keys, and is there only when claimed",
        [Need::Volume],
        volume_topology
    ),
    check!(
        "capability.claimed",
        "no RPC of a claimed capability answers UNIMPLEMENTED",
        [],
        claimed
    ),
    check!(
        "capability.unclaimed",
        "every RPC of a capability that is not claimed answers UNIMPLEMENTED",
        [],
        unclaimed
    ),
];

async fn known(trial: &Trial) -> Verdict {
    for half in trial.driver.halves() {
        let asked = trial.ask_at(half, pb::GetPluginCapabilitiesRequest {}).await;
        let answer = asked.ok("the plugin says what it can")?;
        let known = |number| Service::try_from(number).is_ok();
        each_known_once("GetPluginCapabilities, services", &services(&answer), known)?;
        let known = |number| Expansion::try_from(number).is_ok();
        each_known_once("GetPluginCapabilities, expansion", &expansions(&answer), known)?;
        let untyped = answer.capabilities.iter().any(|one| one.r#type.is_none());
        demand(!untyped, "GetPluginCapabilities", "one without a type", "each has a type")?;
    }
    if trial.driver.has(Half::Controller) {
        let asked = trial.ask(pb::ControllerGetCapabilitiesRequest {}).await;
        let numbers = controller_rpcs(&asked.ok("a controller says what it can")?);
        let known = |number| ControllerRpc::try_from(number).is_ok();
        each_known_once("ControllerGetCapabilities", &numbers, known)?;
    }
    if trial.driver.has(Half::Node) {
        let asked = trial.ask(pb::NodeGetCapabilitiesRequest {}).await;
        let numbers = node_rpcs(&asked.ok("a node says what it can")?);
        let known = |number| NodeRpc::try_from(number).is_ok();
        each_known_once("NodeGetCapabilities", &numbers, known)?;
    }
    Ok(())
}

fn each_known_once(asked: &str, numbers: &[i32], known: impl Fn(i32) -> bool) -> Verdict {
    let mut seen = BTreeSet::new();
    for number in numbers {
        demand(
            *number != 0 && known(*number),
            asked,
            format!("number {number}"),
            "a number of the specification, and not UNKNOWN",
        )?;
        let (came, demanded) = (format!("number {number} twice"), "each capability once");
        demand(seen.insert(*number), asked, came, demanded)?;
    }
    Ok(())
}

async fn controller_service(trial: &Trial) -> Verdict {
    let asked = trial.ask_at(Half::Controller, pb::GetPluginCapabilitiesRequest {}).await;
    let answer = asked.ok("the plugin says what it can")?;
    demand(
        services(&answer).contains(&Service::ControllerService.into()),
        "GetPluginCapabilities at the controller's socket",
        "no CONTROLLER_SERVICE",
        "a plugin with a Controller service claims it",
    )?;
    trial
        .ask(pb::ControllerGetCapabilitiesRequest {})
        .await
        .ok("every Controller service has this RPC")?;
    Ok(())
}

async fn dependencies(trial: &Trial) -> Verdict {
    use ControllerRpc as Rpc;
    const RESTS_ON: [(Rpc, &[Rpc]); 5] = [
        (Rpc::PublishReadonly, &[Rpc::PublishUnpublishVolume]),
        (Rpc::ListVolumesPublishedNodes, &[Rpc::PublishUnpublishVolume]),
        (Rpc::ListVolumesPublishedNodes, &[Rpc::ListVolumes, Rpc::GetVolume]),
        (Rpc::CloneVolume, &[Rpc::CreateDeleteVolume]),
        (Rpc::ListVolumeHealth, &[Rpc::GetVolumeHealth]),
    ];
    for (rpc, bases) in RESTS_ON {
        let names: Vec<&str> = bases.iter().map(ControllerRpc::as_str_name).collect();
        demand(
            !trial.driver.offers(rpc) || bases.iter().any(|base| trial.driver.offers(*base)),
            "ControllerGetCapabilities",
            format!("{} without {}", rpc.as_str_name(), names.join(" or ")),
            "the one rests on the other",
        )?;
    }
    let constrained = Service::SnapshotAccessibilityConstraints;
    demand(
        !trial.driver.serves(constrained) || trial.driver.offers(Rpc::CreateDeleteSnapshot),
        "GetPluginCapabilities and ControllerGetCapabilities",
        format!("{} without CREATE_DELETE_SNAPSHOT", constrained.as_str_name()),
        "the one rests on the other",
    )
}

async fn expansion(trial: &Trial) -> Verdict {
    let mut ways = BTreeSet::new();
    for half in trial.driver.halves() {
        let asked = trial.ask_at(half, pb::GetPluginCapabilitiesRequest {}).await;
        ways.extend(expansions(&asked.ok("the plugin says what it can")?));
    }
    let asked = "GetPluginCapabilities and the capabilities of both halves";
    let both = [Expansion::Online, Expansion::Offline].iter().all(|w| ways.contains(&(*w).into()));
    demand(!both, asked, "ONLINE and OFFLINE", "OFFLINE says that ONLINE is not possible")?;
    let controller = trial.driver.offers(ControllerRpc::ExpandVolume);
    let node = trial.driver.node_offers(NodeRpc::ExpandVolume);
    demand(
        !(controller || node) || !ways.is_empty(),
        asked,
        "EXPAND_VOLUME, and no VolumeExpansion of the plugin",
        "the plugin says how its volumes are expanded",
    )?;
    // A half that is not looked at may be the one that expands.
    let whole = trial.driver.halves().len() == 2;
    demand(
        ways.is_empty() || controller || node || !whole,
        asked,
        "a VolumeExpansion of the plugin, and no EXPAND_VOLUME",
        "a plugin that expands volumes has EXPAND_VOLUME of the controller, of the node or of both",
    )
}

async fn node_topology(trial: &Trial) -> Verdict {
    let info = trial.ask(pb::NodeGetInfoRequest {}).await.ok("the node says who it is")?;
    let segments = info.accessible_topology.unwrap_or_default().segments;
    let claimed = trial.driver.serves(Service::VolumeAccessibilityConstraints);
    demand(
        claimed != segments.is_empty(),
        "NodeGetInfo",
        format!(
            "{} segments; VOLUME_ACCESSIBILITY_CONSTRAINTS is {}claimed",
            segments.len(),
            if claimed { "" } else { "not " }
        ),
        "the node has a topology when the constraints are claimed, and none otherwise",
    )?;
    for (key, value) in &segments {
        let name = key.rsplit('/').next().unwrap_or_default();
        let part = |text: &str| !text.is_empty() && text.len() <= 63;
        demand(
            part(name) && part(value) && key.matches('/').count() <= 1,
            "NodeGetInfo",
            format!("segment {key:?}: {value:?}"),
            "a key is \"[prefix/]name\"; name and value have 1 to 63 characters",
        )?;
    }
    Ok(())
}

async fn volume_topology(trial: &Trial) -> Verdict {
    let request = trial.create("topology");
    let first = trial.volume_of(request.clone()).await?;
    let again = trial.volume_of(request).await?;
    let claimed = trial.driver.serves(Service::VolumeAccessibilityConstraints);
    demand(
        claimed || first.accessible_topology.is_empty(),
        "CreateVolume",
        format!("accessible_topology: {:?}", first.accessible_topology),
        "none, as VOLUME_ACCESSIBILITY_CONSTRAINTS is not claimed",
    )?;
    demand(
        first.accessible_topology == again.accessible_topology,
        "CreateVolume, twice",
        format!("{:?}, then {:?}", first.accessible_topology, again.accessible_topology),
        "the same topology when the call is repeated",
    )?;
    let near = trial.driver.info().and_then(|info| info.accessible_topology.clone());
    let Some(near) = near.filter(|_| claimed) else { return Ok(()) };
    let reaches = first.accessible_topology.is_empty()
        || first.accessible_topology.iter().any(|topology| {
            topology.segments.iter().all(|(key, value)| near.segments.get(key) == Some(value))
        });
    demand(
        reaches,
        format!("CreateVolume for {:?}", near.segments),
        format!("accessible_topology: {:?}", first.accessible_topology),
        "the volume can be reached from the only topology that was asked for",
    )
}

async fn claimed(trial: &Trial) -> Verdict {
    for Served { rpc, claimed, code } in served(trial).await {
        if claimed && code == Code::Unimplemented {
            return Err(failed(format!("{rpc} {{ }}"), "UNIMPLEMENTED", "the RPC is claimed"));
        }
    }
    Ok(())
}

async fn unclaimed(trial: &Trial) -> Verdict {
    for Served { rpc, claimed, code } in served(trial).await {
        demand(
            claimed || code == Code::Unimplemented,
            format!("{rpc} {{ }}"),
            crate::verdict::code_name(code),
            "UNIMPLEMENTED: nothing that is claimed has this RPC",
        )?;
    }
    Ok(())
}
