//! Our own conformance suite, over the real sockets and real devices.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail, ensure};
use xtask::command::{build, program, target};
use xtask::playground::{NODES, Options, Playground};

use crate::sanity::Numbers;
use crate::setup;

/// Why the suite may leave out a check: what ghost does not claim. One that nothing is left out
/// for any more must go from here, so that this list stays true.
const NOT_CLAIMED: [&str; 2] = ["MODIFY_VOLUME is not claimed", "PUBLISH_READONLY is not claimed"];
/// How the volumes are used: with which filesystem, or as block devices.
pub(crate) const USES: [&str; 3] = ["ext4", "xfs", "block"];

/// Runs the suite for each use, and shows every check.
pub(crate) fn run() -> Result<()> {
    setup::need_root("the conformance suite")?;
    setup::need_programs(&["mkfs.ext4", "e2fsck", "mkfs.xfs", "losetup", "blkid"])?;
    build()?;
    let mut failed = 0;
    for use_ in USES {
        println!("\n── {use_}");
        let (text, numbers) = suite(use_)?;
        print!("{text}");
        println!("   {}", left_out(&text, use_)?);
        failed += numbers.failed;
    }
    if failed > 0 { bail!("conformance: {failed} checks failed") } else { Ok(()) }
}

/// Runs the suite for one use, and tells what it did not check and why. What failed is
/// shown and counted.
///
/// # Errors
/// When the suite could not run, or left out what it should have checked.
pub(crate) fn one(use_: &str) -> Result<Numbers> {
    let (text, numbers) = suite(use_)?;
    if numbers.failed > 0 {
        print!("{text}");
    }
    println!("   {}", left_out(&text, use_)?);
    Ok(numbers)
}

/// What the suite printed, and its numbers. What it left behind counts as a failure more.
fn suite(use_: &str) -> Result<(String, Numbers)> {
    let playground = Playground::start(Options {
        programs: target().join("debug"),
        action_time: "0ms",
        devices: true,
        log: "info",
    })?;
    let (staging, targets) = (playground.path("staging"), playground.path("target"));
    std::fs::create_dir(&staging)?;
    std::fs::create_dir(&targets)?;
    let with: &[&str] = match use_ {
        "block" => &["--access", "block"],
        "xfs" => &["--fs-type", "xfs", "--other-fs-type", "ext4"],
        _ if setup::has_resource_capability() => &["--fs-type", "ext4"],
        _ => {
            println!("   without node.expand: growing a mounted ext4 needs CAP_SYS_RESOURCE here");
            &["--fs-type", "ext4", "--skip", "node.expand"]
        }
    };
    let endpoint = |socket: std::path::PathBuf| format!("unix://{}", socket.display());
    let output = program(target().join("debug/ghost-conformance"))
        .args(["--controller", &endpoint(playground.controller_socket())])
        .args(["--node", &endpoint(playground.node_socket(NODES[0]))])
        .args(["--second-node-id", &NODES[1].to_string()])
        .args(with)
        .arg("--staging-dir")
        .arg(staging)
        .arg("--target-dir")
        .arg(targets)
        .output()
        .context("cannot run ghost-conformance")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let begin = |word: &str| text.lines().filter(|line| line.starts_with(word)).count();
    let left = begin("left behind: ");
    let numbers = Numbers {
        passed: begin("ok "),
        failed: begin("FAILED ") + left,
        skipped: begin("skipped "),
    };
    let sound = output.status.success() == (numbers.failed == 0) && numbers.passed > 0;
    ensure!(
        sound,
        "ghost-conformance {use_} broke off ({}):\n{text}{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok((text, numbers))
}

/// For how many checks which capability was missing.
fn left_out(text: &str, use_: &str) -> Result<String> {
    let other = match use_ {
        "block" => "volumes are used as block devices",
        _ => "volumes are used as filesystems",
    };
    let mut of = BTreeMap::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("skipped ")) {
        let (name, why) = line.trim_start().split_once(' ').context("a name and a reason")?;
        let why = why.trim_start();
        if why != other && !NOT_CLAIMED.contains(&why) {
            bail!("the suite left out what ghost claims: {name} ({why})");
        }
        *of.entry(why).or_insert(0_usize) += 1;
    }
    let stale: Vec<&str> = NOT_CLAIMED.into_iter().filter(|why| !of.contains_key(why)).collect();
    if !stale.is_empty() {
        bail!("nothing is left out for {:?}: take it from the list", stale.join(", "));
    }
    let shown: Vec<String> = of.iter().map(|(why, number)| format!("{why} {number}")).collect();
    Ok(format!("left out: {}", shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_claimed_may_be_left_out_and_all_of_it_is() {
        let lines = NOT_CLAIMED.map(|why| format!("skipped  group.check      {why}\n"));
        let mut text = format!("ok       a.b        something\n{}", lines.concat());
        assert!(left_out(&text, "ext4").is_ok());
        text.push_str("skipped  data.readonly   volumes are used as block devices\n");
        assert!(left_out(&text, "block").is_ok());
        assert!(left_out(&text, "ext4").is_err_and(|e| e.to_string().contains("data.readonly")));
        let fewer = lines[1..].concat();
        assert!(left_out(&fewer, "block").is_err_and(|e| e.to_string().contains("MODIFY_VOLUME")));
    }
}
