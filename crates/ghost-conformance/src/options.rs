//! What the person who runs the suite says of the driver.

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// How the volumes of the checks are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// As a mounted filesystem.
    Mount,
    /// As a raw block device.
    Block,
}

/// What the suite cannot ask the driver.
#[derive(Clone)]
pub struct Options {
    /// The socket of the Controller service.
    pub controller: Option<PathBuf>,
    /// The socket of the Node service; it may be the same.
    pub node: Option<PathBuf>,
    /// The id of the node that the node socket is of; what NodeGetInfo says when this is absent.
    pub node_id: Option<String>,
    /// The id of another node that can reach the same volumes.
    pub second_node_id: Option<String>,
    /// Where staging paths are made. The driver sees the same folder at the same path.
    pub staging_dir: PathBuf,
    /// Where target paths are made, likewise.
    pub target_dir: PathBuf,
    /// How the volumes are used.
    pub access: Access,
    /// The filesystem that is asked for; empty means the driver's own choice.
    pub fs_type: String,
    /// Another filesystem, to be asked for where it is wrong.
    pub other_fs_type: String,
    /// The parameters of each creation.
    pub parameters: HashMap<String, String>,
    /// The secrets of each call that has any.
    pub secrets: HashMap<String, String>,
    /// The size of the volumes, in bytes.
    pub size: i64,
    /// How long one call may take.
    pub call_limit: Duration,
    /// How long a call is repeated while its answers are not final.
    pub patience: Duration,
}

impl Options {
    /// Options with which nothing is reached yet: the caller sets the sockets and the folders.
    #[must_use]
    pub fn new(staging_dir: PathBuf, target_dir: PathBuf) -> Self {
        Self {
            controller: None,
            node: None,
            node_id: None,
            second_node_id: None,
            staging_dir,
            target_dir,
            access: Access::Mount,
            fs_type: "ext4".to_owned(),
            other_fs_type: "xfs".to_owned(),
            parameters: HashMap::new(),
            secrets: HashMap::new(),
            size: 1 << 30,
            call_limit: Duration::from_secs(60),
            patience: Duration::from_secs(120),
        }
    }
}
