//! What keeps an open run from going on, as an engine that stopped driving it says it.

use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{Phase, State, Status, StepRun};

use crate::phrases;

/// Most stuck things that are listed.
const LISTED: usize = 10;

/// Why the engine stopped driving a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// The run has ended, or nothing more can happen.
    #[default]
    Over,
    /// The user pressed Ctrl-C.
    Interrupted,
    /// The run had more events than this number.
    GaveUp(u64),
}

/// What keeps an open run from going on.
pub fn stuck(plan: &Plan, state: &State, end: End) -> Vec<String> {
    let mut reasons = Vec::new();
    match state.phase() {
        Phase::Ended(_) => return reasons,
        Phase::Void | Phase::Created | Phase::Queued => {
            if plan.policy().needs_approval && !state.approved() {
                reasons.push(format!(
                    "the run waits for approval; --approve gives it, and so does `stepwell runs \
                     approve {}`",
                    state.run_id()
                ));
            } else {
                reasons.push("the run is queued and has not started".to_owned());
            }
        }
        Phase::Running | Phase::Finalizing | Phase::Stopping | Phase::Compensating => {}
    }
    if let End::GaveUp(most) = end {
        reasons.push(format!(
            "stopped after {most} events; simulated results can make a workflow repeat without end \
             (--max-events raises the limit)"
        ));
    }
    if state.pause().is_some() {
        reasons.push("the run is paused".to_owned());
    }
    if let Some(stalled) = state.stalled() {
        reasons.extend(stalled.iter().map(|it| format!("stalled: {it}")));
    }
    let open = open_steps(state);
    let more = open.len().saturating_sub(LISTED);
    for (at, run) in open.into_iter().take(LISTED) {
        reasons.push(format!(
            "{}: {}",
            plan.step_id(at),
            doing(plan, state, at, run)
        ));
    }
    if more > 0 {
        reasons.push(format!("and {more} more"));
    }
    reasons
}

/// Step-runs that have begun and not ended, in plan order.
pub fn open_steps(state: &State) -> Vec<(StepRef, &StepRun)> {
    let mut open = Vec::new();
    for (no, step) in state.steps().iter().enumerate() {
        for (visit, number) in step.visits().iter().zip(1..) {
            let at = StepRef {
                step: stepwell_kernel::plan::StepNo(no as u32),
                visit: number,
                item: None,
            };
            let items = visit
                .each()
                .into_iter()
                .flat_map(|each| each.active().iter());
            let items = items.map(|(item, run)| (at.with_item(*item), run));
            let all = std::iter::once((at, visit.run())).chain(items);
            open.extend(all.filter(|(_, run)| {
                // Denied tokens are named by the stall, loops by their items.
                !run.status().is_terminal()
                    && !matches!(run.status(), Status::Denied | Status::Looping)
            }));
        }
    }
    open
}

fn doing(plan: &Plan, state: &State, at: StepRef, run: &StepRun) -> String {
    let waits = phrases::waits(plan, state, at, state.last_at());
    match (waits, run.status()) {
        (Some(waits), Status::Waiting) => waits,
        (_, Status::Held) => {
            let error = run.error().map(phrases::error);
            let why = error.map_or_else(String::new, |error| format!(": {error}"));
            format!("failed, held for an operator{why}")
        }
        (_, Status::Running) => {
            format!("running, {}", phrases::attempt_of(plan.step(at.step), run))
        }
        (_, Status::Ready) if run.is_backing_off() => "waits for its next attempt".to_owned(),
        _ => "ready".to_owned(),
    }
}
