//! ListSnapshots: filters, pages and tokens.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;

use super::{Check, Need, check};
use crate::list::each_once;
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "snapshot-list.every-page-size",
        "whatever the size of the pages, each snapshot is in the list once",
        [
            Need::Volume,
            Need::Rpc(ControllerRpc::CreateDeleteSnapshot),
            Need::Rpc(ControllerRpc::ListSnapshots)
        ],
        every_page_size
    ),
    check!(
        "snapshot-list.filter",
        "the filters by source and by id come before the paging",
        [
            Need::Volume,
            Need::Rpc(ControllerRpc::CreateDeleteSnapshot),
            Need::Rpc(ControllerRpc::ListSnapshots)
        ],
        filter
    ),
    check!(
        "snapshot-list.nothing",
        "a filter that nothing fits is an empty list and no error",
        [Need::Controller, Need::Rpc(ControllerRpc::ListSnapshots)],
        nothing
    ),
    check!(
        "snapshot-list.bad-token",
        "a token that was never given is ABORTED",
        [Need::Controller, Need::Rpc(ControllerRpc::ListSnapshots)],
        bad_token
    ),
    check!(
        "snapshot-list.negative",
        "a negative number of entries is refused",
        [Need::Controller, Need::Rpc(ControllerRpc::ListSnapshots)],
        negative
    ),
];

fn list(trial: &Trial, source: &str, id: &str) -> pb::ListSnapshotsRequest {
    pb::ListSnapshotsRequest {
        source_volume_id: source.to_owned(),
        snapshot_id: id.to_owned(),
        secrets: trial.options.secrets.clone(),
        ..Default::default()
    }
}

/// Two volumes with three and two snapshots, made in turns.
async fn some(trial: &Trial) -> Verdict<[(String, Vec<String>); 2]> {
    let volumes = [trial.volume("many").await?, trial.volume("few").await?];
    let mut all = volumes.map(|volume| (volume.volume_id, Vec::new()));
    for place in [0, 1, 0, 1, 0] {
        let (source, ids) = &mut all[place];
        ids.push(trial.snapshot_of(trial.snapshot("some", source)).await?.snapshot_id);
    }
    Ok(all)
}

async fn every_page_size(trial: &Trial) -> Verdict {
    let [(_, many), (_, few)] = some(trial).await?;
    trial.every_page_size(&list(trial, "", ""), &[many, few].concat()).await
}

async fn filter(trial: &Trial) -> Verdict {
    for (source, ids) in some(trial).await? {
        let of_source = list(trial, &source, "");
        for size in [0, 1, 2] {
            let listed = trial.walk(&of_source, size).await?;
            let words = format!(
                "ListSnapshots {{ source_volume_id: {source:?}, max_entries: {size} }}, all pages"
            );
            each_once(&words, &ids, &listed)?;
            demand(listed.len() == ids.len(), words, format!("{listed:?}"), format!("{ids:?}"))?;
        }
        // A page that is full of others', filtered afterwards, would be short or empty.
        let first = trial.page(&of_source, 2, "").await?;
        let first = first.map_or(0, |(page, _)| page.len());
        demand(
            first == 2,
            format!("ListSnapshots {{ source_volume_id: {source:?}, max_entries: 2 }}"),
            format!("{first} entries on the first page"),
            "2, as there are that many: the filter comes before the paging",
        )?;
        let listed = trial.walk(&list(trial, "", &ids[0]), 1).await?;
        demand(
            listed == ids[..1],
            format!("ListSnapshots {{ snapshot_id: {:?} }}", ids[0]),
            format!("{listed:?}"),
            "that one snapshot",
        )?;
    }
    Ok(())
}

async fn nothing(trial: &Trial) -> Verdict {
    for (source, id) in
        [("conformance-nothing", ""), ("", "conformance-nothing"), ("../x", ""), ("", "../x")]
    {
        let asked = trial.ask(list(trial, source, id)).await;
        let words = asked.asked.clone();
        let answer = asked.ok("a filter that nothing fits is no error")?;
        let came = format!("{} entries", answer.entries.len());
        demand(answer.entries.is_empty(), words, came, "none")?;
    }
    Ok(())
}

async fn bad_token(trial: &Trial) -> Verdict {
    trial.bad_token(&list(trial, "", "")).await
}

async fn negative(trial: &Trial) -> Verdict {
    trial.negative_entries(&list(trial, "", "")).await
}
