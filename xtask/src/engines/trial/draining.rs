//! A pause while work is in flight, as the contract describes it for Conductor (§6): PAUSED at once, DRAINING with a count, an alert
//! after the drain timeout, and a result that comes later still counts.

use super::{SHORT, Trial, count, wait};
use crate::engines::text;
use anyhow::{Result, ensure};
use serde_json::Value as Json;
use std::time::{Duration, Instant};

impl Trial {
    pub(in crate::engines) fn draining(&self) -> Result<String> {
        let file = text(&self.definitions.join("drain.yaml"));
        let store = text(&self.folder.join("drain.db"));
        let (run, engine) = ("run_drain", self.server.engine());
        let args = [
            &*file, "--store", &store, "--run-id", run, "--engine", &engine,
        ];
        let mut child = self.begin(&args, "drain.log")?;
        self.until(&store, run, SHORT, |events| {
            count(events, "StepStarted") == 1
        })?;
        let asked = Instant::now();
        self.told(&["runs", "pause", run, "--store", &store, "--reason", "test"])?;
        let paused = self.shown(&store, run)?;
        let paused_in = asked.elapsed();
        ensure!(
            paused["status"] == "PAUSED" && paused["substatus"] == "DRAINING",
            "{paused}"
        );
        let message = paused["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains('1'),
            "the message does not count what is in flight: {paused}"
        );
        self.until(&store, run, SHORT, |events| {
            count(events, "PauseDrainTimedOut") == 1
        })?;
        let alerts = self.told(&["alerts", "list", "--store", &store])?;
        ensure!(alerts.contains("PAUSE_DRAIN_TIMEOUT"), "{alerts}");
        self.until(&store, run, SHORT, |events| {
            count(events, "StepCompleted") == 1
        })?;
        std::thread::sleep(Duration::from_secs(2));
        let drained = self.shown(&store, run)?;
        ensure!(
            drained["status"] == "PAUSED" && drained["substatus"] != "DRAINING",
            "{drained}"
        );
        let events = self.events(&store, run)?;
        ensure!(
            count(&events, "StepStarted") == 1,
            "a step started while the run was paused: {events:?}"
        );
        self.told(&["runs", "resume", run, "--store", &store])?;
        let status = wait(&mut child, SHORT)?;
        ensure!(status.success(), "the command ended with {status}");
        self.whole(&store, run, 2)?;
        let paused_in = paused_in.as_millis();
        Ok(format!(
            "PAUSED and DRAINING {paused_in} ms after the command began; an alert after the drain timeout; the late result counts"
        ))
    }

    /// A run as `runs show` prints it.
    fn shown(&self, store: &str, run: &str) -> Result<Json> {
        Ok(serde_json::from_str(&self.told(&[
            "runs", "show", run, "--store", store, "-o", "json",
        ])?)?)
    }
}
