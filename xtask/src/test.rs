//! All tests: ours, the foreign clients, csi-sanity, our conformance suite.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use xtask::command::{build, cargo, target};
use xtask::guest::Image;
use xtask::interrupt;
use xtask::leftover::{detach_below, loops_below, mounts_below, unmount_below};

use crate::sanity::Numbers;
use crate::{conformance, foreign, sanity, setup};

/// One line of the table at the end.
struct Part {
    name: &'static str,
    numbers: Numbers,
    seconds: f64,
}

/// Sets up what is missing and runs everything. A part that fails does not keep the others from
/// running.
pub(crate) fn run() -> Result<()> {
    setup::need_root("the test suite")?;
    setup::need_programs(&[
        "mkfs.ext4",
        "e2fsck",
        "mkfs.xfs",
        "mkfs.btrfs",
        "losetup",
        "blkid",
        "python3",
        "go",
    ])?;
    build()?;
    let parts = [
        ("cargo test --workspace", workspace as fn() -> Result<Numbers>),
        ("guest tests", guests),
        ("API client godo (Go)", foreign::godo),
        ("API client pydo (Python)", foreign::pydo),
        ("csi-sanity 5.6.0, mount", || sanity::one("mount")),
        ("csi-sanity 5.6.0, block", || sanity::one("block")),
        ("ghost-conformance, ext4", || conformance::one("ext4")),
        ("ghost-conformance, xfs", || conformance::one("xfs")),
        ("ghost-conformance, block", || conformance::one("block")),
    ];
    let mut measured = Vec::new();
    for (name, part) in parts {
        measured.push(measure(name, part));
        interrupt::check()?;
    }
    report(&measured)
}

/// Runs a part. One that breaks off counts as a failure more.
fn measure(name: &'static str, part: fn() -> Result<Numbers>) -> Part {
    println!("\n── {name}");
    let begun = Instant::now();
    let numbers = part().unwrap_or_else(|error| {
        println!("   broke off: {error:#}");
        Numbers { failed: 1, ..Numbers::default() }
    });
    let seconds = begun.elapsed().as_secs_f64();
    println!("   {} passed, {} failed in {seconds:.1} s", numbers.passed, numbers.failed);
    Part { name, numbers, seconds }
}

fn report(parts: &[Part]) -> Result<()> {
    println!("\n{:<28}{:>8}{:>8}{:>9}{:>10}", "", "passed", "failed", "skipped", "seconds");
    for Part { name, numbers, seconds } in parts {
        let Numbers { passed, failed, skipped } = numbers;
        println!("{name:<28}{passed:>8}{failed:>8}{skipped:>9}{seconds:>10.1}");
    }
    let passed: usize = parts.iter().map(|part| part.numbers.passed).sum();
    let failed: usize = parts.iter().map(|part| part.numbers.failed).sum();
    if failed == 0 {
        println!("Skipped are specs and checks of capabilities that are not claimed.");
    }
    println!("\n{passed} passed, {failed} failed");
    if failed > 0 { bail!("{failed} failed") } else { Ok(()) }
}

/// All tests that need nothing but this machine.
fn workspace() -> Result<Numbers> {
    tests(&["--workspace", "--quiet", "--no-fail-fast"])
}

/// Those in virtual machines, one line for each, because one takes seconds.
fn guests() -> Result<Numbers> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Image::ready(&target()))?;
    tests(&["--package", "ghost", "--test", "guest"])
}

/// Runs cargo's tests and adds up what each test binary says at its end.
fn tests(which: &[&str]) -> Result<Numbers> {
    // What tests make is below a folder of this run, so that it can be taken away when they are
    // ended early, and found when they leave it.
    let folder = tempfile::Builder::new().prefix("gt-").tempdir()?;
    let mut child = cargo()
        .arg("test")
        .args(which)
        // A privileged test that cannot run is a failure here, not a remark.
        .env("CI", "true")
        .env("TMPDIR", folder.path())
        .stdout(Stdio::piped())
        // With the tests that it starts, and what they start.
        .process_group(0)
        .spawn()?;
    interrupt::covers_group(child.id());
    let stdout = child.stdout.take().context("its output was asked for")?;
    let (mut numbers, mut ignored) = (Numbers::default(), 0);
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        if let Some(told) = line.strip_prefix("test result: ") {
            numbers.passed += said(told, "passed");
            numbers.failed += said(told, "failed");
            ignored += said(told, "ignored");
        }
    }
    let status = child.wait()?;
    interrupt::group_ended(child.id());
    let (mounts, loops) = (mounts_below(folder.path()), loops_below(folder.path()));
    for command in [unmount_below(folder.path()), detach_below(folder.path())].concat() {
        println!("left behind; run: {command}");
    }
    interrupt::check()?;
    let any_failed = numbers.failed > 0;
    ensure!(numbers.passed > 0 || any_failed, "no test ran ({status})");
    let mut also = |failed: bool, what: String| {
        if failed {
            println!("   {what}");
            numbers.failed += 1;
        }
    };
    also(
        !mounts.is_empty() || !loops.is_empty(),
        format!("the tests left behind what is now taken away: {mounts:?} {loops:?}"),
    );
    also(ignored > 0, format!("{ignored} tests were ignored; none may be"));
    // Something did not compile, or a test binary died.
    also(!status.success() && !any_failed, format!("cargo test failed ({status})"));
    Ok(numbers)
}

/// The number before a word in a line such as `ok. 3 passed; 0 failed; …`.
fn said(line: &str, word: &str) -> usize {
    let words: Vec<&str> = line.split([' ', ';']).collect();
    let before = words.iter().position(|have| *have == word).and_then(|at| at.checked_sub(1));
    before.and_then(|at| words[at].parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_test_binary_are_read() {
        let line = "FAILED. 31 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(["passed", "failed", "ignored"].map(|word| said(line, word)), [31, 2, 1]);
        assert_eq!(said("ok", "passed"), 0);
    }
}
