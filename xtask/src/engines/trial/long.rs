//! A long run.

use super::{Trial, wait};
use crate::engines::server::OutsideServer;
use crate::engines::text;
use anyhow::{Result, ensure};
use std::fs;
use std::time::{Duration, Instant};

impl Trial {
    /// A run of so many steps needs several histories.
    pub(in crate::engines) fn long(&self, steps: usize, rotations: usize) -> Result<String> {
        let mut file = String::from(
            "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: long}\nworkflow:\n",
        );
        for step in 0..steps {
            file.push_str(&format!("  - step: s{step}\n    tool: {{kind: noop}}\n"));
            if step + 1 < steps {
                file.push_str(&format!("    next: [{{step: s{}}}]\n", step + 1));
            }
        }
        let path = self.folder.join("long.yaml");
        fs::write(&path, file)?;
        let (path, store, run) = (text(&path), text(&self.folder.join("long.db")), "run_long");
        let engine = self.server.engine();
        let begun = Instant::now();
        let args = [
            &*path, "--store", &store, "--run-id", run, "--engine", &engine,
        ];
        let mut child = self.begin(&args, "long.log")?;
        let limit = Duration::from_millis(2_500) * u32::try_from(steps)?;
        let status = wait(&mut child, limit)?;
        ensure!(status.success(), "the run ended with {status}");
        self.whole(&store, run, steps)?;
        let each = begun.elapsed().as_millis() / u128::try_from(steps)?;
        let server = match &self.server {
            OutsideServer::Temporal(server) => server,
            OutsideServer::Conductor(server) => {
                let ended = server.status(&self.workflow(&store, run)?)?;
                ensure!(ended.tasks < 20, "the workflow of the run grows: {ended:?}");
                return Ok(format!(
                    "{steps} steps, {each} ms a step; the workflow of the run keeps {} tasks",
                    ended.tasks
                ));
            }
        };
        let query = format!(
            "WorkflowId = '{}' AND ExecutionStatus = 'ContinuedAsNew'",
            self.workflow(&store, run)?
        );
        let mut rotated = 0;
        let until = Instant::now() + Duration::from_secs(10);
        // The list of workflows is a little behind.
        while rotated < rotations && Instant::now() < until {
            let said = server.ask(&["workflow", "count", "-q", &query])?;
            rotated = said
                .split(|it: char| !it.is_ascii_digit())
                .find_map(|it| it.parse().ok())
                .unwrap_or(0);
            std::thread::sleep(Duration::from_millis(200));
        }
        ensure!(
            rotated >= rotations,
            "the run had only {rotated} continuations"
        );
        Ok(format!(
            "{steps} steps in {} histories, {each} ms a step",
            rotated + 1
        ))
    }
}
