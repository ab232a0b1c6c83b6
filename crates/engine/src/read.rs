//! Reading a run out of a store: its events, its plan, and the state that follows from them. This is the
//! one way to fold a run for those who only look at it; nobody need be running.

use std::sync::Arc;

use stepwell_kernel::event::Event;
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

use crate::chunk;
use crate::error::Error;
use crate::store::{Head, PlanNo, RunNo, Store};

/// A run that is read from its log, as far as it was read.
#[derive(Debug)]
pub struct LoggedRun {
    /// The run's number in its store.
    pub run: RunNo,
    /// The run's plan.
    pub plan: Arc<Plan>,
    /// The state after the last event that was read.
    pub state: State,
    /// The run's head when the run was opened.
    pub head: Head,
}

impl LoggedRun {
    /// Finds a run; none of its events is read yet.
    pub fn open(store: &dyn Store, run_id: &str) -> Result<LoggedRun, Error> {
        let unknown = || Error::UnknownRun(run_id.to_owned());
        LoggedRun::numbered(store, store.find(run_id)?.ok_or_else(unknown)?)
    }

    /// Finds a run by its number; none of its events is read yet.
    pub fn numbered(store: &dyn Store, run: RunNo) -> Result<LoggedRun, Error> {
        let stored = store.load(run)?;
        let stored = stored.ok_or_else(|| Error::UnknownRun(format!("number {}", run.0)))?;
        let plan = plan(store, stored.plan, &stored.run_id)?;
        Ok(LoggedRun {
            run,
            state: State::new(&stored.run_id, &plan),
            plan,
            head: stored.head,
        })
    }

    /// The events of the run after the sequence number `after`. They are not folded: see `fold`.
    pub fn events_after(&self, store: &dyn Store, after: u64) -> Result<Vec<Event>, Error> {
        events_of(store, self.run, self.state.run_id(), after)
    }

    /// Folds the next event of the run. An event that cannot follow means that the log is damaged.
    pub fn fold(&mut self, event: &Event) -> Result<(), Error> {
        let folded = evolve(&self.plan, &mut self.state, event, &mut Vec::new());
        folded.map_err(|source| Error::LogInvalid {
            run_id: self.state.run_id().to_owned(),
            source,
        })
    }

    /// Reads and folds the events that were committed since the run was last read, and returns them.
    pub fn catch_up(&mut self, store: &dyn Store) -> Result<Vec<Event>, Error> {
        let unread = self.events_after(store, self.state.seq())?;
        for event in &unread {
            self.fold(event)?;
        }
        Ok(unread)
    }
}

/// The events of a run after the sequence number `after`.
pub fn events(store: &dyn Store, run_id: &str, after: u64) -> Result<Vec<Event>, Error> {
    let run = store.find(run_id)?;
    let run = run.ok_or_else(|| Error::UnknownRun(run_id.to_owned()))?;
    events_of(store, run, run_id, after)
}

fn events_of(store: &dyn Store, run: RunNo, run_id: &str, after: u64) -> Result<Vec<Event>, Error> {
    let mut events = Vec::new();
    for chunk in store.chunks(run, after, usize::MAX)? {
        let decoded = chunk::decode(chunk.first, chunk.codec, &chunk.body);
        let decoded = decoded.map_err(|source| Error::Unreadable {
            run_id: run_id.to_owned(),
            source,
        })?;
        events.extend(decoded.into_iter().filter(|event| event.seq > after));
    }
    Ok(events)
}

/// A plan that is kept in a store; the run is named in errors.
pub fn plan(store: &dyn Store, no: PlanNo, run_id: &str) -> Result<Arc<Plan>, Error> {
    let fault = |why: String| Error::Plan {
        run_id: run_id.to_owned(),
        why,
    };
    let row = store.plan(no)?;
    let row = row.ok_or_else(|| fault(format!("there is no plan number {}", no.0)))?;
    let net = serde_json::from_str(&row.net).map_err(|error| fault(error.to_string()))?;
    let plan = Plan::new(net).map_err(|error| fault(error.to_string()))?;
    if plan.hash() != row.hash {
        return Err(fault("it is not what its hash says".to_owned()));
    }
    Ok(Arc::new(plan))
}
