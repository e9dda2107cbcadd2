//! Virtual machines with real disks that come and go, a real udev and a real kernel of their own.
//!
//! A guest is a QEMU process without KVM, so that it needs no privilege and is the same everywhere.
//! Its root filesystem is read-only with a layer of memory on top: what is written there is gone
//! when it boots again. Disks are plugged in by whoever has one of its monitors. The principal type
//! is [`Guest`].

use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ghost_qmp::disk::{Disk, UnplugLimit};

use crate::interrupt;

mod agent;
mod image;
mod machine;
mod node_half;
mod recipe;

use machine::{Beginning, Machine};

pub use agent::Outcome;
pub use image::Image;
pub use recipe::HOST_ADDRESS;

/// How long a guest may take to boot. It takes a sixth of that on two busy cores.
const BOOT_LIMIT: Duration = Duration::from_secs(120);
/// How long one script in a guest may take.
const SCRIPT_LIMIT: Duration = Duration::from_secs(60);
/// How long is waited before asking again for what gives no event.
const PAUSE: Duration = Duration::from_millis(20);
/// How much of each log is shown when a test fails.
const LINES_SHOWN: usize = 40;

/// A virtual machine. It ends with this value, and tells its logs if that is because of a panic.
#[derive(Debug)]
pub struct Guest {
    image: Image,
    folder: PathBuf,
    machine: Option<Machine>,
}

impl Guest {
    /// A guest that boots as a machine does, which takes some 20 seconds. What it needs is kept in
    /// `folder`.
    ///
    /// # Errors
    /// When it does not boot; it tells its console.
    pub async fn boot(image: &Image, folder: &Path) -> Result<Self> {
        Self::start(image, folder, Beginning::Boot).await
    }

    /// A guest that goes on from where another one, which had booted, was saved; in a second.
    ///
    /// # Errors
    /// When it does not come to life; it tells its console.
    pub async fn restore(image: &Image, folder: &Path) -> Result<Self> {
        Self::start(image, folder, Beginning::Restore).await
    }

    async fn start(image: &Image, folder: &Path, beginning: Beginning) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let (image, folder) = (image.clone(), folder.to_owned());
        let mut guest = Self { image, folder, machine: None };
        guest.power_on(beginning).await?;
        Ok(guest)
    }

    /// The socket of the monitor that the simulated cloud is to have; the guest's own is another.
    pub fn monitor_socket(&self) -> PathBuf {
        self.folder.join(machine::CLOUD_MONITOR)
    }

    /// Runs a script of the shell in the guest.
    ///
    /// # Errors
    /// When the guest does not answer, or the script takes too long.
    pub async fn run(&self, script: &str) -> Result<Outcome> {
        agent::run(self.port(recipe::AGENT_PORT)?, script, SCRIPT_LIMIT).await
    }

    /// Runs a script that has to succeed, and answers what it wrote.
    ///
    /// # Errors
    /// When it does not succeed; it tells what it wrote.
    pub async fn succeed(&self, script: &str) -> Result<String> {
        let outcome = self.run(script).await?;
        ensure!(outcome.code == 0, "{script}: {} ({})", outcome.text(), outcome.code);
        Ok(outcome.text())
    }

    /// Waits until a script succeeds, by running it again and again.
    ///
    /// # Errors
    /// When it still fails after a minute; it tells what it wrote.
    pub async fn until(&self, script: &str) -> Result<()> {
        let begun = Instant::now();
        loop {
            let outcome = self.run(script).await?;
            if outcome.code == 0 {
                return Ok(());
            }
            ensure!(begun.elapsed() < SCRIPT_LIMIT, "{script}: {}", outcome.text());
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What is in a file of the guest.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>> {
        let outcome = self.run(&format!("cat {}", quoted(path))).await?;
        ensure!(outcome.code == 0, "cannot read {path}: {}", outcome.text());
        Ok(outcome.output)
    }

    /// Writes a text into a file of the guest, and waits until it is on the disk.
    ///
    /// # Errors
    /// When it cannot be written.
    pub async fn write(&self, path: &str, text: &str) -> Result<()> {
        let (text, path) = (quoted(text), quoted(path));
        self.succeed(&format!("printf %s {text} >{path} && sync -f {path}")).await.map(drop)
    }

    /// Plugs a disk in that no cloud knows of.
    ///
    /// # Errors
    /// When QEMU refuses it.
    pub async fn plug(&mut self, disk: &Disk) -> Result<()> {
        Ok(self.machine()?.monitor.plug(disk).await?)
    }

    /// Takes the disk with this key out, whatever it is used for at that moment.
    ///
    /// # Errors
    /// When the guest does not let go of it.
    pub async fn unplug(&mut self, key: &str) -> Result<()> {
        Ok(self.machine()?.monitor.unplug(key, UnplugLimit::default()).await?)
    }

    /// Waits until the guest lets go of the disk with this key, which someone else asked for.
    ///
    /// # Errors
    /// When it does not.
    pub async fn let_go(&mut self, key: &str) -> Result<()> {
        Ok(self.machine()?.monitor.let_go(key, UnplugLimit::default()).await?)
    }

    /// The keys of the disks that are plugged in.
    ///
    /// # Errors
    /// When QEMU does not answer.
    pub async fn plugged(&mut self) -> Result<Vec<String>> {
        Ok(self.machine()?.monitor.plugged().await?)
    }

    /// Has the guest boot again at once, with nothing written back; its disks stay plugged in.
    ///
    /// # Errors
    /// When it does not boot.
    pub async fn reboot(&mut self) -> Result<()> {
        self.machine()?.reset().await?;
        self.answers().await
    }

    /// Takes the power away: the guest's memory and its plugged disks are gone.
    ///
    /// # Errors
    /// When the process cannot be ended.
    pub fn power_off(&mut self) -> Result<()> {
        self.machine.take().map_or(Ok(()), Machine::end)
    }

    /// Gives the power back after [`Self::power_off`]. The guest is as if it had just booted.
    ///
    /// # Errors
    /// When it does not come to life.
    pub async fn power_on_again(&mut self) -> Result<()> {
        ensure!(self.machine.is_none(), "the guest is on");
        self.power_on(Beginning::Restore).await
    }

    /// Stops the guest's processors; nothing in it goes on until [`Self::resume`].
    ///
    /// # Errors
    /// When QEMU does not answer.
    pub async fn pause(&mut self) -> Result<()> {
        self.machine()?.pause().await
    }

    /// Lets the guest go on.
    ///
    /// # Errors
    /// When QEMU does not answer.
    pub async fn resume(&mut self) -> Result<()> {
        self.machine()?.resume().await
    }

    async fn save(&mut self, file: &Path) -> Result<()> {
        self.machine()?.save(file).await?;
        self.power_off()
    }

    async fn power_on(&mut self, beginning: Beginning) -> Result<()> {
        self.machine = Some(Machine::start(&self.image, &self.folder, beginning).await?);
        self.answers().await?;
        if beginning == Beginning::Restore {
            self.set_apart().await?;
        }
        Ok(())
    }

    /// Waits until the agent answers.
    async fn answers(&mut self) -> Result<()> {
        let begun = Instant::now();
        let port = self.port(recipe::AGENT_PORT)?;
        loop {
            // A connection to a guest that is just booting may stay unanswered for ever.
            let answer = agent::run(port, "true", Duration::from_secs(5)).await;
            if answer.is_ok_and(|outcome| outcome.code == 0) {
                return Ok(());
            }
            interrupt::check()?;
            if self.machine()?.has_ended()? || begun.elapsed() > BOOT_LIMIT {
                bail!("the guest does not answer:\n{}", self.tails());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// Gives a restored guest the present time, and random numbers that no other one has.
    async fn set_apart(&self) -> Result<()> {
        let mut seed = [0; 32];
        File::open("/dev/urandom")?.read_exact(&mut seed)?;
        let seed: String = seed.iter().map(|byte| format!("{byte:02x}")).collect();
        let seconds = UNIX_EPOCH.elapsed()?.as_secs();
        // 0x5207 is RNDRESEEDCRNG of linux/random.h.
        let script = format!(
            "date -s @{seconds} >/dev/null && perl -e 'open(F, \">\", \"/dev/urandom\") and \
             syswrite(F, pack(\"H*\", \"{seed}\")) == 32 and ioctl(F, 0x5207, 0) or die $!'"
        );
        self.succeed(&script).await.map(drop)
    }

    fn machine(&mut self) -> Result<&mut Machine> {
        self.machine.as_mut().context("the guest is off")
    }

    fn port(&self, inside: u16) -> Result<u16> {
        self.machine.as_ref().context("the guest is off")?.port(inside)
    }

    /// The ends of all logs.
    fn tails(&self) -> String {
        let tails = ["qemu.log", "console.log", "node.log"]
            .map(|log| format!("── {log} of the guest\n{}", tail(&self.folder.join(log))));
        tails.join("\n")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        if let Err(error) = self.power_off() {
            eprintln!("a guest was not ended: {error:#}");
        }
        if std::thread::panicking() {
            eprintln!("{}", self.tails());
        }
    }
}

/// The end of a log.
fn tail(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
}

/// A text as one word of the shell.
pub fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_word_of_the_shell() {
        assert_eq!(quoted("it's $HOME"), r"'it'\''s $HOME'");
    }
}
