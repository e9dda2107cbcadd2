//! Checks of the Helm chart, each by the tool that knows best: that it renders, that Kubernetes would
//! take what it renders, that wrong values are refused with words that help, that every alert fires
//! when it should and only then, that the dashboard's queries are sound, and that the plain manifests
//! are what the chart renders.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use xtask::command::{output, program, root};

use self::manifests::{Document, documents};
use self::tools::Tools;

mod dashboard;
mod manifests;
mod refusals;
mod tools;

/// What the plain manifests and the tests are rendered as.
const RELEASE: &str = "ghost";
const NAMESPACE: &str = "ghost-system";
/// What a cluster has that is not Kubernetes' own.
const GROUPS: [&str; 2] = ["snapshot.storage.k8s.io/v1", "monitoring.coreos.com/v1"];
/// The newest versions of Kubernetes whose schemas are known.
const VERSIONS: [&str; 3] = ["1.37.0", "1.36.0", "1.35.0"];
/// What is no part of Kubernetes' own schemas.
const FOREIGN: [&str; 3] = ["VolumeSnapshotClass", "PodMonitor", "PrometheusRule"];
/// How the values of a working installation begin.
const MINIMAL: &str = "charts/tests/values/minimal.yaml";

/// What is done with the plain manifests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deploy {
    /// They are compared with what the chart renders.
    Check,
    /// They are written anew.
    Write,
}

/// Runs all checks.
pub(crate) fn run(deploy: Deploy) -> Result<()> {
    let begun = Instant::now();
    let tools = Tools::ready()?;
    if deploy == Deploy::Write {
        for (path, text) in plain_manifests(&tools)? {
            fs::write(root().join(&path), text)?;
            println!("{} written", path.display());
        }
    }
    versions()?;
    lint(&tools)?;
    valid(&tools)?;
    refusals::check(&tools)?;
    alerts(&tools)?;
    dashboard::check(&tools)?;
    current(&tools)?;
    println!("the chart is as it should be ({:.1} s)", begun.elapsed().as_secs_f64());
    Ok(())
}

/// The chart, as helm takes it.
fn chart() -> PathBuf {
    root().join("charts").join(RELEASE)
}

/// Helm, about to render the chart as a cluster with all that may be there would get it.
fn template(tools: &Tools, values: &Path) -> Command {
    let mut helm = program(&tools.helm);
    helm.args(["template", RELEASE]).arg(chart()).args(["--namespace", NAMESPACE]);
    for group in GROUPS {
        helm.args(["--api-versions", group]);
    }
    helm.arg("--values").arg(root().join(values));
    helm
}

/// Sets of values that people may have, from the least to everything.
fn value_sets() -> Result<Vec<PathBuf>> {
    let mut sets = Vec::new();
    for entry in fs::read_dir(root().join("charts/tests/values"))? {
        sets.push(entry?.path());
    }
    sets.sort();
    ensure!(sets.len() > 1, "there are no sets of values");
    sets.push(root().join("deploy/values.yaml"));
    Ok(sets)
}

/// The chart is as new as what it installs.
fn versions() -> Result<()> {
    let text = fs::read_to_string(chart().join("Chart.yaml"))?;
    for key in ["version", "appVersion"] {
        let line = format!("{key}: {}", env!("CARGO_PKG_VERSION"));
        ensure!(text.lines().any(|have| have == line), "Chart.yaml lacks {line:?}");
    }
    Ok(())
}

fn lint(tools: &Tools) -> Result<()> {
    for values in value_sets()? {
        let mut helm = program(&tools.helm);
        helm.args(["lint", "--strict", "--quiet"]).arg(chart());
        let said = output(helm.arg("--values").arg(&values))?;
        ensure!(!said.contains("[WARNING]"), "{said}");
    }
    println!("helm lint: {} sets of values", value_sets()?.len());
    Ok(())
}

/// What is rendered holds to the schemas of Kubernetes, with no field that they do not know.
fn valid(tools: &Tools) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut files = Vec::new();
    let mut count = 0;
    for (number, values) in value_sets()?.iter().enumerate() {
        let rendered = output(&mut template(tools, values))?;
        let known: Vec<Document<'_>> = documents(&rendered)
            .into_iter()
            .filter(|document| !FOREIGN.contains(&document.kind))
            .collect();
        count += known.len();
        let text: String = known.iter().map(|document| document.text).collect();
        let file = folder.path().join(format!("{number}.yaml"));
        fs::write(&file, text)?;
        files.push(file);
    }
    for version in VERSIONS {
        let mut validate = program(&tools.validate);
        validate.args(["--strict", "--quiet", "-k", version]).args(&files);
        let found = validate.output()?;
        let said = String::from_utf8_lossy(&found.stdout) + String::from_utf8_lossy(&found.stderr);
        // A kind without a schema is only warned of, and would then go unseen.
        if !found.status.success() || said.contains("WARN") {
            bail!("Kubernetes {version} would not take what the chart renders:\n{said}");
        }
    }
    println!("{count} objects are valid in Kubernetes {}", VERSIONS.join(", "));
    Ok(())
}

/// The rules are sound, and each alert fires on its input and on nothing else.
fn alerts(tools: &Tools) -> Result<()> {
    let mut helm = template(tools, Path::new(MINIMAL));
    let only = ["--set", "monitoring.rules.enabled=true", "--show-only", "templates/rules.yaml"];
    let rendered = output(helm.args(only))?;
    let rules = manifests::below(&rendered, "spec:").context("the rules have a spec")?;
    let tests = fs::read_to_string(root().join("charts/tests/alerts.yaml"))?;
    let names = rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
    let names: Vec<&str> = names.collect();
    for name in &names {
        let fires = format!("alertname=\"{name}\"");
        ensure!(tests.contains(&fires), "no test lets {name} fire");
        let document = fs::read_to_string(root().join("docs/monitoring.md"))?;
        ensure!(document.contains(&format!("`{name}`")), "docs/monitoring.md lacks {name}");
    }
    let folder = tempfile::tempdir()?;
    fs::write(folder.path().join("rules.yaml"), &rules)?;
    fs::write(folder.path().join("alerts.yaml"), tests)?;
    let promtool = |arguments: [&str; 3]| {
        output(program(&tools.promtool).current_dir(folder.path()).args(arguments))
    };
    promtool(["check", "rules", "rules.yaml"])?;
    promtool(["test", "rules", "alerts.yaml"])?;
    println!("{} alerts fire when they should, and only then", names.len());
    Ok(())
}

/// The plain manifests and their texts: what anybody can apply, what needs the kinds of snapshots,
/// and what needs those of monitoring.
fn plain_manifests(tools: &Tools) -> Result<Vec<(PathBuf, String)>> {
    let rendered = output(template(tools, Path::new("deploy/values.yaml")).args(["--skip-tests"]))?;
    let mut files = [
        ("ghost.yaml", String::new()),
        ("monitoring.yaml", String::new()),
        ("snapshots.yaml", String::new()),
    ];
    for document in documents(&rendered) {
        let file = match document.template {
            "dashboard.yaml" | "podmonitor.yaml" | "rules.yaml" => 1,
            "volumesnapshotclasses.yaml" => 2,
            _ => 0,
        };
        files[file].1.push_str(document.text);
    }
    let head = "# Rendered from charts/ghost with values.yaml by `cargo xtask chart --write`.\n";
    let written =
        files.map(|(name, text)| (Path::new("deploy").join(name), head.to_owned() + &text));
    Ok(written.into())
}

fn current(tools: &Tools) -> Result<()> {
    for (path, text) in plain_manifests(tools)? {
        let have = fs::read_to_string(root().join(&path)).unwrap_or_default();
        if have != text {
            bail!("{} is not what the chart renders: cargo xtask chart --write", path.display());
        }
    }
    println!("the plain manifests are current");
    Ok(())
}
