//! Loop devices: one for each file, whatever becomes of its name.

use std::fs::{self, File};

use ghost_host::{FilesystemKind, Host, Identity, loop_device};

use crate::support::{Lab, MIB, is_root, until};
use crate::{folder, formatted, plain};

#[tokio::test]
async fn b31_many_attach_one_file_at_once_and_get_one_device() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let image = lab.make_image("pvc-1", MIB);
    assert!(loop_device::find(&image).await.unwrap().is_none());
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let image = image.clone();
        calls.spawn(async move { loop_device::attach(&image).await.unwrap() });
    }
    // The devices are held, so that none is let go of and attached anew.
    let devices = calls.join_all().await;
    let mut numbers: Vec<_> = devices.iter().map(|device| device.number()).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 1);
    assert_eq!(lab.attached().len(), 1);
    let found = loop_device::find(&image).await.unwrap().unwrap();
    assert_eq!(found.number(), numbers[0]);
    assert_eq!(*found.identity(), Identity::Loop(image));
}

#[tokio::test]
async fn b31_a_file_is_found_under_another_name_and_after_it_is_deleted() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    // Longer than the kernel's own field for the name, and with a blank in it.
    let long = lab.root().join("images").join(format!("a {}", "b".repeat(100)));
    File::create(&long).unwrap().set_len(MIB).unwrap();
    let device = loop_device::attach(&long).await.unwrap();
    let other_name = lab.root().join("hard-link");
    fs::hard_link(&long, &other_name).unwrap();
    let found = loop_device::find(&other_name).await.unwrap().unwrap();
    assert_eq!(found.number(), device.number());
    drop(found);

    let renamed = lab.root().join("renamed");
    fs::rename(&long, &renamed).unwrap();
    assert_eq!(loop_device::attach(&renamed).await.unwrap().number(), device.number());
    fs::remove_file(&other_name).unwrap();
    fs::remove_file(&renamed).unwrap();
    let found = loop_device::find(&renamed).await.unwrap().unwrap();
    assert_eq!(found.number(), device.number());
    // Another file of the old name is another disk.
    File::create(&renamed).unwrap().set_len(MIB).unwrap();
    assert!(loop_device::find(&renamed).await.unwrap().is_none());
    fs::remove_file(&renamed).unwrap();

    loop_device::detach(&found).await.unwrap();
    drop((found, device));
    until("it is let go of", || lab.attached().is_empty()).await;
    assert!(loop_device::find(&renamed).await.unwrap().is_none());
}

#[tokio::test]
async fn a_device_is_let_go_of_twice_and_grows_when_told() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let image = lab.make_image("pvc-1", MIB);
    let device = loop_device::attach(&image).await.unwrap();
    assert_eq!(device.size(), MIB);
    File::options().write(true).open(&image).unwrap().set_len(3 * MIB).unwrap();
    assert_eq!(lab.host().device_size(&device).await.unwrap(), MIB);
    loop_device::refresh(&device).await.unwrap();
    assert_eq!(lab.host().device_size(&device).await.unwrap(), 3 * MIB);
    loop_device::detach(&device).await.unwrap();
    loop_device::detach(&device).await.unwrap();
    drop(device);
    until("it is let go of", || lab.attached().is_empty()).await;
    loop_device::attach(&lab.image("absent")).await.unwrap_err();
    assert!(loop_device::find(&lab.image("absent")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_mounted_device_is_let_go_of_at_the_unmount() {
    if !is_root() {
        return;
    }
    let lab = Lab::new();
    let host = lab.host();
    let device = formatted(&lab, "pvc-1", 64 * MIB, FilesystemKind::Ext4).await;
    let target = folder(&lab, "stage").await;
    host.mount(&device, &plain(&target, FilesystemKind::Ext4)).await.unwrap();
    loop_device::detach(&device).await.unwrap();
    drop(device);
    fs::write(target.join("still"), "here").unwrap();
    assert_eq!(lab.attached().len(), 1);
    host.unmount(&target).await.unwrap();
    until("it is let go of", || lab.attached().is_empty()).await;
}
