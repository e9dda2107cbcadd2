//! The first process of a node: makes it look like a machine of its own, starts containerd and the
//! kubelet, and starts the kubelet again whenever it ends.
//!
//! Below the usual paths (`/var/lib/kubelet`, `/run/containerd` and so on) are the node's own folders.
//! Its `/dev` is that of its droplet: it has the droplet's disks, and nobody else's.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::process::{WaitOptions, wait};
use xtask::command::program;

use super::parts::Parts;
use super::wait::{Limit, until};
use super::{cgroup, cloud, network};

mod configuration;

const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// Where the programs are that stand before those of the machine.
const WRAPPERS: &str = "/run/wrappers";
/// What the kubelet sets for the whole machine.
const SYSCTLS: [&str; 6] = [
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
];
/// The devices that every machine has: name, major and minor number.
const DEVICES: [(&str, u32, u32); 8] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
    ("kmsg", 1, 11),
    ("loop-control", 10, 237),
];

struct Node<'a> {
    number: u8,
    /// The cluster's folder.
    cluster: &'a Path,
    /// The node's own.
    folder: PathBuf,
    parts: Parts,
}

/// Is the first process of a node, until it is killed.
pub(super) fn run(number: u8, cluster: &Path) -> Result<()> {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    ensure!(line.trim() == "plugged", "nobody has plugged the cable in");
    let folder = cluster.join(format!("nodes/{number}"));
    let node = Node { number, cluster, folder, parts: Parts::places() };
    cgroup::join_freezer(number)?;
    network::configure_node(number)?;
    node.make_mounts()?;
    node.write_configuration()?;
    let containerd = node.start_containerd()?;
    node.import_images()?;
    node.keep_kubelet(&containerd)
}

impl Node<'_> {
    fn make_mounts(&self) -> Result<()> {
        let name = format!("node{}", self.number);
        rustix::system::sethostname(name.as_bytes())?;
        tmpfs("/run")?;
        self.make_devices()?;
        for place in ["/var/lib", "/var/log"] {
            let own = self.folder.join(place.trim_start_matches("/var/"));
            fs::create_dir_all(&own)?;
            bind(&own, Path::new(place))?;
        }
        for below in
            ["lib/kubelet", "lib/cni/net.d", "lib/containerd", "log/pods", "log/containers"]
        {
            fs::create_dir_all(Path::new("/var").join(below))?;
        }
        // What a pod's Bidirectional mount is to reach must be shared.
        let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
        mount_change("/", shared).context("cannot share mounts")?;
        mount("proc", "/proc", "proc", MountFlags::empty(), None)?;
        self.make_identity()
    }

    /// The droplet's devices in the place of the machine's.
    fn make_devices(&self) -> Result<()> {
        bind(&cloud::devices(self.cluster, self.number), Path::new("/dev"))?;
        for (name, major, minor) in DEVICES {
            let (path, mode) = (Path::new("/dev").join(name), Mode::from_raw_mode(0o666));
            // It is there when this is not the first boot.
            if !path.exists() {
                mknodat(CWD, &path, FileType::CharacterDevice, mode, makedev(major, minor))?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
            }
        }
        for (name, to) in [
            ("fd", "/proc/self/fd"),
            ("stdin", "/proc/self/fd/0"),
            ("stdout", "/proc/self/fd/1"),
            ("stderr", "/proc/self/fd/2"),
            ("ptmx", "pts/ptmx"),
        ] {
            let path = Path::new("/dev").join(name);
            if path.symlink_metadata().is_err() {
                symlink(to, path)?;
            }
        }
        for folder in ["/dev/pts", "/dev/shm"] {
            fs::create_dir_all(folder)?;
        }
        tmpfs("/dev/shm")?;
        let data = c"newinstance,ptmxmode=0666,mode=0620,gid=5";
        mount("devpts", "/dev/pts", "devpts", MountFlags::empty(), Some(data))?;
        Ok(())
    }

    /// What tells one boot, and one machine, from another; and what a kubelet would set for all.
    fn make_identity(&self) -> Result<()> {
        let boot = "/proc/sys/kernel/random/boot_id";
        let own = Path::new("/run/boot_id");
        fs::copy("/proc/sys/kernel/random/uuid", own)?;
        mount_bind(own, boot)?;
        let machine = Path::new("/var/lib/machine-id");
        if !machine.exists() {
            fs::write(
                machine,
                fs::read_to_string("/proc/sys/kernel/random/uuid")?.replace('-', ""),
            )?;
        }
        if Path::new("/etc/machine-id").exists() {
            mount_bind(machine, "/etc/machine-id")?;
        }
        for sysctl in SYSCTLS {
            let place = Path::new("/proc/sys").join(sysctl);
            let own = Path::new("/run/sysctl").join(sysctl);
            let Ok(value) = fs::read(&place) else { continue };
            fs::create_dir_all(own.parent().context("it is in a folder")?)?;
            fs::write(&own, value)?;
            mount_bind(&own, &place)?;
        }
        Ok(())
    }

    fn write_configuration(&self) -> Result<()> {
        fs::write("/run/containerd.toml", configuration::containerd(&self.parts.debian))?;
        fs::write("/run/kubelet.yaml", configuration::kubelet(self.number))?;
        fs::write("/var/lib/cni/net.d/10-ghost.conflist", configuration::pod_network(self.number))?;
        // Addresses of pods from before the boot are nobody's.
        fs::remove_dir_all("/var/lib/cni/networks").or_else(|error| {
            if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
        })?;
        fs::create_dir_all(WRAPPERS)?;
        let losetup = Path::new(WRAPPERS).join("losetup");
        fs::write(&losetup, configuration::LOSETUP)?;
        fs::set_permissions(losetup, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }

    /// A program of the node's, with the path that a machine of its own would have.
    fn program(&self, name: &str, log: &str) -> Result<Command> {
        let path = self.cluster.join(format!("logs/node{}-{log}.log", self.number));
        let log = fs::OpenOptions::new().create(true).append(true).open(path)?;
        let debian = self.parts.debian.display();
        let mut command = program("env");
        command
            .arg(format!(
                "PATH={WRAPPERS}:{debian}/usr/bin:{debian}/usr/sbin:{}:/usr/sbin:/usr/bin:/sbin:/bin",
                self.parts.programs.display()
            ))
            .arg(name)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0);
        Ok(command)
    }

    fn start_containerd(&self) -> Result<Child> {
        let mut command = self.program("containerd", "containerd")?;
        let mut child = command.args(["--config", "/run/containerd.toml"]).spawn()?;
        until("containerd", Limit::SHORT, || {
            if let Some(status) = child.try_wait()? {
                bail!("containerd ended ({status}); see its log");
            }
            Ok(UnixStream::connect(CONTAINERD_SOCKET).ok())
        })?;
        Ok(child)
    }

    /// Imports the archives that are new since the last boot.
    fn import_images(&self) -> Result<()> {
        let have = Path::new("/var/lib/images");
        fs::create_dir_all(have)?;
        for entry in fs::read_dir(&self.parts.images)? {
            let entry = entry?;
            let changed = format!("{:?}", entry.metadata()?.modified()?);
            let stamp = have.join(entry.file_name());
            if fs::read_to_string(&stamp).is_ok_and(|last| last == changed) {
                continue;
            }
            let mut import = self.program("ctr", "containerd")?;
            import.args(["--namespace", "k8s.io", "images", "import"]).arg(entry.path());
            let status = import.status()?;
            ensure!(status.success(), "cannot import {} ({status})", entry.path().display());
            fs::write(stamp, changed)?;
        }
        Ok(())
    }

    /// Waits for the ends of all that the node starts or inherits. Without containerd there is no
    /// node.
    fn keep_kubelet(&self, containerd: &Child) -> Result<()> {
        let mut kubelet = self.start_kubelet()?;
        loop {
            let Some((ended, _)) = wait(WaitOptions::empty())? else { continue };
            let ended = u32::try_from(ended.as_raw_nonzero().get())?;
            if ended == containerd.id() {
                bail!("containerd ended; see its log");
            }
            if ended == kubelet {
                // So that one that fails at once does not take the machine.
                thread::sleep(Duration::from_millis(500));
                kubelet = self.start_kubelet()?;
            }
        }
    }

    fn start_kubelet(&self) -> Result<u32> {
        let mut command = self.program("kubelet", "kubelet")?;
        command
            .arg("--config=/run/kubelet.yaml")
            .arg(format!("--kubeconfig={}", self.folder.join("kubeconfig").display()))
            .arg(format!("--hostname-override=node{}", self.number))
            .arg(format!("--node-ip={}", network::node(self.number)))
            .arg("--v=2");
        Ok(command.spawn()?.id())
    }
}

fn tmpfs(place: &str) -> Result<()> {
    mount("tmpfs", place, "tmpfs", MountFlags::empty(), Some(c"mode=755"))
        .with_context(|| format!("cannot mount {place}"))
}

fn bind(own: &Path, place: &Path) -> Result<()> {
    mount_bind(own, place)
        .with_context(|| format!("cannot bind {} over {}", own.display(), place.display()))
}
