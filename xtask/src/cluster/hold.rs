//! What holds a cluster together: the first process of its pid namespace, with mounts and a network
//! of its own. When it ends, the kernel ends every other process of the namespace.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};

use anyhow::{Context, Result, bail, ensure};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tokio::io::{AsyncBufReadExt, BufReader as AsyncBufReader};
use tokio::signal::unix::{SignalKind, signal};
use xtask::command::program;

use super::wait::{Limit, until};
use super::{cgroup, machine};

/// The namespaces of a first process, of a cluster or of a node, as unshare is told.
pub(super) const NAMESPACES: [&str; 8] =
    ["--fork", "--pid", "--kill-child", "--mount", "--uts", "--net", "--propagation", "private"];
/// What is written to its standard input when it is to outlive the command that started it.
const KEEP: &str = "keep";

/// The holder of a cluster, as seen from outside.
pub(super) struct Holder {
    pid: i32,
    started: Option<(Child, ChildStdin)>,
}

impl Holder {
    /// Starts one. It ends when this process does, unless it is kept.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        // The next build takes the place of the file that this was started from.
        fs::copy("/proc/self/exe", own_program(folder))?;
        let mut command = program("unshare");
        command
            .args(NAMESPACES)
            .arg("--")
            .arg(own_program(folder))
            .args(["cluster", "hold"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(folder.join("logs/hold.log"))?)
            // Ctrl-C is for the command, which then ends this by closing its input.
            .process_group(0);
        let mut child = command.spawn().context("cannot run unshare")?;
        let input = child.stdin.take().context("its input was asked for")?;
        let output = child.stdout.take().context("its output was asked for")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        ensure!(
            line.trim() == "holding",
            "the cluster's first process did not start: {}",
            fs::read_to_string(folder.join("logs/hold.log")).unwrap_or_default()
        );
        let pid = only_child(child.id())?;
        fs::write(file(folder), pid.to_string())?;
        Ok(Self { pid, started: Some((child, input)) })
    }

    /// The one that holds the cluster of this folder, if it is up.
    pub(super) fn find(folder: &Path) -> Option<Self> {
        let pid = fs::read_to_string(file(folder)).ok()?.parse().ok()?;
        let words = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        // The number may be another process's by now.
        words.ends_with(b"cluster\0hold\0").then_some(Self { pid, started: None })
    }

    /// Its number.
    pub(super) fn pid(&self) -> i32 {
        self.pid
    }

    /// Moves this thread, and what it starts from now on, into the cluster's network.
    pub(super) fn enter(&self) -> Result<()> {
        let network = File::open(format!("/proc/{}/ns/net", self.pid))?;
        move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
            .context("cannot enter the cluster's network")
    }

    /// Lets it outlive this process.
    pub(super) fn keep(mut self) -> Result<()> {
        let Some((_, mut input)) = self.started.take() else { return Ok(()) };
        Ok(writeln!(input, "{KEEP}")?)
    }

    /// Ends it, and with it all of the cluster.
    pub(super) fn end(&self) -> Result<()> {
        let pid = Pid::from_raw(self.pid).context("it has a number")?;
        match kill_process(pid, Signal::TERM) {
            Ok(()) | Err(Errno::SRCH) => {}
            Err(error) => bail!("cannot end the cluster: {error}"),
        }
        let place = PathBuf::from(format!("/proc/{}", self.pid));
        // It takes away what is the kernel's before it ends.
        until("the cluster to end", Limit::SHORT, || Ok((!place.exists()).then_some(())))
    }
}

impl Drop for Holder {
    /// What was started here and is not kept ends here, also when that is for an error.
    fn drop(&mut self) {
        if let Some((mut child, input)) = self.started.take() {
            drop(input);
            drop(child.wait());
        }
    }
}

fn file(folder: &Path) -> PathBuf {
    folder.join("holder.pid")
}

/// This very program, for as long as the cluster is there.
pub(super) fn own_program(folder: &Path) -> PathBuf {
    folder.join("xtask")
}

/// The number of the only child of a process, once it has one.
pub(super) fn only_child(parent: u32) -> Result<i32> {
    let place = format!("/proc/{parent}/task/{parent}/children");
    until("a process to have started", Limit::SHORT, || {
        let children = fs::read_to_string(&place).unwrap_or_default();
        Ok(children.split_whitespace().next().and_then(|child| child.parse().ok()))
    })
}

/// Is the first process: waits for the others' ends, and for its own.
pub(super) fn run(folder: &Path) -> Result<()> {
    mount("proc", "/proc", "proc", MountFlags::empty(), None).context("cannot mount /proc")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut ended = signal(SignalKind::child())?;
        let mut told = signal(SignalKind::terminate())?;
        let mut input = AsyncBufReader::new(tokio::io::stdin()).lines();
        println!("holding");
        let mut is_kept = false;
        loop {
            tokio::select! {
                _ = ended.recv() => while matches!(wait(WaitOptions::NOHANG), Ok(Some(_))) {},
                _ = told.recv() => break,
                line = input.next_line(), if !is_kept => match line? {
                    Some(line) if line == KEEP => is_kept = true,
                    // Whoever started this is gone.
                    _ => break,
                },
            }
        }
        anyhow::Ok(())
    })?;
    // A read of the standard input cannot be called off.
    runtime.shutdown_background();
    end_all_others()?;
    for command in take_away(folder) {
        eprintln!("left behind; run: {command}");
    }
    Ok(())
}

/// Ends every other process of this namespace and waits for it, so that nothing is in use any more.
fn end_all_others() -> Result<()> {
    for entry in fs::read_dir("/proc")? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(pid) = number.and_then(Pid::from_raw).filter(|pid| !pid.is_init()) {
            // One that has ended meanwhile has ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    until("the others to end", Limit::SHORT, || match wait(WaitOptions::NOHANG) {
        Ok(Some(_)) => Ok(None),
        Ok(None) => Ok(None),
        Err(Errno::CHILD) => Ok(Some(())),
        Err(error) => Err(error.into()),
    })
}

/// Takes away what is the kernel's and stays when processes go: devices and control groups. Answers
/// the commands that would do the rest.
pub(super) fn take_away(folder: &Path) -> Vec<String> {
    let mut left = machine::detach_all(folder);
    left.extend(cgroup::remove());
    left
}
