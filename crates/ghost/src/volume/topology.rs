//! Where a volume can be reached: the region, and the key under which CSI speaks of it.

use std::collections::BTreeMap;
use std::fmt;

use crate::error::{Error, Result};

/// A region's slug, such as `ams1`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Region(String);

impl Region {
    /// Checks that the slug can be a Kubernetes label value: at most 63 of `[A-Za-z0-9._-]`,
    /// a letter or digit at both ends.
    ///
    /// # Errors
    /// `Invalid` when it cannot.
    pub fn new(slug: impl Into<String>) -> Result<Self> {
        let slug = slug.into();
        let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let ends = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        let sound = slug.len() <= 63
            && slug.chars().all(inner)
            && ends(slug.chars().next())
            && ends(slug.chars().next_back());
        if !sound {
            return Err(Error::invalid(format!(
                "{slug:?} is no region: expected a slug such as \"ams1\""
            )));
        }
        Ok(Self(slug))
    }

    /// The slug.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Region {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// The key of the region in topology segments, `topology.<driver name>/region`: the same in what
/// a node says of itself, in volumes and in requirements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopologyKey(String);

impl TopologyKey {
    /// The key of a driver of this name.
    #[must_use]
    pub fn new(driver_name: &str) -> Self {
        Self(format!("topology.{driver_name}/region"))
    }

    /// The key.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The region that these segments name.
    ///
    /// # Errors
    /// `Invalid` when there is none, or when a key is not ours: ignoring it would put the volume
    /// where it was not wanted.
    pub fn region(&self, segments: &BTreeMap<String, String>) -> Result<Region> {
        if let Some(unknown) = segments.keys().find(|key| **key != self.0) {
            return Err(Error::invalid(format!(
                "unknown topology key {unknown:?}; this driver knows {:?} only",
                self.0
            )));
        }
        let slug = segments.get(&self.0).ok_or_else(|| {
            Error::invalid(format!(
                "a topology has no {:?}; expected that key with a region, and no other",
                self.0
            ))
        })?;
        Region::new(slug.clone())
    }
}

/// Where a volume has to be reachable: in one of these regions, the best first; anywhere if empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// The regions from which one is to be taken.
    pub requisite: Vec<Region>,
    /// The order of preference.
    pub preferred: Vec<Region>,
}

impl Requirement {
    /// The region to use: the first preferred one that is allowed, else the first allowed one, else
    /// the given default.
    #[must_use]
    pub fn choose<'a>(&'a self, default: Option<&'a Region>) -> Option<&'a Region> {
        let allowed = |region: &&Region| self.allows(region);
        self.preferred
            .iter()
            .find(allowed)
            .or_else(|| default.filter(allowed))
            .or_else(|| self.requisite.first())
    }

    /// Whether a volume in this region is reachable from where it has to be.
    #[must_use]
    pub fn allows(&self, region: &Region) -> bool {
        self.requisite.is_empty() || self.requisite.contains(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn regions(slugs: &[&str]) -> Vec<Region> {
        slugs.iter().map(|slug| Region::new(*slug).expect("a sound slug")).collect()
    }

    #[test]
    fn the_first_preferred_region_that_is_allowed_is_taken() {
        type Row<'a> = (&'a [&'a str], &'a [&'a str], Option<&'a str>, Option<&'a str>);
        let table: [Row<'_>; 6] = [
            (&["r2"], &["r2"], Some("r1"), Some("r2")),
            (&["r2", "r1"], &[], Some("r1"), Some("r1")),
            (&["r2"], &[], Some("r1"), Some("r2")),
            (&[], &["r3"], Some("r1"), Some("r3")),
            (&[], &[], Some("r1"), Some("r1")),
            (&[], &[], None, None),
        ];
        for (requisite, preferred, default, expected) in table {
            let requirement =
                Requirement { requisite: regions(requisite), preferred: regions(preferred) };
            let default = default.map(|slug| Region::new(slug).expect("a sound slug"));
            let chosen = requirement.choose(default.as_ref()).map(Region::as_str);
            assert_eq!(chosen, expected, "{requisite:?} {preferred:?}");
        }
    }

    #[test]
    fn a_foreign_topology_key_is_refused_and_not_ignored() {
        let key = TopologyKey::new("ghost.csi.greenhost.net");
        assert_eq!(key.as_str(), "topology.ghost.csi.greenhost.net/region");
        let mut segments = BTreeMap::from([(key.as_str().to_owned(), "ams1".to_owned())]);
        assert_eq!(key.region(&segments).expect("ours").as_str(), "ams1");
        segments.insert("topology.kubernetes.io/zone".to_owned(), "a".to_owned());
        assert_eq!(key.region(&segments).expect_err("foreign").kind(), ErrorKind::Invalid);
        assert_eq!(key.region(&BTreeMap::new()).expect_err("empty").kind(), ErrorKind::Invalid);
    }
}
