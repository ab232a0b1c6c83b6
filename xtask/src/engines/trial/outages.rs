//! The store is away in the middle of a run (statement C37): work goes on, what cannot be written is kept by the engine, and is in the
//! log once and in order afterwards. SQLite is locked by another program, PostgreSQL is stopped.

use super::{KILLED, SHORT, Trial, count, wait};
use crate::engines::text;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The steps that work while the store is away; one begins then.
const STEPS: [&str; 3] = ["long", "first", "second"];

/// Locks a SQLite database for some seconds, and says when it is locked.
const LOCK: &str = "
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
database.execute('BEGIN IMMEDIATE')
print('locked', flush=True)
time.sleep(float(sys.argv[2]))
database.execute('ROLLBACK')
";

/// A store that can be taken away.
enum Away {
    Locked(Child),
    /// PostgreSQL is stopped until then.
    Stopped(Instant),
}

impl Trial {
    /// The store is away for each of these times, on each database.
    pub(in crate::engines) fn outages(&self, lengths: &[u64]) -> Result<String> {
        let mut said = Vec::new();
        for &seconds in lengths {
            for store in self.stores(&format!("away-{seconds}")) {
                let kind = store.split(':').next().filter(|it| *it == "postgresql");
                let kind = kind.unwrap_or("sqlite");
                let later = self
                    .outage(&store, kind, seconds)
                    .with_context(|| format!("{kind}, away for {seconds} s"))?;
                said.push(format!("{kind} {seconds} s ({later} began meanwhile)"));
            }
        }
        Ok(format!(
            "{}: every step was executed once, its events are in order, with the alert",
            said.join(", ")
        ))
    }

    fn outage(&self, store: &str, kind: &str, seconds: u64) -> Result<String> {
        let (run, engine) = (format!("run_away_{seconds}"), self.server.engine());
        let effects = self.folder.join(format!("effects-{kind}-{seconds}"));
        let file = self.away_definition(seconds, &text(&effects))?;
        let args = [
            &*file,
            "--store",
            store,
            "--run-id",
            &run,
            "--engine",
            &engine,
            "--parallel",
            "2",
        ];
        let mut child = self.begin(&args, &format!("away-{kind}-{seconds}.log"))?;
        self.until(store, &run, SHORT, |events| {
            count(events, "StepStarted") == 2
        })?;
        let away = self.take_away(store, seconds)?;
        let begun = executions(&effects);
        let later = STEPS.iter().find(|it| !begun.contains_key(**it));
        let later = *later.context("all steps began before the store was away")?;
        self.bring_back(away)?;
        let while_away = executions(&effects);
        let status = wait(&mut child, SHORT + Duration::from_secs(seconds))?;
        ensure!(status.success(), "the run ended with {status}");
        ensure!(
            while_away.contains_key(later),
            "the step {later} did not begin while the store was away"
        );
        self.was_once(store, &run, &effects)?;
        let alerts = self.told(&["alerts", "list", "--store", store])?;
        ensure!(alerts.contains("WRITE_LATENCY_EXCEEDED"), "{alerts}");
        Ok(later.to_owned())
    }

    /// The process is killed while the store is away: the engine alone has the result of a step and the start of another.
    pub(in crate::engines) fn outage_kill(&self) -> Result<String> {
        let mut said = Vec::new();
        for store in self.stores("away-kill") {
            let (run, engine) = ("run_away_kill", self.server.engine());
            let is_postgres = store.starts_with("postgresql:");
            let effects = self.folder.join(format!("effects-kill-{is_postgres}"));
            let file = self.away_kill_definition(&text(&effects))?;
            let args = [
                &*file,
                "--store",
                &store,
                "--run-id",
                run,
                "--engine",
                &engine,
                "--parallel",
                "1",
            ];
            let mut child = self.begin(&args, "away-kill.log")?;
            self.until(&store, run, SHORT, |events| {
                count(events, "StepStarted") == 1
            })?;
            let away = self.take_away(&store, 24)?;
            // The second step has begun, has ended, and its result is with the engine.
            let until = Instant::now() + Duration::from_secs(20);
            while executions(&effects).len() < 2 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(50));
            }
            let begun = executions(&effects);
            std::thread::sleep(Duration::from_secs(6));
            child.kill()?;
            child.wait()?;
            self.bring_back(away)?;
            ensure!(
                begun.len() == 2,
                "the second step did not begin while the store was away"
            );
            let mut child = self.resume(run, &store, &engine)?;
            let status = wait(&mut child, KILLED)?;
            ensure!(status.success(), "the run ended with {status}");
            self.was_once(&store, run, &effects)?;
            said.push(if is_postgres { "postgresql" } else { "sqlite" });
        }
        Ok(format!(
            "{}: what the engine kept of two steps is in the log once; no step was executed again",
            said.join(", ")
        ))
    }

    /// Each step was executed once, and the log says so, in order.
    fn was_once(&self, store: &str, run: &str, effects: &std::path::Path) -> Result<()> {
        let events = self.events(store, run)?;
        let executed = executions(effects);
        let twice = executed.iter().find(|it| *it.1 != 1);
        ensure!(
            twice.is_none(),
            "{twice:?} was executed more than once: {events:?}"
        );
        for step in executed.keys() {
            let of_step = events.iter().filter(|it| it.1 == *step);
            let kinds: Vec<&str> = of_step.map(|it| &*it.0).collect();
            ensure!(
                kinds == ["StepStarted", "StepCompleted"],
                "{step}: {kinds:?}"
            );
        }
        self.whole(store, run, executed.len() + 1)
    }

    fn take_away(&self, store: &str, seconds: u64) -> Result<Away> {
        if store.starts_with("postgresql:") {
            let postgres = self.postgres.as_ref().context("there is no PostgreSQL")?;
            postgres.halt()?;
            return Ok(Away::Stopped(Instant::now() + Duration::from_secs(seconds)));
        }
        let mut lock = Command::new("python3")
            .args(["-c", LOCK, store, &seconds.to_string()])
            .stdout(Stdio::piped())
            .spawn()
            .context("python3 locks the database")?;
        let mut said = [0; 6];
        let out = lock.stdout.as_mut().context("python3 says nothing")?;
        out.read_exact(&mut said)
            .context("python3 locks the database")?;
        Ok(Away::Locked(lock))
    }

    /// Waits until the store is back.
    fn bring_back(&self, away: Away) -> Result<()> {
        match away {
            Away::Locked(mut lock) => match lock.wait()? {
                status if status.success() => Ok(()),
                status => bail!("the program that locks the database ended with {status}"),
            },
            Away::Stopped(until) => {
                std::thread::sleep(until.saturating_duration_since(Instant::now()));
                let postgres = self.postgres.as_ref().context("there is no PostgreSQL")?;
                Ok(postgres.resume()?)
            }
        }
    }

    /// Three steps side by side, one of them longer than the store is away, and one after them.
    fn away_definition(&self, seconds: u64, effects: &str) -> Result<String> {
        let steps = STEPS.map(|step| {
            let time = if step == "long" { seconds + 4 } else { 2 };
            (step, time)
        });
        self.actions(&format!("away-{seconds}"), &steps, effects)
    }

    fn away_kill_definition(&self, effects: &str) -> Result<String> {
        self.actions("away-kill", &[("first", 2), ("second", 2)], effects)
    }

    /// Steps side by side, each with how many seconds it takes, and one after them.
    fn actions(&self, name: &str, steps: &[(&str, u64)], effects: &str) -> Result<String> {
        let mut file = format!(
            "schemaVersion: 1\nworkflowId: {name}\nworkspaceId: test\nname: {name}\nversion: 1\nactive: true\n\
             executionTier: Auto\nactions:\n"
        );
        for (order, (step, seconds)) in (1..).zip(steps) {
            file.push_str(&format!(
                "  - {{actionId: {step}, order: {order}, portFamily: t, operation: '{step}:do', dependsOn: [], tool: {{kind: \
                 shell, cmds: ['echo {step} >> {effects}; sleep {seconds}']}}}}\n"
            ));
        }
        let names: Vec<&str> = steps.iter().map(|it| it.0).collect();
        let (names, order) = (names.join(", "), steps.len() + 1);
        file.push_str(&format!(
            "  - {{actionId: last, order: {order}, portFamily: t, operation: 'last:do', dependsOn: [{names}], tool: {{kind: noop}}}}\n"
        ));
        let path = self.folder.join(format!("{name}.yaml"));
        fs::write(&path, file)?;
        Ok(text(&path))
    }
}

/// How often each step was executed, as the steps themselves have written.
fn executions(effects: &std::path::Path) -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for line in fs::read_to_string(effects).unwrap_or_default().lines() {
        *found.entry(line.to_owned()).or_default() += 1;
    }
    found
}
