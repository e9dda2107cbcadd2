//! Notes of formats that are under way, so that one cut short is recognised: the only files that
//! the driver writes for itself.
//!
//! A note names a volume and the device's own account of who it is. It is written, down to the
//! disk, before the device is formatted, and removed before the filesystem is first mounted. So
//! while a note exists the half-made filesystem that it speaks of has never been in use through
//! this node.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ghost_host::{BlockDevice, Identity};
use sha2::{Digest as _, Sha256};

use crate::error::{Error, Result};
use crate::volume::VolumeId;

/// The folder of the notes. Clones are the same folder.
#[derive(Clone, Debug)]
pub struct FormatNotes(PathBuf);

impl FormatNotes {
    /// Uses this folder, making it when it is not there. It has to outlive the process.
    ///
    /// # Errors
    /// `Failed` when it cannot be made or is no folder.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Self> {
        let folder = folder.into();
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .map_err(failed("make the folder of the format notes", &folder))?;
        Ok(Self(folder))
    }

    /// Notes that this device is being formatted for this volume. It is on the disk afterwards.
    ///
    /// # Errors
    /// `Failed` when it cannot be written; then nothing may be formatted.
    pub async fn write(&self, id: &VolumeId, device: &str) -> Result<()> {
        let (folder, path, text) = (self.0.clone(), self.path(id), text(id, device));
        blocking(move || {
            let temporary = path.with_extension("new");
            write_down(&temporary, &text)
                .and_then(|()| fs::rename(&temporary, &path))
                .and_then(|()| flush(&folder))
                .map_err(failed("write the format note", &path))
        })
        .await
    }

    /// Removes the note of the volume. There being none is success.
    ///
    /// # Errors
    /// `Failed` when it is still there; then nothing may be mounted.
    pub async fn remove(&self, id: &VolumeId) -> Result<()> {
        let (folder, path) = (self.0.clone(), self.path(id));
        blocking(move || {
            match fs::remove_file(&path) {
                Ok(()) => flush(&folder),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
            }
            .map_err(failed("remove the format note", &path))
        })
        .await
    }

    /// Whether a note can be written: one is, and removed.
    ///
    /// # Errors
    /// `Failed` when it cannot.
    pub async fn check(&self) -> Result<()> {
        let (folder, path) = (self.0.clone(), self.0.join("check.new"));
        blocking(move || {
            write_down(&path, "")
                .and_then(|()| fs::remove_file(&path))
                .and_then(|()| flush(&folder))
                .map_err(failed("write a format note in", &folder))
        })
        .await
    }

    /// Whether a format of this very device for this volume was begun and not finished.
    ///
    /// # Errors
    /// `Failed` when the note cannot be read.
    pub async fn is_for(&self, id: &VolumeId, device: &str) -> Result<bool> {
        let (path, text) = (self.path(id), text(id, device));
        blocking(move || match fs::read(&path) {
            Ok(found) => Ok(found == text.as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("read the format note", &path)(error)),
        })
        .await
    }

    /// An id may be any text, a file name may not.
    fn path(&self, id: &VolumeId) -> PathBuf {
        let digest = Sha256::digest(id.as_str());
        let name: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        self.0.join(name).with_extension("note")
    }
}

/// The device's own account of who it is, as a note has it.
pub(super) fn identity_text(device: &BlockDevice) -> String {
    match device.identity() {
        Identity::Scsi(designators) => format!("scsi {designators:?}"),
        Identity::Virtio(serial) => format!("virtio {serial:?}"),
        Identity::Nvme(serial) => format!("nvme {serial:?}"),
        Identity::Xen(slot) => format!("xen {slot:?}"),
        Identity::Loop(file) => format!("loop {file:?}"),
        Identity::Unreadable => "unreadable".to_owned(),
    }
}

fn text(id: &VolumeId, device: &str) -> String {
    format!("volume {:?}\ndevice {device}\n", id.as_str())
}

fn write_down(path: &Path, text: &str) -> io::Result<()> {
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Makes sure that what was renamed or removed stays so when the power fails.
fn flush(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn failed(what: &str, path: &Path) -> impl FnOnce(io::Error) -> Error {
    let message = format!("cannot {what} {}", path.display());
    move |source| Error::failed(message).with_source(source)
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work)
        .await
        .map_err(|error| Error::bug("the work on a format note ended early").with_source(error))?
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::error::ErrorKind;

    fn id(text: &str) -> VolumeId {
        VolumeId::new(text).expect("an id")
    }

    #[tokio::test]
    async fn a_note_is_for_its_volume_and_its_device_only() {
        let folder = tempfile::tempdir().expect("a folder");
        let notes = FormatNotes::open(folder.path().join("a/b")).expect("made");
        let mode = fs::metadata(folder.path().join("a/b")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let odd = id("../v/1");
        assert!(!notes.is_for(&odd, "scsi a").await.expect("none yet"));
        notes.write(&odd, "scsi a").await.expect("written");
        // As after a restart.
        let notes = FormatNotes::open(folder.path().join("a/b")).expect("there");
        assert!(notes.is_for(&odd, "scsi a").await.expect("read"));
        assert!(!notes.is_for(&odd, "scsi b").await.expect("another device"));
        assert!(!notes.is_for(&id("v-2"), "scsi a").await.expect("another volume"));
        notes.write(&odd, "scsi b").await.expect("written over");
        assert!(!notes.is_for(&odd, "scsi a").await.expect("read"));
        notes.remove(&odd).await.expect("removed");
        notes.remove(&odd).await.expect("removed twice");
        assert!(!notes.is_for(&odd, "scsi b").await.expect("none"));
        let left = fs::read_dir(folder.path().join("a/b")).expect("there").count();
        assert_eq!(left, 0, "nothing is left behind");
    }

    #[tokio::test]
    async fn a_note_that_cannot_be_written_or_read_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let notes = FormatNotes::open(folder.path().join("notes")).expect("made");
        // In the place of the note is a folder, which can be neither read nor replaced.
        fs::create_dir_all(notes.path(&id("v")).join("x")).expect("made");
        for error in [
            notes.write(&id("v"), "scsi a").await.expect_err("in the way"),
            notes.is_for(&id("v"), "scsi a").await.expect_err("in the way"),
            notes.remove(&id("v")).await.expect_err("in the way"),
        ] {
            assert_eq!(error.kind(), ErrorKind::Failed, "{}", error.chain());
        }
        fs::write(folder.path().join("file"), "x").expect("written");
        assert!(FormatNotes::open(folder.path().join("file")).is_err());
    }
}
