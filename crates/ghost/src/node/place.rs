//! The paths that a caller gives, and what is at them by the mount table's account.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use super::Node;
use super::error::{domain, is_absent};
use crate::error::{Error, ErrorKind, Result};

/// More mounts than anybody stacks at one path; whoever meets more races against somebody.
const MOST_LAYERS: usize = 64;

/// The path as the mount table would show it.
///
/// # Errors
/// `Invalid` when it is no absolute path, or climbs; `Failed` when its parent is not there.
pub(super) async fn resolve(node: &Node, what: &str, path: &Path) -> Result<PathBuf> {
    check(what, path)?;
    node.host.resolve(path).await.map_err(domain)
}

/// The same, or `None` when the folder that it would be in is not there, and so neither is it.
pub(super) async fn resolve_if_there(
    node: &Node,
    what: &str,
    path: &Path,
) -> Result<Option<PathBuf>> {
    check(what, path)?;
    match node.host.resolve(path).await {
        Ok(place) => Ok(Some(place)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(domain(error)),
    }
}

/// The same of a path that is only looked at: one at which nothing can be is one where nothing is.
pub(super) async fn looked_for(node: &Node, path: &Path) -> Result<Option<PathBuf>> {
    match resolve_if_there(node, "path", path).await {
        Err(error) if error.kind() == ErrorKind::Invalid => Ok(None),
        other => other,
    }
}

/// Takes off everything that is mounted at the place, and answers when the table says that nothing
/// is. It never looks at what is mounted, which may be dead.
pub(super) async fn clear(node: &Node, place: &Path) -> Result<()> {
    for _ in 0..=MOST_LAYERS {
        let table = node.host.mounts().await.map_err(domain)?;
        if table.at(place).next().is_none() {
            return Ok(());
        }
        node.host.unmount(place).await.map_err(domain)?;
    }
    Err(Error::failed(format!(
        "{} is mounted again as fast as it is unmounted; is another process at work there?",
        place.display()
    )))
}

/// Checks that the path can mean one place only.
pub(super) fn check(what: &str, path: &Path) -> Result<()> {
    let refuse = |why: &str| Err(Error::invalid(format!("the {what} {} {why}", path.display())));
    if path.as_os_str().as_bytes().contains(&0) {
        return refuse("contains a NUL byte");
    }
    if !path.is_absolute() {
        return refuse("is not absolute");
    }
    if path.components().any(|part| part == Component::ParentDir) {
        return refuse("contains \"..\"");
    }
    if !matches!(path.components().next_back(), Some(Component::Normal(_))) {
        return refuse("names no entry of a folder");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_must_be_absolute_and_may_not_climb() {
        for good in ["/a", "/a/b/", "/a/./b", "/a b/ü"] {
            check("target path", Path::new(good)).expect(good);
        }
        for bad in ["", "a", "./a", "/", "/a/../b", "/a/..", "..", "/a\0b"] {
            let error = check("target path", Path::new(bad)).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}");
            assert!(error.to_string().starts_with("the target path"), "{error}");
        }
    }
}
