//! The programs that judge a chart, in the versions that the project pins.

use std::path::PathBuf;

use anyhow::Result;
use xtask::command::{output, program, target};
use xtask::setup;

/// Programs that are there.
pub(super) struct Tools {
    pub(super) helm: PathBuf,
    pub(super) promtool: PathBuf,
    pub(super) validate: PathBuf,
}

impl Tools {
    /// Gets or builds those that are not there yet.
    pub(super) fn ready() -> Result<Self> {
        Ok(Self {
            helm: setup::go_tool("helm", "helm.sh/helm/v4/cmd/helm")?,
            promtool: promtool()?,
            validate: setup::python_tool("kubernetes-validate")?,
        })
    }
}

/// Debian's: building it takes eight minutes and more memory than small machines have.
fn promtool() -> Result<PathBuf> {
    let folder = target().join("tools/prometheus");
    let tool = folder.join("usr/bin/promtool");
    if !tool.is_file() {
        println!("getting promtool (once)");
        setup::debian_packages(&folder, &["prometheus"])?;
        let package = setup::debian_package(&folder, "prometheus")?;
        output(program("dpkg-deb").arg("--extract").arg(package).arg(&folder))?;
    }
    Ok(tool)
}
