//! What is asked of the API server, by kubectl as a person does.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use xtask::command::{output, program};
use xtask::interrupt;

use super::{Cluster, parts};

impl Cluster {
    /// The search path with the cluster's own tools in front.
    pub(super) fn path_with_tools(&self) -> Result<std::ffi::OsString> {
        let helm = parts::helm()?;
        let helm = helm.parent().context("helm is in a folder")?;
        let own =
            [self.parts.programs.clone(), helm.to_owned(), xtask::command::target().join("debug")];
        let rest = output(program("sh").args(["-c", "echo \"$PATH\""]))?;
        let rest: Vec<_> = std::env::split_paths(rest.trim()).collect();
        Ok(std::env::join_paths(own.into_iter().chain(rest))?)
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = program(self.parts.programs.join("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(arguments);
        command
    }

    /// What kubectl prints.
    pub(super) fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        interrupt::check()?;
        output(&mut self.kubectl_command(arguments))
    }

    /// One field of an object, in kubectl's JSONPath; empty where it is not there.
    pub(super) fn field(&self, object: &str, path: &str) -> Result<String> {
        self.kubectl(&["get", object, &format!("--output=jsonpath={{{path}}}")])
    }

    /// Makes the objects of a manifest, or brings them to it.
    pub(super) fn apply(&self, manifest: &str) -> Result<()> {
        interrupt::check()?;
        let mut child = self
            .kubectl_command(&["apply", "--filename=-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("its input was asked for")?.write_all(manifest.as_bytes())?;
        let ended = child.wait_with_output()?;
        let said = String::from_utf8_lossy(&ended.stderr);
        ensure!(ended.status.success(), "kubectl apply: {}\n{manifest}", said.trim());
        Ok(())
    }

    /// Waits until an object is in a state, such as `condition=Ready`; kubectl watches it.
    pub(super) fn await_state(&self, object: &str, state: &str) -> Result<()> {
        self.kubectl(&["wait", object, &format!("--for={state}"), "--timeout=240s"]).map(drop)
    }

    /// Deletes objects and waits until they are gone.
    pub(super) fn delete(&self, objects: &[&str]) -> Result<()> {
        let options = ["delete", "--ignore-not-found", "--timeout=240s"];
        self.kubectl(&[&options, objects].concat()).map(drop)
    }

    /// What a shell command in a pod prints.
    pub(super) fn in_pod(&self, pod: &str, script: &str) -> Result<String> {
        self.kubectl(&["exec", pod, "--", "sh", "-c", script])
    }
}
