//! What a StorageClass may say.
//!
//! There is no parameter yet: the filesystem comes as the capability's `fs_type`. The keys that
//! the provisioner itself adds are accepted; any other is a typing error that would be found out
//! only when the volume does not behave as its owner thinks.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// The prefix of what the provisioner adds, such as the claim's name.
const PROVISIONER_PREFIX: &str = "csi.storage.k8s.io/";

/// The checked parameters of a creation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parameters;

impl Parameters {
    /// Reads the parameters of a StorageClass.
    ///
    /// # Errors
    /// `Invalid` naming the first key that is not known.
    pub fn parse(parameters: &BTreeMap<String, String>) -> Result<Self> {
        match parameters.keys().find(|key| !key.starts_with(PROVISIONER_PREFIX)) {
            None => Ok(Self),
            Some(key) => Err(Error::invalid(format!(
                "unknown parameter {key:?}; this driver takes none (the filesystem is set with \
                 csi.storage.k8s.io/fstype)"
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_provisioners_own_keys_pass_and_a_typing_error_does_not() {
        let of = |key: &str| BTreeMap::from([(key.to_owned(), "x".to_owned())]);
        assert!(Parameters::parse(&of("csi.storage.k8s.io/pvc/name")).is_ok());
        let error = Parameters::parse(&of("fsType")).expect_err("unknown");
        assert!(error.to_string().contains("\"fsType\""), "{error}");
    }
}
