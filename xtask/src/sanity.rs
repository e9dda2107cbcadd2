//! csi-sanity, the community's conformance suite, over the real sockets and real devices.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result, bail};
use xtask::command::{build, program, target};
use xtask::playground::{Options, Playground};

use crate::setup;

/// The capabilities that ghost does not claim, as csi-sanity names them when it skips a spec. One
/// that nothing is skipped for any more must go from here, so that this list stays true.
const NOT_CLAIMED: [&str; 5] = [
    "ControllerModifyVolume",
    "ControllerPublishVolume.readonly field",
    "GroupControllerService",
    "Modify Volume",
    "Modify volume",
];

/// Specs that csi-sanity 5.6.0 itself makes fail for every driver that claims what they test, and
/// why. What they test is tested in `crates/ghost/tests/it`.
const SUITE_AT_FAULT: [(&str, &str); 1] = [(
    "should succeed when creating a snapshot with accessibility requirements",
    "it compares two equal topologies by their memory, where one has a cached size",
)];

/// The numbers of one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Numbers {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) skipped: usize,
}

/// What became of one spec.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Case {
    name: String,
    status: String,
    /// Why it was skipped.
    reason: String,
}

/// Runs the suite for mount and for block.
pub(crate) fn run() -> Result<()> {
    setup::need_root("csi-sanity")?;
    setup::need_programs(&["mkfs.ext4", "e2fsck", "losetup", "blkid", "go"])?;
    build()?;
    let mut failed = 0;
    for access in ["mount", "block"] {
        let numbers = one(access)?;
        failed += numbers.failed;
        println!(
            "csi-sanity {access}: {} passed, {} failed, {} skipped",
            numbers.passed, numbers.failed, numbers.skipped
        );
    }
    if failed > 0 { bail!("csi-sanity: {failed} specs failed") } else { Ok(()) }
}

/// Runs the suite for one access type, and tells what it did not run and why. Specs that fail are
/// shown and counted.
///
/// # Errors
/// When the suite could not run, or left out what it should have run.
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
        .args(SUITE_AT_FAULT.map(|(name, _)| format!("--ginkgo.skip={name}$")))
        .arg(format!("--ginkgo.junit-report={}", report.display()))
        .output()
        .context("cannot run csi-sanity")?;
    let xml = fs::read_to_string(&report)
        .with_context(|| format!("no report:\n{}", String::from_utf8_lossy(&output.stdout)))?;
    let cases = cases(&xml);
    let number = |status: &str| cases.iter().filter(|case| case.status == status).count();
    let (passed, skipped, pending) = (number("passed"), number("skipped"), number("pending"));
    let numbers = Numbers { passed, failed: cases.len() - passed - skipped - pending, skipped };
    if numbers.failed > 0 {
        println!("{}", String::from_utf8_lossy(&output.stdout));
    } else if passed == 0 || !output.status.success() {
        bail!("csi-sanity {access} failed:\n{}", String::from_utf8_lossy(&output.stdout));
    }
    println!("   {}; {pending} left pending by the suite itself", left_out(&cases)?);
    Ok(numbers)
}

/// For how many specs which capability was missing.
fn left_out(cases: &[Case]) -> Result<String> {
    let mut of = BTreeMap::new();
    let mut at_fault = String::new();
    for case in cases.iter().filter(|case| case.status == "skipped") {
        if let Some((name, why)) = SUITE_AT_FAULT.iter().find(|(name, _)| case.name.ends_with(name))
        {
            at_fault = format!("{at_fault}; left out \"{name}\": {why}");
            continue;
        }
        let known = NOT_CLAIMED.iter().find(|name| case.reason == format!("{name} not supported"));
        let Some(name) = known else {
            bail!("csi-sanity skipped what ghost claims: {} ({})", case.name, case.reason);
        };
        *of.entry(*name).or_insert(0_usize) += 1;
    }
    let stale: Vec<&str> = NOT_CLAIMED.into_iter().filter(|name| !of.contains_key(name)).collect();
    if !stale.is_empty() {
        bail!("nothing is skipped for lack of {}: take it from the list", stale.join(", "));
    }
    let shown: Vec<String> = of.iter().map(|(name, number)| format!("{name} {number}")).collect();
    Ok(format!("skipped, as ghost does not claim it: {}{at_fault}", shown.join(", ")))
}

/// The specs of a JUnit report as ginkgo writes it: the elements `testcase` and, inside, `skipped`
/// begin a line each.
fn cases(xml: &str) -> Vec<Case> {
    let attribute = |line: &str, key: &str| {
        let from = line.find(&format!("{key}=\""))? + key.len() + 2;
        let text = &line[from..];
        Some(text[..text.find('"')?].to_owned())
    };
    let mut cases: Vec<Case> = Vec::new();
    for line in xml.lines().map(str::trim_start) {
        if line.starts_with("<testcase ") {
            let (name, status) = (attribute(line, " name"), attribute(line, " status"));
            let (name, status) = (name.unwrap_or_default(), status.unwrap_or_default());
            cases.push(Case { name, status, reason: String::new() });
        } else if let (true, Some(case)) = (line.starts_with("<skipped "), cases.last_mut()) {
            let reason = attribute(line, " message").unwrap_or_default();
            reason.trim_start_matches("skipped - ").clone_into(&mut case.reason);
        }
    }
    // What is set up before all specs and taken down after them is none itself.
    cases.retain(|case| case.name.starts_with("[It]") || case.status != "passed");
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, status: &str, reason: &str) -> Case {
        let [name, status, reason] = [name, status, reason].map(str::to_owned);
        Case { name, status, reason }
    }

    #[test]
    fn the_report_is_read_case_by_case() {
        let xml = "<testsuite>\n  <testcase name=\"[It] A does b\" classname=\"c\" status=\"passed\" \
                   time=\"1\">\n  <testcase name=\"[BeforeSuite]\" status=\"passed\">\n  <testcase \
                   name=\"[It] C\" status=\"skipped\">\n <skipped message=\"skipped - D not \
                   supported\"></skipped>\n  <testcase name=\"[AfterSuite]\" status=\"failed\">";
        let expected = [
            case("[It] A does b", "passed", ""),
            case("[It] C", "skipped", "D not supported"),
            case("[AfterSuite]", "failed", ""),
        ];
        assert_eq!(cases(xml), expected);
    }

    #[test]
    fn only_what_is_not_claimed_may_be_skipped_and_all_of_it_is() {
        let mut all: Vec<Case> = NOT_CLAIMED
            .map(|name| case("[It] A", "skipped", &format!("{name} not supported")))
            .into();
        assert!(left_out(&all).is_ok());
        all.push(case("[It] B", "skipped", "NodeExpandVolume not supported"));
        assert!(left_out(&all).is_err_and(|error| error.to_string().contains("[It] B")));
        all.truncate(NOT_CLAIMED.len() - 1);
        assert!(left_out(&all).is_err_and(|error| error.to_string().contains("Modify volume")));
    }
}
