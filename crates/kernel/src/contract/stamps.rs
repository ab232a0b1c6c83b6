//! What an event's contract view needs from the events before it: the run's context, and when and by
//! whom what now ends was started. A small fold, so that recording needs no whole state.

use std::collections::HashMap;

use crate::event::{Body, Event, RunContext};
use crate::plan::{Plan, StepRef};
use crate::state::{State, Status, StepRun};
use crate::time::Time;

/// The fold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    pub(super) context: RunContext,
    pub(super) run_started: Option<Time>,
    open: HashMap<StepRef, Open>,
}

/// A logical attempt that has started and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Open {
    since: Time,
    /// A worker has it.
    leased: bool,
}

/// What an event changed, as it was before.
#[derive(Clone, Debug)]
pub(super) struct Before {
    context: Option<RunContext>,
    run_started: Option<Time>,
    step: Option<(StepRef, Option<Open>)>,
}

impl Stamps {
    /// What folding an event will change.
    pub(super) fn before(&self, event: &Event) -> Before {
        let creates = matches!(event.body, Body::RunCreated { .. });
        let step = event.body.step();
        Before {
            context: creates.then(|| self.context.clone()),
            run_started: self.run_started,
            step: step.map(|at| (at, self.open.get(&at).copied())),
        }
    }

    /// Undoes the fold of the last event.
    pub(super) fn restore(&mut self, before: Before) {
        if let Some(context) = before.context {
            self.context = context;
        }
        self.run_started = before.run_started;
        match before.step {
            Some((at, Some(open))) => {
                self.open.insert(at, open);
            }
            Some((at, None)) => {
                self.open.remove(&at);
            }
            None => {}
        }
    }

    /// The same value that folding the run's events gives.
    pub(super) fn of(plan: &Plan, state: &State) -> Stamps {
        let mut stamps = Stamps {
            context: state.context.clone(),
            run_started: state.started_at,
            open: HashMap::new(),
        };
        for (step, steps) in plan.numbers().zip(&state.steps) {
            for (place, visit) in steps.visits.iter().enumerate() {
                let at = StepRef {
                    step,
                    visit: place as u32 + 1,
                    item: None,
                };
                stamps.take(at, &visit.run);
                for (item, run) in visit.each.iter().flat_map(|each| &each.active) {
                    stamps.take(at.with_item(*item), run);
                }
            }
        }
        stamps
    }

    fn take(&mut self, at: StepRef, run: &StepRun) {
        let ended = run.status.is_terminal() || run.status == Status::Held;
        if let Some(since) = run.started_at.filter(|_| !ended) {
            let leased = run.lease.is_some();
            self.open.insert(at, Open { since, leased });
        }
    }

    pub(super) fn fold(&mut self, event: &Event) {
        match &event.body {
            Body::RunCreated { context, .. } => self.context = context.clone(),
            Body::RunStarted { .. } => self.run_started = Some(event.at),
            Body::StepStarted { step, lease, .. } => {
                let open = Open {
                    since: event.at,
                    leased: lease.is_some(),
                };
                self.open.insert(*step, open);
            }
            Body::StepExecutionStarted { step, .. } => self.lease(*step, true),
            Body::StepExecutionFailed { step, .. } | Body::StepWaiting { step, .. } => {
                self.lease(*step, false);
            }
            Body::StepCompleted { step, .. }
            | Body::StepFailed { step, .. }
            | Body::StepSkipped { step, .. } => {
                self.open.remove(step);
            }
            _ => {}
        }
    }

    fn lease(&mut self, at: StepRef, leased: bool) {
        if let Some(open) = self.open.get_mut(&at) {
            open.leased = leased;
        }
    }

    pub(super) fn started(&self, at: StepRef) -> Option<Time> {
        self.open.get(&at).map(|open| open.since)
    }

    pub(super) fn is_leased(&self, at: StepRef) -> bool {
        self.open.get(&at).is_some_and(|open| open.leased)
    }
}
