//! House rules that no compiler knows: which module may use which, how long a file may be, and
//! what it may not be called.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use xtask::command::root;

/// Which modules of the crate `ghost` may use which others. The longest matching name counts.
const MAY_USE: [(&str, &[&str]); 12] = [
    ("error", &[]),
    ("volume", &["error"]),
    ("backend", &["error", "volume"]),
    ("backend/cosmos", &["error", "volume", "backend"]),
    ("controller", &["error", "volume", "backend"]),
    ("node", &["error", "volume"]),
    ("operation", &["error"]),
    ("csi", &["error", "volume", "controller", "node", "operation"]),
    ("metadata", &["error", "volume"]),
    ("telemetry", &["error", "operation", "backend", "csi"]),
    ("mark", &["error", "volume", "backend"]),
    ("cli", &["telemetry"]),
];
/// Modules that wire everything together, and may use all.
const WIRING: [&str; 4] = ["config", "run", "lib", "main"];
/// Names that say nothing.
const EMPTY_NAMES: [&str; 5] = ["utils", "util", "helpers", "manager", "common"];
/// The most lines of a file without its tests.
const LINES: usize = 400;

/// Checks everything.
pub(crate) fn run() -> Result<()> {
    let mut found = Vec::new();
    let files = sources(&root())?;
    for path in &files {
        let text = fs::read_to_string(path)?;
        let name = path.strip_prefix(root()).unwrap_or(path);
        found.extend(length(name, &text));
        found.extend(empty_name(name));
        found.extend(recursive_removal(name, &text));
        if let Ok(module) = name.strip_prefix("crates/ghost/src") {
            found.extend(uses(module, &text));
        }
    }
    if !found.is_empty() {
        bail!("the house is not tidy:\n  {}", found.join("\n  "));
    }
    println!("{} files are tidy", files.len());
    Ok(())
}

fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![folder.join("crates"), folder.join("xtask")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The text before the tests of a file.
fn without_tests(text: &str) -> &str {
    text.split_once("\n#[cfg(test)]\nmod tests {").map_or(text, |(code, _)| code)
}

fn is_test(name: &Path) -> bool {
    let mut parts = name.components().map(|part| part.as_os_str().to_string_lossy().into_owned());
    parts.any(|part| part == "tests")
        || matches!(name.file_stem().and_then(|s| s.to_str()), Some("cases" | "convergence"))
}

fn length(name: &Path, text: &str) -> Option<String> {
    let lines = without_tests(text).lines().count();
    (!is_test(name) && lines > LINES)
        .then(|| format!("{}: {lines} lines, more than {LINES}; split it", name.display()))
}

fn empty_name(name: &Path) -> Option<String> {
    let stem = name.file_stem()?.to_str()?;
    EMPTY_NAMES
        .contains(&stem)
        .then(|| format!("{}: a name that says nothing; call it what it is", name.display()))
}

fn recursive_removal(name: &Path, text: &str) -> Option<String> {
    let product = name.starts_with("crates/ghost/src") || name.starts_with("crates/ghost-host/src");
    (product && without_tests(text).contains(concat!("remove_dir", "_all")))
        .then(|| format!("{}: removes recursively, which ghost never does", name.display()))
}

/// What a file of the crate `ghost` uses of the crate without being allowed to.
fn uses(module: &Path, text: &str) -> Vec<String> {
    let own = module.with_extension("");
    let own = own.to_string_lossy();
    let top = own.split('/').next().unwrap_or_default();
    if WIRING.contains(&top) {
        return Vec::new();
    }
    let within = |name: &str| *own == *name || own.starts_with(&format!("{name}/"));
    let rule = MAY_USE.iter().filter(|(name, _)| within(name)).max_by_key(|(name, _)| name.len());
    let Some((_, allowed)) = rule else {
        return vec![format!("{own}: has no line in the table of what may use what")];
    };
    let mut found = Vec::new();
    for line in without_tests(text).lines().filter(|line| !line.trim_start().starts_with("//")) {
        for part in line.split("crate::").skip(1) {
            let used = part.split(|c: char| !c.is_alphanumeric() && c != '_').next();
            let used = used.unwrap_or_default();
            if !used.is_empty() && used != top && !allowed.contains(&used) {
                found.push(format!("{own}: uses {used}, which it must not know"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_house_is_tidy() {
        run().expect("tidy");
    }

    #[test]
    fn a_forbidden_use_is_found() {
        let found = uses(Path::new("node/stage.rs"), "use crate::backend::Backend;\n");
        assert_eq!(found, ["node/stage: uses backend, which it must not know"]);
        assert!(uses(Path::new("node/stage.rs"), "use crate::error::Error;\n").is_empty());
        assert!(!uses(Path::new("unknown.rs"), "").is_empty());
    }
}
