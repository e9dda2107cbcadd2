//! Identifiers in the shape of a version 4 UUID, from a seed and a counter.

use serde::{Deserialize, Serialize};

/// A source of identifiers: the same seed gives the same ones in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identifiers {
    seed: u64,
    given: u64,
}

impl Identifiers {
    /// The source with this seed, of which none has been taken.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, given: 0 }
    }

    /// The next identifier.
    pub fn take(&mut self) -> String {
        let high = mix(self.seed.wrapping_add(mix(2 * self.given)));
        let low = mix(self.seed.wrapping_add(mix(2 * self.given + 1)));
        self.given += 1;
        let bytes = ((u128::from(high) << 64) | u128::from(low)).to_be_bytes();
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    /// A fraction from 0 to 1 that goes with this number.
    pub(super) fn fraction(&self, number: u64) -> f64 {
        let [_, _, _, _, a, b, c, d] = mix(self.seed ^ mix(number)).to_be_bytes();
        f64::from(u32::from_be_bytes([a, b, c, d])) / f64::from(u32::MAX)
    }
}

/// The finalizer of SplitMix64 (Steele, Lea, Flood 2014): spreads a counter over all 64 bits.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_seed_gives_the_same_identifiers_again_and_no_identifier_twice() {
        let (mut one, mut two, mut other) =
            (Identifiers::new(7), Identifiers::new(7), Identifiers::new(8));
        let mut seen = HashSet::new();
        for _ in 0..1000 {
            let identifier = one.take();
            assert_eq!(identifier, two.take());
            assert_eq!(uuid::Uuid::parse_str(&identifier).expect("a UUID").get_version_num(), 4);
            assert!(seen.insert(identifier));
            assert!(seen.insert(other.take()));
        }
    }
}
