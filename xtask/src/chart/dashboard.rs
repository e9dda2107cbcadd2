//! The dashboard as the chart renders it: that it is JSON, and that Prometheus understands what each
//! panel asks.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use xtask::command::{output, program};

use super::manifests::below;
use super::tools::Tools;
use super::{MINIMAL, template};

/// What Grafana puts the length of a step in for.
const STEP: &str = "$__rate_interval";

/// Checks all panels.
pub(super) fn check(tools: &Tools) -> Result<()> {
    let mut helm = template(tools, MINIMAL.as_ref());
    helm.args(["--set", "monitoring.dashboard.enabled=true"]);
    let rendered = output(helm.args(["--show-only", "templates/dashboard.yaml"]))?;
    let text = below(&rendered, "  ghost.json: |").context("no dashboard is rendered")?;
    let dashboard = serde_json::from_str(&text).context("the dashboard is no JSON")?;
    let queries = queries(&dashboard)?;
    // promtool checks queries where they are rules.
    let rules: Vec<Value> = queries
        .iter()
        .map(|query| json!({ "record": "panel", "expr": query.replace(STEP, "5m") }))
        .collect();
    let file = tempfile::NamedTempFile::new()?;
    fs::write(&file, json!({ "groups": [{ "name": "panels", "rules": rules }] }).to_string())?;
    output(program(&tools.promtool).args(["check", "rules", "--lint=none"]).arg(file.path()))?;
    println!("{} queries of the dashboard are sound", queries.len());
    Ok(())
}

/// What the panels ask, each at least one thing.
fn queries(dashboard: &Value) -> Result<Vec<&str>> {
    let panels = dashboard["panels"].as_array().context("the dashboard has no panels")?;
    let mut queries = Vec::new();
    for panel in panels {
        let before = queries.len();
        let targets = panel["targets"].as_array();
        queries.extend(targets.into_iter().flatten().filter_map(|one| one["expr"].as_str()));
        ensure!(queries.len() > before, "the panel {} asks nothing", panel["title"]);
    }
    Ok(queries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panel_that_asks_nothing_is_found() {
        let asks = json!({ "title": "a", "targets": [{ "expr": "up" }] });
        let found = |panels: &[&Value]| queries(&json!({ "panels": panels })).map(|all| all.len());
        assert_eq!(found(&[&asks, &asks]).ok(), Some(2));
        assert!(found(&[&asks, &json!({ "title": "b" })]).is_err());
    }
}
