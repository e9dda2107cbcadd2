//! Lists, read page by page, and the rules that every one of them has.

use ghost_csi as pb;
use tonic::Code;

use crate::ask::Ask;
use crate::trial::Trial;
use crate::verdict::{Verdict, demand, failed};

/// How many pages a list may have before it is taken for one without an end.
const PAGE_LIMIT: usize = 100_000;
/// How often a list is begun again because its token is no longer known.
const RESTART_LIMIT: usize = 10;

/// A request for a page of a list.
pub(crate) trait List: Ask + Sync {
    /// The same list, from a token on.
    fn page(&self, max_entries: i32, token: &str) -> Self;
    /// The ids of a page.
    fn ids(answer: &Self::Answer) -> Vec<String>;
    /// The token of the next page; empty at the end.
    fn next(answer: &Self::Answer) -> String;
}

macro_rules! list {
    ($request:ident, |$entry:ident| $id:expr) => {
        impl List for pb::$request {
            fn page(&self, max_entries: i32, token: &str) -> Self {
                let mut page = self.clone();
                page.max_entries = max_entries;
                token.clone_into(&mut page.starting_token);
                page
            }

            fn ids(answer: &Self::Answer) -> Vec<String> {
                answer.entries.iter().map(|$entry| $id).collect()
            }

            fn next(answer: &Self::Answer) -> String {
                answer.next_token.clone()
            }
        }
    };
}

list!(ListVolumesRequest, |entry| {
    entry.volume.as_ref().map_or_else(String::new, |volume| volume.volume_id.clone())
});
list!(ListSnapshotsRequest, |entry| {
    entry.snapshot.as_ref().map_or_else(String::new, |snapshot| snapshot.snapshot_id.clone())
});
list!(ControllerListVolumeHealthRequest, |entry| entry.volume_id.clone());

impl Trial {
    /// The ids of a whole list in pages of that size, zero leaving it to the driver. A list whose
    /// token is no longer known is begun again.
    pub(crate) async fn walk<L: List>(&self, list: &L, size: i32) -> Verdict<Vec<String>> {
        for _ in 0..RESTART_LIMIT {
            if let Some(ids) = self.walk_once(list, size).await? {
                return Ok(ids);
            }
        }
        Err(failed(
            list.page(size, "…").shown(),
            format!("ABORTED, {RESTART_LIMIT} times in a row"),
            "a token that was just given is known",
        ))
    }

    async fn walk_once<L: List>(&self, list: &L, size: i32) -> Verdict<Option<Vec<String>>> {
        let mut ids = Vec::new();
        let mut token = String::new();
        for _ in 0..PAGE_LIMIT {
            let Some((page, next)) = self.page(list, size, &token).await? else {
                return Ok(None);
            };
            ids.extend(page);
            if next.is_empty() {
                return Ok(Some(ids));
            }
            token = next;
        }
        Err(failed(list.page(size, "…").shown(), format!("{PAGE_LIMIT} pages"), "a list ends"))
    }

    /// One page and the token of the next; nothing when the token is no longer known.
    pub(crate) async fn page<L: List>(
        &self,
        list: &L,
        size: i32,
        token: &str,
    ) -> Verdict<Option<(Vec<String>, String)>> {
        let request = list.page(size, token);
        let asked =
            if token.is_empty() { self.ask(request).await } else { self.once(request).await };
        let codes: &[Code] = if token.is_empty() { &[] } else { &[Code::Aborted] };
        let words = asked.asked.clone();
        let Some(answer) = asked.ok_or(codes, "the list is claimed")? else { return Ok(None) };
        let ids = L::ids(&answer);
        let most = usize::try_from(size).unwrap_or(0);
        demand(
            most == 0 || ids.len() <= most,
            words,
            format!("{} entries", ids.len()),
            "no page has more than max_entries entries",
        )?;
        Ok(Some((ids, L::next(&answer))))
    }

    /// Reads the list in pages of every size and demands of each that it has those ids once.
    pub(crate) async fn every_page_size<L: List>(&self, list: &L, own: &[String]) -> Verdict {
        let whole = self.walk(list, 0).await?;
        let total = i32::try_from(whole.len()).unwrap_or(i32::MAX);
        let mut sizes: Vec<i32> = if total <= 20 {
            (1..=total.saturating_add(1)).collect()
        } else {
            // Somebody else's volumes are there too; smaller pages would take too long.
            vec![total / 7, total / 2, total - 1, total, total + 1]
        };
        sizes.insert(0, 0);
        for size in sizes {
            let ids = self.walk(list, size).await?;
            each_once(&list.page(size, "").shown(), own, &ids)?;
        }
        Ok(())
    }

    /// Demands that a token that was never given is refused.
    pub(crate) async fn bad_token<L: List>(&self, list: &L) -> Verdict {
        for token in ["conformance-never-given", "999999999", "-1", "ä ö"] {
            self.once(list.page(1, token)).await.refused(
                &[Code::Aborted],
                "starting_token is not valid: the caller is to begin the list again",
            )?;
        }
        Ok(())
    }

    /// Demands that a negative number of entries is refused.
    pub(crate) async fn negative_entries<L: List>(&self, list: &L) -> Verdict {
        self.ask(list.page(-1, ""))
            .await
            .refused(&[Code::InvalidArgument], "no page has fewer than no entries")?;
        Ok(())
    }
}

/// Demands that a list has each of these ids exactly once.
pub(crate) fn each_once(asked: &str, own: &[String], ids: &[String]) -> Verdict {
    for id in own {
        let times = ids.iter().filter(|one| *one == id).count();
        demand(
            times == 1,
            format!("{asked}, page by page"),
            format!("{id:?} is there {times} times, among {} entries", ids.len()),
            "what is there all the time is in the list exactly once",
        )?;
    }
    Ok(())
}
