//! The same definitions on the native engine and on an engine outside; and definitions that an engine cannot run.

use super::{Line, Trial};
use crate::cluster::Cluster;
use crate::engines::text;
use anyhow::{Context, Result, ensure};
use serde_json::Value as Json;
use std::collections::BTreeMap;

/// The definitions of the five languages.
const LANGUAGES: [&str; 5] = ["actions", "dag", "linear", "plan", "playbook"];

impl Trial {
    /// The same definitions give the same events on both engines, on both databases.
    pub(in crate::engines) fn parity(&self) -> Result<String> {
        let mut compared = 0;
        for language in LANGUAGES {
            let file = text(&self.definitions.join(format!("{language}.yaml")));
            let run = format!("run_parity_{language}");
            let native = self.folder.join(format!("native-{language}.db"));
            let native = text(&native);
            self.run(&[&file, "--store", &native, "--run-id", &run], None)?;
            let expected = self.events(&native, &run)?;
            ensure!(
                !expected.is_empty(),
                "{language}: the native run has no events"
            );
            let mut stores = vec![text(
                &self
                    .folder
                    .join(format!("{}-{language}.db", self.server.name())),
            )];
            stores.extend(self.postgres.iter().map(Cluster::url));
            for store in stores {
                let engine = self.server.engine();
                self.run(&[&file, "--store", &store, "--run-id", &run], Some(&engine))?;
                let found = self.events(&store, &run)?;
                compare(&expected, &found).with_context(|| format!("{language} on {store}"))?;
                self.names_the_engine(&store, &run)?;
                compared += found.len();
            }
        }
        Ok(format!(
            "{compared} events are the same as on the native engine"
        ))
    }

    /// A plan whose needs an engine cannot meet is refused before it starts; the table says why.
    pub(in crate::engines) fn capabilities(&self) -> Result<String> {
        let file = text(&self.definitions.join("needs-native-pause.yaml"));
        let store = text(&self.folder.join("refused.db"));
        let (engine, run) = (self.server.engine(), "run_refused");
        let mut refused = self.stepwell(&["run", &file, "--store", &store, "--run-id", run]);
        let output = refused.args(["--engine", &engine]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code() == Some(1),
            "exit {:?}: {said}",
            output.status.code()
        );
        ensure!(said.contains("PLAN_CAPABILITY_UNSUPPORTED"), "{said}");
        self.run(&[&file, "--store", &store, "--run-id", run], None)?;
        let table = self
            .stepwell(&["engines", self.server.name(), "-o", "json"])
            .output()?;
        let table: Json = serde_json::from_slice(&table.stdout)?;
        let built = table.pointer("/0/built").and_then(Json::as_bool);
        ensure!(built == Some(true), "{table}");
        let name = self.server.name();
        Ok(format!(
            "a plan that needs a native pause is refused on {name}, and runs on the native engine"
        ))
    }
}

/// The same events with the same keys; each step in the same order, and the run itself, too. Steps side by side may be mixed.
fn compare(expected: &[Line], found: &[Line]) -> Result<()> {
    let by_step = |events: &[Line]| {
        let mut steps: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
        for (kind, step, key) in events {
            steps
                .entry(step.clone())
                .or_default()
                .push((kind.clone(), key.clone()));
        }
        steps
    };
    let (expected, found) = (by_step(expected), by_step(found));
    for (step, events) in &expected {
        ensure!(
            found.get(step) == Some(events),
            "step {step:?}: {events:?} natively, {:?} there",
            found.get(step)
        );
    }
    ensure!(
        expected.len() == found.len(),
        "there are other steps: {:?}",
        found.keys()
    );
    Ok(())
}
