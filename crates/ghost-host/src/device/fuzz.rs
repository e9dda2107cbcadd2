//! Any bytes as what sysfs tells of a disk: the first two say how many of the others are the page of
//! its designators, and the rest is a serial and a name of a node.

use super::identity::{compare, cut_short, logical_unit_designators, text};
use super::{Fit, Identity, xen};

/// Reads who a disk says that it is. It is always found to be what it says, and never what has
/// nothing to do with that.
pub fn identities(data: &[u8]) {
    let [high, low, rest @ ..] = data else { return };
    let length = usize::from(u16::from_be_bytes([*high, *low])).min(rest.len());
    let (page, told) = rest.split_at(length);
    let designators = logical_unit_designators(page);
    let stranger = vec!["a stranger's name".to_owned()];
    for designator in &designators {
        assert!(!designator.is_empty());
        let own = vec![designator.clone()];
        assert_eq!(compare(&Identity::Scsi(designators.clone()), &own), Fit::Whole);
    }
    let scsi = Identity::Scsi(designators);
    assert_eq!(compare(&scsi, &[String::new()]), Fit::Other, "no name is a name");
    let Some(serial) = text(told) else { return };
    for identity in [Identity::Virtio(serial.clone()), Identity::Nvme(serial.clone())] {
        let own = vec![serial.clone()];
        assert_ne!(compare(&identity, &own), Fit::Other);
        if serial != stranger[0] && !stranger[0].starts_with(&serial) {
            assert_eq!(compare(&identity, &stranger), Fit::Other);
        }
    }
    let _ = cut_short(std::path::Path::new(&serial), std::slice::from_ref(&serial));
    if let Some(slot) = xen::slot(&serial) {
        assert!((3..=8).contains(&slot.len()), "{slot:?} is no slot");
    }
}
