//! Reading the mount table, in the format of `mountinfo` (proc_pid_mountinfo(5)).

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Component, Path, PathBuf};

use crate::device::{self, DeviceNumber};
use crate::error::{Error, Result};
use crate::mount::{Access, MountEntry, MountTable};

const TABLE: &str = "/proc/self/mountinfo";

/// The table at this moment.
pub(crate) fn read_table() -> Result<MountTable> {
    let text = fs::read(TABLE).map_err(Error::io("read", TABLE))?;
    parse(&text, &number_of_node).map_err(Error::io("understand", TABLE))
}

/// The path as the table would show it: links are followed but for the last component, which may be
/// a mount that is dead and would hang whoever looks at it.
pub(crate) fn resolve(path: &Path) -> Result<PathBuf> {
    let last = match path.components().next_back() {
        Some(Component::Normal(last)) if path.is_absolute() => last,
        _ => {
            let source = io::Error::new(io::ErrorKind::InvalidInput, "it is no absolute path");
            return Err(Error::io("resolve", path)(source));
        }
    };
    let parent = path.parent().unwrap_or(Path::new("/"));
    let parent = fs::canonicalize(parent).map_err(Error::io("resolve", parent))?;
    Ok(parent.join(last))
}

/// The device number of a node; the device of a filesystem that has an anonymous number.
fn number_of_node(path: &Path) -> Option<DeviceNumber> {
    device::block_number(rustix::fs::stat(path).ok()?).ok()
}

/// Parses a whole table. A line that is not understood makes all of it an error: what it says may
/// be just what the caller must know.
pub(super) fn parse(
    text: &[u8],
    number_of_node: &dyn Fn(&Path) -> Option<DeviceNumber>,
) -> io::Result<MountTable> {
    let mut entries = Vec::new();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let entry = parse_line(line, number_of_node).ok_or_else(|| {
            let line = String::from_utf8_lossy(line);
            io::Error::new(io::ErrorKind::InvalidData, format!("no line of a mount table: {line}"))
        })?;
        entries.push(entry);
    }
    Ok(MountTable { entries })
}

/// `id parent major:minor root target options [tag[:value]]... - type source super-options`
fn parse_line(
    line: &[u8],
    number_of_node: &dyn Fn(&Path) -> Option<DeviceNumber>,
) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (_id, _parent) = (fields.next()?, fields.next()?);
    let number = parse_number(fields.next()?)?;
    let root = path(fields.next()?);
    let target = path(fields.next()?);
    let access = match fields.next()?.split(|byte| *byte == b',').next()? {
        b"ro" => Access::ReadOnly,
        b"rw" => Access::ReadWrite,
        _ => return None,
    };
    let mut shared = false;
    loop {
        match fields.next()? {
            b"-" => break,
            tag => shared |= tag.starts_with(b"shared:"),
        }
    }
    let filesystem = text(fields.next()?);
    let source = path(fields.next()?);
    let super_options = split_options(&text(fields.next()?));
    // Major 0 is an anonymous number: no device, or several, of which the source names one.
    let device = if number.major == 0 {
        if filesystem == "btrfs" { number_of_node(&source) } else { None }
    } else {
        Some(number)
    };
    Some(MountEntry { device, root, target, access, shared, filesystem, source, super_options })
}

/// Reads `major:minor`.
pub(super) fn parse_number(field: &[u8]) -> Option<DeviceNumber> {
    let (major, minor) = std::str::from_utf8(field).ok()?.split_once(':')?;
    Some(DeviceNumber { major: major.parse().ok()?, minor: minor.parse().ok()? })
}

fn path(field: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescape(field)))
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescape(field)).into_owned()
}

/// Undoes the kernel's escapes: a backslash and three octal digits stand for one byte.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        match rest {
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..] => {
                bytes.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    bytes
}

/// Splits at commas that are not within double quotes: a security context may contain some.
fn split_options(options: &str) -> Vec<String> {
    let mut quoted = false;
    options
        .split(|character| {
            quoted ^= character == '"';
            character == ',' && !quoted
        })
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use proptest::prelude::*;

    use super::*;

    const LOOP: DeviceNumber = DeviceNumber { major: 7, minor: 3 };

    fn parsed(text: &str) -> Vec<MountEntry> {
        let node = |path: &Path| (path == Path::new("/dev/loop3")).then_some(LOOP);
        parse(text.as_bytes(), &node).unwrap().entries
    }

    #[test]
    fn a_line_of_each_shape_is_understood() {
        let entries = parsed(concat!(
            "36 35 98:0 /mnt1 /mnt\\0402 rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n",
            "37 35 8:16 / /a ro shared:12 master:3 propagate_from:2 - xfs /dev/sdb rw,nouuid\n",
            "38 35 0:39 / /b rw - btrfs /dev/loop3 rw,subvol=/\n",
            "39 35 0:40 / /b rw shared:7 - tmpfs none ro,context=\"u:r:t:s0:c1,c2\",size=1k\n",
        ));
        assert_eq!(entries.len(), 4);
        assert_eq!(entries[0].target, Path::new("/mnt 2"));
        assert_eq!(entries[0].root, Path::new("/mnt1"));
        assert_eq!(entries[0].device, Some(DeviceNumber { major: 98, minor: 0 }));
        assert!(!entries[0].shared && entries[1].shared);
        assert_eq!(entries[1].access, Access::ReadOnly);
        assert_eq!(entries[1].super_options, ["rw", "nouuid"]);
        assert_eq!(entries[2].device, Some(LOOP), "the number of the node named as source");
        assert_eq!(entries[3].device, None);
        assert_eq!(entries[3].super_options, ["ro", "context=\"u:r:t:s0:c1,c2\"", "size=1k"]);
    }

    #[test]
    fn mounts_at_one_place_keep_their_order() {
        let table = parse(
            b"1 0 8:0 / /a rw - ext4 /dev/sda rw\n2 1 8:16 / /a rw - ext4 /dev/sdb rw\n",
            &|_| None,
        )
        .unwrap();
        let seen = table.at(Path::new("/a")).next_back().unwrap();
        assert_eq!(seen.source, Path::new("/dev/sdb"));
        assert_eq!(table.at(Path::new("/a")).count(), 2);
        assert_eq!(table.at(Path::new("/")).count(), 0);
    }

    #[test]
    fn a_line_that_is_not_understood_fails_the_whole() {
        for line in [
            "garbage",
            "1 0 8 / /a rw - ext4 /dev/sda rw",
            "1 0 8:0 / /a xx - ext4 /dev/sda rw",
            "1 0 8:0 / /a rw shared:1 ext4 /dev/sda rw",
            "1 0 8:0 / /a rw - ext4 /dev/sda",
        ] {
            let text = format!("1 0 8:0 / /a rw - ext4 /dev/sda rw\n{line}\n");
            let error = parse(text.as_bytes(), &|_| None).unwrap_err();
            assert!(error.to_string().contains(line), "{error}");
        }
    }

    #[test]
    fn a_backslash_that_begins_no_escape_is_itself() {
        for text in [r"\", r"\0", r"\04", r"\9", r"\400", r"a\b"] {
            assert_eq!(unescape(text.as_bytes()), text.as_bytes());
        }
        assert_eq!(unescape(br"\134040"), br"\040", "an escape is undone once");
    }

    /// As the kernel's `mangle_path` does with `" \t\n\\#"`.
    fn escape(bytes: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for byte in bytes {
            match byte {
                b' ' | b'\t' | b'\n' | b'\\' | b'#' => {
                    text.extend_from_slice(format!("\\{byte:03o}").as_bytes());
                }
                byte => text.push(*byte),
            }
        }
        text
    }

    fn any_path() -> impl Strategy<Value = Vec<u8>> {
        let awkward = prop_oneof![
            Just(b' '),
            Just(b'\t'),
            Just(b'\n'),
            Just(b'\\'),
            Just(b'#'),
            Just(b'-'),
            b'0'..=b'9',
            1..=255_u8
        ];
        prop::collection::vec(awkward, 0..40).prop_map(|mut name| {
            name.insert(0, b'/');
            name
        })
    }

    proptest! {
        #[test]
        fn what_the_kernel_writes_is_read_back(
            root in any_path(),
            target in any_path(),
            source in any_path(),
            major in 1..4096_u32,
            minor in 0..1_048_576_u32,
            tags in prop::collection::vec("(shared|master|propagate_from):[0-9]{1,3}|unbindable", 0..4),
            read_only: bool,
        ) {
            let mut line = format!("1 0 {major}:{minor} ").into_bytes();
            line.extend(escape(&root));
            line.push(b' ');
            line.extend(escape(&target));
            line.extend(if read_only { b" ro,relatime" } else { b" rw,relatime" });
            for tag in &tags {
                line.extend(format!(" {tag}").bytes());
            }
            line.extend(b" - ext4 ");
            line.extend(escape(&source));
            line.extend(b" rw\n");
            let table = parse(&line, &|_| None).unwrap();
            let path = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
            let wanted = MountEntry {
                device: Some(DeviceNumber { major, minor }),
                root: path(&root),
                target: path(&target),
                access: if read_only { Access::ReadOnly } else { Access::ReadWrite },
                shared: tags.iter().any(|tag| tag.starts_with("shared")),
                filesystem: "ext4".to_owned(),
                source: path(&source),
                super_options: vec!["rw".to_owned()],
            };
            prop_assert_eq!(table.entries, vec![wanted]);
        }

        #[test]
        fn no_text_makes_the_parser_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&text, &|_| None);
        }
    }
}
