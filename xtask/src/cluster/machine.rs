//! Nodes as machines: booted, cut off from power, frozen.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use xtask::command::{output, program};
use xtask::leftover::detach_below;

use super::hold::{NAMESPACES, only_child, own_program};
use super::wait::{Limit, until};
use super::{Cluster, NODES, cgroup, cloud, network};

impl Cluster {
    /// What a node keeps over its reboots, and how to reach it.
    pub(super) fn node_folder(&self, number: u8) -> PathBuf {
        self.path(&format!("nodes/{number}"))
    }

    /// Switches a node on.
    pub(super) fn boot(&self, number: u8) -> Result<()> {
        cgroup::make(number)?;
        let folder = self.node_folder(number);
        fs::create_dir_all(&folder)?;
        let mut command = self.inside("unshare");
        command
            .args(NAMESPACES)
            .arg("--")
            .arg(own_program(&self.folder))
            .args(["cluster", "node", &number.to_string()])
            .stdin(Stdio::piped())
            .stdout(self.log(&format!("node{number}"))?)
            .stderr(self.log(&format!("node{number}"))?)
            .process_group(0);
        let mut child = command.spawn()?;
        // nsenter, unshare, and then the node's first process.
        let unshare = only_child(child.id())?;
        let init = only_child(u32::try_from(unshare)?)?;
        network::plug(number, init)?;
        let mut input = child.stdin.take().context("its input was asked for")?;
        // It has waited for its cable.
        writeln!(input, "plugged")?;
        fs::write(folder.join("pid"), init.to_string())?;
        Ok(())
    }

    /// Waits until Kubernetes counts a node as ready.
    pub(super) fn node_is_ready(&self, number: u8) -> Result<()> {
        let name = format!("node/node{number}");
        until("the node to make itself known", Limit::SHORT, || {
            Ok(self.kubectl(&["get", &name]).ok())
        })?;
        self.await_state(&name, "condition=Ready")
    }

    /// Cuts a node off from power: every process and mount of it is gone, its disks stay attached at
    /// the cloud.
    pub(super) fn cut(&self, number: u8) -> Result<()> {
        let init = self.init_of(number)?;
        kill_process(init, Signal::KILL)?;
        let place = PathBuf::from(format!("/proc/{}", init.as_raw_nonzero()));
        until("the node's processes to end", Limit::SHORT, || Ok((!place.exists()).then_some(())))?;
        network::unplug(number)?;
        // A kubelet's loop devices over disks are the machine's memory, and not disks.
        // The folder is mounted there alone.
        let devices = format!("/proc/{}/root{}", self.holder.pid(), self.devices(number).display());
        detach_over_disks(Path::new(&devices));
        cgroup::remove_node(number);
        Ok(())
    }

    /// Ends a node's kubelet as a service manager does that starts it again.
    pub(super) fn restart_kubelet(&self, number: u8) -> Result<()> {
        let kubelet = self.kubelet_of(number)?.context("no kubelet runs")?;
        kill_process(kubelet, Signal::TERM)?;
        until("another kubelet", Limit::SHORT, || {
            Ok(self.kubelet_of(number)?.filter(|other| *other != kubelet))
        })?;
        Ok(())
    }

    fn init_of(&self, number: u8) -> Result<Pid> {
        let pid = fs::read_to_string(self.node_folder(number).join("pid"))?;
        Pid::from_raw(pid.trim().parse()?).context("a process has a number")
    }

    fn kubelet_of(&self, number: u8) -> Result<Option<Pid>> {
        let init = self.init_of(number)?.as_raw_nonzero();
        let children = fs::read_to_string(format!("/proc/{init}/task/{init}/children"))?;
        let is_kubelet = |pid: &&str| {
            fs::read_to_string(format!("/proc/{pid}/comm"))
                .is_ok_and(|name| name.trim() == "kubelet")
        };
        let kubelet = children.split_whitespace().find(is_kubelet);
        Ok(kubelet.and_then(|pid| Pid::from_raw(pid.parse().ok()?)))
    }
}

/// Detaches all loop devices of a cluster: those over disks first, then the disks.
pub(super) fn detach_all(folder: &Path) -> Vec<String> {
    for number in 1..=NODES {
        detach_over_disks(&cloud::devices(folder, number));
    }
    detach_below(folder)
}

/// Detaches the loop devices over the disks in a device folder. The kernel tells of their files no
/// path once their mounts are gone, but still the filesystem that they are in: the folder's own.
fn detach_over_disks(devices: &Path) {
    let Ok(folder) = fs::metadata(devices) else { return };
    let number = folder.dev();
    let own = format!("{}:{}", rustix::fs::major(number), rustix::fs::minor(number));
    let columns = ["--list", "--noheadings", "--raw", "--output", "NAME,BACK-MAJ:MIN"];
    let table = output(program("losetup").args(columns)).unwrap_or_default();
    for line in table.lines() {
        if let Some((device, back)) = line.split_once(' ')
            && back.trim() == own
        {
            drop(output(program("losetup").args(["--detach", device])));
        }
    }
}
