//! Rules that a request is held to before anything else is looked at.

use super::{Cloud, Refusal};

/// The regions that the API's document names.
pub const REGIONS: [&str; 15] = [
    "ams1", "ams2", "ams3", "blr1", "fra1", "lon1", "nyc1", "nyc2", "nyc3", "sfo1", "sfo2", "sfo3",
    "sgp1", "tor1", "syd1",
];

/// The largest volume in GiB.
pub(super) const LARGEST_GIGABYTES: u64 = 16384;

impl Cloud {
    /// The slugs of all regions: those of the document, and that of the droplets.
    #[must_use]
    pub fn regions(&self) -> Vec<&str> {
        let own = self.settings.region.as_str();
        let mut regions = REGIONS.to_vec();
        if !regions.contains(&own) {
            regions.push(own);
        }
        regions
    }

    pub(super) fn known_region(&self, region: Option<&str>) -> Result<String, Refusal> {
        let region = region.unwrap_or_default();
        if self.regions().contains(&region) {
            return Ok(region.to_owned());
        }
        Err(Refusal::Unprocessable(format!("region {region:?} does not exist")))
    }
}

/// A volume's name: `[a-z][a-z0-9-]{0,63}`.
pub(super) fn volume_name(name: Option<&str>) -> Result<String, Refusal> {
    let name = name.unwrap_or_default();
    let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase());
    let rest_well = name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
        && name.len() <= 64;
    if starts_well && rest_well {
        return Ok(name.to_owned());
    }
    Err(Refusal::Unprocessable(format!(
        "name {name:?} must start with a lowercase letter and consist of at most 64 lowercase \
         letters, digits and hyphens"
    )))
}

/// A size in GiB: 1 to 16384.
pub(super) fn gigabytes(size: Option<i64>) -> Result<u64, Refusal> {
    let refused = || {
        let shown = size.map_or("nothing".to_owned(), |size| size.to_string());
        Refusal::Unprocessable(format!(
            "size_gigabytes must be from 1 to {LARGEST_GIGABYTES}, not {shown}"
        ))
    };
    let size = size.and_then(|size| u64::try_from(size).ok()).ok_or_else(refused)?;
    if (1..=LARGEST_GIGABYTES).contains(&size) { Ok(size) } else { Err(refused()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_rule_to_the_letter() {
        let longest = format!("a{}", "b".repeat(63));
        for good in ["a", "pvc-0", "z-", longest.as_str()] {
            assert_eq!(volume_name(Some(good)).as_deref(), Ok(good));
        }
        let too_long = format!("{longest}b");
        for bad in ["", "0a", "-a", "A", "a_b", "a.b", "aé", "a b", too_long.as_str()] {
            assert!(matches!(volume_name(Some(bad)), Err(Refusal::Unprocessable(_))), "{bad}");
        }
        assert!(volume_name(None).is_err());
    }

    #[test]
    fn sizes_are_from_1_to_16384() {
        assert_eq!(gigabytes(Some(1)), Ok(1));
        assert_eq!(gigabytes(Some(16384)), Ok(16384));
        for bad in [None, Some(0), Some(-1), Some(16385), Some(i64::MAX), Some(i64::MIN)] {
            assert!(matches!(gigabytes(bad), Err(Refusal::Unprocessable(_))), "{bad:?}");
        }
    }
}
