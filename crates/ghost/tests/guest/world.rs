//! A guest that is a droplet of the simulated cloud, with the node half in it.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ghost_csi as pb;
use ghost_qmp::disk::Bus;
use pb::node_client::NodeClient;
use tonic::{Code, Status};
use xtask::guest::{Guest, HOST_ADDRESS, Image, quoted};
use xtask::playground::{Options, Playground};
use xtask::volume_life::{Controller, Node, Volume, mounted};

/// The droplet that the guest is.
pub(crate) const DROPLET: u64 = 101;
/// Where volumes are staged and published in the guest.
pub(crate) const STAGING: &str = "/var/lib/staging";
pub(crate) const TARGET: &str = "/var/lib/target";

/// How long something may take that takes a moment.
const LIMIT: Duration = Duration::from_secs(40);

/// What a test runs in. The guest ends before the cloud's folder goes.
pub(crate) struct World {
    pub(crate) guest: Guest,
    pub(crate) parts: Playground,
    bus: Bus,
}

impl World {
    /// A guest that has booted, with a node in it; nothing when there can be no guests here.
    pub(crate) async fn start(bus: Bus) -> Option<Self> {
        let programs = Path::new(env!("CARGO_BIN_EXE_ghost")).parent().unwrap().to_owned();
        let simulator = programs.join("ghost-sim");
        assert!(simulator.is_file(), "no simulator is built; run: cargo build --workspace");
        let image = match Image::ready(programs.parent().unwrap()).await {
            Ok(image) => image,
            Err(error) => {
                eprintln!("NOT RUN: this test needs a QEMU guest: {error:#}");
                #[expect(clippy::disallowed_methods, reason = "a test asks whether it runs in CI")]
                let in_ci = std::env::var_os("CI").is_some();
                assert!(!in_ci, "in CI no test may be left out");
                return None;
            }
        };
        let options = Options { programs, action_time: "0ms", devices: true, log: "debug" };
        let parts = Playground::empty(options).unwrap();
        let guest = Guest::restore(&image, &parts.path("guest")).await.unwrap();
        let mut world = Self { guest, parts, bus };
        world.start_simulator("").await;
        world.parts.start_controller(&[]).unwrap();
        world.start_node().await;
        Some(world)
    }

    /// Starts the simulated cloud, with more settings of the guest such as `,read-only`.
    pub(crate) async fn start_simulator(&mut self, settings: &str) {
        let bus = match self.bus {
            Bus::Scsi => "scsi",
            Bus::Virtio => "virtio",
            Bus::Nvme => "nvme",
        };
        let socket = self.guest.monitor_socket();
        let guest = format!("{DROPLET}={},bus={bus}{settings}", socket.display());
        self.parts.start_simulator(&["--devices", "qmp", "--qmp", &guest]).unwrap();
    }

    /// Starts the node half in the guest, again if it runs, with the usual link of its disks.
    pub(crate) async fn start_node(&mut self) {
        self.start_node_at(match self.bus {
            Bus::Scsi => "disk/by-id/scsi-0DO_Volume_{name}",
            Bus::Virtio => "disk/by-id/virtio-{id}",
            Bus::Nvme => "disk/by-id/nvme-QEMU_NVMe_Ctrl_{id}",
        })
        .await;
    }

    /// The same, with another link of its disks.
    pub(crate) async fn start_node_at(&mut self, link: &str) {
        let port = self.parts.url().rsplit(':').next().unwrap().to_owned();
        let metadata = format!("http://{HOST_ADDRESS}:{port}/droplets/{DROPLET}");
        let driver = PathBuf::from(env!("CARGO_BIN_EXE_ghost"));
        let arguments = ["--metadata-url", &metadata, "--log", "debug", "--disk-link", link];
        self.guest.start_node(&driver, &arguments).await.unwrap();
    }

    pub(crate) async fn controller(&self) -> Controller {
        Controller(self.parts.controller().await.unwrap())
    }

    pub(crate) async fn node(&self) -> Node {
        Node(NodeClient::new(self.guest.node().await.unwrap()))
    }

    /// Makes a volume of 1 GiB and attaches it to the guest.
    pub(crate) async fn attached(&self, name: &str, capability: pb::VolumeCapability) -> Volume {
        let mut controller = self.controller().await;
        let mut volume = controller.create(name, 1, capability).await.unwrap();
        controller.attach(&mut volume, DROPLET).await.unwrap();
        volume
    }

    /// A volume with a file `data` in it, staged and published at the usual places.
    pub(crate) async fn published(&self, name: &str, filesystem: &str) -> Volume {
        let volume = self.attached(name, mounted(filesystem)).await;
        self.stage_and_publish(&volume).await.unwrap();
        self.guest.write(&format!("{TARGET}/data"), "kept").await.unwrap();
        volume
    }

    pub(crate) async fn stage_and_publish(&self, volume: &Volume) -> Result<(), Status> {
        let mut node = self.node().await;
        node.stage(volume, Path::new(STAGING)).await?;
        node.publish(volume, Path::new(STAGING), Path::new(TARGET)).await
    }

    pub(crate) async fn unpublish_and_unstage(&self, volume: &Volume) -> Result<(), Status> {
        let mut node = self.node().await;
        node.unpublish(volume, Path::new(TARGET)).await?;
        node.unstage(volume, Path::new(STAGING)).await
    }

    /// Takes a volume out of the guest and deletes it, and checks that nothing is left of it.
    pub(crate) async fn take_away(&mut self, volume: &Volume) {
        self.unpublish_and_unstage(volume).await.unwrap();
        let mut controller = self.controller().await;
        controller.detach(volume, DROPLET).await.unwrap();
        controller.delete(volume).await.unwrap();
        assert_eq!(self.mounts().await, "");
        assert!(!self.guest.plugged().await.unwrap().contains(&volume.id));
    }

    /// Checks that the published volume has its data.
    pub(crate) async fn assert_data(&self) {
        let data = self.guest.read(&format!("{TARGET}/data")).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&data), "kept");
    }

    /// The sources, targets and options of what is mounted at the usual places.
    pub(crate) async fn mounts(&self) -> String {
        let script = format!("grep -E ' ({STAGING}|{TARGET}) ' /proc/mounts || true");
        self.guest.succeed(&script).await.unwrap()
    }

    /// The name by which the volume's disk introduces itself; a disk with a serial tells less of it.
    pub(crate) fn name<'a>(&self, volume: &'a Volume) -> &'a str {
        match self.bus {
            Bus::Scsi => &volume.context["volumeName"],
            Bus::Virtio | Bus::Nvme => &volume.id,
        }
    }

    /// The link that udev makes for the volume's disk.
    pub(crate) fn link(&self, volume: &Volume) -> String {
        self.link_of(self.name(volume))
    }

    fn link_of(&self, name: &str) -> String {
        let told = &name[..name.len().min(20)];
        match self.bus {
            Bus::Scsi => format!("/dev/disk/by-id/scsi-0DO_Volume_{name}"),
            Bus::Virtio => format!("/dev/disk/by-id/virtio-{told}"),
            Bus::Nvme => format!("/dev/disk/by-id/nvme-QEMU_NVMe_Ctrl_{told}"),
        }
    }

    /// The device node that the volume's link leads to, once it is there.
    pub(crate) async fn device(&self, volume: &Volume) -> String {
        self.device_named(self.name(volume)).await
    }

    /// The device node of the disk with this name, once it is there.
    pub(crate) async fn device_named(&self, name: &str) -> String {
        let link = quoted(&self.link_of(name));
        self.guest.until(&format!("test -b {link}")).await.unwrap();
        self.guest.succeed(&format!("readlink -f {link}")).await.unwrap()
    }

    /// Waits until the volume's link is gone, as it is when its disk is.
    pub(crate) async fn assert_absent(&self, volume: &Volume) {
        let link = quoted(&self.link(volume));
        self.guest.until(&format!("! test -L {link}")).await.unwrap();
    }

    /// The device that is mounted at this path.
    pub(crate) async fn source_of(&self, path: &str) -> String {
        let script = format!("grep ' {path} ' /proc/mounts | tail -1 | cut -d' ' -f1");
        self.guest.succeed(&script).await.unwrap()
    }

    /// Waits until the node has logged this, after the first `mark` bytes of its log.
    pub(crate) async fn node_says(&self, mark: usize, text: &str) {
        let said = async {
            while !self.guest.node_log()[mark..].contains(text) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let said = tokio::time::timeout(LIMIT, said).await;
        said.unwrap_or_else(|_| panic!("the node never said {text:?}"));
    }
}

/// What a call answers that must not hang.
pub(crate) async fn answered<T>(call: impl Future<Output = T>) -> T {
    tokio::time::timeout(LIMIT, call).await.expect("the call hangs")
}

/// Whether the caller is to ask again.
pub(crate) fn is_not_final(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::Aborted | Code::DeadlineExceeded)
}
