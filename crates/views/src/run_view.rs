//! Reads the state of a run from the store, without an engine.

use std::ops::Deref;

use stepwell_engine::read::{LoggedRun, RunSource};
use stepwell_engine::{Error, MAX_CHILD_DEPTH, run_id_for};
use stepwell_kernel::command::Actor;
use stepwell_kernel::event::{Body, Event, RunContext, WaitKind};
use stepwell_kernel::rejection::{Code, Rejection};

/// The state and all events of a run, read from the store.
#[derive(Debug)]
pub struct RunView {
    logged: LoggedRun,
    pub events: Vec<Event>,
}

impl Deref for RunView {
    type Target = LoggedRun;

    fn deref(&self) -> &LoggedRun {
        &self.logged
    }
}

impl RunView {
    /// Reads a run with all its events.
    pub fn read(source: &dyn RunSource, run_id: &str) -> Result<RunView, Error> {
        let mut view = RunView {
            logged: LoggedRun::open(source, run_id)?,
            events: Vec::new(),
        };
        view.catch_up(source)?;
        Ok(view)
    }

    /// Reads a run as it was after one of its events; none if it has no such event.
    pub fn read_at(
        source: &dyn RunSource,
        run_id: &str,
        seq: u64,
    ) -> Result<Option<RunView>, Error> {
        let mut logged = LoggedRun::open(source, run_id)?;
        let mut events = logged.unread(source)?;
        if seq == 0 || events.last().is_none_or(|last| last.seq < seq) {
            return Ok(None);
        }
        events.retain(|event| event.seq <= seq);
        for event in &events {
            logged.fold(event)?;
        }
        Ok(Some(RunView { logged, events }))
    }

    /// Reads a run for someone: a run of another tenant is not shown.
    pub fn read_as(source: &dyn RunSource, run_id: &str, actor: &Actor) -> Result<RunView, Error> {
        let view = RunView::read(source, run_id)?;
        may_see(actor, view.state.context())?;
        Ok(view)
    }

    /// Reads and applies new events; returns their number.
    pub fn catch_up(&mut self, source: &dyn RunSource) -> Result<usize, Error> {
        let unread = self.logged.catch_up(source)?;
        let count = unread.len();
        self.events.extend(unread);
        Ok(count)
    }

    /// The ids of the child runs that steps of this run have waited for, in log order.
    pub fn child_ids(&self) -> Vec<String> {
        self.events.iter().filter_map(child_id).collect()
    }
}

/// The id of the run that a step waits for since this event, if it does.
pub fn child_id(event: &Event) -> Option<String> {
    let Body::StepWaiting { wait, .. } = &event.body else {
        return None;
    };
    let WaitKind::Child { request_key, .. } = wait else {
        return None;
    };
    Some(run_id_for(request_key))
}

/// The child runs of a run, and their child runs. A child run that is requested but not created yet has
/// only an id.
#[derive(Debug, Default)]
pub struct ChildRuns {
    pub ids: Vec<String>,
    pub views: Vec<RunView>,
}

impl ChildRuns {
    pub fn read(source: &dyn RunSource, top: &RunView) -> Result<ChildRuns, Error> {
        let mut below = ChildRuns::default();
        let mut level = top.child_ids();
        for _ in 0..=MAX_CHILD_DEPTH {
            let mut next = Vec::new();
            for id in level {
                match RunView::read(source, &id) {
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

/// Refuses actors of another tenant.
pub fn may_see(actor: &Actor, context: &RunContext) -> Result<(), Error> {
    match actor.is_of(context) {
        true => Ok(()),
        false => {
            let why = "the run belongs to another tenant";
            Err(Rejection::new(Code::AuthzTenantForbidden, why).into())
        }
    }
}
