//! Attached volumes as loop devices of this machine, and the links that lead to them.
//!
//! An attached volume has a loop device over its file, and the link
//! `droplets/<droplet>/dev/disk/by-id/scsi-0DO_Volume_<name>` to that: to its node in `/dev`, or to
//! one of the droplet's own, `droplets/<droplet>/dev/loop<number>`.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::content::{blocking, resolve};
use super::{copy, cut_off, link, loop_table};
use crate::state::Attachment;

/// The loop devices and links of one state folder.
#[derive(Clone, Debug)]
pub(super) struct LoopDriver {
    root: PathBuf,
    nodes: Nodes,
}

/// Whose device nodes the links lead to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nodes {
    /// Those that the kernel makes in `/dev`.
    OfMachine,
    /// Some of the droplet's own, beside its links.
    OfDroplet,
}

impl LoopDriver {
    pub(super) fn open(root: &Path, nodes: Nodes) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "loop devices need root: run as root, or with --no-devices"
        );
        let root = resolve(root)?;
        let droplets = root.join("droplets");
        fs::create_dir_all(&droplets)
            .with_context(|| format!("cannot create {}", droplets.display()))?;
        Ok(Self { root, nodes })
    }

    pub(super) async fn attach(&self, attachment: &Attachment, file: &Path) -> Result<()> {
        let device = ghost_host::loop_device::attach(file)
            .await
            .with_context(|| format!("cannot make a loop device over {}", file.display()))?;
        // A device that was kept over a restart may be older than the file's last resize.
        ghost_host::loop_device::refresh(&device).await?;
        match self.nodes {
            Nodes::OfMachine => link::create(&self.root, attachment, device.path()),
            Nodes::OfDroplet => link::create_with_node(&self.root, attachment, device.path()),
        }
    }

    pub(super) async fn detach(&self, attachment: &Attachment, file: &Path) -> Result<()> {
        link::remove(&self.root, attachment)?;
        self.take_away(|entry| entry.file == file).await
    }

    pub(super) async fn resize(&self, file: &Path) -> Result<()> {
        if let Some(device) = ghost_host::loop_device::find(file).await? {
            ghost_host::loop_device::refresh(&device).await?;
        }
        Ok(())
    }

    pub(super) async fn reconcile(
        &self,
        droplets: &[u64],
        attachments: &[(Attachment, PathBuf)],
    ) -> Result<()> {
        for droplet in droplets {
            // A machine has its device folder before it has any disk.
            let folder = link::device_folder(&self.root, *droplet);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        let attached: HashSet<&Path> = attachments.iter().map(|(_, file)| file.as_path()).collect();
        self.take_away(|entry| entry.cut_off || !attached.contains(entry.file.as_path())).await?;
        link::remove_all_but(&self.root, attachments.iter().map(|(attachment, _)| attachment))?;
        for (attachment, file) in attachments {
            self.attach(attachment, file).await?;
        }
        Ok(())
    }

    pub(super) async fn release(&self) -> Result<()> {
        let links = link::remove_all_but(&self.root, []);
        self.take_away(|_| true).await.and(links)
    }

    /// Takes these loop devices away from whoever uses them, so that nothing that is written
    /// through one reaches a volume any more. Goes on after a failure and tells the first one.
    async fn take_away(&self, chosen: impl Fn(&loop_table::LoopEntry) -> bool) -> Result<()> {
        let folder = self.root.join("volumes");
        let mut result = Ok(());
        let mut files = Vec::new();
        for entry in loop_table::below(&folder)?.into_iter().filter(|entry| chosen(entry)) {
            if !entry.deleted {
                files.push(entry.file);
            }
            result = result.and(blocking(move || cut_off::remove(&entry.device)).await);
        }
        for entry in loop_table::below(&folder)? {
            if !entry.deleted && files.contains(&entry.file) {
                tracing::info!(device = %entry.device.display(), "a device lingers in someone's hands");
                result = result.and(blocking(move || copy::replace(&entry.file)).await);
            }
        }
        result
    }
}
