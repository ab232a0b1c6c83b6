//! Histories of real runs, for the test that replays them.

use super::Trial;
use crate::engines::text;
use crate::repo::Repo;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::time::Duration;

/// The parts whose runs are recorded.
pub(in crate::engines) const RECORDED_PARTS: [&str; 3] = ["parity", "commands", "outages"];
/// A file that was written in this task is not older than this.
const RECORDED: Duration = Duration::from_secs(3600);

/// The histories: the run, the file of its store, and the name of the fixture.
const HISTORIES: [(&str, &str, &str); 7] = [
    ("run_parity_actions", "temporal-actions.db", "actions"),
    ("run_parity_dag", "temporal-dag.db", "dag"),
    ("run_parity_linear", "temporal-linear.db", "linear"),
    ("run_parity_plan", "temporal-plan.db", "plan"),
    ("run_parity_playbook", "temporal-playbook.db", "playbook"),
    ("run_commands", "commands.db", "commands"),
    ("run_away_12", "away-12.db", "outage"),
];

impl Trial {
    /// Writes the histories of runs that have ended, for the test that replays them.
    pub(in crate::engines) fn record(&self, repo: &Repo) -> Result<()> {
        let Some(server) = self.server.temporal() else {
            return Ok(());
        };
        let mut asked = server.host();
        for (run, store, name) in HISTORIES {
            let id = self
                .workflow(&text(&self.folder.join(store)), run)
                .with_context(|| format!("{name} was not run"))?;
            asked.push_str(&format!(" {name}={id}"));
        }
        let test = [
            "test",
            "-q",
            "-p",
            "stepwell-engines",
            "--features",
            "temporal",
        ];
        let status = repo
            .cargo(&test)
            .args(["--test", "it", "replay::"])
            .env("STEPWELL_RECORD", asked)
            .status()?;
        ensure!(
            status.success(),
            "the histories could not be recorded, or do not replay"
        );
        let folder = repo.root.join("fixtures/engines/histories");
        for (.., name) in HISTORIES {
            let file = folder.join(format!("{name}.json"));
            let age = fs::metadata(&file)?.modified()?.elapsed()?;
            ensure!(
                age < RECORDED,
                "{} was not written: it is {age:?} old",
                file.display()
            );
        }
        println!("engines: {} histories are recorded", HISTORIES.len());
        Ok(())
    }
}
