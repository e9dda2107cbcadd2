//! What the kernel says is mounted where.

use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// How many mounts lie one over the other at this very path.
pub(crate) fn at(path: &Path) -> usize {
    points().iter().filter(|point| *point == path).count()
}

/// Whether anything is mounted at this path or below.
pub(crate) fn any_below(path: &Path) -> bool {
    points().iter().any(|point| point.starts_with(path))
}

fn points() -> Vec<PathBuf> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = table.split(|byte| *byte == b'\n');
    lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4)).map(unescaped).collect()
}

/// A path of the kernel's table, where blanks, tabs, newlines and backslashes are octal numbers.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut path = Vec::new();
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let number = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        match number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                path.push(byte);
                rest = &after[3..];
            }
            None => {
                path.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_the_table_is_read_with_its_blanks() {
        assert_eq!(unescaped(br"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescaped("/ä".as_bytes()), Path::new("/ä"));
        assert!(at(Path::new("/proc")) >= 1, "the kernel has a table");
    }
}
