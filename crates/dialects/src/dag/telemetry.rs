//! Telemetry in the language's words: one event for every change of the run's or a step's state,
//! under one correlation id per run.
//!
//! Folded from the log, so it can be produced again at any time and never disagrees with it.

use serde::Serialize;
use stepwell_kernel::event::Event;
use stepwell_kernel::evolve::{IllegalEvent, evolve};
use stepwell_kernel::plan::{ErrorClass, OnFailure, Plan, StepRef};
use stepwell_kernel::state::{Due, Phase, State};
use stepwell_kernel::time::Time;

use super::words::{run_substatus, run_word, step_substatus, step_word};

/// One change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Telemetry {
    /// What happened, such as `workflow_step_completed`.
    pub name: &'static str,
    /// The same for everything that one run emits: its id.
    pub correlation_id: String,
    /// The workflow.
    pub workflow: String,
    /// The step, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The log entry that made the change.
    pub seq: u64,
    /// When.
    pub at: Time,
    /// The state before; absent for a run that did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<&'static str>,
    /// The state now.
    pub to: &'static str,
    /// What the state's word alone does not say: `paused`, `rollback`, `partial`, `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub substatus: Option<&'static str>,
}

/// The telemetry of a run's log, in the order of the log; of one entry the step's change first. An event
/// that cannot follow those before it is an error.
pub fn telemetry(
    plan: &Plan,
    run_id: &str,
    events: &[Event],
) -> Result<Vec<Telemetry>, IllegalEvent> {
    let mut state = State::new(run_id, plan);
    let mut seen = TelemetryState::new(plan);
    let mut effects = Vec::new();
    for event in events {
        evolve(plan, &mut state, event, &mut effects)?;
        effects.clear();
        seen.look(plan, &state, event);
    }
    Ok(seen.emitted)
}

/// A run's word and what qualifies it.
type RunWord = (&'static str, Option<&'static str>);

/// What was last said about the run and each step.
struct TelemetryState {
    run: Option<RunWord>,
    steps: Vec<&'static str>,
    emitted: Vec<Telemetry>,
}

impl TelemetryState {
    fn new(plan: &Plan) -> TelemetryState {
        TelemetryState {
            run: None,
            steps: vec!["pending"; plan.len()],
            emitted: Vec::new(),
        }
    }

    fn look(&mut self, plan: &Plan, state: &State, event: &Event) {
        match event.body.step() {
            Some(at) => self.look_at_step(plan, state, event, at),
            // An event about the run may change any step, and there are few of them.
            None => {
                for no in plan.numbers() {
                    self.look_at_step(plan, state, event, StepRef::first(no));
                }
            }
        }
        self.look_at_run(plan, state, event);
    }

    fn look_at_step(&mut self, plan: &Plan, state: &State, event: &Event, at: StepRef) {
        let at = StepRef::first(at.step);
        let to = step_word(plan, state, at);
        let from = std::mem::replace(&mut self.steps[at.step.0 as usize], to);
        if from == to {
            return;
        }
        self.emitted.push(Telemetry {
            name: step_event(from, to),
            correlation_id: state.run_id().to_owned(),
            workflow: plan.net().plan_id.clone(),
            step: Some(plan.step_id(at)),
            seq: event.seq,
            at: event.at,
            from: Some(from),
            to,
            substatus: step_substatus(state, at),
        });
    }

    fn look_at_run(&mut self, plan: &Plan, state: &State, event: &Event) {
        let to = (run_word(state), run_substatus(state));
        if self.run == Some(to) || state.phase() == Phase::Void {
            return;
        }
        let from = self.run;
        if from.is_some_and(|(word, _)| word == "blocked")
            && to == ("executing", None)
            && is_doomed(plan, state)
        {
            return;
        }
        self.run = Some(to);
        self.emitted.push(Telemetry {
            name: run_event(from, to),
            correlation_id: state.run_id().to_owned(),
            workflow: plan.net().plan_id.clone(),
            step: None,
            seq: event.seq,
            at: event.at,
            from: from.map(|(word, _)| word),
            to: to.0,
            substatus: to.1,
        });
    }
}

/// Whether a run that was blocked can only fail now: its wait ran out, or it was stopped, and
/// nothing is undone. It then goes from `blocked` to `failed` without `executing` in between, which
/// would mean that a person answered.
fn is_doomed(plan: &Plan, state: &State) -> bool {
    if state.tally().someone_works() {
        return false;
    }
    if state.phase() == Phase::Stopping {
        return state.stop().is_some_and(|stop| !stop.compensate());
    }
    state.due().iter().any(|due| match due {
        Due::Failure(at) => {
            let error = state.run(*at).and_then(|run| run.error());
            error.is_some_and(|error| error.class == ErrorClass::Timeout)
                && plan.step(at.step).on_failure == OnFailure::Stop { compensate: false }
        }
        _ => false,
    })
}

fn run_event(from: Option<RunWord>, to: RunWord) -> &'static str {
    match (from.map(|(word, _)| word), to) {
        (_, (_, Some("paused"))) => "workflow_paused",
        (_, ("idle", _)) => "workflow_created",
        (_, ("queued", _)) => "workflow_queued",
        (Some("idle" | "queued") | None, ("executing", _)) => "workflow_started",
        (_, ("executing", _)) => "workflow_resumed",
        (_, ("blocked", _)) => "workflow_blocked",
        (_, ("compensating", _)) => "workflow_compensating",
        (_, ("completed", _)) => "workflow_completed",
        _ => "workflow_failed",
    }
}

fn step_event(from: &str, to: &str) -> &'static str {
    match (from, to) {
        (_, "running") => "workflow_step_started",
        (_, "completed") => "workflow_step_completed",
        (_, "skipped") => "workflow_step_skipped",
        (_, "failed") => "workflow_step_failed",
        // Only an operator's retry leads back.
        _ => "workflow_step_retried",
    }
}
