//! Real disks behind the simulated ones: sparse files, loop devices and the links to them.
//!
//! A volume is the file `volumes/<id>` below the state folder, a snapshot is `snapshots/<id>`. An
//! attached volume has a loop device over its file, and the link
//! `droplets/<droplet>/dev/disk/by-id/scsi-0DO_Volume_<name>` to that. Nothing is remembered here:
//! what there is, is read from the folder and the kernel. The principal type is [`Disk`].

use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::state::{Attachment, Cloud, Effect};

mod copy;
mod cut_off;
mod link;
mod loop_table;

/// The disks of one state folder.
#[derive(Clone, Debug)]
pub struct Disk {
    root: PathBuf,
}

impl Disk {
    /// The disks of this state folder, which must exist.
    ///
    /// Fails when this process may not make loop devices.
    pub fn open(root: &Path) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "loop devices need root: run as root, or with --no-devices"
        );
        // The kernel tells a loop device's file by its resolved path.
        let root =
            root.canonicalize().with_context(|| format!("cannot resolve {}", root.display()))?;
        for folder in ["volumes", "snapshots", "droplets"] {
            let folder = root.join(folder);
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        Ok(Self { root })
    }

    /// Whether there is a file of any volume or snapshot.
    pub fn has_content(&self) -> Result<bool> {
        Ok(!self.files("volumes")?.is_empty() || !self.files("snapshots")?.is_empty())
    }

    /// Carries out one effect.
    pub async fn apply(&self, effect: &Effect) -> Result<()> {
        match effect {
            Effect::CreateVolume { volume, gigabytes, source } => {
                self.create_volume(volume, *gigabytes, source.as_deref()).await
            }
            Effect::RemoveVolume { volume } => remove_file(&self.volume_file(volume)),
            Effect::CreateSnapshot { snapshot, volume } => {
                let (from, to) = (self.volume_file(volume), self.snapshot_file(snapshot));
                blocking(move || copy::snapshot(&from, &to)).await
            }
            Effect::RemoveSnapshot { snapshot } => remove_file(&self.snapshot_file(snapshot)),
            Effect::Attach(attachment) => self.attach(attachment).await,
            Effect::Detach(attachment) => self.detach(attachment).await,
            Effect::Resize { volume, gigabytes } => self.resize(volume, *gigabytes).await,
        }
    }

    /// Makes files, devices and links what this cloud says they are, after a start.
    pub async fn reconcile(&self, cloud: &Cloud) -> Result<()> {
        let attachments = cloud.attachments();
        for droplet in cloud.droplets().iter().map(|droplet| droplet.id) {
            // A machine has its device folder before it has any disk.
            let folder = self.root.join(format!("droplets/{droplet}/dev"));
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        for volume in cloud.all_volumes() {
            self.restore_file(&volume.id, volume.gigabytes)?;
        }
        let attached: HashSet<PathBuf> =
            attachments.iter().map(|attachment| self.volume_file(&attachment.volume)).collect();
        self.take_away(|entry| entry.cut_off || !attached.contains(&entry.file)).await?;
        link::remove_all_but(&self.root, &attachments)?;
        for attachment in &attachments {
            self.attach(attachment).await?;
        }
        let volumes: HashSet<&str> = cloud.all_volumes().iter().map(|v| v.id.as_str()).collect();
        self.remove_files_but("volumes", &volumes)?;
        let snapshots: HashSet<&str> =
            cloud.all_snapshots().iter().map(|s| s.id.as_str()).collect();
        self.remove_files_but("snapshots", &snapshots)
    }

    /// Takes all devices and links away and leaves the files.
    pub async fn release(&self) -> Result<()> {
        let links = link::remove_all_but(&self.root, &[]);
        self.take_away(|_| true).await.and(links)
    }

    async fn create_volume(&self, id: &str, gigabytes: u64, source: Option<&str>) -> Result<()> {
        let to = self.volume_file(id);
        let size = bytes(gigabytes);
        match source {
            None => set_length(&File::create_new(&to)?, &to, size),
            Some(snapshot) => {
                let from = self.snapshot_file(snapshot);
                blocking(move || copy::still(&from, &to)).await
            }
        }
    }

    async fn attach(&self, attachment: &Attachment) -> Result<()> {
        let file = self.volume_file(&attachment.volume);
        let device = ghost_host::loop_device::attach(&file)
            .await
            .with_context(|| format!("cannot make a loop device over {}", file.display()))?;
        // A device that was kept over a restart may be older than the file's last resize.
        ghost_host::loop_device::refresh(&device).await?;
        link::create(&self.root, attachment, device.path())
    }

    async fn detach(&self, attachment: &Attachment) -> Result<()> {
        link::remove(&self.root, attachment)?;
        let file = self.volume_file(&attachment.volume);
        self.take_away(|entry| entry.file == file).await
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

    async fn resize(&self, id: &str, gigabytes: u64) -> Result<()> {
        let path = self.volume_file(id);
        self.restore_file(id, gigabytes)?;
        if let Some(device) = ghost_host::loop_device::find(&path).await? {
            ghost_host::loop_device::refresh(&device).await?;
        }
        Ok(())
    }

    /// Makes the file at least this large. It is never made smaller: see the crate's promise that
    /// what was written stays.
    fn restore_file(&self, id: &str, gigabytes: u64) -> Result<()> {
        let path = self.volume_file(id);
        let file = OpenOptions::new().write(true).open(&path).with_context(|| {
            format!("the content of volume {id} is missing: cannot open {}", path.display())
        })?;
        let size = bytes(gigabytes);
        if file.metadata()?.len() < size { set_length(&file, &path, size) } else { Ok(()) }
    }

    fn remove_files_but(&self, folder: &str, wanted: &HashSet<&str>) -> Result<()> {
        for file in self.files(folder)? {
            let known = file.file_name().and_then(|name| name.to_str());
            if !known.is_some_and(|name| wanted.contains(name)) {
                tracing::info!(file = %file.display(), "removing a file that is left over");
                remove_file(&file)?;
            }
        }
        Ok(())
    }

    fn files(&self, folder: &str) -> Result<Vec<PathBuf>> {
        let folder = self.root.join(folder);
        let list = || -> io::Result<Vec<PathBuf>> {
            fs::read_dir(&folder)?.map(|entry| Ok(entry?.path())).collect()
        };
        list().with_context(|| format!("cannot list {}", folder.display()))
    }

    fn volume_file(&self, id: &str) -> PathBuf {
        self.root.join("volumes").join(id)
    }

    fn snapshot_file(&self, id: &str) -> PathBuf {
        self.root.join("snapshots").join(id)
    }
}

/// Runs what may wait for the kernel away from the runtime's own threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.context("the work on a disk broke off")?
}

fn bytes(gigabytes: u64) -> u64 {
    gigabytes << 30
}

fn set_length(file: &File, path: &Path, size: u64) -> Result<()> {
    file.set_len(size).with_context(|| {
        format!("the filesystem of {} takes no file of {size} bytes", path.display())
    })
}

fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}
