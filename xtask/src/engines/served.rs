//! A server that runs definitions on an engine outside, as `[engines]` of its configuration says: everything goes over HTTP, the
//! process of the server is killed in the middle, and the engine's own server is away for a while.

use super::text;
use super::trial::Trial;
use crate::served::{Served, ask};
use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value as Json, json};
use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

/// How long something may take that is expected, also on a busy machine.
const SOON: Duration = Duration::from_secs(120);
/// How long the engine is away.
const AWAY: Duration = Duration::from_secs(8);

/// A chain of shell steps.
fn chain(name: &str, steps: usize, command: &str) -> String {
    let mut file =
        format!("apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {{name: {name}}}\nworkflow:\n");
    for step in 0..steps {
        file.push_str(&format!(
            "  - step: s{step}\n    tool: {{kind: shell, cmds: ['{command}']}}\n"
        ));
        if step + 1 < steps {
            file.push_str(&format!("    next: [{{step: s{}}}]\n", step + 1));
        }
    }
    file
}

const PARENT: &str = "\
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: served-parent}
workflow:
  - step: below
    tool: {kind: playbook, path: served-short}
    next: [{step: last}]
  - step: last
    tool: {kind: noop}
";

const GATE: &str = "\
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {name: served-gate, owner: test}
spec:
  description: A gate between two steps.
  timeout: 5m
  failurePolicy: abort
  steps:
    - {name: before, timeout: 1m, tool: {kind: noop}}
    - {name: gate, gate: approval, dependsOn: [before], timeout: 5m, onFailure: abort}
    - {name: after, dependsOn: [gate], timeout: 1m, tool: {kind: noop}}
";

const TRIGGERED: &str = "\
apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: {name: served-triggered, owner: test}
spec:
  description: An event starts it.
  timeout: 5m
  trigger: {event: served.go}
  steps:
    - {name: only, timeout: 1m, tool: {kind: noop}}
";

/// A server of a store, and how it is asked.
struct Door<'a> {
    trial: &'a Trial,
    store: String,
    served: Served,
}

impl Trial {
    /// Runs that are started over HTTP, by a schedule, by an event, as children and by RETRY_RUN are moved by the engine.
    pub(super) fn served(&self) -> Result<String> {
        self.write_config()?;
        let mut said = Vec::new();
        for store in self.stores("served") {
            let mut door = Door::open(self, &store)?;
            door.register()?;
            let whole = door.doors().context("how runs start")?;
            door.commands().context("commands")?;
            door.refused().context("what the engine cannot do")?;
            let killed = door.killed().context("kill -9 of the server")?;
            said.push(format!("{whole} runs, {killed}"));
            door.checked()
                .context("the store is checked while work goes on")?;
            door.unserved().context("a server without the engine")?;
            said.push(
                "a run of an engine that nobody serves is told, and goes on later".to_owned(),
            );
            if door.store.starts_with("postgres") {
                door.two_servers().context("two servers")?;
                said.push("a second server takes over".to_owned());
            } else {
                door.away().context("the engine is away")?;
                said.push("runs wait for an engine that is away, and are seen to".to_owned());
                door.restored()
                    .context("the store is replaced by an older copy")?;
                said.push("a run whose store is older than the engine is held back".to_owned());
            }
            door.served.stop()?;
        }
        Ok(said.join("; "))
    }

    fn write_config(&self) -> Result<()> {
        let engine = self.server.engine();
        fs::write(
            self.folder.join("unserved.toml"),
            "[security]\nconfine = false\n",
        )?;
        let config = format!(
            "[security]\nconfine = false\n\n[engines]\noutside = \"{engine}\"\n\n\
             [[engines.definitions]]\nname = \"served-own\"\nengine = \"native\"\n\n\
             [[engines.definitions]]\nname = \"served-*\"\nengine = \"outside\"\n"
        );
        Ok(fs::write(self.folder.join("served.toml"), config)?)
    }
}

impl<'a> Door<'a> {
    fn open(trial: &'a Trial, store: &str) -> Result<Door<'a>> {
        Door::open_with(trial, store, "served.toml")
    }

    fn open_with(trial: &'a Trial, store: &str, config: &str) -> Result<Door<'a>> {
        let config = text(&trial.folder.join(config));
        let args = ["--store", store, "--config", &config];
        Ok(Door {
            trial,
            store: store.to_owned(),
            served: Served::start(&trial.program, &trial.folder, &args)?,
        })
    }

    fn ask(&self, method: &str, path: &str, body: Option<Json>) -> Result<Json> {
        let (status, answer) = ask(&self.served.url, method, path, body.as_ref())?;
        ensure!(
            (200..300).contains(&status),
            "{method} {path}: {status} {answer}"
        );
        Ok(answer)
    }

    fn register(&self) -> Result<()> {
        let effect = "sleep 0.3; echo $STEPWELL_STEP_ID >> served-effects";
        for definition in [
            chain("served-short", 2, "true"),
            chain("served-own", 2, "true"),
            chain("served-chain", 14, effect),
            chain("served-long", 60, "sleep 0.2"),
            PARENT.to_owned(),
            GATE.to_owned(),
            TRIGGERED.to_owned(),
        ] {
            self.ask(
                "PUT",
                "/api/v1/definitions",
                Some(json!({"text": definition})),
            )?;
        }
        Ok(())
    }

    fn start(&self, name: &str) -> Result<String> {
        let started = self.ask(
            "POST",
            "/api/v1/runs",
            Some(json!({"definition": {"name": name}})),
        )?;
        Ok(started["runId"].as_str().context("no runId")?.to_owned())
    }

    fn events(&self, run: &str) -> Result<Vec<Json>> {
        let events = self.ask(
            "GET",
            &format!("/api/v1/runs/{run}/events?limit=1000"),
            None,
        )?;
        let list = events["events"].as_array().or(events.as_array());
        Ok(list.with_context(|| format!("{events}"))?.clone())
    }

    fn count(&self, run: &str, kind: &str) -> Result<usize> {
        let events = self.events(run)?;
        Ok(events.iter().filter(|it| it["eventType"] == kind).count())
    }

    /// Waits until a run is as wanted.
    fn until(&self, run: &str, what: &str, is_there: impl Fn(&[Json]) -> bool) -> Result<()> {
        let until = Instant::now() + SOON;
        loop {
            let events = self.events(run).unwrap_or_default();
            if is_there(&events) {
                return Ok(());
            }
            if Instant::now() > until {
                let kinds: Vec<&Json> = events.iter().map(|it| &it["eventType"]).collect();
                bail!("run {run}: {what} does not happen: {kinds:?}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn until_event(&self, run: &str, kind: &str) -> Result<()> {
        self.until(run, kind, |events| {
            events.iter().any(|it| it["eventType"] == kind)
        })
    }

    /// Waits until at least so many steps of a run have completed.
    fn until_completed(&self, run: &str, steps: usize) -> Result<()> {
        self.until(run, &format!("{steps} steps"), |events| {
            let completed = events
                .iter()
                .filter(|it| it["eventType"] == "StepCompleted");
            completed.count() >= steps
        })
    }

    /// The engine that the log names, and its id of the run.
    fn engine_of(&self, run: &str) -> Result<(String, String)> {
        let events = self.events(run)?;
        let started = events.iter().find(|it| it["eventType"] == "RunStarted");
        let started = started.with_context(|| format!("run {run} has not started"))?;
        let word = |name: &str| started[name].as_str().unwrap_or_default().to_owned();
        Ok((word("engineType"), word("engineRunRef")))
    }

    fn must_be_of_engine(&self, run: &str) -> Result<()> {
        let name = self.trial.server.name();
        let (engine, id) = self.engine_of(run)?;
        ensure!(engine == name, "run {run} is of the engine {engine}");
        let id = id
            .strip_prefix(&format!("{name}://"))
            .context("engineRunRef")?;
        // The workflow ends after the run.
        let until = Instant::now() + SOON;
        loop {
            match self.trial.server.must_have_ended(id) {
                Ok(()) => return Ok(()),
                Err(error) if Instant::now() > until => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }

    /// Every way in which a run starts.
    fn doors(&self) -> Result<usize> {
        let own = self.start("served-own")?;
        self.until_event(&own, "RunCompleted")?;
        let (engine, _) = self.engine_of(&own)?;
        ensure!(
            engine == "native",
            "a definition for `native` ran on {engine}"
        );
        let named = self.start("served-short")?;
        self.until_event(&named, "RunCompleted")?;
        let parent = self.start("served-parent")?;
        self.until_event(&parent, "RunCompleted")?;
        let filter = format!("/api/v1/runs?parent={parent}");
        let children = self.ask("GET", &filter, None)?;
        let child = children.pointer("/runs/0/runId").and_then(Json::as_str);
        let child = child
            .with_context(|| format!("no child: {children}"))?
            .to_owned();
        let body = json!({"signalType": "RETRY_RUN", "reason": "test"});
        let retried = self.ask("POST", &format!("/api/v1/runs/{named}/signals"), Some(body))?;
        let again = retried["repeatedAs"]
            .as_str()
            .context("no repeatedAs")?
            .to_owned();
        self.until_event(&again, "RunCompleted")?;
        let body = json!({"definition": "served-short", "cron": "* * * * * *"});
        self.ask("PUT", "/api/v1/schedules/served", Some(body))?;
        let scheduled = self.begun("served-short", &[&named, &again, &child])?;
        self.ask("DELETE", "/api/v1/schedules/served", None)?;
        self.until_event(&scheduled, "RunCompleted")?;
        let event = json!({"id": "go-1", "type": "served.go", "payload": {}});
        self.ask("POST", "/api/v1/events", Some(event))?;
        let triggered = self.begun("served-triggered", &[])?;
        self.until_event(&triggered, "RunCompleted")?;
        let moved = [named, parent, child, again, scheduled, triggered];
        for run in &moved {
            self.must_be_of_engine(run)?;
        }
        let shown = self.ask("GET", &format!("/api/v1/runs/{}", moved[0]), None)?;
        let name = self.trial.server.name();
        ensure!(
            shown.to_string().contains(&format!("{name}://")),
            "the run does not show its engine: {shown}"
        );
        Ok(moved.len() + 1)
    }

    /// A run of a definition that a schedule or an event has started.
    fn begun(&self, definition: &str, known: &[&str]) -> Result<String> {
        let until = Instant::now() + SOON;
        while Instant::now() < until {
            let mut ids = self.runs_of(definition)?.into_iter();
            if let Some(new) = ids.find(|it| !known.contains(&it.as_str())) {
                return Ok(new);
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("nothing starts a run of {definition}")
    }

    fn runs_of(&self, definition: &str) -> Result<Vec<String>> {
        let runs = self.ask("GET", &format!("/api/v1/runs?plan={definition}"), None)?;
        let runs = runs["runs"].as_array().context("no runs")?;
        let ids = runs.iter().filter_map(|it| it["runId"].as_str());
        Ok(ids.map(str::to_owned).collect())
    }

    /// Pause, resume, cancel and an approval.
    fn commands(&self) -> Result<()> {
        let run = self.start("served-long")?;
        self.until_completed(&run, 2)?;
        let signal = |kind: &str| {
            let body = json!({"signalType": kind, "reason": "test"});
            self.ask("POST", &format!("/api/v1/runs/{run}/signals"), Some(body))
        };
        signal("PAUSE")?;
        std::thread::sleep(Duration::from_secs(2));
        let paused = self.count(&run, "StepStarted")?;
        std::thread::sleep(Duration::from_secs(2));
        let later = self.count(&run, "StepStarted")?;
        ensure!(paused == later, "steps start while the run is paused");
        signal("RESUME")?;
        self.until(&run, "another step", |events| {
            events
                .iter()
                .filter(|it| it["eventType"] == "StepStarted")
                .count()
                > later
        })?;
        self.ask(
            "POST",
            &format!("/api/v1/runs/{run}/cancel"),
            Some(json!({"reason": "test"})),
        )?;
        self.until_event(&run, "RunCancelled")?;
        let gate = self.start("served-gate")?;
        self.until_event(&gate, "StepCompleted")?;
        let path = format!("/api/v1/runs/{gate}/steps/gate/complete");
        let body = json!({"outcome": "succeeded"});
        let until = Instant::now() + SOON;
        // The gate opens a moment after the step before it.
        while let Err(error) = self.ask("POST", &path, Some(body.clone())) {
            ensure!(Instant::now() < until, "{error:#}");
            std::thread::sleep(Duration::from_millis(200));
        }
        self.until_event(&gate, "RunCompleted")?;
        self.must_be_of_engine(&gate)
    }

    /// A definition whose needs the engine cannot meet is refused before it starts.
    fn refused(&self) -> Result<()> {
        let file = self.trial.definitions.join("needs-native-pause.yaml");
        let text = fs::read_to_string(file)?;
        let text = text.replace("engines-native-pause", "served-native-pause");
        let body = json!({"definition": {"text": text}});
        let (status, answer) = ask(&self.served.url, "POST", "/api/v1/runs", Some(&body))?;
        ensure!(
            status == 422 && answer["code"] == "PLAN_CAPABILITY_UNSUPPORTED",
            "{status} {answer}"
        );
        Ok(())
    }

    /// Every step completed exactly once, and the run completed last.
    fn must_be_whole(&self, run: &str, steps: usize) -> Result<()> {
        let events = self.events(run)?;
        let mut completed: BTreeMap<&str, usize> = BTreeMap::new();
        for event in events
            .iter()
            .filter(|it| it["eventType"] == "StepCompleted")
        {
            *completed
                .entry(event["stepId"].as_str().unwrap_or_default())
                .or_default() += 1;
        }
        ensure!(
            completed.len() == steps && completed.values().all(|it| *it == 1),
            "{completed:?}"
        );
        let last = events.last().map(|it| &it["eventType"]);
        ensure!(last == Some(&json!("RunCompleted")), "{last:?}");
        Ok(())
    }

    /// The process is killed in the middle of a step, twice; the next one goes on.
    fn killed(&mut self) -> Result<String> {
        let run = self.start("served-chain")?;
        let begun = Instant::now();
        for done in [3, 8] {
            self.until_completed(&run, done)?;
            self.kill()?;
            *self = Door::open(self.trial, &self.store)?;
        }
        self.until_event(&run, "RunCompleted")?;
        self.must_be_whole(&run, 14)?;
        self.must_be_of_engine(&run)?;
        Ok(format!(
            "2 kills of the server in {:.0} s, every step completed once",
            begun.elapsed().as_secs_f64()
        ))
    }

    fn kill(&self) -> Result<()> {
        let pid = self.served.id().to_string();
        let killed = std::process::Command::new("kill")
            .args(["-KILL", &pid])
            .status()?;
        ensure!(killed.success(), "the server could not be killed");
        Ok(())
    }

    /// What a run on the engine leaves in the store while it works is no damage.
    fn checked(&self) -> Result<()> {
        let run = self.start("served-chain")?;
        self.until_completed(&run, 2)?;
        self.trial.told(&["db", "check", "--store", &self.store])?;
        self.until_event(&run, "RunCompleted")
    }

    /// A step is answered and a run is repeated while no server is there, and the next server does not serve the engine: it says
    /// so, and a server that serves the engine goes on.
    fn unserved(&mut self) -> Result<()> {
        let ended = self.start("served-short")?;
        self.until_event(&ended, "RunCompleted")?;
        let run = self.start("served-gate")?;
        self.until_event(&run, "StepCompleted")?;
        let known = self.runs_of("served-short")?;
        self.served.end()?;
        let answer = [
            "runs",
            "complete",
            &run,
            "gate",
            "--outcome",
            "succeeded",
            "--as",
            "zoe",
            "--store",
            &self.store,
        ];
        self.trial.told(&answer)?;
        self.trial
            .told(&["runs", "retry", &ended, "--store", &self.store])?;
        *self = Door::open_with(self.trial, &self.store, "unserved.toml")?;
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let retried = self.begun("served-short", &known)?;
        self.until_warning("ENGINE_NOT_SERVED", true)?;
        self.until_alert("ENGINE_NOT_SERVED", &run)?;
        self.served.end()?;
        *self = Door::open(self.trial, &self.store)?;
        for run in [&run, &retried] {
            self.until_event(run, "RunCompleted")?;
            self.must_be_of_engine(run)?;
        }
        Ok(())
    }

    /// The store is replaced by an older copy while the engine has the newer history: nothing is done again until a person says so.
    fn restored(&mut self) -> Result<()> {
        let run = self.start("served-chain")?;
        self.until_completed(&run, 2)?;
        self.served.end()?;
        let copy = format!("{}.copy", self.store);
        fs::copy(&self.store, &copy)?;
        *self = Door::open(self.trial, &self.store)?;
        self.until_completed(&run, 5)?;
        self.served.end()?;
        for rest in ["-wal", "-shm"] {
            let rest = format!("{}{rest}", self.store);
            if fs::exists(&rest)? {
                fs::remove_file(rest)?;
            }
        }
        fs::rename(&copy, &self.store)?;
        let done = self.effects()?;
        *self = Door::open(self.trial, &self.store)?;
        self.until_alert("ENGINE_DIVERGED", &run)?;
        let shown = self.ask("GET", &format!("/api/v1/runs/{run}"), None)?;
        ensure!(shown.to_string().contains("PAUSED"), "{shown}");
        std::thread::sleep(Duration::from_secs(3));
        ensure!(self.effects()? == done, "a step was done again");
        let body = json!({"signalType": "RESUME", "reason": "test"});
        self.ask("POST", &format!("/api/v1/runs/{run}/signals"), Some(body))?;
        self.until_event(&run, "RunCompleted")?;
        self.must_be_whole(&run, 14)
    }

    /// How often a step of `served-chain` was done.
    fn effects(&self) -> Result<usize> {
        let effects = fs::read_to_string(self.trial.folder.join("served-effects"))?;
        Ok(effects.lines().count())
    }

    fn until_alert(&self, code: &str, run: &str) -> Result<()> {
        let until = Instant::now() + SOON;
        loop {
            let alerts = self.ask("GET", &format!("/api/v1/alerts?code={code}"), None)?;
            if alerts.to_string().contains(run) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "there is no alert: {alerts}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Two servers share the store; one is killed, and the other finishes the run.
    fn two_servers(&mut self) -> Result<()> {
        let second = Door::open(self.trial, &self.store)?;
        let runs: Vec<String> = (0..3)
            .map(|_| self.start("served-chain"))
            .collect::<Result<_>>()?;
        for run in &runs {
            second.until_event(run, "StepCompleted")?;
        }
        self.kill()?;
        for run in &runs {
            second.until_event(run, "RunCompleted")?;
            second.must_be_whole(run, 14)?;
        }
        *self = second;
        Ok(())
    }

    /// The server of the engine is away: the server starts, says so, and runs wait until the engine is back.
    fn away(&mut self) -> Result<()> {
        self.trial.server.kill()?;
        let begun = Instant::now();
        let waits = self.start("served-short")?;
        self.until_warning("ENGINE_UNREACHABLE", true)?;
        // A server that starts while the engine is away.
        self.kill()?;
        *self = Door::open(self.trial, &self.store)?;
        self.until_warning("ENGINE_UNREACHABLE", true)?;
        let second = self.start("served-short")?;
        std::thread::sleep(AWAY.saturating_sub(begun.elapsed()));
        ensure!(
            self.count(&waits, "StepStarted")? == 0,
            "a step started without the engine"
        );
        let path = format!("/api/v1/runs/{second}/explain");
        let explained = self.ask("GET", &path, None)?.to_string();
        ensure!(
            explained.contains("the engine does not answer"),
            "{explained}"
        );
        let alerts = self.ask("GET", "/api/v1/alerts", None)?;
        ensure!(
            alerts.to_string().contains("ENGINE_UNREACHABLE"),
            "{alerts}"
        );
        self.trial.server.again()?;
        self.until_warning("ENGINE_UNREACHABLE", false)?;
        for run in [&waits, &second] {
            self.until_event(run, "RunCompleted")?;
            self.must_be_of_engine(run)?;
        }
        Ok(())
    }

    /// Waits until `/readyz` has a warning with this code, or has none.
    fn until_warning(&self, code: &str, wanted: bool) -> Result<()> {
        let until = Instant::now() + SOON;
        loop {
            let (status, answer) = ask(&self.served.url, "GET", "/readyz", None)?;
            ensure!(status == 200, "{status} {answer}");
            let warnings = answer["warnings"].to_string();
            if warnings.contains(code) == wanted {
                return Ok(());
            }
            ensure!(Instant::now() < until, "/readyz says {answer}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}
