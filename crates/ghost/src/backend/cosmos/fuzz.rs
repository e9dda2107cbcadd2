//! Any bytes as answers of the cloud.

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::error::ApiError;
use super::wire;
use crate::error::{Error, ErrorKind};

/// Reads an answer as each kind of body. Whatever the API adds is ignored; what is needed and not
/// there is named; what a volume is made of has a meaning or is an error that leaves the outcome
/// open.
pub fn answers(data: &[u8]) {
    read::<wire::VolumeBody>(data, |body| volume(body.volume));
    read::<wire::VolumesBody>(data, |body| body.volumes.into_iter().for_each(volume));
    read::<wire::SnapshotBody>(data, |body| snapshot(&body.snapshot));
    read::<wire::SnapshotsBody>(data, |body| body.snapshots.iter().for_each(snapshot));
    read::<wire::ActionBody>(data, |_| {});
    read::<wire::ActionsBody>(data, |_| {});
    read::<wire::DropletBody>(data, |_| {});
    read::<wire::AccountBody>(data, |_| {});
    read::<wire::RegionsBody>(data, |_| {});
    for status in [200, 302, 404, 422, 503] {
        let error = ApiError::from_answer("GET /v2/volumes", status, data);
        // A refusal is believed in the API's own form only.
        assert!(error.status().is_none() || serde_json::from_slice::<Value>(data).is_ok());
        assert!(Error::from(error).chain().contains("GET /v2/volumes"));
    }
}

fn read<T: DeserializeOwned>(data: &[u8], check: impl Fn(T)) {
    let Ok(body) = serde_json::from_slice::<T>(data) else { return };
    check(body);
    // An object with a field twice is read in another way as a value; that is none of ours.
    let Ok(Value::Object(object)) = serde_json::from_slice::<Value>(data) else { return };
    let mut more = object.clone();
    more.insert("a field of a later API".to_owned(), Value::Null);
    assert!(parsed::<T>(&more).is_ok(), "a field that is not known is refused");
    for name in object.keys() {
        let mut fewer = object.clone();
        fewer.remove(name);
        if let Err(error) = parsed::<T>(&fewer) {
            assert!(error.to_string().contains(name.as_str()), "{name} is not named: {error}");
        }
    }
}

fn parsed<T: DeserializeOwned>(object: &Map<String, Value>) -> serde_json::Result<T> {
    serde_json::from_value(Value::Object(object.clone()))
}

fn volume(told: wire::Volume) {
    let (id, gib) = (told.id.clone(), told.size_gigabytes);
    match super::domain(told) {
        Ok(volume) => {
            assert_eq!(volume.id.as_str(), id);
            assert!(volume.size.whole_gib() == gib, "{gib} GiB became {}", volume.size);
            assert!(gib > 0 && i64::try_from(volume.size.get()).is_ok(), "{gib} GiB is a size");
            assert!(!(volume.made_blank && volume.source.is_some()), "content counts as blank");
            assert!(volume.slot.is_none() || !volume.attached.is_empty());
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain()),
    }
}

fn snapshot(told: &wire::Snapshot) {
    if let Err(error) = super::snapshot::domain(told) {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{}", error.chain());
    }
}
