//! What is fuzzed: functions that take any bytes, and panic when a promise about them is broken.
//!
//! They are no part of the product: they are there in tests, and where `--cfg fuzzing` is set, as
//! `cargo fuzz` does. The targets below `fuzz/` and the tests of this module call the same ones.

pub use crate::device::fuzz::identities;
pub use crate::mount::fuzz::mount_table;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    type Target = fn(&[u8]);
    const TARGETS: [(&str, Target); 2] =
        [("identities", super::identities), ("mount_table", super::mount_table)];

    #[test]
    fn the_kept_corpus_breaks_no_promise() {
        for (name, target) in TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
            let mut played = 0;
            for entry in fs::read_dir(&folder).unwrap() {
                target(&fs::read(entry.unwrap().path()).unwrap());
                played += 1;
            }
            assert!(played > 0, "{name} has no corpus");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_break_no_promise(data in prop::collection::vec(any::<u8>(), 0..300)) {
            for (_, target) in TARGETS {
                target(&data);
            }
        }
    }
}
