//! All tests: ours, the foreign clients, csi-sanity.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::{foreign, sanity, setup};
use xtask::command::{build, cargo};

/// One line of the table at the end.
struct Part {
    name: &'static str,
    passed: usize,
    failed: usize,
    skipped: usize,
    seconds: f64,
}

/// Sets up what is missing and runs everything.
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
    let mut parts = Vec::new();
    measure(&mut parts, "cargo test --workspace", tests)?;
    for (name, client) in [
        ("API client godo (Go)", foreign::godo as fn() -> Result<foreign::Checked>),
        ("API client pydo (Python)", foreign::pydo),
    ] {
        measure(&mut parts, name, || client().map(|checked| (checked.passed, checked.failed, 0)))?;
    }
    for (name, access) in
        [("csi-sanity 5.6.0, mount", "mount"), ("csi-sanity 5.6.0, block", "block")]
    {
        measure(&mut parts, name, || sanity::one(access).map(|n| (n.passed, n.failed, n.skipped)))?;
    }
    report(&parts)
}

fn measure(
    parts: &mut Vec<Part>,
    name: &'static str,
    part: impl FnOnce() -> Result<(usize, usize, usize)>,
) -> Result<()> {
    println!("\n── {name}");
    let begun = Instant::now();
    let (passed, failed, skipped) = part().with_context(|| name)?;
    let seconds = begun.elapsed().as_secs_f64();
    println!("   {passed} passed, {failed} failed, {skipped} skipped in {seconds:.1} s");
    parts.push(Part { name, passed, failed, skipped, seconds });
    Ok(())
}

fn report(parts: &[Part]) -> Result<()> {
    println!("\n{:<28}{:>8}{:>8}{:>9}{:>10}", "", "passed", "failed", "skipped", "seconds");
    for part in parts {
        println!(
            "{:<28}{:>8}{:>8}{:>9}{:>10.1}",
            part.name, part.passed, part.failed, part.skipped, part.seconds
        );
    }
    println!("csi-sanity's skipped specs are those of capabilities that are not claimed.\n");
    let passed: usize = parts.iter().map(|part| part.passed).sum();
    let failed: usize = parts.iter().map(|part| part.failed).sum();
    println!("{passed} passed, {failed} failed");
    if failed > 0 { bail!("{failed} failed") } else { Ok(()) }
}

/// Runs cargo's tests and adds up what each test binary says at its end.
fn tests() -> Result<(usize, usize, usize)> {
    let mut child = cargo()
        .args(["test", "--workspace", "--quiet", "--no-fail-fast"])
        // A privileged test that cannot run is a failure here, not a remark.
        .env("CI", "true")
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = child.stdout.take().context("its output was asked for")?;
    let (mut passed, mut failed, mut ignored) = (0, 0, 0);
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        println!("{line}");
        if let Some(numbers) = line.strip_prefix("test result: ") {
            let of = |word: &str| {
                let words: Vec<&str> = numbers.split([' ', ';']).collect();
                let at = words.iter().position(|have| *have == word)?;
                words.get(at.checked_sub(1)?)?.parse::<usize>().ok()
            };
            passed += of("passed").unwrap_or(0);
            failed += of("failed").unwrap_or(0);
            ignored += of("ignored").unwrap_or(0);
        }
    }
    let status = child.wait()?;
    if !status.success() || failed > 0 {
        bail!("{failed} of our own tests failed ({status})");
    }
    if passed == 0 || ignored > 0 {
        bail!("{passed} tests passed and {ignored} were ignored; none may be");
    }
    Ok((passed, failed, ignored))
}
