//! Which operation a method and a path stand for.

use percent_encoding::percent_decode_str;

/// What can be asked of the simulator. The names are those of the API's document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    ListVolumes,
    CreateVolume,
    DeleteVolumeByName,
    PostActionByName,
    GetVolume,
    DeleteVolume,
    ListVolumeActions,
    PostAction,
    GetVolumeAction,
    ListVolumeSnapshots,
    CreateSnapshot,
    ListSnapshots,
    GetSnapshot,
    DeleteSnapshot,
    GetVolumeSnapshot,
    DeleteVolumeSnapshot,
    ListDroplets,
    GetDroplet,
    GetAccount,
    GetAction,
    ListRegions,
    Metadata,
    Control(Control),
}

/// What the simulator's own control surface offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Control {
    ListRequests,
    ForgetRequests,
    State,
    GetFaults,
    PutFaults,
    RemoveEverything,
    PutDroplet,
    PutVolume,
    PutSnapshot,
    PostDropletSnapshot,
}

/// The answer to a look-up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// There is such an operation; with its template and what stands in its variable places.
    Operation(Operation, &'static str, Vec<String>),
    /// There is such a path, but not with this method; with its template and its methods.
    WrongMethod(&'static str, Vec<&'static str>),
    /// There is no such path.
    Nothing,
}

type Row = (&'static str, &'static str, Operation);

/// More literal templates come first, because the first that fits a path is taken.
const TABLE: &[Row] = &[
    ("GET", "/v2/volumes", Operation::ListVolumes),
    ("POST", "/v2/volumes", Operation::CreateVolume),
    ("DELETE", "/v2/volumes", Operation::DeleteVolumeByName),
    ("POST", "/v2/volumes/actions", Operation::PostActionByName),
    ("GET", "/v2/volumes/snapshots/{snapshot_id}", Operation::GetVolumeSnapshot),
    ("DELETE", "/v2/volumes/snapshots/{snapshot_id}", Operation::DeleteVolumeSnapshot),
    ("GET", "/v2/volumes/{volume_id}", Operation::GetVolume),
    ("DELETE", "/v2/volumes/{volume_id}", Operation::DeleteVolume),
    ("GET", "/v2/volumes/{volume_id}/actions", Operation::ListVolumeActions),
    ("POST", "/v2/volumes/{volume_id}/actions", Operation::PostAction),
    ("GET", "/v2/volumes/{volume_id}/actions/{action_id}", Operation::GetVolumeAction),
    ("GET", "/v2/volumes/{volume_id}/snapshots", Operation::ListVolumeSnapshots),
    ("POST", "/v2/volumes/{volume_id}/snapshots", Operation::CreateSnapshot),
    ("GET", "/v2/snapshots", Operation::ListSnapshots),
    ("GET", "/v2/snapshots/{snapshot_id}", Operation::GetSnapshot),
    ("DELETE", "/v2/snapshots/{snapshot_id}", Operation::DeleteSnapshot),
    ("GET", "/v2/droplets", Operation::ListDroplets),
    ("GET", "/v2/droplets/{droplet_id}", Operation::GetDroplet),
    ("GET", "/v2/account", Operation::GetAccount),
    ("GET", "/v2/actions/{action_id}", Operation::GetAction),
    ("GET", "/v2/regions", Operation::ListRegions),
    ("GET", "/droplets/{droplet_id}/metadata/v1/{item}", Operation::Metadata),
    ("GET", "/sim/v1/requests", Operation::Control(Control::ListRequests)),
    ("DELETE", "/sim/v1/requests", Operation::Control(Control::ForgetRequests)),
    ("GET", "/sim/v1/state", Operation::Control(Control::State)),
    ("GET", "/sim/v1/faults", Operation::Control(Control::GetFaults)),
    ("PUT", "/sim/v1/faults", Operation::Control(Control::PutFaults)),
    ("DELETE", "/sim/v1/everything", Operation::Control(Control::RemoveEverything)),
    ("PUT", "/sim/v1/droplets/{droplet_id}", Operation::Control(Control::PutDroplet)),
    (
        "POST",
        "/sim/v1/droplets/{droplet_id}/snapshots",
        Operation::Control(Control::PostDropletSnapshot),
    ),
    ("PUT", "/sim/v1/volumes/{volume_id}", Operation::Control(Control::PutVolume)),
    ("PUT", "/sim/v1/snapshots/{snapshot_id}", Operation::Control(Control::PutSnapshot)),
];

/// Finds the operation.
pub(super) fn find(method: &str, path: &str) -> Found {
    let Some((template, variables)) =
        TABLE.iter().find_map(|(_, template, _)| Some((*template, fit(template, path)?)))
    else {
        return Found::Nothing;
    };
    let rows: Vec<&Row> = TABLE.iter().filter(|row| row.1 == template).collect();
    match rows.iter().find(|row| row.0 == method) {
        Some(row) => Found::Operation(row.2, template, variables),
        None => Found::WrongMethod(template, rows.iter().map(|row| row.0).collect()),
    }
}

/// The templates that a fault may name: all but the control surface's.
pub(super) fn templates() -> Vec<&'static str> {
    let mut templates: Vec<_> =
        TABLE.iter().map(|row| row.1).filter(|template| !template.starts_with("/sim/")).collect();
    templates.dedup();
    templates
}

/// What stands in the template's variable places, decoded, if the path fits.
fn fit(template: &str, path: &str) -> Option<Vec<String>> {
    let mut variables = Vec::new();
    let mut parts = path.split('/');
    for wanted in template.split('/') {
        let part = percent_decode_str(parts.next()?).decode_utf8().ok()?;
        if wanted.starts_with('{') {
            variables.push(Some(part.into_owned()).filter(|part| !part.is_empty())?);
        } else if wanted != part {
            return None;
        }
    }
    parts.next().is_none().then_some(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_the_most_literal_template() {
        let operation = |method, path| match find(method, path) {
            Found::Operation(operation, _, variables) => (operation, variables.join(" ")),
            other => panic!("{method} {path}: {other:?}"),
        };
        assert_eq!(operation("GET", "/v2/volumes/a%2Fb"), (Operation::GetVolume, "a/b".to_owned()));
        assert_eq!(operation("POST", "/v2/volumes/actions").0, Operation::PostActionByName);
        assert_eq!(operation("GET", "/v2/volumes/snapshots/7").0, Operation::GetVolumeSnapshot);
        assert_eq!(
            operation("GET", "/v2/volumes/v/actions/9"),
            (Operation::GetVolumeAction, "v 9".to_owned())
        );
        assert_eq!(
            find("PATCH", "/v2/volumes"),
            Found::WrongMethod("/v2/volumes", vec!["GET", "POST", "DELETE"])
        );
        for absent in ["/", "/v2", "/v2/volumes/", "/v2/volumes/a/b", "/v2/account/x", "/v2/%ff"] {
            assert_eq!(find("GET", absent), Found::Nothing, "{absent}");
        }
    }
}
