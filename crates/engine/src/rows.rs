//! What events and effects mean for the rows beside the log: tasks, waits, and the tables of linear
//! runs. Nothing is decided here; the words come from the dialects.

use stepwell_dialects::linear::rows as linear_rows;
use stepwell_dialects::plan::words as contract;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event, Lease, WaitKind};
use stepwell_kernel::plan::{Dialect, Plan, StepNo, StepRef, Work};
use stepwell_kernel::state::State;

use crate::coordinator::{Draft, HotRun};
use crate::store::{LinearInstance, LinearRows, LinearStep, TaskChange, WaitChange};

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

/// What an event means for the run's tasks and waits.
pub(crate) fn of_event(hot: &mut HotRun, draft: &mut Draft, event: &Event) {
    match &event.body {
        Body::StepStarted { step, lease, .. } => {
            claimed(hot, draft, Target::Step(*step), lease.as_ref())
        }
        Body::StepExecutionStarted { step, lease, .. } => {
            claimed(hot, draft, Target::Step(*step), Some(lease));
        }
        Body::UndoStarted { step, lease, .. } => {
            claimed(hot, draft, Target::Undo(*step), Some(lease))
        }
        Body::StepWaiting { step, wait, .. } => {
            gone(hot, draft, Target::Step(*step));
            if let WaitKind::Event { event_type, .. } = wait {
                let step = hot.plan.step_id(*step);
                hot.waits.insert(step.clone());
                let event_type = event_type.clone();
                draft.waits.push(WaitChange::Put { step, event_type });
            }
        }
        Body::StepWoken { step, .. } => awake(hot, draft, *step),
        Body::StepCompleted { step, .. }
        | Body::StepFailed { step, .. }
        | Body::StepSkipped { step, .. }
        | Body::StepExecutionFailed { step, .. }
        | Body::StepHeld { step, .. } => {
            awake(hot, draft, *step);
            gone(hot, draft, Target::Step(*step));
        }
        Body::UndoExecutionFailed { step, .. }
        | Body::UndoCompleted { step, .. }
        | Body::UndoFailed { step, .. } => gone(hot, draft, Target::Undo(*step)),
        // What is not claimed is offered again at the end of the pause.
        Body::RunPaused { .. } => {
            let idle: Vec<String> = hot
                .tasks
                .iter()
                .filter(|(_, leased)| !**leased)
                .map(|(target, _)| target.clone())
                .collect();
            for target in idle {
                hot.tasks.remove(&target);
                draft.tasks.push(TaskChange::Delete { target });
            }
            hot.ready.clear();
        }
        _ => {}
    }
}

fn claimed(hot: &mut HotRun, draft: &mut Draft, at: Target, lease: Option<&Lease>) {
    if let Target::Step(step) = at {
        awake(hot, draft, step);
    }
    let outside = lease.filter(|lease| !lease.worker.starts_with('@'));
    if hot.tasks.is_empty() && outside.is_none() {
        return;
    }
    let target = target_name(&hot.plan, at);
    match outside {
        Some(lease) => {
            if hot.tasks.insert(target.clone(), true).is_none() {
                // This draft took the row away before (a pause), or another server has put it there
                // since the run was read: the lease needs a row in any case.
                let (queue, op) = served_by(&hot.plan, at);
                let order = hot.plan.step(at.step_ref().step).order;
                draft.tasks.push(TaskChange::Put {
                    target: target.clone(),
                    queue: queue.to_owned(),
                    op: op.to_owned(),
                    priority: i32::try_from(order).unwrap_or(i32::MAX),
                    visible_at: lease.until,
                });
            }
            draft.tasks.push(TaskChange::Lease {
                target,
                worker: lease.worker.clone(),
                until: lease.until,
            });
        }
        None if !hot.tasks.contains_key(&target) => {}
        // A session has it now, and the session is its lease.
        None => {
            hot.tasks.remove(&target);
            draft.tasks.push(TaskChange::Delete { target });
        }
    }
}

fn gone(hot: &mut HotRun, draft: &mut Draft, target: Target) {
    if hot.tasks.is_empty() {
        return;
    }
    let target = target_name(&hot.plan, target);
    if hot.tasks.remove(&target).is_some() {
        draft.tasks.push(TaskChange::Delete { target });
    }
}

fn awake(hot: &mut HotRun, draft: &mut Draft, step: StepRef) {
    if hot.waits.is_empty() {
        return;
    }
    let step = hot.plan.step_id(step);
    if hot.waits.remove(&step) {
        draft.waits.push(WaitChange::Delete { step });
    }
}

/// The rows of a linear run that its events have changed.
pub(crate) fn linear(
    plan: &Plan,
    state: &State,
    event_key: &str,
    draft: &Draft,
) -> Option<Box<LinearRows>> {
    if plan.net().dialect != Dialect::Linear {
        return None;
    }
    let biz_key = (event_key != state.run_id).then_some(event_key);
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
    let mut touched: Vec<StepNo> = if draft.create.is_some() {
        plan.numbers().collect()
    } else {
        let named = draft.events.iter().filter_map(|event| event.body.step());
        // What completes makes the next one ready.
        let both = named.flat_map(|at| [at.step, StepNo(at.step.0 + 1)]);
        let mut first: Vec<StepNo> = both.filter(|no| (no.0 as usize) < plan.len()).collect();
        let starts = |event: &Event| matches!(event.body, Body::RunStarted { .. });
        if draft.events.iter().any(starts) {
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
