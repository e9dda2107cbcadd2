//! Who a disk is, by its own account, and whether that is who was meant.
//!
//! The account is read through the device's *number*, never through a link or a name: it belongs
//! to the device that is held open.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use crate::device::{Identity, xen};

/// Virtio block devices and NVMe controllers tell this many bytes of their serial (the kernel's
/// `VIRTIO_BLK_ID_BYTES`, the field SN of NVMe's "identify controller"); the rest is cut off
/// without a word.
const SERIAL_BYTES: usize = 20;

/// What the names of udev's links of such disks begin with.
const LINKS_WITH_SERIAL: [&str; 2] = ["virtio-", "nvme-"];

/// How well an identity fits the names of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It is one of the names.
    Whole,
    /// It may be a name that was cut short; it counts only if no other disk says the same.
    CutShort,
    /// It is none of them.
    Other,
}

/// Reads the identity of the device whose folder in sysfs this is.
pub(crate) fn read(folder: &Path) -> Identity {
    if let Some(file) = first_line(&folder.join("loop/backing_file")) {
        return Identity::Loop(PathBuf::from(std::ffi::OsString::from_vec(file)));
    }
    let bus = fs::read_link(folder.join("device/subsystem")).unwrap_or_default();
    match bus.file_name().and_then(|name| name.to_str()) {
        Some("scsi") => scsi(folder),
        Some("virtio") => text_file(&folder.join("serial")).map(Identity::Virtio),
        Some("nvme" | "nvme-subsystem") => {
            text_file(&folder.join("device/serial")).map(Identity::Nvme)
        }
        Some("xen") => text_file(&folder.join("device/nodename"))
            .and_then(|nodename| xen::slot(&nodename))
            .map(Identity::Xen),
        _ => None,
    }
    .unwrap_or(Identity::Unreadable)
}

/// Compares an identity with the names that were meant.
pub(crate) fn compare(identity: &Identity, names: &[String]) -> Fit {
    let mut names = names.iter().filter(|name| !name.is_empty());
    let whole = |fits: bool| if fits { Fit::Whole } else { Fit::Other };
    match identity {
        // A designator of the T10 kind has the vendor and the product in front of the name,
        // padded with blanks; no disk's name contains a blank.
        Identity::Scsi(designators) => whole(names.any(|name| {
            designators
                .iter()
                .any(|text| text == name || text.split_whitespace().next_back() == Some(name))
        })),
        Identity::Virtio(serial) | Identity::Nvme(serial) if serial.len() < SERIAL_BYTES => {
            whole(names.any(|name| name == serial))
        }
        // Even a name of just this length may be the beginning of another disk's longer name.
        Identity::Virtio(serial) | Identity::Nvme(serial) => {
            let fits = names.any(|name| {
                name == serial || name.as_bytes().get(..SERIAL_BYTES) == Some(serial.as_bytes())
            });
            if fits { Fit::CutShort } else { Fit::Other }
        }
        Identity::Loop(file) => {
            whole(names.any(|name| file.file_name().is_some_and(|file| file == name.as_str())))
        }
        Identity::Xen(slot) => whole(names.any(|name| xen::slot_of(name) == Some(slot))),
        Identity::Unreadable => Fit::Other,
    }
}

/// The link that udev makes for a disk with a serial, where this link ends with one of the disk's
/// names in full: udev is told only as much of the name as the disk tells.
pub(crate) fn cut_short(link: &Path, names: &[String]) -> Option<PathBuf> {
    let file = link.file_name()?.to_str()?;
    LINKS_WITH_SERIAL.iter().find(|prefix| file.starts_with(**prefix))?;
    names.iter().filter(|name| name.len() > SERIAL_BYTES).find_map(|name| {
        let told = name.get(..SERIAL_BYTES)?;
        Some(link.with_file_name(format!("{}{told}", file.strip_suffix(name.as_str())?)))
    })
}

/// The kernel's names of all disks that introduce themselves in such a way.
pub(crate) fn disks_that_say(
    sysfs: &Path,
    is_meant: impl Fn(&Identity) -> bool,
) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(sysfs.join("block"))? {
        let entry = entry?;
        if is_meant(&read(&entry.path())) {
            found.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    found.sort();
    Ok(found)
}

/// SCSI: the designators of the logical unit (page 0x83), then the serial (page 0x80).
fn scsi(folder: &Path) -> Option<Identity> {
    let mut designators = fs::read(folder.join("device/vpd_pg83"))
        .map(|page| logical_unit_designators(&page))
        .unwrap_or_default();
    if let Ok(page) = fs::read(folder.join("device/vpd_pg80")) {
        designators.extend(page_body(&page, 0x80).and_then(text));
    }
    (!designators.is_empty()).then_some(Identity::Scsi(designators))
}

/// Reads the page "device identification" of SPC: a list of designators. Those of the target or of
/// its ports are left out, since all disks behind one controller share them.
pub(super) fn logical_unit_designators(page: &[u8]) -> Vec<String> {
    let mut designators = Vec::new();
    let mut rest = page_body(page, 0x83).unwrap_or_default();
    while let [code_set, kind, _, length, tail @ ..] = rest {
        let Some((designator, next)) = tail.split_at_checked(usize::from(*length)) else { break };
        rest = next;
        let association = (kind >> 4) & 0b11;
        let is_text = matches!(code_set & 0xf, 2 | 3);
        if association != 0 {
            continue;
        }
        designators.extend(match kind & 0xf {
            // Vendor specific, T10 vendor identification, SCSI name string.
            0 | 1 | 8 if is_text => text(designator),
            2 => Some(format!("eui.{}", hexadecimal(designator))),
            3 => Some(format!("naa.{}", hexadecimal(designator))),
            _ => None,
        });
    }
    designators
}

/// The body of a page of vital product data, if it is this page.
fn page_body(page: &[u8], code: u8) -> Option<&[u8]> {
    let [_, found, high, low, body @ ..] = page else { return None };
    let length = usize::from(u16::from_be_bytes([*high, *low]));
    (*found == code).then(|| &body[..length.min(body.len())])
}

/// Text as devices give it: padded with blanks or zero bytes.
pub(super) fn text(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let text = text.trim_matches(|character: char| character == '\0' || character.is_whitespace());
    (!text.is_empty()).then(|| text.to_owned())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text_file(path: &Path) -> Option<String> {
    fs::read(path).ok().as_deref().and_then(text)
}

/// The first line of a file as it is: a path may have blanks at its ends.
fn first_line(path: &Path) -> Option<Vec<u8>> {
    let mut content = fs::read(path).ok()?;
    if content.last() == Some(&b'\n') {
        content.pop();
    }
    (!content.is_empty()).then_some(content)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A tree like the kernel's, with one disk in it.
    struct Tree(tempfile::TempDir);

    impl Tree {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn disk(&self, name: &str, bus: &str, files: &[(&str, &[u8])]) -> PathBuf {
            let folder = self.0.path().join("block").join(name);
            fs::create_dir_all(folder.join("device")).unwrap();
            symlink(format!("../../../../bus/{bus}"), folder.join("device/subsystem")).unwrap();
            for (file, content) in files {
                fs::create_dir_all(folder.join(file).parent().unwrap()).unwrap();
                fs::write(folder.join(file), content).unwrap();
            }
            folder
        }
    }

    fn page(code: u8, body: &[u8]) -> Vec<u8> {
        let length = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&[0, code, length[0], length[1]], body].concat()
    }

    fn designator(code_set: u8, kind: u8, content: &[u8]) -> Vec<u8> {
        let length = u8::try_from(content.len()).unwrap();
        [&[code_set, kind, 0, length], content].concat()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_scsi_disk_tells_its_designators_and_its_serial() {
        let body = [
            designator(2, 0, b"pvc-2f1e0c0a-1111-2222-3333-444455556666"),
            designator(2, 1, b"DO      Volume          pvc-2f1e0c0a-1111"),
            designator(1, 2, &[1, 2, 3, 4, 5, 6, 7, 8]),
            designator(1, 3, &[0x60, 0x01, 0x40, 0x5f]),
            designator(3, 8, b"iqn.2001-04.example:disk\0\0"),
            // Of a port and of the whole target: shared by all disks behind one controller.
            designator(1, 0x13, &[0xff; 8]),
            designator(2, 0x28, b"the-target"),
            designator(1, 4, &[0, 0, 0, 1]),
        ]
        .concat();
        let tree = Tree::new();
        let folder = tree.disk(
            "sdb",
            "scsi",
            &[
                ("device/vpd_pg83", &page(0x83, &body)),
                ("device/vpd_pg80", &page(0x80, b"  vol-0001 \0")),
            ],
        );
        let wanted = [
            "pvc-2f1e0c0a-1111-2222-3333-444455556666",
            "DO      Volume          pvc-2f1e0c0a-1111",
            "eui.0102030405060708",
            "naa.6001405f",
            "iqn.2001-04.example:disk",
            "vol-0001",
        ];
        let identity = read(&folder);
        assert_eq!(identity, Identity::Scsi(names(&wanted)));
        for name in ["pvc-2f1e0c0a-1111-2222-3333-444455556666", "pvc-2f1e0c0a-1111", "vol-0001"] {
            assert_eq!(compare(&identity, &names(&["other", name])), Fit::Whole, "{name}");
        }
        for name in
            ["pvc-2f1e0c0a", "pvc-2f1e0c0a-1111-2222", "Volume", "DO", "the-target", "", "vol-000"]
        {
            assert_eq!(compare(&identity, &names(&[name])), Fit::Other, "{name}");
        }
        assert_eq!(compare(&identity, &[]), Fit::Other);
    }

    #[test]
    fn a_scsi_disk_with_the_serial_page_alone_is_known_by_it() {
        let tree = Tree::new();
        let folder = tree.disk("sda", "scsi", &[("device/vpd_pg80", &page(0x80, b"vol-0001"))]);
        assert_eq!(read(&folder), Identity::Scsi(names(&["vol-0001"])));
    }

    #[test]
    fn broken_pages_are_no_identity_and_no_panic() {
        let whole = page(0x83, &designator(2, 0, b"pvc-1"));
        for length in 0..whole.len() {
            let tree = Tree::new();
            let folder = tree.disk("sda", "scsi", &[("device/vpd_pg83", &whole[..length])]);
            assert_eq!(read(&folder), Identity::Unreadable, "{length}");
        }
        let tree = Tree::new();
        let wrong = page(0x80, &designator(2, 0, b"pvc-1"));
        let folder = tree.disk("sda", "scsi", &[("device/vpd_pg83", &wrong)]);
        assert_eq!(read(&folder), Identity::Unreadable, "another page's body means nothing");
        assert_eq!(compare(&Identity::Unreadable, &names(&["pvc-1", ""])), Fit::Other);
    }

    #[test]
    fn a_virtio_serial_that_was_cut_fits_only_a_name_that_begins_with_all_of_it() {
        let tree = Tree::new();
        let long = "pvc-2f1e0c0a-1111-2222-3333-444455556666";
        let cut = tree.disk("vdb", "virtio", &[("serial", &long.as_bytes()[..20])]);
        let twin = tree.disk("vdc", "virtio", &[("serial", &long.as_bytes()[..20])]);
        let short = tree.disk("vdd", "virtio", &[("serial", b"pvc-1\n")]);
        tree.disk("vde", "virtio", &[("serial", b"")]);
        assert_eq!(read(&short), Identity::Virtio("pvc-1".to_owned()));
        assert_eq!(compare(&read(&short), &names(&["pvc-1"])), Fit::Whole);
        assert_eq!(compare(&read(&short), &names(&["pvc-11", "pvc-"])), Fit::Other);
        assert_eq!(compare(&read(&cut), &names(&[long])), Fit::CutShort);
        assert_eq!(compare(&read(&cut), &names(&[&long[..20]])), Fit::CutShort);
        assert_eq!(compare(&read(&cut), &names(&[&long[..19]])), Fit::Other);
        assert_eq!(read(&cut), read(&twin));
        let sharing = |serial: &str| {
            let wanted = Identity::Virtio(serial.to_owned());
            disks_that_say(tree.0.path(), |identity| *identity == wanted).unwrap()
        };
        assert_eq!(sharing(&long[..20]), ["vdb", "vdc"]);
        assert_eq!(sharing("pvc-1"), ["vdd"]);
    }

    #[test]
    fn the_link_of_a_disk_is_cut_as_its_serial_is() {
        let id = "2f1e0c0a-1111-4222-8333-444455556666";
        let cut = |file: &str| {
            let link = Path::new("/dev/disk/by-id").join(file);
            let cut = cut_short(&link, &names(&["a-short-name", id]))?;
            Some(cut.strip_prefix("/dev/disk/by-id").unwrap().to_str().unwrap().to_owned())
        };
        let told = "2f1e0c0a-1111-4222-8";
        assert_eq!(cut(&format!("virtio-{id}")), Some(format!("virtio-{told}")));
        assert_eq!(cut(&format!("nvme-Disk_{id}")), Some(format!("nvme-Disk_{told}")));
        for uncut in [
            format!("virtio-{told}"),
            format!("virtio-{id}0"),
            "virtio-a-short-name".to_owned(),
            format!("scsi-0DO_Volume_{id}"),
        ] {
            assert_eq!(cut(&uncut), None, "{uncut}");
        }
    }

    #[test]
    fn an_nvme_disk_is_known_by_its_controllers_serial() {
        let tree = Tree::new();
        let folder = tree.disk("nvme0n1", "nvme", &[("device/serial", b"vol0123456789       \n")]);
        assert_eq!(read(&folder), Identity::Nvme("vol0123456789".to_owned()));
        assert_eq!(compare(&read(&folder), &names(&["vol0123456789"])), Fit::Whole);
        assert_eq!(compare(&read(&folder), &names(&["vol01234567891", "vol"])), Fit::Other);
        let whole = tree.disk("nvme1n1", "nvme", &[("device/serial", b"2f1e0c0a-1111-4222-8\n")]);
        let id = "2f1e0c0a-1111-4222-8333-444455556666";
        assert_eq!(compare(&read(&whole), &names(&[id])), Fit::CutShort);
        assert_eq!(compare(&read(&whole), &names(&["2f1e0c0a-1111-4222-9333"])), Fit::Other);
    }

    #[test]
    fn a_loop_device_is_known_by_the_name_of_its_file() {
        let tree = Tree::new();
        let folder = tree.disk("loop0", "none", &[("loop/backing_file", b"/images/pvc 1 \n")]);
        assert_eq!(read(&folder), Identity::Loop(PathBuf::from("/images/pvc 1 ")));
        assert_eq!(compare(&read(&folder), &names(&["pvc 1 "])), Fit::Whole);
        assert_eq!(
            compare(&read(&folder), &names(&["pvc 1", "images", "/images/pvc 1 "])),
            Fit::Other
        );
        let deleted = Identity::Loop(PathBuf::from("/images/pvc-1 (deleted)"));
        assert_eq!(compare(&deleted, &names(&["pvc-1"])), Fit::Other);
    }

    #[test]
    fn a_device_of_an_unknown_bus_says_nothing() {
        let tree = Tree::new();
        let folder = tree.disk("xvda", "xen", &[("serial", b"pvc-1"), ("device/serial", b"pvc-1")]);
        assert_eq!(read(&folder), Identity::Unreadable);
        assert_eq!(read(&tree.0.path().join("absent")), Identity::Unreadable);
    }
}
