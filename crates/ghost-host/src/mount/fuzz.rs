//! Any bytes as a mount table, and as a path in one.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use super::table::parse;

/// Reads a mount table. One that is not understood is an error, and any path that can be mounted at
/// is read back.
pub fn mount_table(data: &[u8]) {
    if let Ok(table) = parse(data, &|_| None) {
        let lines = data.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
        assert_eq!(table.entries().len(), lines, "a mount is lost or made up");
    }
    let mut target = vec![b'/'];
    target.extend(data.iter().copied().filter(|byte| *byte != 0));
    let mut line = b"1 0 8:1 / ".to_vec();
    for byte in &target {
        match byte {
            b' ' | b'\t' | b'\n' | b'\\' | b'#' => {
                line.extend_from_slice(format!("\\{byte:03o}").as_bytes());
            }
            byte => line.push(*byte),
        }
    }
    line.extend_from_slice(b" rw shared:1 - ext4 /dev/sda1 rw\n");
    let table = parse(&line, &|_| None).expect("a line as the kernel writes it");
    let target = Path::new(OsStr::from_bytes(&target));
    assert_eq!(table.at(target).count(), 1, "{target:?} is not found");
}
