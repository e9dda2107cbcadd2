//! The proof that the suite catches what it is for: a driver that is right passes it, and one that
//! is wrong in one way fails the check that is meant for that.
#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the driver of these tests answers with codes and starts losetup"
)]
#![expect(clippy::print_stderr, reason = "a test that cannot run says so")]

use std::fs;
use std::time::Duration;

use driver::fault::{FAULTS, Fault};
use driver::{MIB, NODES, Running};
use ghost_conformance::{Access, Driver, Options, Outcome, Report, checks, run};

mod driver;

fn options(running: &Running, access: Access) -> Options {
    let mut options = Options::new(running.path("staging"), running.path("target"));
    let socket = running.path("csi.sock");
    (options.controller, options.node) = (Some(socket.clone()), Some(socket));
    options.second_node_id = Some(NODES[1].to_owned());
    options.access = access;
    options.size = MIB;
    options.call_limit = Duration::from_secs(20);
    options.patience = Duration::from_secs(1);
    options
}

/// Runs the checks whose name is that, or all.
async fn suite(fault: Option<Fault>, access: Access, only: Option<&str>) -> Report {
    let running = Running::start(fault);
    let options = options(&running, access);
    let driver = Driver::connect(&options).await.expect("it listens");
    let wanted = |check: &ghost_conformance::Check| only.is_none_or(|name| check.name == name);
    run(driver, options, wanted, |_| (), std::future::pending()).await
}

/// Whether the kernel lets this test mount; it says so when not.
fn may_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        assert!(std::env::var_os("CI").is_none(), "the tests run as root in CI");
        eprintln!("NOT TESTED: the checks at the node, which are for root");
    }
    root
}

fn failures(report: &Report) -> String {
    let shown = |one: &ghost_conformance::Result| match &one.outcome {
        Outcome::Failed(failure) => Some(format!("{}: {failure:#?}", one.name)),
        _ => None,
    };
    report.results.iter().filter_map(shown).collect::<Vec<_>>().join("\n")
}

async fn passes(access: Access, other: &str) {
    let root = may_mount();
    let report = suite(None, access, None).await;
    assert!(report.failed().is_empty(), "{}", failures(&report));
    assert_eq!(report.left(), Vec::<&str>::new(), "nothing is left behind");
    assert_eq!(report.results.len(), checks().count());
    // Only what is of the other kind, or not claimed, is left out.
    for (name, why) in report.skipped() {
        let expected = why == other || !root;
        assert!(expected, "{name} was skipped: {why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_is_right_passes_with_filesystems() {
    passes(Access::Mount, "volumes are used as filesystems").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_driver_that_is_right_passes_with_block_devices() {
    passes(Access::Block, "volumes are used as block devices").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_fault_is_caught_by_the_check_that_is_meant_for_it() {
    assert!(FAULTS.len() >= 20, "{} faults", FAULTS.len());
    let root = may_mount();
    let mut missed = Vec::new();
    for (fault, names) in FAULTS {
        let block = *fault == Fault::BlockTargetIsFile;
        let access = if block { Access::Block } else { Access::Mount };
        for name in *names {
            let report = suite(Some(*fault), access, Some(name)).await;
            let [result] = &report.results[..] else { panic!("there is no check {name}") };
            match &result.outcome {
                Outcome::Failed(_) => {}
                Outcome::Skipped(why) if why == "it is for root" && !root => {}
                other => missed.push(format!("{fault:?} was not caught by {name}: {other:?}")),
            }
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_says_by_its_exit_code_how_it_went() {
    let program = async |running: &Running, more: &[&str]| {
        let endpoint = format!("unix://{}", running.path("csi.sock").display());
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_ghost-conformance"))
            .args(["--controller", &endpoint, "--size", "1048576", "--only", "delete,name.empty"])
            .args(more)
            .output()
            .await
            .expect("it is built");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text, String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let right = Running::start(None);
    let (code, text, _) = program(&right, &["--node-id", NODES[0]]).await;
    assert!(code == Some(0) && text.contains("4 ok, 0 failed, 0 skipped"), "{code:?} {text}");
    let (code, text, _) = program(&right, &["--skip", "delete.published"]).await;
    assert!(code == Some(0) && text.contains("3 ok, 0 failed, 0 skipped"), "{code:?} {text}");

    let wrong = Running::start(Some(Fault::DeleteUnknownIsNotFound));
    let (code, text, _) = program(&wrong, &[]).await;
    assert_eq!(code, Some(1), "{text}");
    for part in ["FAILED   delete.twice", "asked:    DeleteVolume", "came:     NOT_FOUND"] {
        assert!(text.contains(part), "{part} in {text}");
    }

    for (more, told) in [
        (["--only", "nothing.such"], "neither a check nor a group"),
        (["--node", "unix:///does/not/exist.sock"], "give --staging-dir and --target-dir"),
        (["--secrets-file", "/does/not/exist"], "/does/not/exist"),
        (["--parameters", "/does/not/exist"], "/does/not/exist"),
    ] {
        let (code, text, error) = program(&right, &more).await;
        assert!(code == Some(2) && error.contains(told), "{code:?} {text} {error}");
    }
    drop(wrong);
    let gone = right.path("csi.sock");
    fs::rename(&gone, right.path("moved.sock")).expect("it is there");
    let (code, _, error) = program(&right, &[]).await;
    assert!(code == Some(2) && error.contains("cannot connect"), "{code:?} {error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_broken_off_takes_away_what_it_made() {
    let running = Running::start(None);
    let mut options = options(&running, Access::Mount);
    options.patience = Duration::from_secs(20);
    let driver = Driver::connect(&options).await.expect("it listens");
    // Broken off as soon as there are volumes.
    let stop = async {
        let made = || fs::read_dir(running.path("disk")).expect("it is there").count();
        while made() < 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let wanted = |check: &ghost_conformance::Check| check.name == "list.churn";
    let report = run(driver, options, wanted, |_| (), stop).await;
    assert!(report.interrupted, "it was in time");
    assert_eq!(report.left(), Vec::<&str>::new());
    assert_eq!(running.volumes(), 0, "its volumes are gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_that_a_driver_shows_is_noticed_and_not_shown_again() {
    let running = Running::start(Some(Fault::SecretInMessage));
    let mut options = options(&running, Access::Mount);
    options.secrets.insert("login".to_owned(), "SESAME-42".to_owned());
    let driver = Driver::connect(&options).await.expect("it listens");
    let wanted = |check: &ghost_conformance::Check| {
        check.name == "name.empty" || check.name == "error.secrets"
    };
    let report = run(driver, options, wanted, |_| (), std::future::pending()).await;
    assert_eq!(report.failed(), ["error.secrets"]);
    assert!(failures(&report).contains("CreateVolume"), "{}", failures(&report));
    assert!(!failures(&report).contains("SESAME"), "{}", failures(&report));
}

#[test]
fn every_check_is_meant_for_a_fault() {
    let meant: Vec<&str> = FAULTS.iter().flat_map(|(_, names)| *names).copied().collect();
    let idle: Vec<&str> =
        checks().map(|check| check.name).filter(|name| !meant.contains(name)).collect();
    assert_eq!(idle, Vec::<&str>::new(), "no fault shows that these catch anything");
}
