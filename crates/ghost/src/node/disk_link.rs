//! Where the disk of a volume appears below the device folder: a template with its name or id.

use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::volume::Disk;

/// The link that udev makes for a disk of a cloud like DigitalOcean's.
const DEFAULT: &str = "disk/by-id/scsi-0DO_Volume_{name}";

/// A template of a path below the device folder, with `{name}`, `{id}` or both in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskLink(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Name,
    Id,
}

impl DiskLink {
    /// Reads a template.
    ///
    /// # Errors
    /// `Invalid` when it names neither the disk's name nor its id, when it has another placeholder,
    /// or when it is no plain relative path.
    pub fn parse(template: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Err(Error::invalid(format!(
                "the disk link {template:?} {why}; expected a path below the device folder with \
                 {{name}} or {{id}} in it, such as {DEFAULT:?}"
            )))
        };
        let path = Path::new(template);
        if !path.components().all(|part| matches!(part, Component::Normal(_))) {
            return refuse("is no plain relative path");
        }
        let mut parts = Vec::new();
        let mut rest = template;
        while let Some((text, after)) = rest.split_once('{') {
            let Some((placeholder, after)) = after.split_once('}') else {
                return refuse("has a brace that is not closed");
            };
            parts.push(Part::Text(text.to_owned()));
            parts.push(match placeholder {
                "name" => Part::Name,
                "id" => Part::Id,
                _ => return refuse("has an unknown placeholder"),
            });
            rest = after;
        }
        if parts.is_empty() {
            return refuse("is the same for all disks");
        }
        if rest.contains(['}', '\0']) || template.contains('\0') {
            return refuse("has a character that does not belong there");
        }
        parts.push(Part::Text(rest.to_owned()));
        Ok(Self(parts))
    }

    /// The path of this disk, below the device folder.
    ///
    /// # Errors
    /// `Invalid` when the disk's name or id would lead to another folder.
    pub fn path_of(&self, disk: &Disk) -> Result<PathBuf> {
        let mut path = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => path.push_str(text),
                Part::Name => path.push_str(plain("name", &disk.name)?),
                Part::Id => path.push_str(plain("id", disk.id.as_str())?),
            }
        }
        let path = PathBuf::from(path);
        if path.components().all(|part| matches!(part, Component::Normal(_))) {
            return Ok(path);
        }
        Err(Error::invalid(format!(
            "the link of volume {} would be {:?}, which leads out of its folder",
            disk.id,
            path.display()
        )))
    }
}

impl DiskLink {
    /// The folder of the links below the device folder, and what stands before and after the name
    /// in them; `None` for a template that has the name elsewhere, or the id in its place.
    #[must_use]
    pub fn folder_and_affixes(&self) -> Option<(PathBuf, &str, &str)> {
        let [Part::Text(before), Part::Name, Part::Text(after)] = &self.0[..] else { return None };
        if after.contains('/') {
            return None;
        }
        let (folder, prefix) = before.rsplit_once('/').unwrap_or(("", before));
        Some((PathBuf::from(folder), prefix, after))
    }
}

impl Default for DiskLink {
    fn default() -> Self {
        Self::parse(DEFAULT).expect("the default is a sound template")
    }
}

impl FromStr for DiskLink {
    type Err = Error;

    fn from_str(template: &str) -> Result<Self> {
        Self::parse(template)
    }
}

impl fmt::Display for DiskLink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|part| {
            formatter.write_str(match part {
                Part::Text(text) => text,
                Part::Name => "{name}",
                Part::Id => "{id}",
            })
        })
    }
}

/// A text that can be part of a file name.
fn plain<'a>(what: &str, text: &'a str) -> Result<&'a str> {
    if text.is_empty() || text == "." || text == ".." || text.contains(['/', '\0']) {
        return Err(Error::invalid(format!(
            "the volume's {what} {text:?} cannot be part of a link's name"
        )));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;
    use crate::volume::{Bytes, Region, VolumeId};

    fn disk(id: &str, name: &str) -> Disk {
        Disk {
            id: VolumeId::new(id).expect("an id"),
            name: name.to_owned(),
            region: Region::new("ams1").expect("a slug"),
            minimum_size: Bytes::from_gib(1),
            made_blank: true,
            slot: None,
        }
    }

    #[test]
    fn a_template_is_filled_in_once() {
        let of = |template: &str, id: &str, name: &str| {
            DiskLink::parse(template).expect("sound").path_of(&disk(id, name)).expect("plain")
        };
        let default = DiskLink::default();
        assert_eq!(default.to_string(), DEFAULT);
        assert_eq!(
            default.path_of(&disk("v", "pvc-1")).expect("plain"),
            Path::new("disk/by-id/scsi-0DO_Volume_pvc-1")
        );
        assert_eq!(of("x/{id}-{name}", "v", "n"), Path::new("x/v-n"));
        // What stands in a name is no placeholder.
        assert_eq!(of("x/{name}", "v", "{id}"), Path::new("x/{id}"));
    }

    #[test]
    fn a_template_that_can_lead_astray_is_refused() {
        let table = [
            "",
            "/dev/{name}",
            "../{name}",
            "a/../{name}",
            "disk/by-id/all",
            "{name",
            "x/{nam}",
            "x/{name}}",
            "./{name}",
            "{name}\0",
        ];
        for template in table {
            let error = DiskLink::parse(template).expect_err(template);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{template:?}");
        }
    }

    #[test]
    fn a_name_that_can_lead_astray_is_refused() {
        let by_name = DiskLink::parse("disk/{name}").expect("sound");
        let by_id = DiskLink::parse("disk/{id}").expect("sound");
        for bad in ["..", ".", "a/b", "/etc/passwd", "../x", "a\0"] {
            let error = by_name.path_of(&disk("v", bad)).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}");
            let error = by_id.path_of(&disk(bad, "n")).expect_err(bad);
            assert_eq!(error.kind(), ErrorKind::Invalid, "{bad:?}");
        }
        let joined = DiskLink::parse("disk/{name}{id}").expect("sound");
        assert_eq!(joined.path_of(&disk("v", "")).expect_err("empty").kind(), ErrorKind::Invalid);
        // A dot may be made of two harmless halves only by a template that has one itself.
        let dotted = DiskLink::parse("disk/.{name}").expect("sound");
        assert_eq!(dotted.path_of(&disk("v", ".")).expect_err("dots").kind(), ErrorKind::Invalid);
    }
}
