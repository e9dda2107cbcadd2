//! Snapshots, and what the content of a new volume comes from.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{Bytes, Region, SnapshotId, SnapshotName, VolumeId, VolumeName};

/// A snapshot as the storage describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The storage's own id.
    pub id: SnapshotId,
    /// The volume that it was made of, which may be gone.
    pub source: VolumeId,
    /// The size of a volume that is made of it, before that grows. Zero while it is not ready.
    pub size: Bytes,
    /// Where it can be restored.
    pub region: Region,
    /// The moment that its content is of.
    pub created: Timestamp,
    /// What it is there for.
    pub purpose: Purpose,
}

impl Snapshot {
    /// Whether it can be restored yet.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.size > Bytes::default()
    }
}

/// What a snapshot is there for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be kept until somebody deletes it.
    Kept,
    /// To make these clones of its volume, and to be deleted when they are made.
    Clones(BTreeSet<CloneKey>),
}

/// What is asked of the storage when a snapshot is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotSpec {
    /// The orchestrator's name, by which a repeated creation finds the first.
    pub name: SnapshotName,
    /// The volume.
    pub source: VolumeId,
    /// What it is there for.
    pub purpose: Purpose,
    /// Tags, each of what the storage accepts.
    pub tags: Vec<String>,
}

/// What the content of a new volume comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ContentSource {
    /// A snapshot.
    Snapshot(SnapshotId),
    /// Another volume, as it is now.
    Volume(VolumeId),
}

impl fmt::Display for ContentSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Snapshot(id) => write!(formatter, "snapshot {id}"),
            Self::Volume(id) => write!(formatter, "volume {id}"),
        }
    }
}

/// Stands for the name of a clone where not every text is allowed: 20 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CloneKey(String);

impl CloneKey {
    const DIGITS: usize = 20;

    /// The key of the clone of this name, always the same.
    #[must_use]
    pub fn of(name: &VolumeName) -> Self {
        let digest = Sha256::digest(name.as_str());
        let bytes = digest.iter().take(Self::DIGITS / 2);
        Self(bytes.map(|byte| format!("{byte:02x}")).collect())
    }

    /// The key with these digits, if they are ones.
    #[must_use]
    pub fn parse(digits: &str) -> Option<Self> {
        let sound = digits.len() == Self::DIGITS
            && digits.chars().all(|c| c.is_ascii_digit() || matches!(c, 'a'..='f'));
        sound.then(|| Self(digits.to_owned()))
    }

    /// The digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_of_a_clone_is_read_back_from_its_digits_only() {
        let key = CloneKey::of(&VolumeName::new("ä/ B").expect("a name"));
        assert_eq!(CloneKey::parse(key.as_str()), Some(key.clone()));
        for bad in ["", &key.as_str()[1..], &key.as_str().to_uppercase(), &"g".repeat(20)] {
            assert_eq!(CloneKey::parse(bad), None, "{bad:?}");
        }
    }
}
