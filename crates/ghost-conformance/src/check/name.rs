//! Which names a volume may have.

use ghost_csi as pb;
use tonic::Code;

use super::{Check, Need, check};
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!("name.empty", "a volume without a name is refused", [Need::Volume], empty),
    check!(
        "name.limit",
        "names of 128 bytes are accepted, and are told apart to the last byte",
        [Need::Volume],
        limit
    ),
    check!(
        "name.too-long",
        "a name of more than 128 bytes is no internal error",
        [Need::Volume],
        too_long
    ),
    check!("name.unicode", "names of any language are accepted", [Need::Volume], unicode),
    check!(
        "name.path",
        "names that look like paths or options are only names",
        [Need::Volume],
        path_like
    ),
    check!(
        "name.control",
        "a name with control characters is no internal error",
        [Need::Volume],
        control
    ),
    check!("name.look-alike", "names that look alike are two volumes", [Need::Volume], look_alike),
];

fn named(trial: &Trial, name: impl Into<String>) -> pb::CreateVolumeRequest {
    pb::CreateVolumeRequest { name: name.into(), ..trial.create("") }
}

async fn empty(trial: &Trial) -> Verdict {
    trial.ask(named(trial, "")).await.refused(&[Code::InvalidArgument], "the name is required")?;
    Ok(())
}

/// Makes volumes of these names, each twice, and demands that there are as many as names.
async fn distinct(trial: &Trial, names: &[String]) -> Verdict {
    let mut ids: Vec<(String, &str)> = Vec::new();
    for name in names {
        let first = trial.volume_of(named(trial, name.as_str())).await?;
        let again = trial.volume_of(named(trial, name.as_str())).await?;
        demand(
            first.volume_id == again.volume_id,
            format!("CreateVolume {{ name: {name:?} }}, twice"),
            format!("{:?}, then {:?}", first.volume_id, again.volume_id),
            "one name is one volume",
        )?;
        let other = ids.iter().find(|(id, _)| *id == first.volume_id);
        demand(
            other.is_none(),
            format!("CreateVolume {{ name: {name:?} }}"),
            format!("{:?}, which is the volume {:?}", first.volume_id, other.map(|one| one.1)),
            "another name is another volume",
        )?;
        ids.push((first.volume_id, name));
    }
    Ok(())
}

async fn limit(trial: &Trial) -> Verdict {
    let whole = |fill: &str, end: &str| {
        let start = trial.name("limit-");
        let room = 128 - start.len() - end.len();
        let fill = fill.repeat(room / fill.len());
        let rest = "x".repeat(room - fill.len());
        (format!("{start}{fill}{rest}{end}"), end.len())
    };
    let (ascii, end) = whole("n", "a");
    let other = format!("{}b", &ascii[..ascii.len() - end]);
    let (letters, _) = whole("ä", "z");
    distinct(trial, &[ascii, other, letters]).await
}

async fn too_long(trial: &Trial) -> Verdict {
    for length in [129, 4096] {
        let name = trial.name("long-");
        let name = format!("{name}{}", "n".repeat(length - name.len()));
        trial
            .ask(named(trial, name))
            .await
            .ok_or(&[Code::InvalidArgument], "only the orchestrator is held to the limit")?;
    }
    Ok(())
}

async fn unicode(trial: &Trial) -> Verdict {
    let ends = ["größe", "объём", "容量", "e\u{301}", "é", "🗄", "a\u{a0}b", "a b", "a\tb\nc"];
    distinct(trial, &ends.map(|end| format!("{}{end}", trial.name("")))).await
}

async fn path_like(trial: &Trial) -> Verdict {
    let start = trial.name("");
    let mut names: Vec<String> = ["/", "/..", "/../x", "%2e%2e", "\"'`$(x)", "\\", "?a=b&c", "#x"]
        .map(|end| format!("{start}{end}"))
        .into();
    names.extend([
        format!("../{start}"),
        format!("/{start}"),
        format!("-{start}"),
        format!(".{start}"),
    ]);
    distinct(trial, &names).await
}

async fn control(trial: &Trial) -> Verdict {
    for character in ['\u{0}', '\u{7}', '\u{1b}', '\u{7f}', '\u{85}'] {
        let name = format!("{}{character}x", trial.name("control"));
        trial
            .ask(named(trial, name))
            .await
            .ok_or(&[Code::InvalidArgument], "the specification bans the character in names")?;
    }
    Ok(())
}

async fn look_alike(trial: &Trial) -> Verdict {
    let start = trial.name("alike");
    let ends = ["-a", "_a", ".a", " a", "/a", "-A", "--a", "-a-", "-a "];
    distinct(trial, &ends.map(|end| format!("{start}{end}"))).await
}
