//! What can be typed. What it means, and whether it is sound, is the matter of each command.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ghost::cli::{CosmosArgs, DRIVER_NAME};
use jiff::SignedDuration;

/// Commands for operators of clusters whose disks ghost makes.
#[derive(Debug, Parser)]
#[command(name = "kubectl-ghost", bin_name = "kubectl ghost", version, propagate_version = true)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Finds volumes and snapshots at the cloud that the cluster has forgotten
    #[command(long_about = ORPHANS_ABOUT, after_help = ORPHANS_EXAMPLES)]
    Orphans(Box<OrphansArgs>),
}

const ORPHANS_ABOUT: &str = "\
Lists the volumes that no PersistentVolume names, and the snapshots that no VolumeSnapshotContent \
names, out of those that this cluster's driver made.

The cloud is listed first and Kubernetes after it. If either list cannot be read whole, nothing is \
listed and nothing is deleted. A volume whose PersistentVolume was deleted on purpose (reclaim \
policy Retain) is an orphan too: look at FOR and AGE before you agree to anything.";

const ORPHANS_EXAMPLES: &str = "\
Examples:
  # What has been forgotten?
  kubectl ghost orphans --cluster-id prod \\
    --cosmos-url https://api.example.org --cosmos-token-file ~/cosmos-token

  # Delete some of it; each is asked for by name
  kubectl ghost orphans --cluster-id prod … --delete

  # Ask for one only
  kubectl ghost orphans --cluster-id prod … --delete prod-pvc-2f1e0c0a-1111-2222-3333-444455556666

Exit codes:
  0  no orphans, or none is left
  1  a list could not be read whole, or something was refused or failed
  2  wrong usage
  3  orphans are left that could be deleted";

/// What `orphans` takes.
#[derive(Args, Debug)]
pub(crate) struct OrphansArgs {
    /// Only these, by name or id
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Id of this cluster, as its controller has it; without one nobody can tell whose a volume is
    #[arg(long, env = "GHOST_CLUSTER_ID", value_name = "ID")]
    pub(crate) cluster_id: String,
    /// Ask for each orphan whether to delete it
    #[arg(long, conflicts_with = "output")]
    pub(crate) delete: bool,
    /// Younger ones are not deleted: at least 10m, such as 36h or 7d
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = duration)]
    pub(crate) minimum_age: SignedDuration,
    /// Form of the list
    #[arg(long, short, value_enum, default_value = "table")]
    pub(crate) output: Output,
    /// File that tells what Kubernetes names, instead of the cluster: see docs/orphans.md
    #[arg(long, value_name = "FILE", conflicts_with_all = ["kubeconfig", "context"])]
    pub(crate) handles: Option<PathBuf>,
    /// The cluster.
    #[command(flatten)]
    pub(crate) kubernetes: KubernetesArgs,
    /// The account at the cloud.
    #[command(flatten, next_help_heading = "The disk API")]
    pub(crate) cosmos: CosmosArgs,
}

/// How the cluster is reached.
#[derive(Args, Debug)]
#[command(next_help_heading = "The cluster")]
pub(crate) struct KubernetesArgs {
    /// Kubeconfig file; else KUBECONFIG, ~/.kube/config, or the service account of the pod
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; else its current one
    #[arg(long, value_name = "NAME")]
    pub(crate) context: Option<String>,
    /// Name of the driver, as in the CSIDriver object
    #[arg(long, env = "GHOST_DRIVER_NAME", value_name = "NAME", default_value = DRIVER_NAME)]
    pub(crate) driver_name: String,
}

/// The forms of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Table,
    /// For people, with ids, regions and times.
    Wide,
    /// For programs, with all that is known.
    Json,
    /// The names of the orphans alone, as volume/NAME.
    Name,
}

/// A duration as people write it: `24h`, `7d`, `1d12h`.
fn duration(text: &str) -> Result<SignedDuration, String> {
    let span: jiff::Span =
        text.parse().map_err(|_| "expected a duration such as 24h, 36h or 7d".to_owned())?;
    // A day has 24 hours here, wherever the operator is.
    span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn the_commands_are_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_duration_is_read_as_people_write_it() {
        for (text, hours) in [("24h", 24), ("7d", 168), ("1d12h", 36), ("2w", 336), ("90m", 1)] {
            assert_eq!(duration(text).map(|read| read.as_hours()), Ok(hours), "{text}");
        }
        for bad in ["", "24", "a day", "1mo"] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }
}
