//! What an event's contract view needs from the events before it: the run's context, and when and by
//! whom what now ends was started. A small fold, so that recording needs no whole state.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::event::{Body, Event, RunContext, notice_events, undo_events};
use crate::plan::{Plan, StepRef};
use crate::state::{State, Status, StepRun};
use crate::time::Time;

/// What the contract view of the next event needs from the events so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    pub(super) context: RunContext,
    pub(super) run_started: Option<Time>,
    /// The keys are numbers of the plan, which nobody outside can choose to collide.
    open: HashMap<StepRef, Open, FixedState>,
}

/// A logical attempt that has started and not ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) since: Time,
    /// Whether a worker has claimed the attempt.
    pub(super) leased: bool,
}

impl Stamps {
    /// The same value that folding the run's events gives.
    pub(super) fn of(plan: &Plan, state: &State) -> Stamps {
        let mut stamps = Stamps {
            context: state.context().clone(),
            run_started: state.started_at(),
            open: HashMap::default(),
        };
        for (step, steps) in plan.numbers().zip(state.steps()) {
            for (place, visit) in steps.visits().iter().enumerate() {
                let at = StepRef {
                    step,
                    visit: place as u32 + 1,
                    item: None,
                };
                stamps.take(at, visit.run());
                for (item, run) in visit.each().into_iter().flat_map(|each| each.active()) {
                    stamps.take(at.with_item(*item), run);
                }
            }
        }
        stamps
    }

    fn take(&mut self, at: StepRef, run: &StepRun) {
        let ended = run.status().is_terminal() || run.status() == Status::Held;
        if let Some(since) = run.started_at().filter(|_| !ended) {
            let leased = run.lease().is_some();
            self.open.insert(at, Open { since, leased });
        }
    }

    /// Folds an event; says what was known of its step before.
    pub(super) fn fold(&mut self, event: &Event) -> Option<Open> {
        match &event.body {
            Body::RunCreated { context, .. } => self.context = context.clone(),
            Body::RunStarted { .. } => self.run_started = Some(event.at),
            Body::StepStarted { step, lease, .. } => {
                let open = Open {
                    since: event.at,
                    leased: lease.is_some(),
                };
                return self.open.insert(*step, open);
            }
            Body::StepExecutionStarted { step, .. } => return self.lease(*step, true),
            Body::StepExecutionFailed { step, .. } | Body::StepWaiting { step, .. } => {
                return self.lease(*step, false);
            }
            Body::StepCompleted { step, .. }
            | Body::StepFailed { step, .. }
            | Body::StepSkipped { step, .. } => return self.open.remove(step),
            Body::RunQueued { .. }
            | Body::RunApproved { .. }
            | Body::RunPaused { .. }
            | Body::RunResumed { .. }
            | Body::RunFinalizing { .. }
            | Body::RunStopping { .. }
            | Body::RunCompleted { .. }
            | Body::RunFailed { .. }
            | Body::RunCancelled { .. }
            | Body::StepAnswered { .. }
            | Body::StepApproved { .. }
            | Body::StepWoken { .. }
            | Body::StepHeld { .. }
            | Body::StepRetried { .. }
            | Body::StepRouted { .. }
            | Body::TokensAdmitted { .. }
            | Body::Opaque(_)
            | notice_events!()
            | undo_events!() => {}
        }
        None
    }

    fn lease(&mut self, at: StepRef, leased: bool) -> Option<Open> {
        let open = self.open.get_mut(&at)?;
        Some(std::mem::replace(open, Open { leased, ..*open }))
    }
}
