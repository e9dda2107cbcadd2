//! House rules that no compiler knows: which module may use which, how long a file may be, what it
//! may not be called, and in which order it names what it uses.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use xtask::command::root;

/// Which modules of the crate `ghost` may use which others. The longest matching name counts.
const MAY_USE: [(&str, &[&str]); 16] = [
    ("error", &[]),
    ("volume", &["error"]),
    ("backend", &["error", "volume"]),
    ("backend/cosmos", &["error", "volume", "backend", "caller"]),
    ("controller", &["error", "volume", "backend"]),
    ("node", &["error", "volume"]),
    ("caller", &[]),
    ("operation", &["error", "caller"]),
    ("csi", &["error", "volume", "controller", "node", "operation"]),
    ("kubelet", &["error", "csi"]),
    ("metadata", &["error", "volume"]),
    ("telemetry", &["error"]),
    ("telemetry/admin", &["error", "csi"]),
    ("telemetry/metrics", &["error", "operation", "backend::cosmos"]),
    ("mark", &["error", "volume", "backend"]),
    ("cli", &["telemetry"]),
];
/// Modules that wire everything together, and may use all.
const WIRING: [&str; 5] = ["config", "run", "lib", "main", "fuzz"];
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
        found.extend(imports(name, &text));
        if let Ok(module) = name.strip_prefix("crates/ghost/src") {
            found.extend(uses(module, &text));
        }
    }
    found.extend(oldest_compiler()?);
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
        || matches!(name.file_stem().and_then(|s| s.to_str()), Some("convergence"))
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
    // A path of a module of its own depth in `super::` leads to the crate's root.
    let to_root = "super::".repeat(own.split('/').count());
    for line in without_tests(text).lines().filter(|line| !line.trim_start().starts_with("//")) {
        if line.contains("crate::{") || line.contains("crate::*") || line.contains(&to_root) {
            found.push(format!("{own}: {:?}; write one crate::… for each module", line.trim()));
        }
        for path in line.split("crate::").skip(1) {
            let used = path.split(|c: char| !c.is_alphanumeric() && c != '_').next();
            let used = used.unwrap_or_default();
            let leads = |allowed: &&str| {
                let rest = path.strip_prefix(allowed);
                rest.is_some_and(|rest| {
                    !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                })
            };
            if !used.is_empty() && used != top && !allowed.iter().any(leads) {
                found.push(format!("{own}: uses {used}, which it must not know"));
            }
        }
    }
    found
}

/// Where a `use` leads; the order is that of the groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Standard,
    External,
    Own,
}

/// The first place at which a file's uses are not in groups: the standard library's, other crates',
/// this crate's, with an empty line between.
fn imports(name: &Path, text: &str) -> Option<String> {
    let mut last: Option<Group> = None;
    let mut apart = true;
    for line in without_tests(text).lines() {
        if line.is_empty() {
            apart = true;
        }
        let Some(path) = line.strip_prefix("use ") else { continue };
        let group = match path.split([':', ';', ' ']).next().unwrap_or_default() {
            "std" | "core" | "alloc" => Group::Standard,
            "crate" | "self" | "super" => Group::Own,
            // What a file takes of its own modules may stand beside their declarations.
            module if declares(text, module) => continue,
            _ => Group::External,
        };
        let tidy = last.is_none_or(|last| if apart { last < group } else { last == group });
        if !tidy {
            let name = name.display();
            return Some(format!("{name}: {line:?} stands in the wrong group of uses"));
        }
        (last, apart) = (Some(group), false);
    }
    None
}

/// Whether a file has this module in a file of its own.
fn declares(text: &str, module: &str) -> bool {
    text.lines().any(|line| line.ends_with(&format!("mod {module};")))
}

/// The packages that do not say which compiler is the oldest they build with.
fn oldest_compiler() -> Result<Vec<String>> {
    let mut manifests = vec![(root().join("Cargo.toml"), "rust-version = \"")];
    let members = fs::read_dir(root().join("crates"))?.collect::<std::io::Result<Vec<_>>>()?;
    let members = members.iter().map(fs::DirEntry::path).chain([root().join("xtask")]);
    manifests
        .extend(members.map(|folder| (folder.join("Cargo.toml"), "rust-version.workspace = true")));
    let mut found = Vec::new();
    for (manifest, wanted) in manifests {
        let text = fs::read_to_string(&manifest)?;
        if !text.lines().any(|line| line.starts_with(wanted)) {
            found.push(format!("{}: lacks {wanted:?}", manifest.display()));
        }
    }
    Ok(found)
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

    #[test]
    fn a_use_is_found_however_it_is_written() {
        for bad in ["use crate::{backend, error};", "use crate::*;", "super::super::backend::new()"]
        {
            assert!(!uses(Path::new("node/stage.rs"), bad).is_empty(), "{bad}");
        }
        assert!(uses(Path::new("node/stage.rs"), "super::place::of()").is_empty());
        let metrics = Path::new("telemetry/metrics.rs");
        assert!(uses(metrics, "use crate::backend::cosmos::Meter;").is_empty());
        assert!(!uses(metrics, "use crate::backend::Backend;").is_empty());
        assert!(!uses(metrics, "use crate::errors::Error;").is_empty());
        assert!(!uses(Path::new("telemetry/log.rs"), "use crate::csi::Endpoint;").is_empty());
    }

    #[test]
    fn uses_stand_in_groups() {
        let check = |text| imports(Path::new("a.rs"), text).is_none();
        assert!(check(
            "use std::fs;\n\nuse anyhow::Result;\nuse x::{\n    y,\n};\n\nuse crate::a;\n"
        ));
        assert!(check("use crate::a;\nuse super::b;\n"));
        assert!(check("use std::fs;\n\nuse crate::a;\n\npub(crate) mod own;\n\nuse own::A;\n"));
        for bad in [
            "use std::fs;\nuse anyhow::Result;\n",
            "use anyhow::Result;\n\nuse std::fs;\n",
            "use anyhow::Result;\n\nuse tokio::net;\n",
        ] {
            assert!(!check(bad), "{bad}");
        }
    }
}
