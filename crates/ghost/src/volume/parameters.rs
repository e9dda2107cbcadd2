//! What a StorageClass or a VolumeSnapshotClass may say.
//!
//! The filesystem itself is no parameter: it comes as the capability's `fs_type`. Keys that
//! Kubernetes adds are accepted, whatever they are; any other that is not known is a typing error
//! that would be found out only when the volume does not behave as its owner thinks.

use ghost_host::FilesystemKind;

use super::{Context, Formatting, Labels, formatting, labels};
use crate::error::{Error, Result};

/// The prefix of what the sidecars add, such as the claim's name.
const KUBERNETES: &str = "csi.storage.k8s.io/";
const TAGS: &str = "tags";
const DESCRIPTION: &str = "description";
/// Of a claim: its name and namespace, and the name of its volume.
const CLAIM: [&str; 3] = [
    "csi.storage.k8s.io/pvc/name",
    "csi.storage.k8s.io/pvc/namespace",
    "csi.storage.k8s.io/pv/name",
];
/// Of a snapshot: its name and namespace, and the name of its content.
const SNAPSHOT: [&str; 3] = [
    "csi.storage.k8s.io/volumesnapshot/name",
    "csi.storage.k8s.io/volumesnapshot/namespace",
    "csi.storage.k8s.io/volumesnapshotcontent/name",
];

/// The checked parameters of a volume's creation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters {
    /// Whether and how its filesystem may be made.
    pub formatting: Formatting,
    /// What people see of it in the storage's own panel.
    pub labels: Labels,
}

impl Parameters {
    /// Reads the parameters of a StorageClass, for a volume that gets this filesystem; none for a
    /// block volume.
    ///
    /// # Errors
    /// `Invalid` naming a key that is not known and the nearest that is, or a value and what is
    /// allowed.
    pub fn parse(parameters: &Context, filesystem: Option<FilesystemKind>) -> Result<Self> {
        let known = [TAGS, DESCRIPTION].into_iter().chain(formatting::KEYS);
        refuse_unknown(parameters, &known.collect::<Vec<_>>())?;
        let mut formatting = Formatting::from_context(parameters)?;
        match filesystem {
            Some(kind) => formatting.check(kind)?,
            None if formatting.says_how() => {
                let says = formatting.context().into_keys().collect::<Vec<_>>().join(", ");
                return Err(Error::invalid(format!(
                    "{says}: a block volume gets no filesystem; leave it out of the class"
                )));
            }
            None => formatting.is_device = true,
        }
        let mut labels = labels::of_kubernetes(parameters, "claim", CLAIM);
        if let Some(text) = parameters.get(DESCRIPTION) {
            labels.description = labels::parse_description(text)?;
        }
        labels.tags.extend(tags(parameters)?);
        Ok(Self { formatting, labels })
    }

    /// Reads the parameters of a VolumeSnapshotClass: tags.
    ///
    /// # Errors
    /// As for [`Parameters::parse`].
    pub fn parse_snapshot(parameters: &Context) -> Result<Vec<String>> {
        refuse_unknown(parameters, &[TAGS])?;
        let mut told = labels::of_kubernetes(parameters, "snapshot", SNAPSHOT).tags;
        told.extend(tags(parameters)?);
        Ok(told)
    }
}

fn tags(parameters: &Context) -> Result<Vec<String>> {
    parameters.get(TAGS).map_or(Ok(Vec::new()), |text| labels::parse_tags(text))
}

fn refuse_unknown(parameters: &Context, known: &[&str]) -> Result<()> {
    let is_known = |key: &&String| known.contains(&key.as_str()) || key.starts_with(KUBERNETES);
    let Some(key) = parameters.keys().find(|key| !is_known(key)) else { return Ok(()) };
    let hint = match key.to_ascii_lowercase().as_str() {
        "fstype" | "filesystem" | "filesystemtype" => {
            "the filesystem is set with csi.storage.k8s.io/fstype".to_owned()
        }
        _ => match nearest(key, known) {
            Some(near) => format!("did you mean {near:?}?"),
            None => format!("known are {}", known.join(", ")),
        },
    };
    Err(Error::invalid(format!("unknown parameter {key:?}; {hint}")))
}

/// The known key that this one is most likely a typing error of.
fn nearest<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance =
        |known: &str| strsim::damerau_levenshtein(&key.to_lowercase(), &known.to_lowercase());
    let (near, distance) =
        known.iter().map(|known| (*known, distance(known))).min_by_key(|(_, d)| *d)?;
    // More than a third wrong is no typing error.
    (distance * 3 <= near.len().max(key.len())).then_some(near)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Context {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_known_one() {
        let ext4 = Some(FilesystemKind::Ext4);
        for (key, hint) in [
            ("blocksize", "\"blockSize\""),
            ("inode-size", "\"inodeSize\""),
            ("formatPolcy", "\"formatPolicy\""),
            ("tag", "\"tags\""),
            ("fsType", "csi.storage.k8s.io/fstype"),
            ("iops", "known are tags, description, formatPolicy, blockSize"),
        ] {
            let error = Parameters::parse(&of(&[(key, "x")]), ext4).expect_err("unknown");
            let text = error.to_string();
            assert!(text.contains(&format!("{key:?}")) && text.contains(hint), "{text}");
        }
        assert!(Parameters::parse_snapshot(&of(&[("description", "x")])).is_err());
    }

    #[test]
    fn what_kubernetes_adds_becomes_labels_and_never_an_error() {
        let told = of(&[
            ("csi.storage.k8s.io/pvc/name", "data \u{1f47b}"),
            ("csi.storage.k8s.io/pvc/namespace", ""),
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
            ("csi.storage.k8s.io/whatever-comes", "x"),
            ("tags", "a,b"),
        ]);
        let read = Parameters::parse(&told, None).expect("accepted");
        assert_eq!(read.labels.tags, ["k8s:object:pvc-1", "a", "b"]);
        let told = of(&[
            ("csi.storage.k8s.io/volumesnapshot/name", "s"),
            ("csi.storage.k8s.io/volumesnapshot/namespace", "n"),
        ]);
        let tags = Parameters::parse_snapshot(&told).expect("accepted");
        assert_eq!(tags, ["k8s:namespace:n", "k8s:snapshot:s"]);
    }

    #[test]
    fn options_are_checked_for_the_filesystem_that_the_volume_gets() {
        let xfs = Some(FilesystemKind::Xfs);
        let reflink = of(&[("reflink", "true")]);
        assert!(Parameters::parse(&reflink, xfs).is_ok());
        for filesystem in [Some(FilesystemKind::Ext4), None] {
            let error = Parameters::parse(&reflink, filesystem).expect_err("not there");
            assert!(error.to_string().contains("reflink"), "{error}");
        }
        assert!(Parameters::parse(&of(&[("formatPolicy", "never")]), None).is_ok());
    }
}
