//! The image that guests start from, made once and kept.
//!
//! It is a folder below `target/guest`, named after the number of its recipe, with the root
//! filesystem, the kernel, what boots first, and the state of a guest that has booted. It appears
//! there whole or not at all. The principal type is [`Image`].

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use super::Guest;
use super::recipe::{self, MAKE, PACKAGES, PROGRAMS, SCRIPTS};
use crate::command::{output, program};
use crate::leftover::{mounts_below, unmount_below};
use crate::{interrupt, setup};

/// What the folder of an image that is not complete begins with.
const UNFINISHED: &str = "making-";

/// An image that is there.
#[derive(Clone, Debug)]
pub struct Image {
    pub(super) folder: PathBuf,
}

impl Image {
    /// The image below this folder of build results; made, which takes a minute and needs root, if
    /// it is not there.
    ///
    /// # Errors
    /// When it is not there and cannot be made here; it says what is missing.
    pub async fn ready(target: &Path) -> Result<Self> {
        let folder = target.join("guest");
        fs::create_dir_all(&folder)?;
        setup::need_programs(&[recipe::QEMU])?;
        let image = Self { folder: folder.join(recipe::number()?) };
        if image.folder.is_dir() {
            return Ok(image);
        }
        let lock = File::create(folder.join("lock"))?;
        lock.lock().context("cannot lock the folder of the guest images")?;
        if !image.folder.is_dir() {
            make(&folder, &image).await.context("cannot make the guest image")?;
        }
        Ok(image)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The state of a guest that has booted.
    pub(super) fn state(&self) -> PathBuf {
        self.file("state")
    }
}

async fn make(folder: &Path, image: &Image) -> Result<()> {
    setup::need_root("making the guest image")?;
    setup::need_programs(&PROGRAMS)?;
    for left in fs::read_dir(folder)?.flatten() {
        if left.file_name().to_string_lossy().starts_with(UNFINISHED) {
            remove(&left.path())?;
        }
    }
    // Not one that removes itself: it may have mounts in it.
    let mut unfinished = tempfile::Builder::new();
    // Guests need no root, so that whoever can read the build results can run them.
    unfinished.prefix(UNFINISHED).permissions(fs::Permissions::from_mode(0o755));
    let unfinished = unfinished.tempdir_in(folder)?.keep();
    let made = fill(&unfinished).await.and_then(|()| Ok(fs::rename(&unfinished, &image.folder)?));
    made.or_else(|error| remove(&unfinished).and(Err(error)))
}

/// Makes everything in an empty folder.
async fn fill(folder: &Path) -> Result<()> {
    let begun = Instant::now();
    let scripts = folder.join("scripts");
    fs::create_dir(&scripts)?;
    for (name, script) in SCRIPTS.into_iter().chain([("make.sh", MAKE)]) {
        fs::write(scripts.join(name), script)?;
    }
    println!("making the guest image (once; about a minute)");
    output(program("apt-get").args(["-qq", "update"]))?;
    let suite = suite()?;
    let sources = sources(&suite)?;
    let mut maker = program("bash")
        .current_dir(folder)
        .arg(scripts.join("make.sh"))
        .args([&suite, PACKAGES])
        .arg(&scripts)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let mut stdin = maker.stdin.take().context("its input was asked for")?;
    let given = stdin.write_all(sources.as_bytes());
    drop(stdin);
    let status = maker.wait()?;
    interrupt::check()?;
    if !status.success() {
        bail!("its script failed ({status})");
    }
    given?;
    println!("   files after {:.0} s", begun.elapsed().as_secs_f64());
    let image = Image { folder: folder.to_owned() };
    let run = folder.join("run");
    let mut guest = Guest::boot(&image, &run).await?;
    guest.save(&image.state()).await?;
    drop(guest);
    remove(&run)?;
    remove(&scripts)?;
    println!("   complete after {:.0} s", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Removes a folder and what is in it, but never what is mounted there, as by a script that was
/// ended in the middle.
fn remove(folder: &Path) -> Result<()> {
    let folder = folder.canonicalize()?;
    unmount_below(&folder);
    let mounts = mounts_below(&folder);
    ensure!(mounts.is_empty(), "not removed, because of mounts in it: {mounts:?}");
    Ok(fs::remove_dir_all(&folder)?)
}

/// The release of Debian that this machine runs, and its guests with it: programs that are built
/// here run there.
fn suite() -> Result<String> {
    let facts = fs::read_to_string("/etc/os-release")?;
    let fact = |name: &str| facts.lines().find_map(|line| line.strip_prefix(name));
    match (fact("ID="), fact("VERSION_CODENAME=")) {
        (Some("debian"), Some(suite)) => Ok(suite.trim_matches('"').to_owned()),
        (other, _) => bail!("guests are made on Debian only, and this is {other:?}"),
    }
}

/// Where this machine gets that release's packages, as lines of a `sources.list`.
fn sources(suite: &str) -> Result<String> {
    let format = "$(ORIGIN) deb $(REPO_URI) $(RELEASE) $(COMPONENT)";
    let targets = output(program("apt-get").args([
        "indextargets",
        "--format",
        format,
        "Created-By: Packages",
    ]))?;
    let mut lines: Vec<&str> = targets
        .lines()
        .filter_map(|line| line.strip_prefix("Debian "))
        .filter(|line| line.split(' ').nth(2).is_some_and(|release| release.starts_with(suite)))
        .collect();
    lines.dedup();
    if lines.is_empty() {
        bail!("apt has no sources of Debian's {suite} on this machine");
    }
    Ok(lines.join("\n") + "\n")
}
