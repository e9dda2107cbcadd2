//! The archive in OCI's image layout: blobs named by their digests, a manifest, an index.
//!
//! The form is that of the OCI image specification 1.1; `ctr images import`, `podman load` and
//! `skopeo copy oci-archive:` read it.

use std::io::Write as _;

use anyhow::Result;
use flate2::{Compression, GzBuilder};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tar::Builder;

use super::tree::{Tree, header};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
/// No time at all, since a time would make each archive another one.
const CREATED: &str = "1970-01-01T00:00:00Z";
/// What gzip writes for a system that it does not know.
const UNKNOWN_SYSTEM: u8 = 255;

/// How much time is spent on making layers small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// As much as there is to win.
    Small,
    /// As little as possible.
    Quick,
}

/// What an image is made of.
pub(crate) struct Image<'a> {
    /// Its name and tag.
    pub(crate) reference: &'a str,
    /// The number of the user, and of its group, that it runs as.
    pub(crate) user: u32,
    /// The program that it starts.
    pub(crate) entry_point: &'a str,
    /// The layers with what they are, the lowest first.
    pub(crate) layers: &'a [(&'static str, Tree)],
}

/// A blob of the archive, and what others say of it.
struct Blob {
    bytes: Vec<u8>,
    digest: String,
}

impl Image<'_> {
    /// The archive, and the digest of its manifest.
    pub(crate) fn archive(&self, effort: Effort) -> Result<(Vec<u8>, String)> {
        let mut blobs = Vec::new();
        let (mut layers, mut contents, mut history) = (Vec::new(), Vec::new(), Vec::new());
        for (what, tree) in self.layers {
            let mut plain = Vec::new();
            tree.write(&mut plain)?;
            contents.push(digest(&plain));
            history.push(json!({ "created": CREATED, "created_by": what }));
            let blob = Blob::new(packed(&plain, effort)?);
            layers.push(blob.described(LAYER));
            blobs.push(blob);
        }
        let config = Blob::json(&self.config(&contents, &history))?;
        let manifest = Blob::json(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.described(CONFIG),
            "layers": layers,
        }))?;
        let index = self.index(&manifest);
        let digest = manifest.digest.clone();
        blobs.extend([config, manifest]);
        blobs.sort_by(|one, other| one.digest.cmp(&other.digest));

        let mut archive = Builder::new(Vec::new());
        append(&mut archive, "oci-layout", &to_bytes(&json!({ "imageLayoutVersion": "1.0.0" }))?)?;
        append(&mut archive, "index.json", &to_bytes(&index)?)?;
        for blob in &blobs {
            let name = blob.digest.replace(':', "/");
            append(&mut archive, &format!("blobs/{name}"), &blob.bytes)?;
        }
        Ok((archive.into_inner()?, digest))
    }

    fn config(&self, contents: &[String], history: &[Value]) -> Value {
        json!({
            "created": CREATED,
            "architecture": "amd64",
            "os": "linux",
            "config": {
                "User": format!("{0}:{0}", self.user),
                "Env": ["PATH=/usr/sbin:/usr/bin"],
                "Entrypoint": [self.entry_point],
                "WorkingDir": "/",
                "Labels": {
                    "org.opencontainers.image.title": "ghost",
                    "org.opencontainers.image.version": env!("CARGO_PKG_VERSION"),
                    "org.opencontainers.image.licenses": env!("CARGO_PKG_LICENSE"),
                },
            },
            "rootfs": { "type": "layers", "diff_ids": contents },
            "history": history,
        })
    }

    fn index(&self, manifest: &Blob) -> Value {
        let tag = self.reference.rsplit_once(':').map_or(self.reference, |(_, tag)| tag);
        let mut described = manifest.described(MANIFEST);
        described["platform"] = json!({ "architecture": "amd64", "os": "linux" });
        // containerd takes the whole name from its own annotation; others take the tag.
        described["annotations"] = json!({
            "io.containerd.image.name": self.reference,
            "org.opencontainers.image.ref.name": tag,
        });
        json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": [described] })
    }
}

impl Blob {
    fn new(bytes: Vec<u8>) -> Self {
        let digest = digest(&bytes);
        Self { bytes, digest }
    }

    fn json(value: &Value) -> Result<Self> {
        Ok(Self::new(to_bytes(value)?))
    }

    fn described(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.bytes.len() })
    }
}

fn append(archive: &mut Builder<Vec<u8>>, name: &str, bytes: &[u8]) -> Result<()> {
    let mut header = header();
    header.set_mode(0o644);
    header.set_size(u64::try_from(bytes.len())?);
    archive.append_data(&mut header, name, bytes)?;
    Ok(())
}

fn to_bytes(value: &Value) -> Result<Vec<u8>> {
    Ok(serde_json::to_vec(value)?)
}

/// gzip's form with a header that names no file, no time and no system.
fn packed(plain: &[u8], effort: Effort) -> Result<Vec<u8>> {
    let level = match effort {
        Effort::Small => Compression::best(),
        Effort::Quick => Compression::fast(),
    };
    let mut packer =
        GzBuilder::new().mtime(0).operating_system(UNKNOWN_SYSTEM).write(Vec::new(), level);
    packer.write_all(plain)?;
    Ok(packer.finish()?)
}

fn digest(bytes: &[u8]) -> String {
    let digits: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{digits}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    fn layers() -> [(&'static str, Tree); 2] {
        let (mut lower, mut upper) = (Tree::default(), Tree::default());
        lower.file("etc/a", 0o644, b"a".to_vec());
        upper.file("usr/bin/ghost", 0o755, b"ghost".to_vec());
        [("lower", lower), ("upper", upper)]
    }

    fn made(layers: &[(&'static str, Tree)]) -> (Vec<u8>, String) {
        let image = Image {
            reference: "registry.example.org:5000/ghost:1.2.3",
            user: 65532,
            entry_point: "/usr/bin/ghost",
            layers,
        };
        image.archive(Effort::Small).expect("made")
    }

    fn files(archive: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let mut archive = tar::Archive::new(archive);
        let read = |entry: std::io::Result<tar::Entry<'_, &[u8]>>| {
            let mut entry = entry.expect("an entry");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).expect("its bytes");
            (entry.path().expect("a path").display().to_string(), bytes)
        };
        archive.entries().expect("an archive").map(read).collect()
    }

    #[test]
    fn the_same_files_make_the_same_archive_and_others_another() {
        let (bytes, digest) = made(&layers());
        assert_eq!((&bytes, &digest), (&made(&layers()).0, &made(&layers()).1));
        let mut others = layers();
        others[1].1.file("usr/bin/ghost", 0o755, b"other".to_vec());
        assert_ne!(digest, made(&others).1);
    }

    #[test]
    fn every_name_leads_to_a_blob_of_that_digest_and_size() {
        let (bytes, manifest_digest) = made(&layers());
        let files = files(&bytes);
        let blob = |described: &Value| {
            let digest = described["digest"].as_str().expect("a digest");
            let bytes = &files[&format!("blobs/{}", digest.replace(':', "/"))];
            assert_eq!(super::digest(bytes), digest);
            assert_eq!(described["size"], bytes.len());
            bytes.clone()
        };
        let read = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).expect("JSON");
        let index = read(&files["index.json"]);
        assert_eq!(index["manifests"][0]["digest"], manifest_digest);
        let names = &index["manifests"][0]["annotations"];
        assert_eq!(names["io.containerd.image.name"], "registry.example.org:5000/ghost:1.2.3");
        assert_eq!(names["org.opencontainers.image.ref.name"], "1.2.3");
        let manifest = read(&blob(&index["manifests"][0]));
        let config = read(&blob(&manifest["config"]));
        assert_eq!(config["config"]["User"], "65532:65532");
        for (described, content) in manifest["layers"]
            .as_array()
            .expect("layers")
            .iter()
            .zip(config["rootfs"]["diff_ids"].as_array().expect("contents"))
        {
            let packed = blob(described);
            // The time in gzip's header, and the system that wrote it.
            assert_eq!((&packed[4..8], packed[9]), ([0; 4].as_slice(), UNKNOWN_SYSTEM));
            let mut plain = Vec::new();
            flate2::read::GzDecoder::new(packed.as_slice())
                .read_to_end(&mut plain)
                .expect("unpacked");
            assert_eq!(*content, super::digest(&plain));
        }
        assert_eq!(files.len(), 2 + 2 + 2, "two layers, config, manifest; layout, index");
    }
}
