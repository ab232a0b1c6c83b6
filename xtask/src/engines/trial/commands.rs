//! Commands of other processes.

use super::{SHORT, Trial, count, wait};
use crate::engines::text;
use anyhow::{Result, ensure};
use std::time::Duration;

impl Trial {
    /// Commands of other processes reach a run.
    pub(in crate::engines) fn commands(&self) -> Result<String> {
        let file = self.chain("commands", 30, "sleep 0.2")?;
        let store = text(&self.folder.join("commands.db"));
        let run = "run_commands";
        let engine = self.server.engine();
        let args = [
            &*file, "--store", &store, "--run-id", run, "--engine", &engine,
        ];
        let mut child = self.begin(&args, "commands.log")?;
        self.until(&store, run, SHORT, |events| {
            count(events, "StepCompleted") >= 2
        })?;
        self.told(&["runs", "pause", run, "--store", &store, "--reason", "test"])?;
        self.until(&store, run, SHORT, |events| count(events, "RunPaused") == 1)?;
        std::thread::sleep(Duration::from_secs(2));
        let paused = count(&self.events(&store, run)?, "StepStarted");
        std::thread::sleep(Duration::from_secs(2));
        let later = count(&self.events(&store, run)?, "StepStarted");
        ensure!(
            paused == later,
            "{paused} steps had started, then {later}, while the run was paused"
        );
        self.told(&["runs", "resume", run, "--store", &store])?;
        self.until(&store, run, SHORT, |events| {
            count(events, "StepStarted") > later
        })?;
        self.told(&["runs", "cancel", run, "--store", &store, "--reason", "test"])?;
        let status = wait(&mut child, SHORT)?;
        ensure!(status.code() == Some(4), "the command ended with {status}");
        let events = self.events(&store, run)?;
        ensure!(count(&events, "RunCancelled") == 1, "{events:?}");
        let shared = self.shared_work()?;
        Ok(format!(
            "pause, resume and cancel from another process{shared}"
        ))
    }

    /// Two commands on one database: the one that ends first has steps of the other, and waits for them.
    fn shared_work(&self) -> Result<String> {
        let Some(postgres) = &self.postgres else {
            return Ok(String::new());
        };
        let (store, engine) = (postgres.url(), self.server.engine());
        let items = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: shared}\nworkflow:\n  - step: wide\n    \
                     loop: {in: [1, 2, 3, 4, 5, 6, 7, 8], iterator: i, spec: {mode: parallel, max_in_flight: 8}}\n    \
                     tool: {kind: shell, cmds: ['echo {{ i }} >> shared-effects; sleep 12']}\n";
        let wide = self.folder.join("shared.yaml");
        std::fs::write(&wide, items)?;
        let short = self.chain("shared-short", 1, "sleep 3")?;
        let args = |file: &str, run: &str| {
            let words = [
                file, "--store", &store, "--run-id", run, "--engine", &engine,
            ];
            words.map(str::to_owned)
        };
        let begin = |file: &str, run: &str| {
            let args = args(file, run);
            self.begin(&args.each_ref().map(String::as_str), "shared.log")
        };
        let mut first = begin(&text(&wide), "run_shared_wide")?;
        let mut second = begin(&short, "run_shared_short")?;
        for child in [&mut second, &mut first] {
            let status = wait(child, SHORT)?;
            ensure!(status.success(), "the command ended with {status}");
        }
        let effects = std::fs::read_to_string(self.folder.join("shared-effects"))?;
        ensure!(effects.lines().count() == 8, "done twice: {effects:?}");
        Ok("; a command waits for steps of other runs that it has begun".into())
    }
}
