//! Where a node finds the data of a volume: the one thing that the two halves of the driver share.
//!
//! It travels from the controller to the node as plain text in the volume context (from creation
//! on, unchangeable) and in the publish context (from each attachment). A volume that a person
//! brought along may have no volume context; the publish context alone is enough to find the disk,
//! but only the volume context says that it was made blank.

use std::collections::BTreeMap;

use super::{Bytes, Region, VolumeId};
use crate::error::{Error, Result};

/// A CSI context: plain text by key.
pub type Context = BTreeMap<String, String>;

const VOLUME_ID: &str = "volumeId";
const VOLUME_NAME: &str = "volumeName";
const REGION: &str = "region";
const MADE_BLANK: &str = "madeBlank";
const SIZE_BYTES: &str = "sizeBytes";
const SLOT: &str = "deviceSlot";

/// Where the data of a volume is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Locator {
    /// On a disk that the cloud plugs into the node.
    Disk(Disk),
}

/// A disk of the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Disk {
    /// The cloud's id.
    pub id: VolumeId,
    /// The cloud's name, from which the link on the node is made.
    pub name: String,
    /// The cloud's region.
    pub region: Region,
    /// The size when this was written down: the disk has at least that.
    pub minimum_size: Bytes,
    /// Whether this driver made the disk empty. Nothing else may ever be formatted.
    pub made_blank: bool,
    /// The slot that the host has put it in, such as `xvdf`, where it tells: a Xen host's disk says
    /// nothing else of itself.
    pub slot: Option<String>,
}

impl Locator {
    /// What is told of the volume from its creation on.
    #[must_use]
    pub fn volume_context(&self) -> Context {
        let Self::Disk(disk) = self;
        Context::from([
            (VOLUME_ID.to_owned(), disk.id.to_string()),
            (VOLUME_NAME.to_owned(), disk.name.clone()),
            (REGION.to_owned(), disk.region.to_string()),
            (MADE_BLANK.to_owned(), disk.made_blank.to_string()),
        ])
    }

    /// What is told with each attachment.
    #[must_use]
    pub fn publish_context(&self) -> Context {
        let Self::Disk(disk) = self;
        let mut context = Context::from([
            (VOLUME_ID.to_owned(), disk.id.to_string()),
            (VOLUME_NAME.to_owned(), disk.name.clone()),
            (REGION.to_owned(), disk.region.to_string()),
            (SIZE_BYTES.to_owned(), disk.minimum_size.get().to_string()),
        ]);
        context.extend(disk.slot.clone().map(|slot| (SLOT.to_owned(), slot)));
        context
    }

    /// Reads the two contexts of a call for this volume. Keys of others are left alone.
    ///
    /// # Errors
    /// `Invalid` when the contexts name no disk, contradict each other or belong to another volume.
    pub fn from_contexts(id: &VolumeId, publish: &Context, volume: &Context) -> Result<Self> {
        for (which, context) in [("publish", publish), ("volume", volume)] {
            if let Some(other) = context.get(VOLUME_ID).filter(|other| *other != id.as_str()) {
                return Err(Error::invalid(format!(
                    "the {which} context is of volume {other:?}, not of {id}"
                )));
            }
        }
        let text = |key: &str| -> Result<&String> {
            match (publish.get(key), volume.get(key)) {
                (Some(here), Some(there)) if here != there => Err(Error::invalid(format!(
                    "the contexts of volume {id} disagree on {key}: {here:?} and {there:?}"
                ))),
                (Some(value), _) | (None, Some(value)) if !value.is_empty() => Ok(value),
                _ => Err(Error::invalid(format!(
                    "neither the publish context nor the volume context of volume {id} has \
                     {key}; was it attached by this driver?"
                ))),
            }
        };
        let minimum_size = match publish.get(SIZE_BYTES) {
            None => Bytes::default(),
            Some(size) => Bytes::new(size.parse().map_err(|error: std::num::ParseIntError| {
                Error::invalid(format!(
                    "{SIZE_BYTES} of volume {id} is {size:?}; expected a number of bytes"
                ))
                .with_source(error)
            })?),
        };
        let made_blank = match volume.get(MADE_BLANK).map(String::as_str) {
            None | Some("false") => false,
            Some("true") => true,
            Some(other) => {
                return Err(Error::invalid(format!(
                    "{MADE_BLANK} of volume {id} is {other:?}; expected \"true\" or \"false\""
                )));
            }
        };
        Ok(Self::Disk(Disk {
            id: id.clone(),
            name: text(VOLUME_NAME)?.clone(),
            region: Region::new(text(REGION)?.clone())?,
            minimum_size,
            made_blank,
            // Of this attachment: an earlier one's was another.
            slot: publish.get(SLOT).cloned(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn disk() -> Disk {
        Disk {
            id: VolumeId::new("v-1").expect("an id"),
            name: "pvc-1".to_owned(),
            region: Region::new("ams1").expect("a slug"),
            minimum_size: Bytes::from_gib(10),
            made_blank: true,
            slot: Some("xvdf".to_owned()),
        }
    }

    #[test]
    fn both_contexts_together_give_the_locator_back() {
        let locator = Locator::Disk(disk());
        let read = Locator::from_contexts(
            &disk().id,
            &locator.publish_context(),
            &locator.volume_context(),
        );
        assert_eq!(read.expect("its own contexts"), locator);
    }

    #[test]
    fn a_volume_without_volume_context_is_found_but_never_counts_as_made_blank() {
        let publish = Locator::Disk(disk()).publish_context();
        let read = Locator::from_contexts(&disk().id, &publish, &Context::new()).expect("enough");
        assert_eq!(read, Locator::Disk(Disk { made_blank: false, ..disk() }));
    }

    #[test]
    fn contexts_that_are_not_of_this_volume_are_refused() {
        let sound = Locator::Disk(disk()).publish_context();
        let changed = |key: &str, value: &str| {
            let mut context = sound.clone();
            context.insert(key.to_owned(), value.to_owned());
            context
        };
        let mut nameless = sound.clone();
        nameless.remove(VOLUME_NAME);
        let own = Locator::Disk(disk()).volume_context();
        let none = Context::new();
        let table = [
            (changed(VOLUME_ID, "v-2"), none.clone()),
            (changed(VOLUME_NAME, "pvc-2"), own.clone()),
            (changed(SIZE_BYTES, "large"), own.clone()),
            (changed(REGION, "no such slug"), none.clone()),
            (nameless, none.clone()),
            (sound.clone(), Context::from([(MADE_BLANK.to_owned(), "perhaps".to_owned())])),
        ];
        for (publish, volume) in table {
            let error =
                Locator::from_contexts(&disk().id, &publish, &volume).expect_err("must be refused");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{publish:?} {volume:?}");
        }
    }
}
