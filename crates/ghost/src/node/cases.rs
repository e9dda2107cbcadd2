//! Failures that users of such drivers met, by the number that the project gives them, over a
//! machine in memory. Each looks at the state, not only at the answer.

use std::path::PathBuf;

use ghost_host::{Access, DeviceNumber, MountEntry};

use crate::error::{ErrorKind, Result};

mod measure;
mod publish;
mod restore;
mod stage;
mod whose;

fn kind_of<T: std::fmt::Debug>(outcome: Result<T>) -> ErrorKind {
    outcome.expect_err("must be refused").kind()
}

fn stranger(target: &str, device: Option<DeviceNumber>, kind: &str) -> MountEntry {
    MountEntry {
        device,
        root: PathBuf::from("/"),
        target: PathBuf::from(target),
        access: Access::ReadWrite,
        shared: true,
        filesystem: kind.to_owned(),
        source: PathBuf::from("/dev/stranger"),
        super_options: vec!["rw".to_owned()],
    }
}
