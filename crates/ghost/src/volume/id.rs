//! Names and ids. Ids belong to the storage and are opaque: never judged by their form.

use std::fmt;

use crate::error::{Error, Result};

/// The specification's limit for strings that name no other, in bytes.
const STRING_LIMIT: usize = 128;
/// The specification's limit for node ids, in bytes.
const NODE_ID_LIMIT: usize = 256;

macro_rules! text_type {
    ($(#[$doc:meta])* $name:ident, $what:literal, $limit:expr) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(String);

        impl $name {
            /// Checks that the text is there and within the specification's limit.
            ///
            /// # Errors
            /// [`ErrorKind::Invalid`](crate::error::ErrorKind::Invalid) when it is empty or longer.
            pub fn new(text: impl Into<String>) -> Result<Self> {
                let text = text.into();
                if text.is_empty() {
                    return Err(Error::invalid(concat!($what, " is missing")));
                }
                if text.len() > $limit {
                    return Err(Error::invalid(format!(
                        "{} has {} bytes; at most {} are allowed", $what, text.len(), $limit
                    )));
                }
                Ok(Self(text))
            }

            /// The text itself.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "{:?}", self.0)
            }
        }
    };
}

text_type!(
    /// The storage's id of a volume; any text that is not empty may be one.
    VolumeId, "the volume id", STRING_LIMIT
);
text_type!(
    /// The orchestrator's name for a volume that it wants made: any UTF-8 of at most 128 bytes.
    VolumeName, "the volume name", STRING_LIMIT
);
text_type!(
    /// The storage's id of a snapshot; any text that is not empty may be one.
    SnapshotId, "the snapshot id", STRING_LIMIT
);
text_type!(
    /// The orchestrator's name for a snapshot that it wants made: any UTF-8 of at most 128 bytes.
    SnapshotName, "the snapshot name", STRING_LIMIT
);
text_type!(
    /// The storage's id of a machine; any text that is not empty may be one.
    NodeId, "the node id", NODE_ID_LIMIT
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    #[test]
    fn a_name_may_be_odd_but_neither_empty_nor_longer_than_128_bytes() {
        assert_eq!(VolumeName::new("ä/ B").expect("odd is fine").as_str(), "ä/ B");
        assert!(VolumeName::new("x".repeat(128)).is_ok());
        for bad in [String::new(), "x".repeat(129), "ä".repeat(65)] {
            let error = VolumeName::new(bad).expect_err("must be refused");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
        assert!(NodeId::new("n".repeat(256)).is_ok());
        assert!(NodeId::new("n".repeat(257)).is_err());
    }
}
