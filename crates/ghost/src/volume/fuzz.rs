//! Any bytes as the parameters of a class: one `key=value` in each line.

use ghost_host::FilesystemKind;

use super::{Context, Formatting, Parameters};

/// Reads parameters. What is accepted is passed on to the node so that it means the same there, and
/// labels are within the cloud's limits.
pub fn parameters(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let context: Context = text
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let kinds = FilesystemKind::ALL.into_iter().map(Some).chain([None]);
    for kind in kinds {
        let Ok(read) = Parameters::parse(&context, kind) else { continue };
        let passed_on = read.formatting.context();
        let again = Formatting::from_context(&passed_on).expect("what is passed on is read");
        assert_eq!(again, read.formatting);
        assert_eq!(again.context(), passed_on);
        for tag in &read.labels.tags {
            assert!((1..=255).contains(&tag.len()), "a tag of {} bytes", tag.len());
        }
    }
    if let Ok(tags) = Parameters::parse_snapshot(&context) {
        assert!(tags.iter().all(|tag| (1..=255).contains(&tag.len())));
    }
}
