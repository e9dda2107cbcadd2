//! Deletes orphans: each is asked for by name, and looked at once more when the answer is there.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};

use ghost::backend::cosmos::Item;
use ghost::error::{Error, ErrorKind, Result};

use super::report::described;
use super::standing::Standing;
use super::{Found, Left, Orphans, print, tell};

/// What became of an orphan that was to be deleted.
enum Outcome {
    /// It is deleted.
    Deleted,
    /// It was gone already.
    Gone,
    /// It is kept, for this reason.
    Refused(String),
}

/// What was done so far.
#[derive(Default)]
struct Tally {
    deleted: usize,
    kept: usize,
    refused: usize,
}

impl Orphans {
    /// Asks for each orphan, and deletes what is agreed to.
    ///
    /// # Errors
    /// When an answer is missing, or when what is agreed to cannot be looked at again or deleted:
    /// nothing more is then asked or deleted.
    pub(super) async fn delete(&self, found: &[Found]) -> Result<Left> {
        let mut tally = Tally::default();
        let outcome = self.delete_each(found, &mut tally).await;
        let Tally { deleted, kept, refused } = tally;
        tell(&format!("{deleted} deleted, {kept} kept as you said, {refused} refused"));
        outcome?;
        Ok(match (refused, kept) {
            (0, 0) => Left::Nothing,
            (0, _) => Left::Orphans,
            _ => Left::Refusals,
        })
    }

    async fn delete_each(&self, found: &[Found], tally: &mut Tally) -> Result<()> {
        let orphans = found.iter().filter(|found| found.standing == Standing::Orphan);
        for Found { item, .. } in orphans {
            let name = format!("{} {}", item.id.kind(), item.name);
            if !confirmed(&format!("delete {}?", described(item, self.now())))? {
                tally.kept += 1;
                continue;
            }
            let outcome = self.delete_one(item).await;
            match outcome.map_err(|error| error.context(format_args!("{name} is not deleted")))? {
                Outcome::Deleted => print(&format!("{name} deleted\n"))?,
                Outcome::Gone => print(&format!("{name} was gone already\n"))?,
                Outcome::Refused(reason) => {
                    tell(&format!("refused: {name}: {reason}"));
                    tally.refused += 1;
                    continue;
                }
            }
            tally.deleted += 1;
        }
        Ok(())
    }

    /// Looks at the orphan and at what Kubernetes names once more, and deletes it if it still is
    /// one. In the same order as before: what was attached or named meanwhile shows.
    async fn delete_one(&self, item: &Item) -> Result<Outcome> {
        let Some(now) = self.cosmos.item(&self.cluster, &item.id).await? else {
            return Ok(Outcome::Gone);
        };
        if now.name != item.name || now.created != item.created {
            return Ok(Outcome::Refused("it is not what was listed any more".to_owned()));
        }
        let names = self.source.read().await?;
        if let Some(reason) = self.rule().decide(&now, &names).refusal(&now) {
            return Ok(Outcome::Refused(reason));
        }
        match self.cosmos.delete_item(&item.id).await {
            Ok(()) => Ok(Outcome::Deleted),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => Ok(Outcome::Gone),
                ErrorKind::Precondition => Ok(Outcome::Refused(error.chain())),
                _ => Err(error),
            },
        }
    }
}

/// Asks a question and reads one line; only "y" and "yes" agree.
fn confirmed(question: &str) -> Result<bool> {
    let unreadable = |error: io::Error| {
        Error::failed("cannot read the answer from the standard input").with_source(error)
    };
    let mut output = io::stderr().lock();
    // Who does not see the question cannot agree to it.
    write!(output, "{question} [y/N] ").and_then(|()| output.flush()).map_err(|error| {
        Error::failed("cannot write the question to the standard error").with_source(error)
    })?;
    let mut answer = String::new();
    let read = io::stdin().lock().read_line(&mut answer).map_err(unreadable)?;
    if !io::stdin().is_terminal() {
        // Nobody has pressed the return key that would end the line of the question.
        let _ = writeln!(output, "{}", answer.trim());
    }
    if read == 0 {
        return Err(Error::invalid(
            "the standard input ended without an answer; nothing more is deleted. Answer at a \
             terminal, or give one line for each question",
        ));
    }
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
