//! What a guest is made of, and the number that stands for all of it.

use anyhow::Result;
use sha2::{Digest, Sha256};

use crate::command::{output, program};

/// The program that runs guests.
pub(super) const QEMU: &str = "qemu-system-x86_64";

/// What is needed on the machine to make and run a guest.
pub(super) const PROGRAMS: [&str; 10] =
    [QEMU, "strip", "mmdebstrap", "busybox", "depmod", "cpio", "lz4", "xz", "zstd", "mke2fs"];

/// What is in a guest. The agent seeds its random numbers with Perl, which every Debian has.
pub(super) const PACKAGES: &str =
    "udev,kmod,e2fsprogs,xfsprogs,btrfs-progs,dmsetup,mount,iproute2,socat";

/// Makes the files of a guest.
pub(super) const MAKE: &str = include_str!("make.sh");

/// The scripts that a guest starts with, and their names.
pub(super) const SCRIPTS: [(&str, &str); 2] =
    [("first-init", include_str!("first-init")), ("init", include_str!("init"))];

/// Where the agent listens in a guest.
pub(super) const AGENT_PORT: u16 = 7;
/// Where the node half's socket can be reached in a guest.
pub(super) const NODE_PORT: u16 = 9;
/// The address by which a guest reaches this machine's own 127.0.0.1.
pub const HOST_ADDRESS: &str = "10.0.2.2";

/// How many virtio disks fit in beside the one with the root filesystem.
const PORTS: usize = 6;

/// The machine itself. A saved state fits a machine with the very same arguments only.
///
/// There is no KVM: where it is offered inside of a virtual machine it may be one that Debian's
/// kernel hangs on, and a test has to be the same everywhere.
pub(super) fn machine() -> Vec<String> {
    let network = format!(
        "user,id=net0,hostfwd=tcp:127.0.0.1:0-:{AGENT_PORT},hostfwd=tcp:127.0.0.1:0-:{NODE_PORT}"
    );
    let mut arguments = [
        "-machine",
        "q35",
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-m",
        "512",
        "-smp",
        "1",
        "-nodefaults",
        "-display",
        "none",
        "-append",
        "console=ttyS0 quiet mitigations=off no_timer_check net.ifnames=0",
        "-device",
        "virtio-blk-pci,drive=root",
        "-device",
        "virtio-scsi-pci,id=scsi0",
        "-netdev",
        &network,
        "-device",
        "virtio-net-pci,netdev=net0",
    ]
    .map(str::to_owned)
    .to_vec();
    for port in 1..=PORTS {
        let port = format!("pcie-root-port,id=port{port},chassis={port},slot={port}");
        arguments.extend(["-device".to_owned(), port]);
    }
    arguments
}

/// A number that changes with whatever an image, or a state saved with it, depends on.
pub(super) fn number() -> Result<String> {
    let version = output(program(QEMU).arg("--version"))?;
    let mut hash = Sha256::new();
    let machine = machine().join(" ");
    let scripts = SCRIPTS.iter().map(|(_, script)| *script);
    for part in [version.as_str(), &machine, PACKAGES, MAKE].into_iter().chain(scripts) {
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}
