//! What must hold after real processes were killed or cut off and the rest of the work was done in peace: every run
//! that was asked for has ended as it must, no event is lost or doubled, and the side effects are exactly those that
//! the log knows of.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use stepwell_engine::chunk;
use stepwell_engine::store::{RunFilter, RunSummary, Store};
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::plan::Plan;

/// What was counted, and everything that is wrong.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Runs, child runs included.
    pub runs: u64,
    /// Events of all logs.
    pub events: u64,
    /// Side effects, as the witness file has them.
    pub effects: u64,
    /// Runs, events or effects that are missing.
    pub lost: Vec<String>,
    /// Claims, results or effects that happened twice, or that the log does not know.
    pub doubled: Vec<String>,
    /// Runs that have not ended.
    pub stuck: Vec<String>,
    /// Damage that the store found in itself.
    pub damaged: Vec<String>,
}

impl Verdict {
    /// Everything that is wrong, one line each.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        let kinds = [
            ("lost", &self.lost),
            ("doubled", &self.doubled),
            ("stuck", &self.stuck),
            ("damaged", &self.damaged),
        ];
        let lines = kinds
            .into_iter()
            .flat_map(|(kind, all)| all.iter().map(move |what| format!("{kind}: {what}")));
        lines.collect()
    }

    /// Adds what another part of the same test found.
    pub fn add(&mut self, other: Verdict) {
        self.runs += other.runs;
        self.events += other.events;
        self.effects += other.effects;
        self.lost.extend(other.lost);
        self.doubled.extend(other.doubled);
        self.stuck.extend(other.stuck);
        self.damaged.extend(other.damaged);
    }
}

/// One execution: the run, the step or undo, and its number.
type Execution = (String, String, u32);

/// What the logs say of one execution.
#[derive(Clone, Copy, Debug, Default)]
struct Logged {
    claims: u32,
    is_completed: bool,
    marks: u32,
}

/// Judges a store that nobody works on any more, and the marks of its work. `started` runs were asked for.
pub fn judge(store: &dyn Store, witness: &Path, started: usize) -> Result<Verdict> {
    let mut verdict = Verdict {
        damaged: store.check()?.problems,
        ..Verdict::default()
    };
    let runs = store.list(&RunFilter {
        limit: 10_000_000,
        ..RunFilter::default()
    })?;
    // A child has an id without the number of a request.
    let asked_for = |run: &&RunSummary| run.plan_id != "chain" || run.run_id.contains('-');
    let tops = runs.iter().filter(asked_for).count();
    if tops < started {
        let what = format!("{} of {started} runs that were asked for", started - tops);
        verdict.lost.push(what);
    }
    if tops > started {
        let what = format!("{tops} runs for {started} requests");
        verdict.doubled.push(what);
    }
    let mut known: HashMap<Execution, Logged> = HashMap::new();
    for run in &runs {
        verdict.runs += 1;
        judge_run(store, run, &mut known, &mut verdict)?;
    }
    count_marks(witness, &mut known, &mut verdict)?;
    for ((run, what, execution), logged) in known {
        let name = format!("{run} {what} execution {execution}");
        if logged.claims > 1 {
            verdict
                .doubled
                .push(format!("{name} was claimed {} times", logged.claims));
        }
        if logged.marks > 1 {
            verdict
                .doubled
                .push(format!("{name} was done {} times", logged.marks));
        }
        if logged.is_completed && logged.marks == 0 {
            verdict
                .lost
                .push(format!("{name} is completed and was not done"));
        }
    }
    Ok(verdict)
}

fn judge_run(
    store: &dyn Store,
    run: &RunSummary,
    known: &mut HashMap<Execution, Logged>,
    verdict: &mut Verdict,
) -> Result<()> {
    let wanted = match run.plan_id.as_str() {
        "saga" => "FAILED",
        _ => "COMPLETED",
    };
    let name = format!("{} ({})", run.run_id, run.plan_id);
    if run.head.ended_at.is_none() {
        verdict.stuck.push(format!("{name} is {}", run.head.status));
    } else if run.head.status != wanted {
        let what = format!("{name} ended as {} instead of {wanted}", run.head.status);
        verdict.lost.push(what);
    }
    let plan = plan_of(store, run)?;
    let mut completed: HashMap<String, u32> = HashMap::new();
    for event in events(store, run, verdict)? {
        verdict.events += 1;
        let id = event.body.step().map(|at| plan.step_id(at));
        let id = id.unwrap_or_default();
        let key = |what: &str, execution| (run.run_id.clone(), format!("{what} {id}"), execution);
        match event.body {
            Body::StepStarted { execution, .. } | Body::StepExecutionStarted { execution, .. } => {
                known.entry(key("step", execution)).or_default().claims += 1;
            }
            Body::UndoStarted { execution, .. } => {
                known.entry(key("undo", execution)).or_default().claims += 1;
            }
            Body::StepCompleted { execution, .. } => {
                // A step that calls a child run does nothing itself.
                let works = id != "call";
                known
                    .entry(key("step", execution))
                    .or_default()
                    .is_completed = works;
                *completed.entry(id).or_default() += 1;
            }
            _ => {}
        }
    }
    for (step, times) in completed.into_iter().filter(|(_, times)| *times > 1) {
        verdict
            .doubled
            .push(format!("{name}: {step} is completed {times} times"));
    }
    Ok(())
}

/// The marks that the work has left: `RUN step|undo STEP EXECUTION`.
fn count_marks(
    witness: &Path,
    known: &mut HashMap<Execution, Logged>,
    verdict: &mut Verdict,
) -> Result<()> {
    let text = match fs::read_to_string(witness) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).with_context(|| witness.display().to_string()),
    };
    for line in text.lines() {
        verdict.effects += 1;
        let words: Vec<&str> = line.split(' ').collect();
        let key = match words[..] {
            [run, kind, step, execution] => execution
                .parse()
                .ok()
                .map(|execution| (run.to_owned(), format!("{kind} {step}"), execution)),
            _ => None,
        };
        match key.and_then(|key| known.get_mut(&key)) {
            Some(logged) => logged.marks += 1,
            None => verdict
                .doubled
                .push(format!("the log does not know the effect {line:?}")),
        }
    }
    Ok(())
}

/// The events of a run, after its chunks were checked.
fn events(store: &dyn Store, run: &RunSummary, verdict: &mut Verdict) -> Result<Vec<Event>> {
    let mut events = Vec::new();
    for chunk in store.chunks(run.run, 0, usize::MAX)? {
        let before = events.len() as u64;
        if chunk.first != before + 1 {
            verdict.lost.push(format!(
                "{}: events between {before} and {}",
                run.run_id, chunk.first
            ));
        }
        let decoded = chunk::decode(chunk.first, chunk.codec, &chunk.body);
        events.extend(decoded.with_context(|| run.run_id.clone())?);
        if chunk.last != events.len() as u64 {
            verdict
                .lost
                .push(format!("{}: the end of a chunk", run.run_id));
        }
    }
    Ok(events)
}

fn plan_of(store: &dyn Store, run: &RunSummary) -> Result<Plan> {
    let stored = store.load(run.run)?;
    let stored = stored.with_context(|| format!("{} cannot be read", run.run_id))?;
    let row = store.plan(stored.plan)?;
    let row = row.with_context(|| format!("{}: its plan is not there", run.run_id))?;
    let net = serde_json::from_str(&row.net)?;
    Plan::new(net).map_err(|problems| anyhow::anyhow!("{}: {problems:?}", run.run_id))
}
