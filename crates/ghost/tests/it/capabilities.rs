//! `docs/capabilities.md` says what the running driver does: of all calls and all capabilities.

use std::collections::{BTreeMap, BTreeSet};

use ghost_csi as pb;
use pb::identity_client::IdentityClient;
use prost::Message as _;
use prost_types::{DescriptorProto, FileDescriptorSet};
use tonic::Code;
use tonic::transport::Channel;
use xtask::playground::connect;

use crate::world::World;

const PAGE: &str = include_str!("../../../../docs/capabilities.md");

/// The rows below this heading: the first two columns, and whether the third says yes.
fn rows(heading: &str) -> BTreeMap<(String, String), bool> {
    let section = PAGE.split_once(heading).unwrap().1;
    let section = section.split("\n## ").next().unwrap();
    let mut rows = BTreeMap::new();
    for line in section.lines().filter(|line| line.starts_with("| ")).skip(2) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let answer = match cells[3] {
            "yes" => true,
            "no" => false,
            other => panic!("{other:?} in {line}"),
        };
        assert!(answer || !cells[4].is_empty(), "why not? {line}");
        let doubled = rows.insert((cells[1].to_owned(), cells[2].to_owned()), answer);
        assert!(doubled.is_none(), "{line}");
    }
    rows
}

fn protocol() -> prost_types::FileDescriptorProto {
    let set = FileDescriptorSet::decode(pb::FILE_DESCRIPTOR_SET).unwrap();
    let csi = set.file.into_iter().find(|file| file.package() == "csi.v1");
    csi.unwrap()
}

/// The code that a call with an empty message gets.
async fn code_of(channel: Channel, service: &str, call: &str) -> Code {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<(), ()>::default();
    let path = format!("/csi.v1.{service}/{call}").parse().unwrap();
    match client.unary(tonic::Request::new(()), path, codec).await {
        Ok(_) => Code::Ok,
        Err(status) => status.code(),
    }
}

#[tokio::test]
async fn every_call_is_offered_or_not_as_the_page_says() {
    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let rows = rows("## Calls");
    let mut all = BTreeSet::new();
    for service in protocol().service {
        for method in &service.method {
            all.insert((service.name().to_owned(), method.name().to_owned()));
        }
    }
    assert_eq!(all.len(), 36);
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), all);
    for ((service, call), offered) in rows {
        let socket = match service.as_str() {
            "Node" => world.parts.node_socket(101),
            _ => world.parts.controller_socket(),
        };
        let code = code_of(connect(&socket).await.unwrap(), &service, &call).await;
        assert_eq!(code != Code::Unimplemented, offered, "{service} {call}: {code:?}");
    }
}

/// The names of the values of the enumeration `Type` at this place, but for "unknown".
fn values(message: &str, inside: &str) -> Vec<String> {
    let find = |all: &[DescriptorProto], name: &str| {
        all.iter().find(|message| message.name() == name).cloned().unwrap()
    };
    let message = find(&find(&protocol().message_type, message).nested_type, inside);
    let values = message.enum_type[0].value.iter().map(|value| value.name().to_owned());
    values.filter(|name| name != "UNKNOWN").collect()
}

#[tokio::test]
async fn every_capability_is_claimed_or_not_as_the_page_says() {
    use pb::plugin_capability::Type as Plugin;

    let mut world = World::empty("0ms", false, "info");
    world.parts.start_parts().unwrap();
    let mut claimed = BTreeSet::new();
    for socket in [world.parts.controller_socket(), world.parts.node_socket(101)] {
        let mut identity = IdentityClient::new(connect(&socket).await.unwrap());
        let request = pb::GetPluginCapabilitiesRequest {};
        let told = identity.get_plugin_capabilities(request).await.unwrap().into_inner();
        let mut own = BTreeSet::new();
        for capability in told.capabilities {
            own.insert(match capability.r#type.unwrap() {
                Plugin::Service(one) => ("plugin", one.r#type().as_str_name()),
                Plugin::VolumeExpansion(one) => ("plugin expansion", one.r#type().as_str_name()),
            });
        }
        assert!(claimed.is_empty() || claimed == own, "both halves say the same");
        claimed = own;
    }
    let request = pb::ControllerGetCapabilitiesRequest {};
    let told = world.controller().await.0.controller_get_capabilities(request).await.unwrap();
    for capability in told.into_inner().capabilities {
        let pb::controller_service_capability::Type::Rpc(rpc) = capability.r#type.unwrap();
        claimed.insert(("controller", rpc.r#type().as_str_name()));
    }
    let request = pb::NodeGetCapabilitiesRequest {};
    let told = world.node(101).await.0.node_get_capabilities(request).await.unwrap();
    for capability in told.into_inner().capabilities {
        let pb::node_service_capability::Type::Rpc(rpc) = capability.r#type.unwrap();
        claimed.insert(("node", rpc.r#type().as_str_name()));
    }

    let rows = rows("## Capabilities");
    let mut all = BTreeSet::new();
    for (of, message, inside) in [
        ("plugin", "PluginCapability", "Service"),
        ("plugin expansion", "PluginCapability", "VolumeExpansion"),
        ("controller", "ControllerServiceCapability", "RPC"),
        ("node", "NodeServiceCapability", "RPC"),
        ("group controller", "GroupControllerServiceCapability", "RPC"),
    ] {
        all.extend(values(message, inside).into_iter().map(|name| (of.to_owned(), name)));
    }
    assert_eq!(rows.keys().cloned().collect::<BTreeSet<_>>(), all);
    for ((of, name), on_page) in &rows {
        let is_claimed = claimed.contains(&(of.as_str(), name.as_str()));
        assert_eq!(is_claimed, *on_page, "{of} {name}");
    }
    assert_eq!(claimed.len(), rows.values().filter(|claimed| **claimed).count());
}
