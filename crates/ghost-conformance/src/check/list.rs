//! ListVolumes: pages, tokens, and what happens between two pages.

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;

use super::{Check, Need, check};
use crate::list::each_once;
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "list.every-page-size",
        "whatever the size of the pages, each volume is in the list once",
        [Need::Volume, Need::Rpc(ControllerRpc::ListVolumes)],
        every_page_size
    ),
    check!(
        "list.churn",
        "what lives throughout is listed once while others come and go between the pages",
        [Need::Volume, Need::Rpc(ControllerRpc::ListVolumes)],
        churn
    ),
    check!(
        "list.bad-token",
        "a token that was never given is ABORTED",
        [Need::Controller, Need::Rpc(ControllerRpc::ListVolumes)],
        bad_token
    ),
    check!(
        "list.negative",
        "a negative number of entries is refused",
        [Need::Controller, Need::Rpc(ControllerRpc::ListVolumes)],
        negative
    ),
    check!(
        "list.agrees",
        "an entry of the list agrees with CreateVolume",
        [Need::Volume, Need::Rpc(ControllerRpc::ListVolumes)],
        agrees
    ),
    check!(
        "list.deleted",
        "a deleted volume is not in the list",
        [Need::Volume, Need::Rpc(ControllerRpc::ListVolumes)],
        deleted
    ),
];

async fn some(trial: &Trial, number: usize) -> Verdict<Vec<String>> {
    let mut ids = Vec::new();
    for _ in 0..number {
        ids.push(trial.volume("some").await?.volume_id);
    }
    Ok(ids)
}

async fn every_page_size(trial: &Trial) -> Verdict {
    let ids = some(trial, 5).await?;
    trial.every_page_size(&pb::ListVolumesRequest::default(), &ids).await
}

async fn churn(trial: &Trial) -> Verdict {
    let list = pb::ListVolumesRequest::default();
    for size in [1, 2, 3] {
        // Made in turns, so that what goes lies between what stays, whatever the order.
        let (mut stay, mut go) = (Vec::new(), Vec::new());
        for _ in 0..4 {
            stay.push(trial.volume("stay").await?.volume_id);
            go.push(trial.volume("go").await?.volume_id);
        }
        let mut come = Vec::new();
        let mut ids = Vec::new();
        let mut token = String::new();
        loop {
            let Some((page, next)) = trial.page(&list, size, &token).await? else {
                // The driver saw that the list has changed, and says so; now nothing changes.
                ids = trial.walk(&list, size).await?;
                break;
            };
            ids.extend(page);
            if next.is_empty() {
                break;
            }
            token = next;
            // The first that was shown goes: a place counted from the start then moves.
            let place = go.iter().position(|id| ids.contains(id)).unwrap_or(0);
            if place < go.len() {
                let gone = go.remove(place);
                trial.ask(trial.delete(&gone)).await.ok("nobody uses the volume")?;
                if come.len() < 4 {
                    come.push(trial.volume("come").await?.volume_id);
                }
            }
        }
        let asked = format!("ListVolumes {{ max_entries: {size} }} while volumes come and go");
        each_once(&asked, &stay, &ids)?;
        for id in go.iter().chain(&stay).chain(&come) {
            trial.ask(trial.delete(id)).await.ok("nobody uses the volume")?;
        }
    }
    Ok(())
}

async fn bad_token(trial: &Trial) -> Verdict {
    trial.bad_token(&pb::ListVolumesRequest::default()).await
}

async fn negative(trial: &Trial) -> Verdict {
    trial.negative_entries(&pb::ListVolumesRequest::default()).await
}

async fn agrees(trial: &Trial) -> Verdict {
    let volume = trial.volume("agrees").await?;
    let mut token = String::new();
    loop {
        let request =
            pb::ListVolumesRequest { max_entries: 0, starting_token: std::mem::take(&mut token) };
        let answer = trial.ask(request).await.ok("the list is claimed")?;
        let mut listed = answer.entries.into_iter().filter_map(|entry| entry.volume);
        if let Some(entry) = listed.find(|entry| entry.volume_id == volume.volume_id) {
            return demand(
                entry.capacity_bytes == 0 || entry.capacity_bytes == volume.capacity_bytes,
                "CreateVolume, then ListVolumes",
                format!("capacity_bytes: {}", entry.capacity_bytes),
                format!("{}, as CreateVolume answered", volume.capacity_bytes),
            );
        }
        let came = format!("no {:?}", volume.volume_id);
        let more = !answer.next_token.is_empty();
        demand(more, "CreateVolume, then ListVolumes", came, "the volume that was made")?;
        token = answer.next_token;
    }
}

async fn deleted(trial: &Trial) -> Verdict {
    let ids = some(trial, 2).await?;
    trial.ask(trial.delete(&ids[0])).await.ok("nobody uses the volume")?;
    let listed = trial.walk(&pb::ListVolumesRequest::default(), 0).await?;
    demand(
        !listed.contains(&ids[0]) && listed.contains(&ids[1]),
        "DeleteVolume, then ListVolumes",
        format!("{listed:?}"),
        format!("without {:?}, which is gone, and with {:?}", ids[0], ids[1]),
    )
}
