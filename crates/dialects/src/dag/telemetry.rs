//! Telemetry in the language's words: one event for every change of the run's or a step's state,
//! under one correlation id per run.
//!
//! Folded from the log, so it can be produced again at any time and never disagrees with it.

use serde::Serialize;
use serde_json::{Value as Json, json};
use stepwell_kernel::event::Event;
use stepwell_kernel::evolve::{IllegalEvent, evolve};
use stepwell_kernel::plan::{ErrorClass, OnFailure, Plan, StepRef};
use stepwell_kernel::state::{Due, Phase, State};
use stepwell_kernel::time::Time;

use super::words::{
    RunSubstatus, RunWord, StepWord, run_state, run_substate, step_state, step_substatus,
};

/// One change of state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Telemetry {
    /// What happened, such as `workflow_step_completed`.
    pub name: &'static str,
    /// The id of the run: the same in all telemetry of the run.
    pub correlation_id: String,
    /// The name of the workflow, as its definition has it.
    pub workflow: String,
    /// The id of the step-run; absent if the state of the run changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// The sequence number of the event that made the change.
    pub seq: u64,
    /// The time of that event.
    pub at: Time,
    /// The state before; absent for a run that did not exist.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<&'static str>,
    /// The state after the change.
    pub to: &'static str,
    /// The word beside the state: `paused`, `rollback`, `partial` or `cancelled`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub substatus: Option<&'static str>,
}

impl Telemetry {
    /// For programs, with the time as text.
    #[must_use]
    pub fn json(&self) -> Json {
        let mut value = json!(self);
        value["at"] = self.at.to_rfc3339().into();
        value
    }
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
    let (mut effects, mut emitted) = (Vec::new(), Vec::new());
    for event in events {
        evolve(plan, &mut state, event, &mut effects)?;
        effects.clear();
        emitted.extend(seen.look(plan, &state, event));
    }
    Ok(emitted)
}

/// A run's word and what qualifies it.
type Qualified = (RunWord, Option<RunSubstatus>);

/// The telemetry of a run that begins.
#[must_use]
pub fn begin(plan: &Plan) -> Option<TelemetryState> {
    Some(TelemetryState::new(plan))
}

/// What was last said about the run and each step.
#[derive(Clone, Debug)]
pub struct TelemetryState {
    run: Option<Qualified>,
    steps: Vec<StepWord>,
    emitted: Vec<Telemetry>,
}

impl TelemetryState {
    fn new(plan: &Plan) -> TelemetryState {
        TelemetryState {
            run: None,
            steps: vec![StepWord::Pending; plan.len()],
            emitted: Vec::new(),
        }
    }

    /// What an event changed, once it is folded into the state. Every event of the run is shown, in order.
    pub fn look(&mut self, plan: &Plan, state: &State, event: &Event) -> Vec<Telemetry> {
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
        std::mem::take(&mut self.emitted)
    }

    fn look_at_step(&mut self, plan: &Plan, state: &State, event: &Event, at: StepRef) {
        let at = StepRef::first(at.step);
        let to = step_state(plan, state, at);
        let from = std::mem::replace(&mut self.steps[at.step.0 as usize], to);
        if from == to {
            return;
        }
        self.emitted.push(Telemetry {
            name: step_event(to),
            correlation_id: state.run_id().to_owned(),
            workflow: plan.net().plan_id.clone(),
            step: Some(plan.step_id(at)),
            seq: event.seq,
            at: event.at,
            from: Some(from.word()),
            to: to.word(),
            substatus: step_substatus(state, at),
        });
    }

    fn look_at_run(&mut self, plan: &Plan, state: &State, event: &Event) {
        let to = (run_state(state), run_substate(state));
        if self.run == Some(to) || state.phase() == Phase::Void {
            return;
        }
        let from = self.run;
        if from.is_some_and(|(word, _)| word == RunWord::Blocked)
            && to == (RunWord::Executing, None)
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
            from: from.map(|(word, _)| word.word()),
            to: to.0.word(),
            substatus: to.1.map(RunSubstatus::word),
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
        Due::Enter(_) | Due::Route(_) => false,
    })
}

fn run_event(from: Option<Qualified>, to: Qualified) -> &'static str {
    let (word, substatus) = to;
    if substatus == Some(RunSubstatus::Paused) {
        return "workflow_paused";
    }
    match word {
        RunWord::Idle => "workflow_created",
        RunWord::Queued => "workflow_queued",
        RunWord::Executing => match from.map(|(word, _)| word) {
            None | Some(RunWord::Idle | RunWord::Queued) => "workflow_started",
            Some(
                RunWord::Executing
                | RunWord::Blocked
                | RunWord::Compensating
                | RunWord::Completed
                | RunWord::Failed,
            ) => "workflow_resumed",
        },
        RunWord::Blocked => "workflow_blocked",
        RunWord::Compensating => "workflow_compensating",
        RunWord::Completed => "workflow_completed",
        RunWord::Failed => "workflow_failed",
    }
}

fn step_event(to: StepWord) -> &'static str {
    match to {
        StepWord::Running => "workflow_step_started",
        StepWord::Completed => "workflow_step_completed",
        StepWord::Skipped => "workflow_step_skipped",
        StepWord::Failed => "workflow_step_failed",
        // Only an operator's retry leads back.
        StepWord::Pending => "workflow_step_retried",
    }
}
