//! Xen's block front-ends: disks without a serial, known by the slot that the host put them in.
//!
//! The host names a disk by a number, which the kernel shows as the last part of the front-end's
//! `nodename`. What the numbers mean is said in Xen's `docs/man/xen-vbd-interface.7`.

/// What stands before a slot among the names of a disk.
const PREFIX: &str = "xen:";

/// The name by which a disk in this slot (`xvdf`) is meant.
pub(crate) fn name(slot: &str) -> String {
    format!("{PREFIX}{slot}")
}

/// The slot that such a name means.
pub(crate) fn slot_of(name: &str) -> Option<&str> {
    name.strip_prefix(PREFIX)
}

/// The slot of a front-end whose node has this name (`device/vbd/51792`); `None` for one that is a
/// partition, or whose number means no disk.
pub(crate) fn slot(nodename: &str) -> Option<String> {
    let number: u32 = nodename.rsplit('/').next()?.parse().ok()?;
    let (prefix, disk, partition) = match number {
        // Extended numbers: bit 28, the disk, eight bits of partition.
        _ if number >> 28 == 1 => ("xvd", (number & 0x0fff_ffff) >> 8, number & 0xff),
        _ => {
            let (major, minor) = (number >> 8, number & 0xff);
            match major {
                202 => ("xvd", minor >> 4, minor & 0xf),
                8 => ("sd", minor >> 4, minor & 0xf),
                3 => ("hd", minor >> 6, minor & 0x3f),
                22 => ("hd", (minor >> 6) + 2, minor & 0x3f),
                _ => return None,
            }
        }
    };
    (partition == 0).then(|| format!("{prefix}{}", letters(disk)))
}

/// The letters of the disk of this number: a to z, aa, ab and so on.
fn letters(disk: u32) -> String {
    let mut letters = Vec::new();
    let mut rest = disk + 1;
    while rest > 0 {
        rest -= 1;
        letters.push(char::from(b'a' + u8::try_from(rest % 26).unwrap_or(0)));
        rest /= 26;
    }
    letters.iter().rev().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_the_slot_that_the_interface_says() {
        for (number, expected) in [
            ("51712", Some("xvda")),
            ("51792", Some("xvdf")),
            ("51952", Some("xvdp")),
            // The seventeenth disk and those after it have extended numbers.
            ("268439552", Some("xvdq")),
            ("268442112", Some("xvdaa")),
            ("268442368", Some("xvdab")),
            ("2048", Some("sda")),
            ("768", Some("hda")),
            ("5632", Some("hdc")),
            // A partition, a number of nothing, and no number.
            ("51713", None),
            ("99999", None),
            ("vbd", None),
        ] {
            let nodename = format!("device/vbd/{number}");
            assert_eq!(slot(&nodename).as_deref(), expected, "{number}");
        }
        assert_eq!(slot_of(&name("xvdf")), Some("xvdf"));
        assert_eq!(slot_of("pvc-1"), None);
    }
}
