//! How targets and states are named in the rows beside the log, and the tables of linear runs. Nothing is
//! decided here; the words come from the dialects. Tasks and waits are in `coordinator::hot_run`.

use stepwell_dialects::linear::rows as linear_rows;
use stepwell_dialects::plan::words as contract;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event};
use stepwell_kernel::plan::{Dialect, Plan, StepNo, Work};
use stepwell_kernel::state::State;

use crate::store::{LinearInstance, LinearRows, LinearStep};

/// The queue of steps that the built-in worker does.
pub const BUILT_IN: &str = "stepwell";

/// The contract's two words for a run.
pub(crate) fn words(state: &State) -> (&'static str, Option<&'static str>) {
    (contract::run_word(state), contract::run_substatus(state))
}

/// What a target's row is called: the step's id, with `~undo` for its undo.
#[must_use]
pub fn target_name(plan: &Plan, target: Target) -> String {
    let id = plan.step_id(target.step_ref());
    match target {
        Target::Step(_) => id,
        Target::Undo(_) => id + "~undo",
    }
}

/// The target that a row's name stands for.
#[must_use]
pub fn parse_target(plan: &Plan, name: &str) -> Option<Target> {
    match name.strip_suffix("~undo") {
        Some(id) => plan.parse_step_id(id).map(Target::Undo),
        None => plan.parse_step_id(name).map(Target::Step),
    }
}

/// Which workers do a target's work, and as what.
#[must_use]
pub fn served_by(plan: &Plan, target: Target) -> (&str, &str) {
    let step = plan.step(target.step_ref().step);
    match (target, &step.work, &step.undo) {
        (Target::Undo(_), _, Some(undo)) if undo.tasks.is_null() => (&undo.queue, &undo.operation),
        (Target::Undo(_), _, _) => (BUILT_IN, "pipeline"),
        (
            Target::Step(_),
            Work::Task {
                queue, operation, ..
            },
            _,
        ) => (queue, operation),
        (Target::Step(_), _, _) => (BUILT_IN, "pipeline"),
    }
}

/// The rows of a linear run that its events have changed.
pub(crate) fn linear(
    plan: &Plan,
    state: &State,
    event_key: &str,
    created: bool,
    events: &[Event],
) -> Option<Box<LinearRows>> {
    if plan.net().dialect != Dialect::Linear {
        return None;
    }
    let biz_key = (event_key != state.run_id()).then_some(event_key);
    let row = linear_rows::instance_row(plan, state, biz_key);
    let instance = LinearInstance {
        biz_key: row.biz_key,
        workflow_type: row.workflow_type,
        workflow_version: row.workflow_version,
        status: row.status.to_owned(),
        current_step_seq: row.current_step_seq,
        current_step_type: row.current_step_type,
        started_at: row.started_at,
        completed_at: row.completed_at,
        failed_at: row.failed_at,
    };
    let mut touched: Vec<StepNo> = if created {
        plan.numbers().collect()
    } else {
        let named = events.iter().filter_map(|event| event.body.step());
        // What completes makes the next one ready.
        let both = named.flat_map(|at| [at.step, StepNo(at.step.0 + 1)]);
        let mut first: Vec<StepNo> = both.filter(|no| (no.0 as usize) < plan.len()).collect();
        let starts = |event: &Event| matches!(event.body, Body::RunStarted { .. });
        if events.iter().any(starts) {
            first.push(StepNo(0));
        }
        first
    };
    touched.sort_unstable();
    touched.dedup();
    let steps = touched
        .into_iter()
        .map(|no| linear_rows::step_row(plan, state, no))
        .map(|row| LinearStep {
            step_seq: row.step_seq,
            step_type: row.step_type,
            status: row.status.to_owned(),
            attempts: row.attempts,
            max_attempts: row.max_attempts,
            next_run_at: row.next_run_at,
            waiting_event_type: row.waiting_event_type,
            deadline_at: row.deadline_at,
            locked_by: row.locked_by,
            locked_until: row.locked_until,
            last_error: row.last_error,
        })
        .collect();
    Some(Box::new(LinearRows {
        instance: Some(instance),
        steps,
    }))
}
