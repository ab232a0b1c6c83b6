//! The processes of the program, and the definitions that they run.

use super::{SHORT, Trial};
use crate::cluster::Cluster;
use crate::engines::text;
use anyhow::{Context, Result, bail};
use std::fs::{self, File};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

impl Trial {
    /// The databases that runs are kept in, in turn.
    pub(in crate::engines) fn stores(&self, name: &str) -> Vec<String> {
        let mut stores = vec![text(&self.folder.join(format!("{name}.db")))];
        stores.extend(self.postgres.iter().map(Cluster::url));
        stores
    }

    pub(super) fn stepwell(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(args)
            .current_dir(&self.folder)
            .env_remove("STEPWELL_STORE")
            .env_remove("STEPWELL_CONFIG")
            .stdin(Stdio::null());
        command
    }

    /// Runs a definition to its end; a failed run is an end, too.
    pub(super) fn run(&self, args: &[&str], engine: Option<&str>) -> Result<()> {
        let mut all = vec!["run"];
        all.extend(args);
        all.extend(engine.iter().flat_map(|engine| ["--engine", engine]));
        let log = File::create(self.folder.join("run.log"))?;
        let mut child = self
            .stepwell(&all)
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()?;
        let status = wait(&mut child, SHORT)?;
        match status.code() {
            Some(0 | 3) => Ok(()),
            _ => bail!("stepwell {}: {status}", all.join(" ")),
        }
    }

    pub(super) fn begin(&self, args: &[&str], log: &str) -> Result<Child> {
        let mut all = vec!["run"];
        all.extend(args);
        self.spawn(&all, log)
    }

    pub(super) fn resume(&self, run: &str, store: &str, engine: &str) -> Result<Child> {
        self.spawn(
            &["resume", run, "--store", store, "--engine", engine],
            "killed.log",
        )
    }

    pub(super) fn spawn(&self, args: &[&str], log: &str) -> Result<Child> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(log))?;
        let mut command = self.stepwell(args);
        command.stdout(log.try_clone()?).stderr(log);
        command.spawn().context("cannot start stepwell")
    }

    /// A command that must succeed, and what it says.
    pub(in crate::engines) fn told(&self, args: &[&str]) -> Result<String> {
        let output = self.stepwell(args).output()?;
        if !output.status.success() {
            bail!(
                "stepwell {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr)
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// A chain of steps that all run the same command.
    pub(super) fn chain(&self, name: &str, steps: usize, command: &str) -> Result<String> {
        let mut file = format!(
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}}}\nworkflow:\n"
        );
        for step in 0..steps {
            file.push_str(&format!(
                "  - step: s{step}\n    tool: {{kind: shell, cmds: ['{command}']}}\n"
            ));
            if step + 1 < steps {
                file.push_str(&format!("    next: [{{step: s{}}}]\n", step + 1));
            }
        }
        let path = self.folder.join(format!("{name}.yaml"));
        fs::write(&path, file)?;
        Ok(text(&path))
    }
}

pub(super) fn ended_within(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let until = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() > until {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(super) fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    match ended_within(child, limit)? {
        Some(status) => Ok(status),
        None => {
            child.kill()?;
            child.wait()?;
            bail!("the command did not end within {} s", limit.as_secs())
        }
    }
}
