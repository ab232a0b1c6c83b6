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
        Ok("pause, resume and cancel from another process".into())
    }
}
