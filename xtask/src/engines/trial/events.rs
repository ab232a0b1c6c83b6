//! What the store has of a run.

use super::{Line, Trial};
use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

impl Trial {
    pub(super) fn raw_events(&self, store: &str, run: &str) -> Result<Vec<Json>> {
        let output = self
            .stepwell(&["runs", "events", run, "--store", store])
            .output()?;
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let json = lines.lines().filter(|line| line.starts_with('{'));
        Ok(json.map(serde_json::from_str).collect::<Result<_, _>>()?)
    }

    /// The events of a run, as far as engines must agree on them.
    pub(super) fn events(&self, store: &str, run: &str) -> Result<Vec<Line>> {
        let events = self.raw_events(store, run)?;
        let field = |event: &Json, name: &str| {
            let value = event.get(name).and_then(Json::as_str);
            value.unwrap_or_default().to_owned()
        };
        let lines = events.iter().map(|it| {
            (
                field(it, "eventType"),
                field(it, "stepId"),
                field(it, "idempotencyKey"),
            )
        });
        Ok(lines.collect())
    }

    /// The engine and the id there are what the log says.
    pub(super) fn names_the_engine(&self, store: &str, run: &str) -> Result<()> {
        let id = self.workflow(store, run)?;
        self.server.must_have_ended(&id)
    }

    /// The id of the workflow of a run, as the log names it.
    pub(super) fn workflow(&self, store: &str, run: &str) -> Result<String> {
        let events = self.raw_events(store, run)?;
        let started = events.iter().find(|it| it["eventType"] == "RunStarted");
        let started = started.context("the run has not started")?;
        let name = self.server.name();
        ensure!(started["engineType"] == name, "{started}");
        let id = started["engineRunRef"]
            .as_str()
            .and_then(|it| it.strip_prefix(&format!("{name}://")));
        Ok(id.with_context(|| format!("{started}"))?.to_owned())
    }

    /// Every step completed exactly once, and the run completed last.
    pub(super) fn whole(&self, store: &str, run: &str, steps: usize) -> Result<()> {
        let events = self.events(store, run)?;
        let mut completed: BTreeMap<&str, usize> = BTreeMap::new();
        for (kind, step, _) in &events {
            if kind == "StepCompleted" {
                *completed.entry(step).or_default() += 1;
            }
        }
        let twice = completed.iter().find(|it| *it.1 != 1);
        ensure!(twice.is_none(), "{twice:?} completed more than once");
        ensure!(
            completed.len() == steps,
            "{} of {steps} steps completed",
            completed.len()
        );
        let last = events.last().map(|it| &*it.0);
        ensure!(last == Some("RunCompleted"), "the last event is {last:?}");
        Ok(())
    }

    pub(super) fn until(
        &self,
        store: &str,
        run: &str,
        limit: Duration,
        is_there: impl Fn(&[Line]) -> bool,
    ) -> Result<()> {
        let until = Instant::now() + limit;
        while !self
            .events(store, run)
            .is_ok_and(|events| is_there(&events))
        {
            ensure!(
                Instant::now() < until,
                "run {run} does not come to the expected place"
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

pub(super) fn count(events: &[Line], kind: &str) -> usize {
    events.iter().filter(|it| it.0 == kind).count()
}
