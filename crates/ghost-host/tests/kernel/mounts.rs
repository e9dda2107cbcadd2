//! Mounts with everything that a mount can meet.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;

use ghost_host::{Access, Error, FilesystemKind, Host, Mount, TargetKind, loop_device};

use crate::support::{Lab, MIB, is_root, mount_lines, run};
use crate::{folder, formatted, plain, text, write_protected};

const EXT4: FilesystemKind = FilesystemKind::Ext4;

#[tokio::test]
async fn every_name_that_a_folder_may_have_is_found_in_the_table() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = formatted(&lab, "pvc-1", 64 * MIB, EXT4).await;
    let names: [&[u8]; 9] = [
        b"a blank",
        b"a\ttab",
        b"a\nline",
        b"a\\backslash",
        b"a#hash",
        b"\\040",
        b" ",
        b"\xff\xfe",
        "\u{fc}ml\u{e4}ut - x".as_bytes(),
    ];
    for name in names {
        let target = lab.root().join("targets").join(OsStr::from_bytes(name));
        host.create_target(&target, TargetKind::Directory).await.unwrap();
        host.mount(&device, &plain(&target, EXT4)).await.unwrap();
        let table = host.mounts().await.unwrap();
        assert_eq!(table.at(&target).count(), 1, "{name:?}");
        assert_eq!(table.at(&target).next_back().unwrap().device, Some(device.number()));
        let pod = lab.target("pod");
        host.create_target(&pod, TargetKind::Directory).await.unwrap();
        host.bind(&target, &pod, Access::ReadOnly).await.unwrap();
        host.unmount(&pod).await.unwrap();
        host.remove_target(&target).await.unwrap_err();
        host.unmount(&target).await.unwrap();
        host.remove_target(&target).await.unwrap();
        assert_eq!(host.mounts().await.unwrap().at(&target).count(), 0);
    }
}

#[tokio::test]
async fn a_read_only_bind_refuses_writes_and_keeps_every_other_flag() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    for (index, flags) in [
        &["nosuid", "nodev", "noexec", "noatime"][..],
        &["nodiratime", "strictatime", "nosymfollow"],
        &[],
    ]
    .into_iter()
    .enumerate()
    {
        let device = formatted(&lab, &format!("pvc-{index}"), 64 * MIB, EXT4).await;
        let stage = folder(&lab, &format!("stage-{index}")).await;
        let pod = folder(&lab, &format!("pod-{index}")).await;
        let options = flags.iter().map(|flag| (*flag).to_owned()).collect();
        host.mount(&device, &Mount { options, ..plain(&stage, EXT4) }).await.unwrap();
        host.bind(&stage, &pod, Access::ReadOnly).await.unwrap();

        let error = fs::write(pod.join("x"), "1").unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
        fs::write(stage.join("x"), "1").unwrap();
        assert_eq!(fs::read_to_string(pod.join("x")).unwrap(), "1");
        let of_stage = mount_flags(&stage);
        assert!(of_stage.starts_with("rw"), "{of_stage}");
        assert_eq!(mount_flags(&pod), of_stage.replacen("rw", "ro", 1));
        for flag in flags.iter().filter(|flag| **flag != "strictatime") {
            assert!(of_stage.split(',').any(|one| one == *flag), "{flag} in {of_stage}");
        }
    }
}

/// The mount's own flags as the kernel prints them.
fn mount_flags(target: &std::path::Path) -> String {
    let table = mount_lines();
    let line = table.lines().rfind(|line| line.split(' ').nth(4) == Some(text(target))).unwrap();
    line.split(' ').nth(5).unwrap().to_owned()
}

#[tokio::test]
async fn an_unknown_option_is_refused_in_the_kernels_words() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    for kind in [FilesystemKind::Ext4, FilesystemKind::Xfs] {
        let device = formatted(&lab, &format!("pvc-{kind}"), 512 * MIB, kind).await;
        let target = folder(&lab, "stage").await;
        for option in ["no_such_option", "no_such_option=1,2", "data=nonsense"] {
            let options = vec![option.to_owned()];
            let mount = Mount { options, ..plain(&target, kind) };
            let error = host.mount(&device, &mount).await.unwrap_err();
            let Error::Mount { detail, .. } = &error else { panic!("{error:?}") };
            let name = option.split('=').next().unwrap();
            assert!(
                detail.contains(name) && detail.contains(&format!("{kind}: ").as_str()[..3]),
                "{detail}"
            );
            assert_eq!(host.mounts().await.unwrap().at(&target).count(), 0);
        }
    }
}

#[tokio::test]
async fn b60_a_security_context_is_kept_whole_or_refused_aloud() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = formatted(&lab, "pvc-1", 64 * MIB, EXT4).await;
    let target = folder(&lab, "stage").await;
    let label = "system_u:object_r:container_file_t:s0:c1,c2";
    let options = vec![format!("context=\"{label}\"")];
    match host.mount(&device, &Mount { options, ..plain(&target, EXT4) }).await {
        // A kernel with SELinux.
        Ok(()) => {
            let table = host.mounts().await.unwrap();
            let shown = &table.at(&target).next_back().unwrap().super_options;
            assert!(shown.iter().any(|option| option.contains(label)), "{shown:?}");
        }
        // One without: it must not be dropped in silence.
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("the value of option \"context\" is refused"), "{text}");
            assert!(!text.contains(label), "a value may be a secret: {text}");
        }
    }
}

#[tokio::test]
async fn a_dead_mount_is_taken_off_without_being_looked_at() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    for kind in FilesystemKind::ALL {
        let name = format!("pvc-{kind}");
        let device = formatted(&lab, &name, 512 * MIB, kind).await;
        let stage = folder(&lab, &format!("stage-{kind}")).await;
        let pod = folder(&lab, &format!("pod-{kind}")).await;
        host.mount(&device, &plain(&stage, kind)).await.unwrap();
        host.bind(&stage, &pod, Access::ReadWrite).await.unwrap();
        // The disk is cut off under the mount, which then cannot even finish its own log.
        File::options().write(true).open(lab.image(&name)).unwrap().set_len(MIB).unwrap();
        loop_device::refresh(&device).await.unwrap();
        let sync = File::create(stage.join("x")).and_then(|file| file.sync_all());
        assert!(sync.is_err(), "the mount of {kind} is dead");
        for target in [&pod, &stage] {
            host.unmount(target).await.unwrap();
            host.remove_target(target).await.unwrap();
        }
        assert_eq!(host.mounts().await.unwrap().of_device(device.number()).count(), 0);
    }
}

#[tokio::test]
async fn a_mount_in_a_shared_folder_is_shared() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let folder_of_pods = folder(&lab, "shared").await;
    run("mount", &["--bind", text(&folder_of_pods), text(&folder_of_pods)]);
    run("mount", &["--make-private", text(&folder_of_pods)]);
    let device = formatted(&lab, "pvc-1", 64 * MIB, EXT4).await;
    let stage = folder(&lab, "shared/stage").await;
    let pod = folder(&lab, "shared/pod").await;
    for shared in [false, true] {
        if shared {
            run("mount", &["--make-shared", text(&folder_of_pods)]);
        }
        host.mount(&device, &plain(&stage, EXT4)).await.unwrap();
        host.bind(&stage, &pod, Access::ReadOnly).await.unwrap();
        let table = host.mounts().await.unwrap();
        for target in [&stage, &pod] {
            assert_eq!(table.at(target).next_back().unwrap().shared, shared);
        }
        host.unmount(&pod).await.unwrap();
        host.unmount(&stage).await.unwrap();
    }
}

#[tokio::test]
async fn links_as_sources_or_targets_are_not_followed() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = formatted(&lab, "pvc-1", 64 * MIB, EXT4).await;
    let stage = folder(&lab, "stage").await;
    let link = lab.target("link");
    std::os::unix::fs::symlink(&stage, &link).unwrap();
    host.mount(&device, &plain(&link, EXT4)).await.unwrap_err();
    host.mount(&device, &plain(&stage, EXT4)).await.unwrap();
    let pod = folder(&lab, "pod").await;
    host.bind(&link, &pod, Access::ReadWrite).await.unwrap_err();
    host.bind(&stage, &link, Access::ReadWrite).await.unwrap_err();
    // A link to a mount is no mount, and neither it nor the mount is taken away through it.
    host.unmount(&link).await.unwrap();
    host.remove_target(&link).await.unwrap_err();
    host.create_target(&link, TargetKind::Directory).await.unwrap_err();
    let table = host.mounts().await.unwrap();
    assert_eq!((table.at(&stage).count(), table.at(&pod).count()), (1, 0));
    assert!(fs::symlink_metadata(&link).is_ok());
}

#[tokio::test]
async fn a_write_protected_device_may_be_bound_read_only() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = crate::disk(&lab, "pvc-1", MIB).await;
    let target = lab.target("device");
    host.create_target(&target, TargetKind::File).await.unwrap();
    let error = host.bind(device.path(), &target, Access::ReadOnly).await.unwrap_err();
    assert!(
        matches!(&error, Error::Mount { source, .. }
            if source.kind() == std::io::ErrorKind::Unsupported),
        "{error:?}"
    );
    let device = write_protected(&lab, "pvc-1", device).await;
    host.bind(device.path(), &target, Access::ReadOnly).await.unwrap();
    assert_eq!(host.device_at(&target).await.unwrap(), Some(device.number()));
    let written = File::options().write(true).open(&target).and_then(|mut file| {
        file.write_all(&[1; 4096])?;
        file.sync_all()
    });
    written.unwrap_err();
}

#[tokio::test]
async fn every_filesystem_takes_the_option_to_discard_what_is_freed() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    for kind in FilesystemKind::ALL {
        let device = formatted(&lab, kind.name(), 320 * MIB, kind).await;
        let target = folder(&lab, &format!("stage-{kind}")).await;
        let options = vec!["discard".to_owned()];
        host.mount(&device, &Mount { options, ..plain(&target, kind) }).await.unwrap();
        let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mut mounts = table.lines().filter(|line| line.contains(text(&target)));
        assert!(mounts.any(|line| line.contains("discard")), "{kind}: {table}");
        host.unmount(&target).await.unwrap();
    }
}
