//! What is fuzzed: functions that take any bytes, and panic when a promise about them is broken.
//!
//! They are no part of the product: they are there in tests, and where `--cfg fuzzing` is set, as
//! `cargo fuzz` does. The targets below `fuzz/` and the tests of this module call the same ones.

pub use crate::backend::cosmos::fuzz::answers;
pub use crate::csi::fuzz::requests;
pub use crate::volume::fuzz::parameters;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use proptest::prelude::*;

    type Target = fn(&[u8]);
    const TARGETS: [(&str, Target); 3] = [
        ("requests", super::requests),
        ("answers", super::answers),
        ("parameters", super::parameters),
    ];

    #[test]
    fn the_kept_corpus_breaks_no_promise() {
        for (name, target) in TARGETS {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
            let mut played = 0;
            for entry in fs::read_dir(&folder).expect("the corpus is in the repository") {
                target(&fs::read(entry.expect("an entry").path()).expect("a file"));
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

        #[test]
        fn any_parameters_break_no_promise(text in "(([a-zA-Z/.:]{1,20}|blockSize|tags|formatPolicy)=[ -~]{0,20}\n){0,8}") {
            super::parameters(text.as_bytes());
        }

        #[test]
        fn any_volume_breaks_no_promise(
            id in ".{0,140}", name in ".{0,70}", size in prop_oneof![any::<u64>(), 0..20_000_u64], slug in "[a-z0-9]{0,8}",
            droplets in prop::option::of(prop::collection::vec(any::<u64>(), 0..3)),
            tags in prop::collection::vec("ghost:?[a-z]{0,9}:?.{0,9}", 0..4),
            device in prop::option::of("[a-z]{0,9}"),
        ) {
            let volume = serde_json::json!({
                "id": id, "name": name, "size_gigabytes": size, "region": {"slug": slug},
                "droplet_ids": droplets, "tags": tags, "device": device,
            });
            let page = serde_json::json!({"volumes": [volume], "meta": {"total": 1}});
            for body in [serde_json::json!({"volume": volume}), page] {
                super::answers(body.to_string().as_bytes());
            }
        }
    }
}
