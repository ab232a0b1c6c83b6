//! Reads the state of a run from the store, without an engine.

use std::sync::Arc;

use stepwell_engine::engine::{read_events, read_plan};
use stepwell_engine::store::{Head, RunNo, Store};
use stepwell_engine::{Error, MAX_CHILD_DEPTH, run_id_for};
use stepwell_kernel::event::{Body, Event, WaitKind};
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

use crate::run::tree::Live;

/// The state of a run, folded from the events in the store.
#[derive(Debug)]
pub(crate) struct RunView {
    pub(crate) run: RunNo,
    pub(crate) plan: Arc<Plan>,
    pub(crate) state: State,
    pub(crate) events: Vec<Event>,
    pub(crate) head: Head,
}

impl RunView {
    pub(crate) fn read(store: &dyn Store, run_id: &str) -> Result<RunView, Error> {
        let unknown = || Error::UnknownRun(run_id.to_owned());
        let run = store.find(run_id)?.ok_or_else(unknown)?;
        let stored = store.load(run)?.ok_or_else(unknown)?;
        let plan = read_plan(store, stored.plan, run_id)?;
        let mut view = RunView {
            run,
            state: State::new(run_id, &plan),
            plan,
            events: Vec::new(),
            head: stored.head,
        };
        view.catch_up(store)?;
        Ok(view)
    }

    /// Reads and applies new events; returns their number.
    pub(crate) fn catch_up(&mut self, store: &dyn Store) -> Result<usize, Error> {
        let fresh = read_events(store, &self.state.run_id, self.state.seq)?;
        for event in &fresh {
            evolve(&self.plan, &mut self.state, event, &mut Vec::new());
        }
        let count = fresh.len();
        self.events.extend(fresh);
        Ok(count)
    }

    /// The form in which the tree draws a run.
    pub(crate) fn live(&self) -> Live<'_> {
        Live {
            plan: &self.plan,
            state: &self.state,
        }
    }

    /// The ids of the child runs that steps of this run have waited for, in log order.
    pub(crate) fn child_ids(&self) -> Vec<String> {
        let key = |event: &Event| match &event.body {
            Body::StepWaiting {
                wait: WaitKind::Child { request_key, .. },
                ..
            } => Some(run_id_for(request_key)),
            _ => None,
        };
        self.events.iter().filter_map(key).collect()
    }
}

/// The child runs of a run, and their child runs. A child run that is requested but not created yet has
/// only an id.
#[derive(Debug, Default)]
pub(crate) struct ChildRuns {
    pub(crate) ids: Vec<String>,
    pub(crate) views: Vec<RunView>,
}

impl ChildRuns {
    pub(crate) fn read(store: &dyn Store, top: &RunView) -> Result<ChildRuns, Error> {
        let mut below = ChildRuns::default();
        let mut level = top.child_ids();
        for _ in 0..=MAX_CHILD_DEPTH {
            let mut next = Vec::new();
            for id in level {
                match RunView::read(store, &id) {
                    Ok(view) => {
                        next.extend(view.child_ids());
                        below.views.push(view);
                    }
                    Err(Error::UnknownRun(_)) => {}
                    Err(error) => return Err(error),
                }
                below.ids.push(id);
            }
            level = next;
        }
        Ok(below)
    }
}
