//! Sizes in bytes, what a caller asks for, and what a storage can give.

use std::fmt;

use crate::error::{Error, Result};

const GIB: u64 = 1 << 30;

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

impl Bytes {
    /// This many bytes.
    #[must_use]
    pub const fn new(bytes: u64) -> Self {
        Self(bytes)
    }

    /// This many times 2³⁰ bytes; the most there is where that would overflow.
    #[must_use]
    pub const fn from_gib(gib: u64) -> Self {
        Self(gib.saturating_mul(GIB))
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Whole times 2³⁰ bytes, rounded down.
    #[must_use]
    pub const fn whole_gib(self) -> u64 {
        self.0 / GIB
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 > 0 && self.0.is_multiple_of(GIB) {
            write!(formatter, "{} GiB", self.0 / GIB)
        } else {
            write!(formatter, "{} bytes", self.0)
        }
    }
}

/// The sizes a caller accepts, in whole bytes. At least one end is set, and they do not cross.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    required: Option<Bytes>,
    limit: Option<Bytes>,
}

impl SizeRange {
    /// Reads a range as CSI has it: signed, and zero for "not set".
    ///
    /// # Errors
    /// `Invalid` for negative numbers and when neither end is set, `OutOfRange` when the limit
    /// lies below what is required.
    pub fn from_csi(required: i64, limit: i64) -> Result<Self> {
        let end = |name: &str, value: i64| match u64::try_from(value) {
            Ok(0) => Ok(None),
            Ok(bytes) => Ok(Some(Bytes(bytes))),
            Err(_) => Err(Error::invalid(format!(
                "{name} is negative: {value}; expected 0, for not set, or more"
            ))),
        };
        let range =
            Self { required: end("required_bytes", required)?, limit: end("limit_bytes", limit)? };
        match (range.required, range.limit) {
            (None, None) => Err(Error::invalid(
                "the capacity range is empty: set required_bytes, limit_bytes or both, or leave \
                 the range out",
            )),
            (Some(required), Some(limit)) if required > limit => Err(Error::out_of_range(format!(
                "limit_bytes ({limit}) is less than required_bytes ({required})"
            ))),
            _ => Ok(range),
        }
    }

    /// Whether a volume of this size is what was asked for.
    #[must_use]
    pub fn contains(&self, size: Bytes) -> bool {
        self.required.is_none_or(|required| size >= required)
            && self.limit.is_none_or(|limit| size <= limit)
    }

    /// The least size, where one is asked for.
    #[must_use]
    pub fn required(&self) -> Option<Bytes> {
        self.required
    }

    /// The greatest size, where one is set.
    #[must_use]
    pub fn limit(&self) -> Option<Bytes> {
        self.limit
    }
}

impl fmt::Display for SizeRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.required, self.limit) {
            (Some(required), Some(limit)) => write!(formatter, "{required} to {limit}"),
            (Some(required), None) => write!(formatter, "at least {required}"),
            (None, Some(limit)) => write!(formatter, "at most {limit}"),
            (None, None) => formatter.write_str("any size"),
        }
    }
}

/// The sizes a storage can make: multiples of `granularity` from `minimum` to `maximum`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRule {
    /// Sizes are multiples of this.
    pub granularity: Bytes,
    /// The smallest volume; a multiple of the granularity.
    pub minimum: Bytes,
    /// The largest volume; a multiple of the granularity.
    pub maximum: Bytes,
}

impl SizeRule {
    /// The smallest possible size within the range; `default`, or less, where nothing is required.
    ///
    /// # Errors
    /// `OutOfRange` when no possible size lies within the range.
    pub fn choose(&self, range: Option<SizeRange>, default: Bytes) -> Result<Bytes> {
        let default = default.max(self.minimum).min(self.maximum);
        let Some(range) = range else { return self.round_up(default) };
        let size = match (range.required, range.limit) {
            (Some(required), _) => self.round_up(required.max(self.minimum))?,
            (None, Some(limit)) => self.round_down(limit.min(default)),
            (None, None) => self.round_up(default)?,
        };
        if size < self.minimum || !range.contains(size) {
            return Err(Error::out_of_range(format!(
                "no size fits {range}: sizes are multiples of {}, from {} to {}",
                self.granularity, self.minimum, self.maximum
            )));
        }
        Ok(size)
    }

    fn round_up(&self, size: Bytes) -> Result<Bytes> {
        let too_large =
            || Error::out_of_range(format!("{size} is more than the largest, {}", self.maximum));
        if size > self.maximum {
            return Err(too_large());
        }
        let units = size.0.div_ceil(self.granularity.0);
        units.checked_mul(self.granularity.0).map(Bytes).ok_or_else(too_large)
    }

    fn round_down(&self, size: Bytes) -> Bytes {
        Bytes(size.0 / self.granularity.0 * self.granularity.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::error::ErrorKind;

    const RULE: SizeRule = SizeRule {
        granularity: Bytes::from_gib(1),
        minimum: Bytes::from_gib(1),
        maximum: Bytes::from_gib(16384),
    };
    const DEFAULT: Bytes = Bytes::from_gib(10);

    fn choose(required: i64, limit: i64) -> Result<Bytes> {
        RULE.choose(Some(SizeRange::from_csi(required, limit)?), DEFAULT)
    }

    #[test]
    fn b37_less_than_the_minimum_is_rounded_up() {
        let gib = 1_i64 << 30;
        assert_eq!(choose(1, 0).expect("1 byte"), Bytes::from_gib(1));
        assert_eq!(choose(gib + 1, 0).expect("1 GiB + 1"), Bytes::from_gib(2));
        assert_eq!(RULE.choose(None, DEFAULT).expect("no range"), DEFAULT);
        assert_eq!(choose(0, 7 * gib / 2).expect("only a limit"), Bytes::from_gib(3));
        assert_eq!(choose(0, 50 * gib).expect("a wide limit"), DEFAULT);
    }

    #[test]
    fn b38_no_size_may_break_its_limit() {
        let gib = 1_i64 << 30;
        let table = [
            (gib + 1, gib + 1, ErrorKind::OutOfRange),
            (2 * gib, gib, ErrorKind::OutOfRange),
            (0, gib / 2, ErrorKind::OutOfRange),
            (-1, 0, ErrorKind::Invalid),
            (0, -1, ErrorKind::Invalid),
            (i64::MIN, i64::MIN, ErrorKind::Invalid),
            (0, 0, ErrorKind::Invalid),
            (i64::MAX, 0, ErrorKind::OutOfRange),
            (16385 * gib, 0, ErrorKind::OutOfRange),
        ];
        for (required, limit, kind) in table {
            let error = choose(required, limit).expect_err("must be refused");
            assert_eq!(error.kind(), kind, "{required}..{limit}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_chosen_fits_the_range_and_the_rule(required: i64, limit: i64) {
            if let Ok(size) = choose(required, limit) {
                let range = SizeRange::from_csi(required, limit).expect("chosen from it");
                prop_assert!(range.contains(size));
                prop_assert!(size >= RULE.minimum && size <= RULE.maximum);
                prop_assert_eq!(size.get() % RULE.granularity.get(), 0);
            }
        }
    }
}
