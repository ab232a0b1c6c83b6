//! The same definitions on the native engine and on an engine outside; and definitions that an engine cannot run.

use super::Trial;
use crate::cluster::Cluster;
use crate::engines::text;
use anyhow::{Result, ensure};
use serde_json::Value as Json;

/// The definitions of the five languages.
const LANGUAGES: [&str; 5] = ["actions", "dag", "linear", "plan", "playbook"];

impl Trial {
    /// The same definitions give the same events on both engines, on both databases, as the kit compares them; and the workflows of
    /// their runs end.
    pub(in crate::engines) fn parity(&self) -> Result<String> {
        let engine = self.server.engine();
        let postgres = self.postgres.as_ref().map(Cluster::url);
        let mut compare = self.stepwell(&["conformance", "--parity-only", "--store", "sqlite"]);
        compare.args(["--engine", "native", "--engine", &engine]);
        if let Some(url) = &postgres {
            compare.args(["--store", &format!("postgres:{url}")]);
        }
        let output = compare.output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(
            output.status.success(),
            "{said}{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let same = said.lines().filter(|it| it.ends_with("the same")).count();
        let columns = if postgres.is_some() { 4 } else { 2 };
        ensure!(same == columns * LANGUAGES.len(), "{said}");
        for language in LANGUAGES {
            let file = text(&self.definitions.join(format!("{language}.yaml")));
            let (run, name) = (format!("run_parity_{language}"), self.server.name());
            let store = text(&self.folder.join(format!("{name}-{language}.db")));
            self.run(&[&file, "--store", &store, "--run-id", &run], Some(&engine))?;
            self.names_the_engine(&store, &run)?;
        }
        Ok(format!(
            "{} definitions give the same events as on the native engine, on {} databases",
            LANGUAGES.len(),
            columns / 2
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
