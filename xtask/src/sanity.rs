//! csi-sanity, the community's conformance suite, over the real sockets and real devices.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::setup;
use xtask::command::{build, program, target};
use xtask::playground::{Options, Playground};

/// What the names of specs for capabilities that are not claimed contain. The last one is about
/// `PUBLISH_READONLY`.
const NOT_CLAIMED: [&str; 11] = [
    "napshot",
    "GetCapacity",
    "ModifyVolume",
    "VolumeHealth",
    "StorageHealth",
    "source volume",
    "from an existing",
    "Metadata",
    "volume attribute class",
    "GroupController",
    "already published but is incompatible",
];

/// The numbers of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// Runs the suite for mount and for block.
pub(crate) fn run() -> Result<()> {
    setup::need_root("csi-sanity")?;
    build()?;
    let mut failed = 0;
    for access in ["mount", "block"] {
        let numbers = one(access)?;
        failed += numbers.failed;
        println!(
            "csi-sanity {access}: {} passed, {} failed, {} skipped (not claimed)",
            numbers.passed, numbers.failed, numbers.skipped
        );
    }
    if failed > 0 { bail!("csi-sanity: {failed} specs failed") } else { Ok(()) }
}

/// Runs the suite for one access type.
pub(crate) fn one(access: &str) -> Result<Numbers> {
    let suite =
        setup::go_tool("csi-sanity", "github.com/kubernetes-csi/csi-test/v5/cmd/csi-sanity")?;
    let playground = Playground::start(Options {
        programs: target().join("debug"),
        action_time: "0ms",
        devices: true,
        log: "info",
    })?;
    let report = playground.path("sanity.xml");
    let output = program(suite)
        .arg(format!("--csi.endpoint=unix://{}", playground.node_socket(101).display()))
        .arg(format!(
            "--csi.controllerendpoint=unix://{}",
            playground.controller_socket().display()
        ))
        .arg(format!("--csi.mountdir={}", playground.path("target").display()))
        .arg(format!("--csi.stagingdir={}", playground.path("staging").display()))
        .args(["--csi.testvolumesize=1073741824", "--csi.testvolumeexpandsize=2147483648"])
        .arg(format!("--csi.testvolumeaccesstype={access}"))
        .arg("--csi.testnodevolumeattachlimit")
        .args(["--ginkgo.no-color", "--ginkgo.timeout=5m"])
        .arg(format!("--ginkgo.junit-report={}", report.display()))
        .output()
        .context("cannot run csi-sanity")?;
    let xml = fs::read_to_string(&report)
        .with_context(|| format!("no report:\n{}", String::from_utf8_lossy(&output.stdout)))?;
    let cases = cases(&xml);
    let of = |status: &'static str| cases.iter().filter(move |(_, have)| have == status);
    let unexpected: Vec<&str> = of("skipped")
        .map(|(name, _)| name.as_str())
        .filter(|name| !NOT_CLAIMED.iter().any(|part| name.contains(part)))
        .collect();
    if !unexpected.is_empty() {
        bail!("csi-sanity skipped specs of what is claimed:\n  {}", unexpected.join("\n  "));
    }
    let numbers = Numbers {
        passed: of("passed").count(),
        failed: cases.len() - of("passed").count() - of("skipped").count() - of("pending").count(),
        skipped: of("skipped").count(),
    };
    if numbers.failed > 0 || numbers.passed == 0 || !output.status.success() {
        bail!("csi-sanity {access} failed:\n{}", String::from_utf8_lossy(&output.stdout));
    }
    Ok(numbers)
}

/// The names and statuses of a JUnit report as ginkgo writes it: one `testcase` element a line.
fn cases(xml: &str) -> Vec<(String, String)> {
    let attribute = |line: &str, key: &str| {
        let from = line.find(&format!("{key}=\""))? + key.len() + 2;
        let text = &line[from..];
        Some(text[..text.find('"')?].to_owned())
    };
    xml.lines()
        .filter(|line| line.trim_start().starts_with("<testcase "))
        .filter(|line| line.contains("name=\"[It]"))
        .filter_map(|line| Some((attribute(line, " name")?, attribute(line, "status")?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read_case_by_case() {
        let xml = "<testsuite>\n  <testcase name=\"[It] A does b\" classname=\"c\" status=\"passed\" \
                   time=\"1\">\n  <testcase name=\"[BeforeSuite]\" status=\"passed\">\n  <testcase \
                   name=\"[It] C\" status=\"skipped\">";
        let expected = [("[It] A does b", "passed"), ("[It] C", "skipped")];
        assert_eq!(cases(xml), expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    }
}
