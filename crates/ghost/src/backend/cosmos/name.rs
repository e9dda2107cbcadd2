//! The orchestrator's names as the cloud accepts them.
//!
//! A CSI name is any UTF-8 of up to 128 bytes; the cloud takes `[a-z][a-z0-9-]{0,63}`. A name that
//! already is one stays as it is, because people look for it in the cloud's own panel; any other
//! becomes its readable part with a hash of the whole behind it. Asking twice gives the same name,
//! and two names never meet: a name that looks as if it had a hash behind it gets one too.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// The cloud's limit, in characters.
const LIMIT: usize = 64;
/// The hexadecimal digits of a hash: 80 bits.
const HASH_DIGITS: usize = 20;
/// What separates the readable part from the hash.
const MARK: &str = "-x";
/// The longest cluster id: with it and a dash, the usual `pvc-<uuid>` (40 characters) still fits.
const CLUSTER_ID_LIMIT: usize = 20;

/// The id of a cluster, which stands before the names of its volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterId(String);

impl ClusterId {
    /// Checks a cluster id: a letter, then letters and digits, all small, at most 20. It has no
    /// dash, so that no two clusters can make the same name.
    ///
    /// # Errors
    /// `Invalid` when it is anything else.
    pub fn new(id: impl Into<String>) -> Result<Self> {
        let id = id.into();
        let sound = id.len() <= CLUSTER_ID_LIMIT
            && id.starts_with(|c: char| c.is_ascii_lowercase())
            && id.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
        if !sound {
            return Err(Error::invalid(format!(
                "cluster id {id:?} must begin with a small letter and have at most \
                 {CLUSTER_ID_LIMIT} small letters and digits"
            )));
        }
        Ok(Self(id))
    }

    /// The id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The cloud's name for the orchestrator's.
pub(super) fn cloud_name(cluster: Option<&ClusterId>, name: &str) -> String {
    let prefix = cluster.map(prefix).unwrap_or_default();
    let plain = format!("{prefix}{name}");
    if is_cloud_name(&plain) && !has_hash(name) {
        return plain;
    }
    let mut digest = String::with_capacity(64);
    for byte in Sha256::digest(name.as_bytes()) {
        write!(digest, "{byte:02x}").expect("a String takes what is written to it");
    }
    let room = LIMIT - prefix.len() - MARK.len() - HASH_DIGITS;
    let readable = readable(name, room);
    let lead = if prefix.is_empty() && !readable.starts_with(|c: char| c.is_ascii_lowercase()) {
        "v"
    } else {
        ""
    };
    let cut = readable.len().min(room - lead.len());
    format!("{prefix}{lead}{}{MARK}{}", &readable[..cut], &digest[..HASH_DIGITS])
}

/// Whether [`cloud_name`] gives this name to something of this cluster.
pub(super) fn is_of(cluster: &ClusterId, cloud_name: &str) -> bool {
    let rest = cloud_name.strip_prefix(&prefix(cluster));
    is_cloud_name(cloud_name) && rest.is_some_and(|rest| !rest.is_empty())
}

fn prefix(cluster: &ClusterId) -> String {
    format!("{}-", cluster.as_str())
}

fn is_cloud_name(name: &str) -> bool {
    name.len() <= LIMIT
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn has_hash(name: &str) -> bool {
    name.rsplit_once(MARK).is_some_and(|(_, hash)| {
        hash.len() == HASH_DIGITS && hash.chars().all(|c| c.is_ascii_hexdigit())
    })
}

/// What can be kept of the name: letters made small, runs of anything else made one dash.
fn readable(name: &str, room: usize) -> String {
    let mut text = String::with_capacity(room);
    for c in name.chars().map(|c| c.to_ascii_lowercase()) {
        if text.len() == room {
            break;
        }
        if c.is_ascii_lowercase() || c.is_ascii_digit() {
            text.push(c);
        } else if !text.is_empty() && !text.ends_with('-') {
            text.push('-');
        }
    }
    text.truncate(text.trim_end_matches('-').len());
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(cluster: Option<&str>, name: &str) -> String {
        let cluster = cluster.map(|id| ClusterId::new(id).expect("a sound id"));
        cloud_name(cluster.as_ref(), name)
    }

    #[test]
    fn b36_odd_names_become_names_that_the_cloud_takes() {
        let usual = "pvc-2f1e0c0a-1111-2222-3333-444455556666";
        assert_eq!(of(None, usual), usual);
        assert_eq!(of(Some("prod"), usual), format!("prod-{usual}"));
        assert_eq!(of(Some("a2345678901234567890"), usual).len(), 61);
        for odd in
            ["Grüße / an Alle", "UPPER", "9lives", "-", "日本", &"x".repeat(128), "a_b", "a b"]
        {
            for cluster in [None, Some("prod")] {
                let name = of(cluster, odd);
                assert!(is_cloud_name(&name), "{odd:?} became {name:?}");
                assert_eq!(name, of(cluster, odd));
            }
        }
        assert_ne!(of(None, "a_b"), of(None, "a b"));
        assert_ne!(of(None, &"x".repeat(127)), of(None, &"x".repeat(128)));
    }

    #[test]
    fn a_name_made_to_look_like_a_hashed_one_does_not_meet_it() {
        let hashed = of(None, "a_b");
        assert!(is_cloud_name(&hashed));
        assert_ne!(of(None, &hashed), hashed);
    }

    #[test]
    fn a_cluster_id_has_no_dash_so_that_clusters_cannot_meet() {
        for bad in ["", "a-b", "A", "1a", "a23456789012345678901"] {
            assert!(ClusterId::new(bad).is_err(), "{bad:?}");
        }
        assert_ne!(of(Some("a"), "b-c"), of(Some("ab"), "c"));
    }

    proptest! {
        #[test]
        fn every_name_is_taken_and_no_two_meet(one in "\\PC{1,40}", two in "\\PC{1,40}") {
            prop_assume!(one.len() <= 128 && two.len() <= 128);
            let (a, b) = (of(None, &one), of(None, &two));
            prop_assert!(is_cloud_name(&a));
            prop_assert_eq!(a == b, one == two);
        }

        #[test]
        fn every_name_is_known_to_be_of_its_cluster_and_of_no_other(name in "\\PC{1,40}") {
            prop_assume!(name.len() <= 128);
            let [a, b] = ["prod", "prod2"].map(|id| ClusterId::new(id).expect("a sound id"));
            let given = cloud_name(Some(&a), &name);
            prop_assert!(is_of(&a, &given) && !is_of(&b, &given));
        }
    }
}
