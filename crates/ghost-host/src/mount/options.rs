//! Options as `mount -o` takes them, divided into what belongs to the mount, what belongs to the
//! filesystem, and what only `mount(8)` itself cares for.

use rustix::mount::MountAttrFlags;

use crate::filesystem::FilesystemKind;
use crate::mount::{Access, Mount};

/// Options that are ready for the kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// Of the mount.
    pub(crate) attributes: MountAttrFlags,
    /// Of the filesystem, in their order.
    pub(crate) parameters: Vec<Parameter>,
}

/// An option of the filesystem. The flags that every filesystem has (`ro`, `sync`, `dirsync`,
/// `lazytime`, `mand` and their opposites) are among them: the kernel knows them by name here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Parameter {
    /// A word without a value.
    Flag(String),
    /// A name and its value.
    Text(String, String),
}

/// Divides the options of a mount and adds those that it always needs.
pub(crate) fn divide(mount: &Mount, write_protected: bool) -> Options {
    let mut attributes = MountAttrFlags::empty();
    let mut parameters = Vec::new();
    // Reading only wins wherever it was said; otherwise the last word counts.
    let mut access = mount.access;
    for option in &mount.options {
        if option == "ro" {
            access = Access::ReadOnly;
        } else if option != "rw" && !is_for_mount_itself(option) && !set(&mut attributes, option) {
            parameters.push(parameter(option));
        }
    }
    if access == Access::ReadOnly {
        attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY;
        parameters.push(Parameter::Flag("ro".to_owned()));
    }
    for name in needed(mount.kind, access, write_protected) {
        let needed = parameter(name);
        if !parameters.contains(&needed) {
            parameters.push(needed);
        }
    }
    Options { attributes, parameters }
}

/// What a kind of filesystem needs beyond what was asked for.
fn needed(kind: FilesystemKind, access: Access, write_protected: bool) -> Vec<&'static str> {
    let mut names = Vec::new();
    if kind == FilesystemKind::Xfs {
        // A disk made from a snapshot has its origin's UUID, and both may be mounted on one node.
        names.push("nouuid");
    }
    if access == Access::ReadOnly && write_protected {
        // The log cannot be replayed on such a disk; without this a dirty one cannot be mounted.
        names.push(match kind {
            FilesystemKind::Ext4 | FilesystemKind::Ext3 => "noload",
            FilesystemKind::Xfs => "norecovery",
            FilesystemKind::Btrfs => "rescue=nologreplay",
        });
    }
    names
}

/// Options that `mount(8)` keeps for itself or for the boot; see mount(8).
fn is_for_mount_itself(option: &str) -> bool {
    matches!(option, "defaults" | "auto" | "noauto" | "nofail" | "_netdev" | "nouser")
        || ["x-", "X-", "comment="].iter().any(|prefix| option.starts_with(prefix))
}

/// Applies an option of the mount; `false` if it is none.
fn set(attributes: &mut MountAttrFlags, option: &str) -> bool {
    use MountAttrFlags as Flag;
    let atime = |value| (Flag::MOUNT_ATTR__ATIME, value);
    let on = |flag| (flag, flag);
    let off = |flag| (flag, Flag::empty());
    let (cleared, value) = match option {
        "nosuid" => on(Flag::MOUNT_ATTR_NOSUID),
        "suid" => off(Flag::MOUNT_ATTR_NOSUID),
        "nodev" => on(Flag::MOUNT_ATTR_NODEV),
        "dev" => off(Flag::MOUNT_ATTR_NODEV),
        "noexec" => on(Flag::MOUNT_ATTR_NOEXEC),
        "exec" => off(Flag::MOUNT_ATTR_NOEXEC),
        "nosymfollow" => on(Flag::MOUNT_ATTR_NOSYMFOLLOW),
        "symfollow" => off(Flag::MOUNT_ATTR_NOSYMFOLLOW),
        "nodiratime" => on(Flag::MOUNT_ATTR_NODIRATIME),
        "diratime" => off(Flag::MOUNT_ATTR_NODIRATIME),
        "noatime" => atime(Flag::MOUNT_ATTR_NOATIME),
        "strictatime" => atime(Flag::MOUNT_ATTR_STRICTATIME),
        "relatime" | "atime" | "norelatime" | "nostrictatime" => atime(Flag::MOUNT_ATTR_RELATIME),
        _ => return false,
    };
    attributes.remove(cleared);
    attributes.insert(value);
    true
}

/// Splits at the first `=`. Double quotes around the whole value only shield its commas from
/// whoever splits lists of options; they are no part of it, and the kernel's own parsing of
/// security contexts, which would remove them, is not passed on this way.
fn parameter(option: &str) -> Parameter {
    match option.split_once('=') {
        None => Parameter::Flag(option.to_owned()),
        Some((name, value)) => {
            let bare = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
            Parameter::Text(name.to_owned(), bare.unwrap_or(value).to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use proptest::prelude::*;

    use super::*;

    fn divided(kind: FilesystemKind, access: Access, options: &[&str]) -> Options {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        divide(&Mount { target: PathBuf::from("/target"), kind, access, options }, false)
    }

    fn flag(name: &str) -> Parameter {
        Parameter::Flag(name.to_owned())
    }

    fn text(name: &str, value: &str) -> Parameter {
        Parameter::Text(name.to_owned(), value.to_owned())
    }

    #[test]
    fn the_mount_and_the_filesystem_each_get_their_own() {
        let all = [
            "defaults",
            "nosuid",
            "nodev",
            "noexec",
            "noatime",
            "nodiratime",
            "nosymfollow",
            "_netdev",
            "x-systemd.automount",
            "discard",
            "data=ordered",
            "lazytime",
            "sync",
        ];
        let options = divided(FilesystemKind::Ext4, Access::ReadWrite, &all);
        use MountAttrFlags as Flag;
        assert_eq!(
            options.attributes,
            Flag::MOUNT_ATTR_NOSUID
                | Flag::MOUNT_ATTR_NODEV
                | Flag::MOUNT_ATTR_NOEXEC
                | Flag::MOUNT_ATTR_NOATIME
                | Flag::MOUNT_ATTR_NODIRATIME
                | Flag::MOUNT_ATTR_NOSYMFOLLOW
        );
        assert_eq!(
            options.parameters,
            [flag("discard"), text("data", "ordered"), flag("lazytime"), flag("sync")]
        );
    }

    #[test]
    fn a_later_option_takes_an_earlier_one_back() {
        let all = ["nosuid", "nodev", "noexec", "noatime", "suid", "dev", "exec", "strictatime"];
        let options = divided(FilesystemKind::Ext4, Access::ReadWrite, &all);
        assert_eq!(options.attributes, MountAttrFlags::MOUNT_ATTR_STRICTATIME);
        let options = divided(FilesystemKind::Ext4, Access::ReadWrite, &["noatime", "relatime"]);
        assert_eq!(options.attributes, MountAttrFlags::empty());
    }

    #[test]
    fn a_security_context_stays_whole_and_loses_its_quotes() {
        for given in [
            r#"context="system_u:object_r:container_file_t:s0:c1,c2""#,
            "context=system_u:object_r:container_file_t:s0:c1,c2",
        ] {
            let options = divided(FilesystemKind::Ext4, Access::ReadWrite, &[given]);
            let wanted = text("context", "system_u:object_r:container_file_t:s0:c1,c2");
            assert_eq!(options.parameters, [wanted]);
        }
    }

    #[test]
    fn only_xfs_gets_nouuid_and_only_once() {
        for kind in FilesystemKind::ALL {
            for given in [&[][..], &["nouuid"]] {
                let options = divided(kind, Access::ReadWrite, given);
                let count = options.parameters.iter().filter(|one| **one == flag("nouuid")).count();
                let wanted = if kind == FilesystemKind::Xfs { 1 } else { given.len() };
                assert_eq!(count, wanted, "{kind} {given:?}");
            }
        }
    }

    #[test]
    fn a_log_is_left_alone_only_where_it_cannot_be_replayed() {
        for kind in FilesystemKind::ALL {
            let mount = |access| Mount {
                target: PathBuf::from("/target"),
                kind,
                access,
                options: Vec::new(),
            };
            let extra = |access, write_protected| {
                let mut parameters = divide(&mount(access), write_protected).parameters;
                parameters.retain(|one| *one != flag("ro") && *one != flag("nouuid"));
                parameters
            };
            let skip = match kind {
                FilesystemKind::Ext4 | FilesystemKind::Ext3 => flag("noload"),
                FilesystemKind::Xfs => flag("norecovery"),
                FilesystemKind::Btrfs => text("rescue", "nologreplay"),
            };
            assert_eq!(extra(Access::ReadOnly, true), [skip]);
            assert_eq!(extra(Access::ReadOnly, false), []);
            assert_eq!(extra(Access::ReadWrite, true), []);
        }
    }

    proptest! {
        #[test]
        fn no_word_is_lost_and_the_first_equals_sign_divides(
            name in "[a-z_]{1,12}[a-z]9",
            value in "[^\"\0]{0,30}",
            quoted: bool,
        ) {
            let given = if quoted { format!("{name}=\"{value}\"") } else { format!("{name}={value}") };
            let options = divided(FilesystemKind::Ext4, Access::ReadWrite, &[&given, &name]);
            prop_assert_eq!(options.parameters, vec![text(&name, &value), flag(&name)]);
        }

        #[test]
        fn reading_only_wins_over_every_order(
            options in prop::collection::vec(prop::sample::select(vec!["ro", "rw", "noatime", "sync"]), 0..6),
            asked: bool,
        ) {
            let access = if asked { Access::ReadOnly } else { Access::ReadWrite };
            let result = divided(FilesystemKind::Ext4, access, &options);
            let wanted = asked || options.contains(&"ro");
            prop_assert_eq!(result.attributes.contains(MountAttrFlags::MOUNT_ATTR_RDONLY), wanted);
            prop_assert_eq!(result.parameters.contains(&flag("ro")), wanted);
            prop_assert!(!result.parameters.contains(&flag("rw")));
        }
    }
}
