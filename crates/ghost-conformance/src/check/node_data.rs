//! Whether what is written is there, and only where it may be written.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use ghost_csi as pb;
use pb::controller_service_capability::rpc::Type as ControllerRpc;

use super::content::{create, of_snapshot, of_volume};
use super::{Check, Need, check};
use crate::options::Access;
use crate::trial::{Trial, Used};
use crate::verdict::{Verdict, demand, failed};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "data.restaged",
        "what was written is there after the volume was unstaged, detached and used again",
        [Need::Use],
        restaged
    ),
    check!(
        "data.apart",
        "two volumes at one node do not show each other's data",
        [Need::Use],
        apart
    ),
    check!(
        "data.readonly",
        "nothing can be written to a target that is read-only",
        [Need::Use, Need::Mount],
        readonly
    ),
    check!(
        "data.block-device",
        "the target of a block volume is a block device of its size",
        [Need::Use, Need::Block],
        block_device
    ),
    check!(
        "data.snapshot",
        "a restored volume has the data of the snapshot, and nothing that came later",
        [Need::Use, Need::Rpc(ControllerRpc::CreateDeleteSnapshot)],
        snapshot
    ),
    check!(
        "data.clone",
        "a clone has the data of its source, and they go separate ways",
        [Need::Use, Need::Rpc(ControllerRpc::CloneVolume)],
        clone
    ),
];

/// How many bytes of a block volume are written.
const BLOCK: usize = 4096;

/// Publishes the volume, writes there and unpublishes it.
pub(super) async fn write(trial: &Trial, used: &Used, target: &Path, text: &str) -> Verdict {
    trial.ask(used.publish(trial, target)).await.ok("a staged volume can be published")?;
    let done = put(trial.options.access, target, text);
    trial.ask(used.unpublish(target)).await.ok("it is there")?;
    done.map_err(|error| {
        failed(format!("to write at {}", target.display()), error.to_string(), "it can be written")
    })
}

/// Publishes the volume, demands that this was written there, and unpublishes it.
pub(super) async fn read(trial: &Trial, used: &Used, target: &Path, text: &str) -> Verdict {
    trial.ask(used.publish(trial, target)).await.ok("a staged volume can be published")?;
    let got = get(trial.options.access, target);
    trial.ask(used.unpublish(target)).await.ok("it is there")?;
    let got = got.unwrap_or_else(|error| format!("<{error}>"));
    demand(
        got == text,
        format!("to read at {}", target.display()),
        format!("{got:?}"),
        format!("{text:?}, as it was written"),
    )
}

fn put(access: Access, target: &Path, text: &str) -> std::io::Result<()> {
    let mut file = match access {
        Access::Mount => File::create(target.join("conformance"))?,
        Access::Block => OpenOptions::new().write(true).open(target)?,
    };
    let mut content = text.as_bytes().to_vec();
    if access == Access::Block {
        content.resize(BLOCK, 0);
    }
    file.write_all(&content)?;
    file.sync_all()
}

fn get(access: Access, target: &Path) -> std::io::Result<String> {
    if access == Access::Mount {
        return fs::read_to_string(target.join("conformance"));
    }
    let mut content = vec![0; BLOCK];
    File::open(target)?.read_exact(&mut content)?;
    Ok(String::from_utf8_lossy(&content).trim_end_matches('\0').to_owned())
}

/// Takes a volume from its staging path and its node, and brings it back there.
async fn again(trial: &Trial, used: &Used) -> Verdict<Used> {
    leave(trial, used).await?;
    let used = trial.attached_volume(used.volume.clone(), used.capability.clone()).await?;
    trial.stage(&used).await?;
    Ok(used)
}

async fn leave(trial: &Trial, used: &Used) -> Verdict {
    trial.unstage(used).await?;
    if trial.driver.offers(ControllerRpc::PublishUnpublishVolume) {
        let request = trial.detach(&used.volume.volume_id, &trial.node_id());
        trial.ask(request).await.ok("it is not staged any more")?;
    }
    Ok(())
}

async fn restaged(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("restaged")?;
    write(trial, &used, &target, "written before").await?;
    read(trial, &used, &target, "written before").await?;
    let used = again(trial, &used).await?;
    read(trial, &used, &target, "written before").await
}

async fn apart(trial: &Trial) -> Verdict {
    let (one, other) = (trial.staged().await?, trial.staged().await?);
    let (first, second) = (trial.target("one")?, trial.target("other")?);
    write(trial, &one, &first, "of the one").await?;
    write(trial, &other, &second, "of the other").await?;
    read(trial, &one, &first, "of the one").await?;
    read(trial, &other, &second, "of the other").await
}

async fn readonly(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let (writable, target) = (trial.target("writable")?, trial.target("readonly")?);
    write(trial, &used, &writable, "before").await?;
    let request = used.publish(trial, &target);
    let request = pb::NodePublishVolumeRequest { readonly: true, ..request };
    trial.ask(request).await.ok("a staged volume can be published for reading")?;
    let written = put(trial.options.access, &target, "after");
    let got = get(trial.options.access, &target).unwrap_or_default();
    trial.ask(used.unpublish(&target)).await.ok("it is there")?;
    let words = "to write at a target that was published with readonly: true";
    let kind = written.as_ref().map_err(std::io::Error::kind);
    demand(
        kind == Err(std::io::ErrorKind::ReadOnlyFilesystem),
        words,
        written.as_ref().map_or_else(ToString::to_string, |()| "it was written".to_owned()),
        "EROFS",
    )?;
    demand(got == "before", words, format!("{got:?} is there"), "\"before\", as it was written")
}

async fn block_device(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("block")?;
    trial.ask(used.publish(trial, &target)).await.ok("a staged volume can be published")?;
    let kind = fs::metadata(&target).map(|found| found.file_type());
    demand(
        kind.as_ref().is_ok_and(FileTypeExt::is_block_device),
        format!("NodePublishVolume of a block volume at {}", target.display()),
        format!("{kind:?}"),
        "a block device",
    )?;
    let size = File::open(&target).and_then(|mut file| file.seek(SeekFrom::End(0)));
    let least = u64::try_from(used.volume.capacity_bytes.max(trial.options.size)).unwrap_or(0);
    demand(
        size.as_ref().is_ok_and(|size| *size >= least),
        format!("the size of {}", target.display()),
        format!("{size:?}"),
        format!("{least} bytes at least"),
    )
}

async fn snapshot(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("source")?;
    write(trial, &used, &target, "at the snapshot").await?;
    // What was written may still be on its way while the volume is in use.
    leave(trial, &used).await?;
    let request = trial.snapshot("data", &used.volume.volume_id);
    let snapshot = super::snapshot::ready(trial, request).await?;
    let used = trial.attached_volume(used.volume.clone(), used.capability.clone()).await?;
    trial.stage(&used).await?;
    write(trial, &used, &target, "later").await?;
    let source = of_snapshot(&snapshot.snapshot_id);
    let restored = trial.volume_of(create(trial, source, trial.options.size)).await?;
    let restored = trial.attached_volume(restored, trial.capability()).await?;
    trial.stage(&restored).await?;
    let beside = trial.target("restored")?;
    read(trial, &restored, &beside, "at the snapshot").await?;
    read(trial, &used, &target, "later").await
}

async fn clone(trial: &Trial) -> Verdict {
    let used = trial.staged().await?;
    let target = trial.target("source")?;
    write(trial, &used, &target, "of the source").await?;
    leave(trial, &used).await?;
    let source = of_volume(&used.volume.volume_id);
    let clone = trial.volume_of(create(trial, source, trial.options.size)).await?;
    let clone = trial.attached_volume(clone, trial.capability()).await?;
    trial.stage(&clone).await?;
    let beside = trial.target("clone")?;
    read(trial, &clone, &beside, "of the source").await?;
    write(trial, &clone, &beside, "of the clone").await?;
    let used = trial.attached_volume(used.volume.clone(), used.capability.clone()).await?;
    trial.stage(&used).await?;
    read(trial, &used, &target, "of the source").await?;
    read(trial, &clone, &beside, "of the clone").await
}
