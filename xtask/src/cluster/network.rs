//! The network of a cluster: a bridge that the control plane, the cloud and the nodes are on. It is
//! a namespace of its own, so that its addresses are nobody else's.

use std::process::Command;

use anyhow::Result;
use xtask::command::{output, program};

/// The address of API server and cloud.
pub(super) const CONTROL_PLANE: &str = "10.77.0.1";
/// The address of a provider's metadata service.
pub(super) const METADATA: &str = "169.254.169.254";

/// The address of a node.
pub(super) fn node(number: u8) -> String {
    format!("10.77.0.{}", 10 + number)
}

/// The addresses of a node's pods.
pub(super) fn pods(number: u8) -> String {
    format!("10.78.{number}.0/24")
}

/// Makes the bridge; the calling thread is in the cluster's network.
pub(super) fn make_bridge() -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["link", "add", "br0", "type", "bridge"])?;
    ip(&["address", "add", &format!("{CONTROL_PLANE}/24"), "dev", "br0"])?;
    ip(&["address", "add", &format!("{METADATA}/32"), "dev", "br0"])?;
    ip(&["link", "set", "br0", "up"])?;
    forward()
}

/// Plugs a node's cable in: one end is on the bridge, the other is `eth0` in the network of the
/// node's first process.
pub(super) fn plug(number: u8, init: i32) -> Result<()> {
    let port = format!("node{number}");
    let far_end = ["peer", "name", "eth0", "netns", &init.to_string()].map(str::to_owned);
    let mut command = program("ip");
    command.args(["link", "add", &port, "type", "veth"]).args(far_end);
    output(&mut command)?;
    ip(&["link", "set", &port, "master", "br0", "up"])?;
    ip(&["route", "replace", &pods(number), "via", &node(number)])
}

/// Pulls a node's cable out; the kernel would do that some time after the node's last process.
pub(super) fn unplug(number: u8) -> Result<()> {
    ip(&["link", "delete", &format!("node{number}")])
}

/// Sets up a node's own end, from within.
pub(super) fn configure_node(number: u8) -> Result<()> {
    ip(&["link", "set", "lo", "up"])?;
    ip(&["address", "add", &format!("{}/24", node(number)), "dev", "eth0"])?;
    ip(&["link", "set", "eth0", "up"])?;
    ip(&["route", "add", "default", "via", CONTROL_PLANE])?;
    forward()
}

/// Packets of pods are passed on.
fn forward() -> Result<()> {
    Ok(std::fs::write("/proc/sys/net/ipv4/ip_forward", "1")?)
}

fn ip(arguments: &[&str]) -> Result<()> {
    let command: &mut Command = &mut program("ip");
    output(command.args(arguments)).map(drop)
}
