//! Names out of a file, for when the cluster cannot be asked from here.
//!
//! Any text will do, such as what `kubectl get -o yaml` prints, since each of its words counts. What
//! matters is that the text is whole, which it cannot say itself: so it ends with a line that is
//! written only when all before it was. And that it is fresh: what has come into use since is not in
//! it.

use std::path::Path;
use std::{fs, io};

use ghost::error::{Error, Result};
use jiff::{SignedDuration, Timestamp};

use super::names::{Names, Words};
use super::report::ago;

/// The line behind what all PersistentVolumes say.
const END_OF_VOLUMES: &str = "# end of volumes";
/// The line behind what all VolumeSnapshotContents say, after that.
const END_OF_SNAPSHOTS: &str = "# end of snapshots";

/// The oldest file that is believed.
const AGE_LIMIT: SignedDuration = SignedDuration::from_hours(1);

/// Reads the names in a file.
///
/// # Errors
/// `Invalid` when it cannot be read, is not whole, or was written more than an hour ago.
pub(super) fn read(path: &Path) -> Result<Names> {
    let shown = path.display();
    let unreadable = |error: io::Error| {
        Error::invalid(format!("--handles {shown}: the file cannot be read")).with_source(error)
    };
    // The time first: what is written after it is only younger.
    let written = fs::metadata(path).and_then(|metadata| metadata.modified());
    let text = fs::read_to_string(path).map_err(unreadable)?;
    let written = Timestamp::try_from(written.map_err(unreadable)?);
    let written = written.map_err(|error| unreadable(io::Error::other(error)))?;
    if Timestamp::now().duration_since(written) > AGE_LIMIT {
        return Err(Error::invalid(format!(
            "--handles {shown}: the file is of {written}, and what has come into use since is not \
             in it; make it anew (at most {} old)",
            ago(AGE_LIMIT)
        )));
    }
    let names = parse(&text).map_err(|error| error.context(format_args!("--handles {shown}")))?;
    Ok(Names { as_of: Some(written), ..names })
}

fn parse(text: &str) -> Result<Names> {
    let mut lines = text.lines();
    let mut section = |end: &str| {
        let mut words = Words::default();
        for line in lines.by_ref() {
            if line.trim_end() == end {
                return Ok(words);
            }
            words.add(line);
        }
        Err(Error::invalid(format!(
            "the line {end:?} is missing, so the file may have been cut off; add it where the \
             list is complete (docs/orphans.md shows how)"
        )))
    };
    let of_volumes = section(END_OF_VOLUMES)?;
    let of_snapshots = section(END_OF_SNAPSHOTS)?;
    if let Some(line) = lines.find(|line| !line.trim().is_empty()) {
        return Err(Error::invalid(format!(
            "{line:?} stands behind the line {END_OF_SNAPSHOTS:?}, which must be the last"
        )));
    }
    Ok(Names { of_volumes, of_snapshots: Some(of_snapshots), as_of: None, of_driver: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_when_it_is_whole() {
        let names = parse("v-1\n  handle: v-2\n# end of volumes\r\ns-1\n# end of snapshots\n");
        let names = names.expect("whole");
        assert!(names.of_volumes.have("v-1") && names.of_volumes.have("v-2"));
        assert!(!names.of_volumes.have("s-1"));
        assert!(names.of_snapshots.expect("told").have("s-1"));
        for cut_off in [
            "",
            "v-1\n",
            "v-1\n# end of volumes\n",
            "v-1\n# end of volumes\ns-1\n# end of snapshot",
            "s-1\n# end of snapshots\n# end of volumes\n",
            "# end of volumes\n# end of snapshots\nv-3\n",
        ] {
            let error = parse(cut_off).expect_err(cut_off);
            assert!(error.to_string().contains("# end of"), "{error}");
        }
    }
}
