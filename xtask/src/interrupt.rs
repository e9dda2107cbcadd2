//! What happens when somebody ends a command early, by Ctrl-C or as a CI service does.
//!
//! The command is not ended on the spot, because its mounts and devices would stay. Instead every
//! program that it has started is asked to end. Whatever waits for one of them then fails, and the
//! way out takes everything away, as after any other failure. [`watch`] sets this up.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};
use rustix::process::{Pid, Signal, getpgrp, getpid, kill_process, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

/// How long it takes until programs that were started meanwhile are asked to end, too.
const AGAIN: Duration = Duration::from_millis(100);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);
static GROUPS: Mutex<Vec<Pid>> = Mutex::new(Vec::new());

/// Begins to watch for SIGINT, SIGTERM and SIGHUP, which from now on do not end this process.
///
/// # Errors
/// When the signals cannot be listened for.
pub fn watch() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let context = runtime.enter();
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    drop(context);
    thread::Builder::new().name("interrupt".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
                _ = hang_up.recv() => {}
            }
        });
        INTERRUPTED.store(true, Ordering::SeqCst);
        loop {
            end_programs();
            thread::sleep(AGAIN);
        }
    })?;
    Ok(())
}

/// Whether this command is to end early.
pub fn seen() -> bool {
    INTERRUPTED.load(Ordering::SeqCst)
}

/// Fails when this command is to end early, so that nothing more is begun.
///
/// # Errors
/// When a signal has come.
pub fn check() -> Result<()> {
    if seen() { bail!("interrupted") } else { Ok(()) }
}

/// Says that a program leads a process group of its own, all of which is to end early with this
/// command. A program in a group of its own for which this is not said is left alone: that is how
/// what takes things away is not interrupted itself.
pub fn covers_group(leader: u32) {
    if let Some(leader) = i32::try_from(leader).ok().and_then(Pid::from_raw) {
        GROUPS.lock().expect("nothing panics while it holds this").push(leader);
    }
}

/// Says that a group has ended; its number may be another's from now on.
pub fn group_ended(leader: u32) {
    let mut groups = GROUPS.lock().expect("nothing panics while it holds this");
    groups.retain(|group| u32::try_from(group.as_raw_nonzero().get()) != Ok(leader));
}

/// Asks the programs that this process has started to end. One that has ended already is as well.
fn end_programs() {
    for group in &*GROUPS.lock().expect("nothing panics while it holds this") {
        let _ = kill_process_group(*group, Signal::TERM);
    }
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        if let Some((pid, parent, group)) = relatives(&stat)
            && parent == getpid()
            && group == getpgrp()
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }
}

/// The process, its parent and its group, of a `/proc/…/stat`. The name in the middle is in
/// parentheses and may itself contain any of them.
fn relatives(stat: &str) -> Option<(Pid, Pid, Pid)> {
    let (pid, rest) = stat.split_once(" (")?;
    let mut words = rest.rsplit_once(") ")?.1.split(' ').skip(1);
    let mut number = || Pid::from_raw(words.next()?.parse().ok()?);
    let (parent, group) = (number()?, number()?);
    Some((Pid::from_raw(pid.parse().ok()?)?, parent, group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_relatives_of_a_process_are_read_past_its_name() {
        let pid = |number| Pid::from_raw(number).expect("not zero");
        let stat = "12 (a) b (c) d) S 7 9 9 0 -1";
        assert_eq!(relatives(stat), Some((pid(12), pid(7), pid(9))));
        assert_eq!(relatives(""), None);
        let own = fs::read_to_string("/proc/self/stat").expect("readable");
        assert_eq!(
            relatives(&own).map(|(own, _, group)| (own, group)),
            Some((getpid(), getpgrp()))
        );
    }
}
