//! CreateVolume: sizes, and the same name again.

use ghost_csi as pb;
use pb::plugin_capability::service::Type as Service;
use pb::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
use tonic::Code;

use super::{Check, Need, check};
use crate::options::Access;
use crate::trial::Trial;
use crate::verdict::{Verdict, demand};

pub(super) static CHECKS: &[Check] = &[
    check!(
        "create.twice",
        "the same request is answered with the same volume",
        [Need::Volume],
        twice
    ),
    check!(
        "create.other-size",
        "a name that exists in a size that does not fit is ALREADY_EXISTS",
        [Need::Volume],
        other_size
    ),
    check!(
        "create.compatible-size",
        "a name that exists in a size that fits is that volume",
        [Need::Volume],
        compatible_size
    ),
    check!(
        "create.contradiction",
        "sizes that are negative or contradict each other are refused",
        [Need::Volume],
        contradiction
    ),
    check!("create.no-size", "without a size the driver chooses one", [Need::Volume], no_size),
    check!(
        "create.odd-size",
        "a size on no boundary is rounded up, and never over the limit",
        [Need::Volume],
        odd_size
    ),
    check!(
        "create.no-such-size",
        "a size that nobody can make is OUT_OF_RANGE",
        [Need::Volume],
        no_such_size
    ),
    check!(
        "create.capabilities",
        "a volume without a sound capability is refused",
        [Need::Volume],
        capabilities
    ),
    check!(
        "create.unknown-topology",
        "a volume that nobody could reach is not made",
        [Need::Volume, Need::Service(Service::VolumeAccessibilityConstraints)],
        unknown_topology
    ),
    check!(
        "create.unknown-source",
        "a content source that does not exist is NOT_FOUND, and a blank volume is not made",
        [Need::Volume],
        unknown_source
    ),
    check!(
        "create.validate",
        "what is confirmed of a volume is what was asked",
        [Need::Volume],
        validate
    ),
];

fn sized(trial: &Trial, label: &str, required: i64, limit: i64) -> pb::CreateVolumeRequest {
    let range = pb::CapacityRange { required_bytes: required, limit_bytes: limit };
    pb::CreateVolumeRequest { capacity_range: Some(range), ..trial.create(label) }
}

async fn twice(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let request = trial.create("twice");
    let first = trial.volume_of(request.clone()).await?;
    let again = trial.volume_of(request).await?;
    demand(
        first == again,
        "CreateVolume, twice",
        format!("{first:?}, then {again:?}"),
        "the same answer",
    )?;
    demand(
        first.capacity_bytes == 0 || first.capacity_bytes >= trial.options.size,
        "CreateVolume",
        format!("capacity_bytes: {}", first.capacity_bytes),
        format!("at least required_bytes, {}", trial.options.size),
    )?;
    trial.only_new("CreateVolume, twice", before, &[&first.volume_id]).await
}

async fn other_size(trial: &Trial) -> Verdict {
    // Twice the size, so that there are volumes that are smaller.
    let request = sized(trial, "size", trial.options.size * 2, 0);
    let volume = trial.volume_of(request.clone()).await?;
    let has = volume.capacity_bytes.max(trial.options.size * 2);
    for (required, limit) in [(has + 1, 0), (has * 2, has * 4), (0, has - 1), (1, has - 1)] {
        let range = pb::CapacityRange { required_bytes: required, limit_bytes: limit };
        let other = pb::CreateVolumeRequest { capacity_range: Some(range), ..request.clone() };
        trial
            .ask(other)
            .await
            .refused(&[Code::AlreadyExists], &format!("the volume exists with {has} bytes"))?;
    }
    Ok(())
}

async fn compatible_size(trial: &Trial) -> Verdict {
    let request = trial.create("size");
    let volume = trial.volume_of(request.clone()).await?;
    let has = volume.capacity_bytes.max(trial.options.size);
    let range =
        |required_bytes, limit_bytes| Some(pb::CapacityRange { required_bytes, limit_bytes });
    for capacity_range in [range(has, has), range(1, has), range(has, has * 4), range(0, has)] {
        let other = pb::CreateVolumeRequest { capacity_range, ..request.clone() };
        let again = trial.volume_of(other).await?;
        demand(
            again.volume_id == volume.volume_id && again.capacity_bytes == volume.capacity_bytes,
            format!("CreateVolume of a name that has {has} bytes, with {capacity_range:?}"),
            format!("{:?} with {} bytes", again.volume_id, again.capacity_bytes),
            format!("{:?}, as it is", volume.volume_id),
        )?;
    }
    Ok(())
}

async fn contradiction(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let size = trial.options.size;
    for (required, limit) in [(size * 2, size), (-1, 0), (0, -1), (-size, -1), (i64::MIN, size)] {
        trial.ask(sized(trial, "contradiction", required, limit)).await.refused(
            &[Code::InvalidArgument, Code::OutOfRange],
            "no size is at least required_bytes, at most limit_bytes, and not negative",
        )?;
    }
    trial.only_new("CreateVolume, refused", before, &[]).await
}

async fn no_size(trial: &Trial) -> Verdict {
    let request = pb::CreateVolumeRequest { capacity_range: None, ..trial.create("no-size") };
    trial.volume_of(request).await?;
    trial
        .ask(sized(trial, "zero", 0, 0))
        .await
        .ok_or(&[Code::InvalidArgument, Code::OutOfRange], "a range names one end at least")?;
    Ok(())
}

async fn odd_size(trial: &Trial) -> Verdict {
    let odd = trial.options.size + 1;
    let volume = trial.volume_of(sized(trial, "odd", odd, 0)).await?;
    demand(
        volume.capacity_bytes == 0 || volume.capacity_bytes >= odd,
        format!("CreateVolume with required_bytes: {odd}"),
        format!("capacity_bytes: {}", volume.capacity_bytes),
        "no less than what is required",
    )?;
    let asked = trial.ask(sized(trial, "narrow", odd, odd)).await;
    if let Some(answer) = asked.ok_or(&[Code::OutOfRange], "perhaps no volume has that size")? {
        let has = answer.volume.unwrap_or_default().capacity_bytes;
        demand(
            has == odd,
            format!("CreateVolume with required_bytes and limit_bytes: {odd}"),
            format!("capacity_bytes: {has}"),
            "the only size that was allowed",
        )?;
    }
    Ok(())
}

async fn no_such_size(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    trial
        .ask(sized(trial, "immense", i64::MAX - 1, 0))
        .await
        .refused(&[Code::OutOfRange, Code::ResourceExhausted], "no storage is that large")?;
    trial.only_new("CreateVolume, refused", before.clone(), &[]).await?;
    let asked = trial.ask(sized(trial, "tiny", 1, 1)).await;
    if let Some(answer) = asked.ok_or(&[Code::OutOfRange], "perhaps no volume is that small")? {
        let has = answer.volume.unwrap_or_default().capacity_bytes;
        demand(
            has <= 1,
            "CreateVolume with limit_bytes: 1",
            format!("capacity_bytes: {has}"),
            "no more than the limit",
        )?;
    }
    Ok(())
}

async fn capabilities(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let sound = trial.capability();
    let without_type = pb::VolumeCapability { access_type: None, ..sound.clone() };
    let without_mode = pb::VolumeCapability { access_mode: None, ..sound.clone() };
    let mode =
        |mode| pb::VolumeCapability { access_mode: Some(AccessMode { mode }), ..sound.clone() };
    for list in [
        vec![],
        vec![without_type],
        vec![without_mode.clone()],
        vec![mode(0)],
        vec![mode(99)],
        vec![sound.clone(), without_mode],
    ] {
        let request =
            pb::CreateVolumeRequest { volume_capabilities: list, ..trial.create("capabilities") };
        trial
            .ask(request)
            .await
            .refused(&[Code::InvalidArgument], "each capability has an access type and a mode")?;
    }
    trial.only_new("CreateVolume, refused", before, &[]).await
}

async fn unknown_topology(trial: &Trial) -> Verdict {
    let before = trial.all_volumes().await?;
    let own = trial.driver.info().and_then(|info| info.accessible_topology.clone());
    let mut nowhere = own.unwrap_or_default();
    nowhere.segments.values_mut().for_each(|value| "conformance-nowhere".clone_into(value));
    if nowhere.segments.is_empty() {
        nowhere.segments.insert("conformance/zone".to_owned(), "nowhere".to_owned());
    }
    let request = pb::CreateVolumeRequest {
        accessibility_requirements: Some(pb::TopologyRequirement {
            requisite: vec![nowhere.clone()],
            preferred: vec![nowhere],
        }),
        ..trial.create("nowhere")
    };
    trial.ask(request).await.refused(
        &[Code::ResourceExhausted, Code::InvalidArgument],
        "the volume cannot be in any of the topologies",
    )?;
    trial.only_new("CreateVolume, refused", before, &[]).await
}

async fn unknown_source(trial: &Trial) -> Verdict {
    use pb::controller_service_capability::rpc::Type as Rpc;
    use pb::volume_content_source::{SnapshotSource, Type, VolumeSource};

    let before = trial.all_volumes().await?;
    let id = "conformance-nothing".to_owned();
    let sources = [
        (Rpc::CreateDeleteSnapshot, Type::Snapshot(SnapshotSource { snapshot_id: id.clone() })),
        (Rpc::CloneVolume, Type::Volume(VolumeSource { volume_id: id })),
    ];
    for (rpc, source) in sources {
        // A driver without sources that made a blank volume would look like one that lost data.
        let codes: &[Code] = if trial.driver.offers(rpc) {
            &[Code::NotFound]
        } else {
            &[Code::NotFound, Code::InvalidArgument, Code::Unimplemented]
        };
        let source = pb::VolumeContentSource { r#type: Some(source) };
        let request = pb::CreateVolumeRequest {
            volume_content_source: Some(source),
            ..trial.create("source")
        };
        trial.ask(request).await.refused(codes, "the source does not exist")?;
    }
    trial.only_new("CreateVolume, refused", before, &[]).await
}

async fn validate(trial: &Trial) -> Verdict {
    let volume = trial.volume("validate").await?;
    let request = pb::ValidateVolumeCapabilitiesRequest {
        volume_id: volume.volume_id,
        volume_context: volume.volume_context,
        volume_capabilities: vec![trial.capability()],
        parameters: trial.options.parameters.clone(),
        secrets: trial.options.secrets.clone(),
        ..Default::default()
    };
    let asked = trial.ask(request.clone()).await;
    let words = asked.asked.clone();
    let answer = asked.ok("the volume is there")?;
    let Some(confirmed) = answer.confirmed else {
        let came = format!("not confirmed: {:?}", answer.message);
        return demand(false, words, came, "the volume was made with this capability");
    };
    demand(
        confirmed.volume_capabilities == request.volume_capabilities
            && confirmed.volume_context == request.volume_context
            && confirmed.parameters == request.parameters,
        words,
        format!("confirmed: {confirmed:?}"),
        "the capabilities, context and parameters that were asked about",
    )?;
    // The other kind of use is confirmed or not; when not, it is said why.
    let other = match trial.options.access {
        Access::Mount => AccessType::Block(BlockVolume {}),
        Access::Block => AccessType::Mount(MountVolume::default()),
    };
    let other = pb::VolumeCapability { access_type: Some(other), ..trial.capability() };
    let request =
        pb::ValidateVolumeCapabilitiesRequest { volume_capabilities: vec![other], ..request };
    let asked = trial.ask(request.clone()).await;
    let words = asked.asked.clone();
    let Some(answer) = asked.ok_or(&[Code::InvalidArgument], "the volume is there")? else {
        return Ok(());
    };
    let told = match &answer.confirmed {
        Some(confirmed) => confirmed.volume_capabilities == request.volume_capabilities,
        None => !answer.message.is_empty(),
    };
    demand(
        told,
        words,
        format!("confirmed: {:?}, message: {:?}", answer.confirmed, answer.message),
        "a confirmation of what was asked, or a message that says why there is none",
    )
}
