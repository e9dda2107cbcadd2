//! What must not stand anywhere in this crate.

#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::fs;
use std::path::{Path, PathBuf};

/// Words, and why each is not to be used.
const FORBIDDEN: [(&str, &str); 5] = [
    ("remove_dir_all", "what lies beneath a mount that was overlooked would be lost"),
    ("UnmountFlags::FORCE", "it loses what was written"),
    ("\"-F\"", "it forces mkfs over what it finds"),
    ("\"--force\"", "it forces a tool over what it finds"),
    ("\"-y\"", "it answers the questions of fsck"),
];

#[test]
fn nothing_removes_recursively_or_forces_a_tool() {
    let mut files = Vec::new();
    collect(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
    assert!(files.len() > 20, "the sources are looked at: {files:?}");
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        for (word, why) in FORBIDDEN {
            assert!(!text.contains(word), "{} has {word}: {why}", file.display());
        }
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { collect(&path, files) } else { files.push(path) }
    }
}
