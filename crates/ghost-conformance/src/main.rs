//! Checks a CSI driver at its sockets: `ghost-conformance --help` says how.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it reports to who typed it")]

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Parser, ValueEnum};
use ghost_conformance::{Access, Check, Driver, Options, Outcome, Report, checks, run};

/// Checks a CSI driver at its sockets against what the specification demands.
///
/// Make sure that nobody else changes volumes of the same storage meanwhile. The exit code is 0
/// when every check that applies went well, 1 when one failed or something was left behind, and 2
/// when the driver could not be reached or the command line is wrong.
#[derive(Parser)]
#[command(version, about, long_about)]
struct Cli {
    /// The Controller service, such as unix:///run/csi/controller.sock
    #[arg(long, value_name = "ENDPOINT")]
    controller: Option<String>,
    /// The Node service; may be the same socket
    #[arg(long, value_name = "ENDPOINT")]
    node: Option<String>,
    /// The id of the node behind that socket [default: what NodeGetInfo says]
    #[arg(long, value_name = "ID")]
    node_id: Option<String>,
    /// The id of another node that can reach the same volumes
    #[arg(long, value_name = "ID")]
    second_node_id: Option<String>,
    /// An existing folder in which staging paths are made; the driver sees it at the same path
    #[arg(long, value_name = "DIR")]
    staging_dir: Option<PathBuf>,
    /// An existing folder in which target paths are made, likewise
    #[arg(long, value_name = "DIR")]
    target_dir: Option<PathBuf>,
    /// How the volumes are used
    #[arg(long, value_enum, default_value_t = Use::Mount)]
    access: Use,
    /// The filesystem to ask for; empty leaves it to the driver
    #[arg(long, default_value = "ext4")]
    fs_type: String,
    /// Another filesystem, to ask for where it is wrong
    #[arg(long, default_value = "xfs")]
    other_fs_type: String,
    /// A parameter of each creation as key=value, or a file with a JSON object of them
    #[arg(long, value_name = "FILE|KEY=VALUE")]
    parameters: Vec<String>,
    /// A file with a JSON object of the secrets of each call
    #[arg(long, value_name = "FILE")]
    secrets_file: Option<PathBuf>,
    /// The size of the volumes, in bytes
    #[arg(long, default_value_t = 1 << 30, value_parser = clap::value_parser!(i64).range(4096..=1 << 50))]
    size: i64,
    /// How long one call may take, in seconds
    #[arg(long, default_value_t = 60)]
    call_limit: u64,
    /// How long a call is repeated while its answers are not final, in seconds
    #[arg(long, default_value_t = 120)]
    patience: u64,
    /// Make only these checks, by their names or by those of their groups (such as publish)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    only: Vec<String>,
    /// Leave out these checks, named likewise
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    skip: Vec<String>,
    /// Print the checks and what each demands, as a table in Markdown
    #[arg(long)]
    list: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Use {
    /// As a mounted filesystem
    Mount,
    /// As a raw block device
    Block,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    if cli.list {
        print!("{}", table());
        return ExitCode::SUCCESS;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let done = runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(check(&cli)));
    match done {
        Ok(report) if report.interrupted => ExitCode::from(130), // as a shell says of SIGINT
        Ok(report) if report.failed().is_empty() && report.left().is_empty() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// The checks as a table for `docs/conformance.md`.
fn table() -> String {
    let mut text = "| check | what is demanded |\n| --- | --- |\n".to_owned();
    for check in checks() {
        text.push_str(&format!("| `{}` | {} |\n", check.name, check.about));
    }
    text
}

async fn check(cli: &Cli) -> Result<Report> {
    let options = options(cli)?;
    names_are_known(cli)?;
    let driver = Driver::connect(&options).await?;
    println!("{} {}\n", driver.name(), driver.version());
    let wanted = |check: &Check| {
        let named = |names: &[String]| names.iter().any(|name| is_meant(check, name));
        (cli.only.is_empty() || named(&cli.only)) && !named(&cli.skip)
    };
    let stop = async {
        // Without signals the run simply ends with its last check.
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    };
    let report = run(driver, options, wanted, tell, stop).await;
    let took: Duration = report.results.iter().map(|one| one.took).sum();
    println!(
        "\n{} ok, {} failed, {} skipped in {:.1} s{}",
        report.passed(),
        report.failed().len(),
        report.skipped().len(),
        took.as_secs_f64(),
        if report.interrupted { "; interrupted" } else { "" }
    );
    for left in report.left() {
        println!("left behind: {left}");
    }
    Ok(report)
}

/// Tells one result.
fn tell(result: &ghost_conformance::Result) {
    let (name, about) = (result.name, result.about);
    match &result.outcome {
        Outcome::Ok => println!("ok       {name:<34} {about}"),
        Outcome::Skipped(why) => println!("skipped  {name:<34} {why}"),
        Outcome::Failed(failure) => {
            println!("FAILED   {name:<34} {about}");
            println!("           asked:    {}", failure.asked);
            println!("           came:     {}", failure.came);
            println!("           demanded: {}", failure.demanded);
        }
    }
    for left in &result.left {
        println!("           left behind: {left}");
    }
}

fn options(cli: &Cli) -> Result<Options> {
    if cli.controller.is_none() && cli.node.is_none() {
        bail!("give --controller, --node or both");
    }
    let (staging, target) = match (&cli.staging_dir, &cli.target_dir) {
        (Some(staging), Some(target)) => (folder(staging)?, folder(target)?),
        _ if cli.node.is_none() => (PathBuf::new(), PathBuf::new()),
        _ => bail!("with --node, give --staging-dir and --target-dir"),
    };
    let mut options = Options::new(staging, target);
    options.controller = cli.controller.as_deref().map(socket).transpose()?;
    options.node = cli.node.as_deref().map(socket).transpose()?;
    options.node_id.clone_from(&cli.node_id);
    options.second_node_id.clone_from(&cli.second_node_id);
    options.access = match cli.access {
        Use::Mount => Access::Mount,
        Use::Block => Access::Block,
    };
    options.fs_type.clone_from(&cli.fs_type);
    options.other_fs_type.clone_from(&cli.other_fs_type);
    for given in &cli.parameters {
        match given.split_once('=') {
            Some((key, value)) => {
                options.parameters.insert(key.to_owned(), value.to_owned());
            }
            None => options.parameters.extend(object(Path::new(given))?),
        }
    }
    if let Some(file) = &cli.secrets_file {
        options.secrets = object(file)?;
    }
    options.size = cli.size;
    options.call_limit = Duration::from_secs(cli.call_limit);
    options.patience = Duration::from_secs(cli.patience);
    Ok(options)
}

fn socket(endpoint: &str) -> Result<PathBuf> {
    let path = endpoint.strip_prefix("unix://").or_else(|| endpoint.strip_prefix("unix:"));
    match path.map(PathBuf::from) {
        Some(path) if path.is_absolute() => Ok(path),
        _ => bail!("endpoint {endpoint:?} is no Unix socket; expected unix:///path/to/csi.sock"),
    }
}

fn folder(path: &Path) -> Result<PathBuf> {
    let whole = path.canonicalize().with_context(|| format!("folder {}", path.display()))?;
    if !whole.is_dir() {
        bail!("{} is no folder", path.display());
    }
    Ok(whole)
}

fn object(file: &Path) -> Result<HashMap<String, String>> {
    let text = fs::read_to_string(file).with_context(|| format!("file {}", file.display()))?;
    // The content may be secret, and so may be what an error would quote of it.
    serde_json::from_str(&text).map_err(|error| {
        anyhow::anyhow!(
            "{} is no JSON object of strings (line {}, column {})",
            file.display(),
            error.line(),
            error.column()
        )
    })
}

/// Whether a name is that of the check, or of its group.
fn is_meant(check: &Check, name: &str) -> bool {
    check.name == name || check.name.split('.').next() == Some(name)
}

fn names_are_known(cli: &Cli) -> Result<()> {
    for name in cli.only.iter().chain(&cli.skip) {
        if !checks().any(|check| is_meant(check, name)) {
            bail!("{name:?} is neither a check nor a group of checks; --list shows them");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_an_absolute_socket_path() {
        assert_eq!(socket("unix:///run/csi.sock").expect("sound"), Path::new("/run/csi.sock"));
        for bad in ["", "/run/csi.sock", "tcp://localhost:1", "unix://relative"] {
            assert!(socket(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_page_of_the_documentation_lists_every_check() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/conformance.md");
        let page = fs::read_to_string(page).expect("the page is there");
        assert!(
            page.contains(&table()),
            "docs/conformance.md must have this table (ghost-conformance --list):\n{}",
            table()
        );
    }
}
