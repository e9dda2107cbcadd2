//! The container image: a root file system with the driver and the tools that it starts, and nothing
//! else, as an OCI archive that is the same, byte by byte, whenever the same goes into it.
//!
//! No container engine takes part. The lower layer has the tools, with the libraries that they need,
//! out of Debian's packages; the upper one has the programs of this project, so that an upgrade of
//! the driver alone is small.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use xtask::command::{self, output, program, target};
use xtask::setup;

use self::archive::{Effort, Image};
use self::tree::Tree;

pub(crate) mod archive;
mod packages;
pub(crate) mod tree;

/// Where the image is said to come from; the tag is the version.
const REPOSITORY: &str = "ghost.greenhost.net/ghost";
/// The programs of this project that are in it.
const PROGRAMS: [&str; 2] = ["ghost", "kubectl-ghost"];
/// The user that it runs as where nothing else is said. Distroless images use the same number.
const USER: u32 = 65532;

/// Which build of the programs goes into the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Build {
    /// The static release build that is delivered.
    Release,
    /// The quick build that tests use, which can be killed at its marks.
    Debug,
}

/// An archive that has been written.
pub(crate) struct Written {
    /// Where it is.
    pub(crate) archive: PathBuf,
    /// The name and tag under which an import makes it known.
    pub(crate) reference: String,
    /// The digest of its manifest.
    pub(crate) digest: String,
}

/// Writes the archive and says what it is; unpacks its file system too, where a folder is given.
pub(crate) fn run(build: Build, root: Option<&Path>) -> Result<()> {
    let begun = Instant::now();
    let written = write(build, root)?;
    let size = fs::metadata(&written.archive)?.len();
    println!(
        "\n{}\n{}\n{} ({} KiB, {:.0} s)",
        written.reference,
        written.digest,
        written.archive.display(),
        size >> 10,
        begun.elapsed().as_secs_f64()
    );
    Ok(())
}

/// Writes the archive to `image/ghost.tar` in the folder of build results.
pub(crate) fn write(build: Build, root: Option<&Path>) -> Result<Written> {
    setup::need_programs(&["readelf", "strip"])?;
    let folder = target().join("image");
    fs::create_dir_all(&folder)?;
    let own = programs(build, &folder)?;
    let debian = packages::fetch(&folder)?;
    let tools = packages::tools(&debian, &own)?;
    let drivers = drivers(&own)?;
    if let Some(root) = root {
        tools.unpack(root)?;
        drivers.unpack(root)?;
    }
    let reference = format!("{REPOSITORY}:{}", env!("CARGO_PKG_VERSION"));
    let effort = if build == Build::Release { Effort::Small } else { Effort::Quick };
    let image = Image {
        reference: &reference,
        user: USER,
        entry_point: "/usr/bin/ghost",
        layers: &[("the tools that ghost starts", tools), ("ghost", drivers)],
    };
    let (bytes, digest) = image.archive(effort)?;
    let archive = folder.join("ghost.tar");
    fs::write(&archive, bytes).with_context(|| format!("cannot write {}", archive.display()))?;
    Ok(Written { archive, reference, digest })
}

/// Builds the programs and answers where they are, in the order of [`PROGRAMS`].
fn programs(build: Build, folder: &Path) -> Result<Vec<PathBuf>> {
    if build == Build::Release {
        let built = command::build_static()?;
        return Ok(PROGRAMS.iter().map(|name| built.join(name)).collect());
    }
    command::build()?;
    let stripped = folder.join("debug");
    fs::create_dir_all(&stripped)?;
    let strip = |name: &&str| {
        // What a debugger needs is nine tenths of these files.
        let (from, to) = (target().join("debug").join(name), stripped.join(name));
        output(program("strip").arg("-o").arg(&to).arg(from))?;
        Ok(to)
    };
    PROGRAMS.iter().map(strip).collect()
}

/// The layer with the programs of this project.
fn drivers(programs: &[PathBuf]) -> Result<Tree> {
    let mut tree = Tree::default();
    for (name, path) in PROGRAMS.iter().zip(programs) {
        let content = fs::read(path).with_context(|| format!("no {}", path.display()))?;
        tree.file(&format!("usr/bin/{name}"), 0o755, content);
    }
    let users = format!(
        "root:x:0:0:root:/:/usr/sbin/nologin\nghost:x:{USER}:{USER}:ghost:/:/usr/sbin/nologin\n"
    );
    tree.file("etc/passwd", 0o644, users.into_bytes());
    let groups = format!("root:x:0:\nghost:x:{USER}:\n");
    tree.file("etc/group", 0o644, groups.into_bytes());
    Ok(tree)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_tool_that_the_driver_starts_is_in_the_image() {
        let host = command::root().join("crates/ghost-host/src/filesystem/tools.rs");
        let text = fs::read_to_string(host).expect("the list of tools is there");
        let lists = text.lines().filter(|line| line.contains("=> &["));
        let wanted: Vec<&str> = lists.flat_map(|line| line.split('"').skip(1).step_by(2)).collect();
        assert!(wanted.contains(&"blkid"), "{wanted:?}");
        for tool in wanted {
            assert!(packages::TOOLS.contains(&tool), "{tool} is not in the image");
        }
    }
}
