//! Pipelines of tools, which the product's own worker runs: its rules, memos, artifacts and redaction, with tools whose
//! results are drawn. What must hold: a task that was done before a wait is not done again after it, tasks get what
//! earlier tasks returned, and a secret is in no log.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::{Value as Json, json};
use stepwell_engine::coordinator::Assignment;
use stepwell_kernel::command::{Claim, Command};
use stepwell_kernel::plan::ErrorClass;
use stepwell_worker::artifacts::Artifacts;
use stepwell_worker::logs::{LogEntry, Logs};
use stepwell_worker::outcome::{TaskOutcome, ToolError};
use stepwell_worker::secrets::{Provider, SecretFuture, Secrets};
use stepwell_worker::tool::{TaskContext, Tool, ToolCall, ToolFuture};
use stepwell_worker::{Crew, Handlers, WorkerResources};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::broadcast::Receiver;
use tokio::sync::oneshot;

use crate::rng::Rng;
use crate::sabotage::Sabotage;

/// The id of the plan below.
pub(crate) const PLAN_ID: &str = "pipelines";

/// A value that must be written nowhere.
pub(crate) const SECRET: &str = "canary-of-the-simulation";

/// How many rows the step `report` returns: more than the log of a run keeps, so that they are an artifact.
const ROWS: usize = 4_000;

/// Waits are long enough for the worker to give its execution back: one of a few seconds would be waited for.
pub(crate) const DEFINITION: &str = r#"
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: pipelines}
executor:
  spec:
    policy: {completion: partial}
workload: {items: [1, 2, 3], n: 0}
workflow:
- step: orders
  loop:
    in: "{{ workload.items }}"
    iterator: item
    spec: {mode: parallel, max_in_flight: 2, policy: {failure: {mode: continue}}}
  tool:
    - name: order
      kind: shell
      cmds: [order]
    - name: pay
      kind: shell
      cmds: [pay]
      env: {TOKEN: "secret://token"}
      spec: &retried
        policy:
          rules:
            - when: "{{ outcome.status == 'error' }}"
              then: {do: retry, attempts: 3, backoff: exponential, delay: 20}
            - else: {then: {do: continue}}
    - name: nap
      kind: sleep
      duration: 90s
    - name: ship
      kind: shell
      cmds: [ship]
      args: {receipt: "{{ pay.receipt }}"}
      spec: *retried
  next: [{step: report}]
- step: report
  tool: {kind: shell, cmds: [report], env: {TOKEN: "secret://token"}, spec: *retried}
  next: [{step: read}]
- step: read
  tool:
    - name: nap
      kind: sleep
      duration: 5m
    - name: read
      kind: shell
      cmds: [read]
      args: {rows: "{{ report.rows }}"}
"#;

/// The workers of a simulation. What they wrote outlives a crash; a crew does not.
pub(crate) struct Pipelines {
    runtime: Runtime,
    artifacts: Artifacts,
    logs: Logs,
    lines: Receiver<Arc<LogEntry>>,
    folder: PathBuf,
    tool: Arc<DrawnTool>,
    /// The crew of each server that runs.
    crews: BTreeMap<usize, Crew>,
    /// Tasks that succeeded, with their execution, by run and step-run.
    done: BTreeMap<(String, String), Vec<(u32, String)>>,
    /// The report of each execution, by run and step-run.
    reports: BTreeMap<(String, String), BTreeMap<u32, Command>>,
}

impl Pipelines {
    pub(crate) fn new() -> Result<Pipelines, String> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let no = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("stepwell-sim-logs-{}-{no}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let artifacts = Artifacts::open("memory:").map_err(|error| error.to_string())?;
        let logs = Logs::open(&folder);
        Ok(Pipelines {
            runtime: { Builder::new_current_thread().enable_all().build() }
                .map_err(|error| error.to_string())?,
            artifacts,
            lines: logs.subscribe(),
            logs,
            folder,
            tool: Arc::default(),
            crews: BTreeMap::new(),
            done: BTreeMap::new(),
            reports: BTreeMap::new(),
        })
    }

    /// The process of a server is gone, and what it had in its memory.
    pub(crate) fn crash(&mut self, server: usize) {
        self.crews.remove(&server);
    }

    /// Runs a pipeline to its report, which an execution may send twice. `waited` are the executions that have ended with a
    /// wait which is in the log: later executions do not repeat what they have done.
    pub(crate) fn run(
        &mut self,
        server: usize,
        job: &Assignment,
        claim: Claim,
        (waited, chance): (&[u32], Chance),
    ) -> Result<Command, String> {
        let mut job = job.clone();
        job.claimed.claim = claim;
        if chance.sabotage == Some(Sabotage::ForgetMemo) {
            job.claimed.memo = None;
        }
        let place = (job.run_id.to_string(), job.claimed.step_id.to_string());
        let (execution, sabotage) = (job.claimed.claim.execution, chance.sabotage);
        let reports = self.reports.entry(place.clone()).or_default();
        if let Some(report) = reports.get(&execution) {
            return Ok(report.clone());
        }
        self.tool.lock().begin(chance);
        let (send, result) = oneshot::channel();
        self.crew(server).begin(job, move |_, command| {
            // Nobody else waits for it.
            let _ = send.send(command);
        });
        let command = self.runtime.block_on(result);
        let mut command = command.map_err(|_| format!("{place:?} ended without a report"))?;
        let calls = self.tool.lock().end()?;
        let done = self.done.entry(place.clone()).or_default();
        for (task, succeeded) in calls {
            let again =
                |it: &(u32, String)| it.1 == task && it.0 < execution && waited.contains(&it.0);
            if done.iter().any(again) {
                let (run, step) = &place;
                return Err(format!(
                    "{run}: {task} of {step} was done before a wait, and again in execution {execution}"
                ));
            }
            if succeeded {
                done.push((execution, task));
            }
        }
        self.said_nothing_secret()?;
        if sabotage == Some(Sabotage::LeakSecret)
            && let Command::CompleteStep { output, .. } = &mut command
        {
            *output = json!({ "token": SECRET });
        }
        let reports = self.reports.entry(place).or_default();
        reports.insert(execution, command.clone());
        Ok(command)
    }

    fn crew(&mut self, server: usize) -> &Crew {
        let resources = || {
            let secrets = Secrets::new(vec![Box::new(OneSecret)]);
            WorkerResources::new(secrets, self.artifacts.clone(), self.logs.clone())
                .with_tool("shell", self.tool.clone())
        };
        let handle = self.runtime.handle();
        let crew = || Crew::on(handle.clone(), resources(), Handlers::new());
        self.crews.entry(server).or_insert_with(crew)
    }

    /// The lines that were logged have no secret.
    fn said_nothing_secret(&mut self) -> Result<(), String> {
        while let Ok(entry) = self.lines.try_recv() {
            if format!("{entry:?}").contains(SECRET) {
                let (run, step) = (&entry.run_id, &entry.step_id);
                return Err(format!("{run}: a secret is in the log of {step}"));
            }
        }
        Ok(())
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        self.crews.clear();
        // There may be none: nothing failed.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Where the results of one pipeline come from.
#[derive(Debug)]
pub(crate) struct Chance {
    pub(crate) rng: Rng,
    /// One task in so many fails; none with zero.
    pub(crate) fails: u64,
    pub(crate) sabotage: Option<Sabotage>,
}

/// The tool that all tasks use.
#[derive(Debug, Default)]
struct DrawnTool(Mutex<Scene>);

/// What happens during one pipeline.
#[derive(Debug, Default)]
struct Scene {
    chance: Option<Chance>,
    /// The tasks that were done, and whether they succeeded.
    calls: Vec<(String, bool)>,
    wrong: Option<String>,
}

impl Scene {
    fn begin(&mut self, chance: Chance) {
        *self = Scene {
            chance: Some(chance),
            ..Scene::default()
        };
    }

    fn end(&mut self) -> Result<Vec<(String, bool)>, String> {
        let calls = std::mem::take(&mut self.calls);
        self.wrong.take().map_or(Ok(calls), Err)
    }

    fn call(&mut self, call: &ToolCall, cx: &TaskContext) -> TaskOutcome {
        let fails = |it: &mut Chance| it.fails > 0 && it.rng.one_in(it.fails);
        let fails = self.chance.as_mut().is_some_and(fails);
        self.calls.push((call.name.clone(), !fails));
        cx.log.note(&format!("{} with {SECRET}", call.name));
        if fails {
            return TaskOutcome {
                error: Some(ToolError::new(
                    ErrorClass::Transient,
                    "SIMULATED",
                    format!("the server does not like {SECRET}"),
                )),
                ..TaskOutcome::default()
            };
        }
        let (run, step) = (&cx.run_id, &cx.step_id);
        let receipt = format!("receipt of {step} of {run}");
        let row = |no: usize| format!("row {no} of {run}");
        let result = match call.name.as_str() {
            "pay" => json!({ "receipt": receipt, "token": SECRET }),
            "ship" if call.args.get("receipt") != Some(&json!(receipt)) => {
                let got = call.args.get("receipt");
                self.wrong = Some(format!("{run}: {step} ships with {got:?}"));
                Json::Null
            }
            "read" => {
                let rows = call.args.get("rows").unwrap_or(&Json::Null);
                let whole = rows.as_array().is_some_and(|it| it.len() == ROWS);
                // A worker outside of the servers returns no rows.
                let is_right = rows.is_null() || whole && rows.get(7) == Some(&json!(row(7)));
                if !is_right {
                    let kind = rows.to_string().chars().take(80).collect::<String>();
                    self.wrong = Some(format!("{run}: {step} reads {kind}"));
                }
                Json::Null
            }
            "order" | "ship" => json!({ "by": step.as_ref() }),
            // The only task of its step has no name of its own.
            _ => json!({ "rows": (0..ROWS).map(row).collect::<Vec<_>>(), "token": SECRET }),
        };
        TaskOutcome {
            result,
            ..TaskOutcome::default()
        }
    }
}

impl DrawnTool {
    fn lock(&self) -> MutexGuard<'_, Scene> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tool for DrawnTool {
    fn run<'a>(&'a self, call: &'a ToolCall, cx: &'a TaskContext) -> ToolFuture<'a> {
        Box::pin(async move { self.lock().call(call, cx) })
    }
}

#[derive(Debug)]
struct OneSecret;

impl Provider for OneSecret {
    fn scheme(&self) -> &'static str {
        "sim"
    }

    fn named<'a>(&'a self, name: &'a str) -> SecretFuture<'a> {
        Box::pin(async move { Ok((name == "token").then(|| json!(SECRET))) })
    }

    fn direct<'a>(&'a self, name: &'a str) -> SecretFuture<'a> {
        self.named(name)
    }
}
