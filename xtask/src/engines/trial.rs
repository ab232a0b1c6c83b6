//! The parts of the task: each runs real processes and looks at what the store has.

mod draining;

use super::server::OutsideServer;
use super::text;
use crate::cluster::Cluster;
use crate::repo::Repo;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a short run may take.
const SHORT: Duration = Duration::from_secs(120);
/// How long a run with kills may take.
const KILLED: Duration = Duration::from_secs(900);

/// What the parts need.
pub(super) struct Trial {
    pub(super) program: PathBuf,
    pub(super) definitions: PathBuf,
    pub(super) folder: PathBuf,
    pub(super) server: OutsideServer,
    pub(super) postgres: Option<Cluster>,
}

/// The definitions of the five languages.
const LANGUAGES: [&str; 5] = ["actions", "dag", "linear", "plan", "playbook"];

/// One event, as far as engines must agree on it.
type Line = (String, String, String);

impl Trial {
    /// The same definitions give the same events on both engines, on both databases.
    pub(super) fn parity(&self) -> Result<String> {
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
    pub(super) fn capabilities(&self) -> Result<String> {
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

    /// Commands of other processes reach a run.
    pub(super) fn commands(&self) -> Result<String> {
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

    /// The process is killed again and again, and each time another one goes on.
    pub(super) fn process_kills(&self, kills: usize) -> Result<String> {
        let file = self.chain(
            "killed",
            10 + kills,
            "sleep 0.3; echo $STEPWELL_STEP_ID >> effects",
        )?;
        let mut seed = 41;
        let mut said = String::new();
        for store in self.stores("killed") {
            let (run, engine) = ("run_killed", self.server.engine());
            let mut done = 0;
            let begun = Instant::now();
            let mut child = self.begin(
                &[
                    &file, "--store", &store, "--run-id", run, "--engine", &engine,
                ],
                "killed.log",
            )?;
            loop {
                let patience = match done < kills {
                    true => Duration::from_millis(1_500 + random(&mut seed, 3_000)),
                    false => KILLED,
                };
                if let Some(status) = ended_within(&mut child, patience)? {
                    ensure!(status.success(), "the run ended with {status}");
                    break;
                }
                ensure!(done < kills, "the run does not end after {kills} kills");
                child.kill()?;
                child.wait()?;
                done += 1;
                child = self.resume(run, &store, &engine)?;
            }
            self.whole(&store, run, 10 + kills)?;
            said.push_str(&format!(
                "{done} kills in {:.0} s; ",
                begun.elapsed().as_secs_f64()
            ));
        }
        Ok(format!("{said}every step completed once"))
    }

    /// The server is killed again and again, and comes back.
    pub(super) fn server_kills(&self, kills: usize) -> Result<String> {
        let steps = 10 + 2 * kills;
        let file = self.chain("orphaned", steps, "sleep 0.3")?;
        let store = text(&self.folder.join("orphaned.db"));
        let (run, engine) = ("run_orphaned", self.server.engine());
        let args = [
            &*file, "--store", &store, "--run-id", run, "--engine", &engine,
        ];
        let mut child = self.begin(&args, "orphaned.log")?;
        let (mut done, mut seed, begun) = (0, 17, Instant::now());
        while done < kills {
            if ended_within(
                &mut child,
                Duration::from_millis(500 + random(&mut seed, 1_500)),
            )?
            .is_some()
            {
                break;
            }
            self.server.kill()?;
            std::thread::sleep(Duration::from_millis(random(&mut seed, 1_500)));
            self.server.again()?;
            done += 1;
        }
        let status = wait(&mut child, KILLED)?;
        ensure!(status.success(), "the run ended with {status}");
        self.whole(&store, run, steps)?;
        Ok(format!(
            "{done} kills in {:.0} s; every step completed once",
            begun.elapsed().as_secs_f64()
        ))
    }

    /// The database is locked for longer than the write budget: work begins, and its start is written before its result.
    pub(super) fn slow_store(&self) -> Result<String> {
        let file = text(&self.definitions.join("slow-store.yaml"));
        let store = self.folder.join("slow.db");
        let (run, engine) = ("run_slow", self.server.engine());
        let path = text(&store);
        let args = [
            &*file,
            "--store",
            &path,
            "--run-id",
            run,
            "--engine",
            &engine,
            "--parallel",
            "1",
        ];
        let mut child = self.begin(&args, "slow.log")?;
        self.until(&path, run, SHORT, |events| {
            count(events, "StepStarted") == 1
        })?;
        let mut lock = Command::new("python3")
            .args(["-c", LOCK, &path, "12"])
            .stdout(Stdio::piped())
            .spawn()
            .context("python3 locks the database")?;
        let locked_until = Instant::now() + Duration::from_secs(12);
        let events = self.events(&path, run)?;
        let first_one = events
            .iter()
            .any(|it| it.0 == "StepStarted" && it.1 == "first");
        let later = if first_one { "second" } else { "first" };
        let began = self.folder.join(format!("began-{later}"));
        ensure!(
            !began.exists(),
            "both steps began before the store was locked"
        );
        while !began.exists() && Instant::now() < locked_until {
            std::thread::sleep(Duration::from_millis(50));
        }
        let began_while_locked = began.exists() && lock.try_wait()?.is_none();
        lock.wait()?;
        let status = wait(&mut child, SHORT)?;
        ensure!(status.success(), "the run ended with {status}");
        ensure!(
            began_while_locked,
            "the step {later} did not begin while the store was locked"
        );
        let events = self.events(&path, run)?;
        let at = |kind: &str| {
            let found = events.iter().enumerate();
            let mut of_later = found.filter(|(_, it)| it.0 == kind && it.1 == later);
            of_later.next().map(|(index, _)| index)
        };
        ensure!(at("StepStarted") < at("StepCompleted"), "{events:?}");
        self.whole(&path, run, 2)?;
        let alerts = self.told(&["alerts", "list", "--store", &path])?;
        ensure!(alerts.contains("WRITE_LATENCY_EXCEEDED"), "{alerts}");
        Ok("a step began while the store was locked; its start was written before its result, with an alert".into())
    }

    /// The database goes away in the middle and comes back.
    pub(super) fn gone_store(&self) -> Result<String> {
        let Some(postgres) = &self.postgres else {
            return Ok("SKIPPED: no PostgreSQL".into());
        };
        let file = self.chain("gone", 12, "sleep 0.4")?;
        let (store, run, engine) = (postgres.url(), "run_gone", self.server.engine());
        let args = [
            &*file, "--store", &store, "--run-id", run, "--engine", &engine,
        ];
        let mut child = self.begin(&args, "gone.log")?;
        self.until(&store, run, SHORT, |events| {
            count(events, "StepCompleted") >= 2
        })?;
        postgres.halt()?;
        std::thread::sleep(Duration::from_secs(8));
        postgres.resume()?;
        let status = wait(&mut child, KILLED)?;
        ensure!(status.success(), "the run ended with {status}");
        self.whole(&store, run, 12)?;
        Ok("the store was away for 8 s; every step completed once".into())
    }

    /// A run of so many steps needs several histories.
    pub(super) fn long(&self, steps: usize, rotations: usize) -> Result<String> {
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

    /// Writes the histories of runs that have ended, for the test that replays them.
    pub(super) fn record(&self, repo: &Repo) -> Result<()> {
        let Some(server) = self.server.temporal() else {
            return Ok(());
        };
        let names = [
            "parity_actions",
            "parity_dag",
            "parity_linear",
            "parity_playbook",
            "commands",
        ];
        let mut asked = server.host();
        for name in names {
            let store = match name.strip_prefix("parity_") {
                Some(language) => format!("temporal-{language}.db"),
                None => format!("{name}.db"),
            };
            let store = text(&self.folder.join(store));
            let id = self.workflow(&store, &format!("run_{name}"))?;
            asked.push_str(&format!(" {name}={id}"));
        }
        let test = "histories_are_recorded_when_that_is_asked_for";
        let status = repo
            .cargo(&[
                "test",
                "-q",
                "-p",
                "stepwell-engines",
                "--features",
                "temporal",
            ])
            .args(["--test", "it", test])
            .env("STEPWELL_RECORD", asked)
            .status()?;
        ensure!(status.success(), "the histories could not be recorded");
        Ok(())
    }

    /// The databases that runs are kept in, in turn.
    pub(super) fn stores(&self, name: &str) -> Vec<String> {
        let mut stores = vec![text(&self.folder.join(format!("{name}.db")))];
        stores.extend(self.postgres.iter().map(Cluster::url));
        stores
    }

    fn stepwell(&self, args: &[&str]) -> Command {
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
    fn run(&self, args: &[&str], engine: Option<&str>) -> Result<()> {
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

    fn begin(&self, args: &[&str], log: &str) -> Result<Child> {
        let mut all = vec!["run"];
        all.extend(args);
        self.spawn(&all, log)
    }

    fn resume(&self, run: &str, store: &str, engine: &str) -> Result<Child> {
        // A process that was killed before the run was there has left nothing to continue.
        self.spawn(
            &["resume", run, "--store", store, "--engine", engine],
            "killed.log",
        )
    }

    fn spawn(&self, args: &[&str], log: &str) -> Result<Child> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join(log))?;
        let mut command = self.stepwell(args);
        command.stdout(log.try_clone()?).stderr(log);
        command.spawn().context("cannot start stepwell")
    }

    /// A command that must succeed, and what it says.
    fn told(&self, args: &[&str]) -> Result<String> {
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

    fn raw_events(&self, store: &str, run: &str) -> Result<Vec<Json>> {
        let output = self
            .stepwell(&["runs", "events", run, "--store", store])
            .output()?;
        let lines = String::from_utf8_lossy(&output.stdout).into_owned();
        let json = lines.lines().filter(|line| line.starts_with('{'));
        Ok(json.map(serde_json::from_str).collect::<Result<_, _>>()?)
    }

    /// The events of a run, as far as engines must agree on them.
    fn events(&self, store: &str, run: &str) -> Result<Vec<Line>> {
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
    fn names_the_engine(&self, store: &str, run: &str) -> Result<()> {
        let id = self.workflow(store, run)?;
        self.server.must_have_ended(&id)
    }

    /// The id of the workflow of a run, as the log names it.
    fn workflow(&self, store: &str, run: &str) -> Result<String> {
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
    fn whole(&self, store: &str, run: &str, steps: usize) -> Result<()> {
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

    fn until(
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

    /// A chain of steps that all run the same command.
    fn chain(&self, name: &str, steps: usize, command: &str) -> Result<String> {
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

/// Locks a SQLite database for some seconds.
const LOCK: &str = "
import sqlite3, sys, time
database = sqlite3.connect(sys.argv[1], timeout=30, isolation_level=None)
database.execute('BEGIN IMMEDIATE')
time.sleep(float(sys.argv[2]))
database.execute('ROLLBACK')
";

fn count(events: &[Line], kind: &str) -> usize {
    events.iter().filter(|it| it.0 == kind).count()
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

fn ended_within(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
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

fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    match ended_within(child, limit)? {
        Some(status) => Ok(status),
        None => {
            child.kill()?;
            child.wait()?;
            bail!("the command did not end within {} s", limit.as_secs())
        }
    }
}

/// The next number below `limit`: the same in every run of the task.
fn random(seed: &mut u64, limit: u64) -> u64 {
    *seed = seed
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) % limit.max(1)
}
