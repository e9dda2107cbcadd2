//! What Kubernetes names of the cloud's, and so uses.
//!
//! Everything that an object says counts as a name: a handle of another driver, an option of a
//! flexvolume, a note in an annotation. A word too many spares an orphan; a word too few would
//! delete what is used.

use std::collections::HashSet;
use std::path::PathBuf;

use ghost::backend::cosmos::{ClusterId, Maker};
use ghost::csi::Plugin;
use ghost::error::Result;
use jiff::Timestamp;
use serde_json::Value;

use super::{Found, handles, kubernetes};
use crate::cli::KubernetesArgs;

/// Where the names come from.
pub(super) enum Source {
    /// The cluster.
    Kubernetes(KubernetesArgs),
    /// A file.
    File(PathBuf),
}

/// What Kubernetes names.
#[derive(Debug, Default)]
pub(super) struct Names {
    /// What PersistentVolumes say.
    pub(super) of_volumes: Words,
    /// What VolumeSnapshotContents say; `None` when the cluster has no such thing.
    pub(super) of_snapshots: Option<Words>,
    /// When they were read, if that was before the cloud was.
    pub(super) as_of: Option<Timestamp>,
    /// The handles of the driver's own objects; `None` when they are not told apart.
    pub(super) of_driver: Option<HashSet<String>>,
}

impl Source {
    pub(super) fn new(handles: Option<PathBuf>, kubernetes: KubernetesArgs) -> Result<Self> {
        Plugin::new(kubernetes.driver_name.clone()).map_err(|e| e.context("--driver-name"))?;
        Ok(handles.map_or(Self::Kubernetes(kubernetes), Self::File))
    }

    /// Reads all names.
    ///
    /// # Errors
    /// Whenever it is not certain that none is missing.
    pub(super) async fn read(&self) -> Result<Names> {
        match self {
            Self::Kubernetes(args) => kubernetes::read(args).await,
            Self::File(path) => handles::read(path),
        }
    }
}

impl Names {
    /// Whether the objects that were read are those of the cluster that made what was found: at
    /// least one of them must name some of it, unless there is nothing.
    pub(super) fn is_of_the_maker(&self, found: &[Found]) -> bool {
        let Some(handles) = &self.of_driver else { return true };
        let mut own = found.iter().filter(|found| found.item.maker == Maker::Cluster).peekable();
        own.peek().is_none() || own.any(|found| handles.contains(found.item.id.as_str()))
    }
}

/// Why nothing is deleted when [`Names::is_of_the_maker`] says no.
pub(super) fn another_cluster(cluster: &ClusterId) -> String {
    format!(
        "no object of this Kubernetes cluster names anything that cluster {:?} made at the cloud; \
         is it another cluster? Check --context, --cluster-id, --driver-name and the token. If all \
         are right, give the names in a file (--handles)",
        cluster.as_str()
    )
}

/// Words that stand for what is in use. Small and capital letters are the same.
#[derive(Debug, Default)]
pub(super) struct Words(HashSet<String>);

impl Words {
    /// Adds a text: as a whole, and each of its words. An id may stand in a path or in quotes, and
    /// a name behind an underscore, so words are taken in a wide and in a narrow sense.
    pub(super) fn add(&mut self, text: &str) {
        let text = text.to_lowercase();
        let wide = |c: char| c.is_whitespace() || matches!(c, '/' | ',' | ';' | '"' | '\'' | '=');
        let narrow = |c: char| !(c.is_alphanumeric() || c == '-');
        for word in text.split(wide).chain(text.split(narrow)).chain([text.trim()]) {
            if !word.is_empty() && !self.0.contains(word) {
                self.0.insert(word.to_owned());
            }
        }
    }

    /// Adds every text of a JSON value, its numbers, and the keys of its objects.
    pub(super) fn add_all(&mut self, value: &Value) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => self.add(&number.to_string()),
            Value::String(text) => self.add(text),
            Value::Array(values) => values.iter().for_each(|value| self.add_all(value)),
            Value::Object(fields) => fields.iter().for_each(|(key, value)| {
                self.add(key);
                self.add_all(value);
            }),
        }
    }

    /// Whether this id or name is among them.
    pub(super) fn have(&self, word: &str) -> bool {
        self.0.contains(&word.to_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_id_or_name_is_found_wherever_it_stands() {
        let id = "506f78a4-e098-11e5-ad9f-000f53306ae1";
        let name = "prod-pvc-1";
        for text in [
            id.to_owned(),
            id.to_uppercase(),
            format!("ams1/{id}"),
            format!("projects/p/volumes/{id}#0"),
            format!("{{\"volume\":\"{id}\",\"a\":1}}"),
            format!("volume_id={id}"),
            format!("    volumeHandle: {id}"),
        ] {
            let mut words = Words::default();
            words.add(&text);
            assert!(words.have(id), "{text}");
            assert!(!words.have(name) && !words.have(&id[1..]) && !words.have(&id[..20]));
        }
        let mut words = Words::default();
        words.add_all(&json!({ "a": [{ "b": "/dev/disk/by-id/scsi-0DO_Volume_prod-pvc-1" }, 77] }));
        words.add_all(&json!({ "vol.1/x": "zone/vol_2.a" }));
        for word in [name, "77", "vol.1", "vol_2.a"] {
            assert!(words.have(word), "{word}");
        }
        assert!(!words.have("prod-pvc") && !words.have("pvc-1"));
    }
}
