//! Events of the folders in which a device's link and node appear.

use std::fs;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

/// A watch over the way to one link.
#[derive(Debug)]
pub(crate) struct Watch {
    inotify: AsyncFd<Closing>,
}

/// The descriptor, closed where nobody waits for it: closing takes a grace period of the kernel.
#[derive(Debug)]
struct Closing(Option<OwnedFd>);

impl Closing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_ref().expect("only the drop takes it").as_fd()
    }
}

impl AsRawFd for Closing {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let descriptor = self.0.take();
        if let Ok(runtime) = Handle::try_current() {
            drop(runtime.spawn_blocking(move || drop(descriptor)));
        }
    }
}

impl Watch {
    /// Fails when this process has too many of them already.
    #[expect(
        deprecated,
        reason = "its replacement is unsafe; what that demands, a descriptor that stays open and \
                  the same, an OwnedFd keeps by itself"
    )]
    pub(crate) fn new() -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        Ok(Self { inotify: AsyncFd::new(Closing(Some(inotify)))? })
    }

    /// Watches the folder of the link and that of the node it leads to, as far as they exist.
    /// To be called before each look: what changes after it is then told by [`Self::changed`].
    pub(crate) fn arm(&self, link: &Path) {
        self.arm_folder_of(link);
        if let Ok(target) = fs::read_link(link) {
            let folder = link.parent().unwrap_or(Path::new("/"));
            self.arm_folder_of(&folder.join(target));
        }
    }

    /// Waits for the next change in a watched folder.
    pub(crate) async fn changed(&self) {
        // Only that something changed counts, not what: the caller looks for itself.
        let Ok(mut ready) = self.inotify.readable().await else { return };
        let mut events = [0; 4096];
        while rustix::io::read(self.inotify.get_ref().as_fd(), &mut events)
            .is_ok_and(|count| count > 0)
        {}
        ready.clear_ready();
    }

    /// Watches the nearest folder above the path that exists.
    fn arm_folder_of(&self, path: &Path) {
        let flags = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVE
            | WatchFlags::ATTRIB
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let nearest = || -> Option<PathBuf> {
            path.ancestors().skip(1).find(|folder| folder.is_dir()).map(Path::to_owned)
        };
        // A folder may appear just before the one above it is watched: look again until that is so
        // no more. Adding the same watch twice changes nothing.
        let mut folder = nearest();
        while let Some(watched) = folder {
            let added = inotify::add_watch(self.inotify.get_ref().as_fd(), &watched, flags);
            folder = nearest().filter(|now| added.is_ok() && *now != watched);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::symlink;
    use std::time::Duration;

    use super::*;

    /// Does something after the watch was armed, and demands an event of it.
    async fn expect_event(watch: &Watch, link: &Path, act: impl FnOnce()) {
        watch.arm(link);
        act();
        let event = tokio::time::timeout(Duration::from_secs(20), watch.changed());
        event.await.expect("an event");
    }

    #[tokio::test]
    async fn every_step_by_which_a_disk_appears_gives_an_event() {
        let root = tempfile::tempdir().unwrap();
        let (folder, nodes) = (root.path().join("dev/disk/by-id"), root.path().join("nodes"));
        let link = folder.join("pvc-1");
        let watch = Watch::new().unwrap();
        expect_event(&watch, &link, || fs::create_dir(root.path().join("dev")).unwrap()).await;
        expect_event(&watch, &link, || fs::create_dir_all(&folder).unwrap()).await;
        expect_event(&watch, &link, || symlink("../../../nodes/sdb", &link).unwrap()).await;
        expect_event(&watch, &link, || fs::create_dir(&nodes).unwrap()).await;
        expect_event(&watch, &link, || drop(File::create(nodes.join("sdb")).unwrap())).await;
        // udev mends a link by putting another in its place.
        symlink("../../../nodes/sdc", root.path().join("fresh")).unwrap();
        let mend = || fs::rename(root.path().join("fresh"), &link).unwrap();
        expect_event(&watch, &link, mend).await;
        expect_event(&watch, &link, || fs::remove_file(&link).unwrap()).await;
    }

    #[tokio::test]
    async fn events_from_before_a_look_do_not_pile_up() {
        let root = tempfile::tempdir().unwrap();
        let watch = Watch::new().unwrap();
        let link = root.path().join("link");
        expect_event(&watch, &link, || {
            for number in 0..300 {
                File::create(root.path().join(number.to_string())).unwrap();
            }
        })
        .await;
        let more = tokio::time::timeout(Duration::from_millis(20), watch.changed()).await;
        assert!(more.is_err(), "one wait takes them all");
    }
}
