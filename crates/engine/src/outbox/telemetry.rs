//! Telemetry for sinks: the changes of state that the events of a delivery made, in the words of the run's language.
//! Made from the log, so that a delivery has the same each time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use serde_json::Value as Json;
use stepwell_dialects::{Telemetry, TelemetryState, document};

use crate::error::Error;
use crate::read::LoggedRun;
use crate::store::{RunNo, Store, StoreError};

/// How many runs are remembered; a run that was forgotten is read again from its first event.
const REMEMBERED: usize = 256;

/// The runs whose events were delivered last.
#[derive(Debug, Default)]
pub(super) struct RunsTelemetry {
    /// Nothing for a run whose language has no telemetry, or whose log cannot be folded.
    runs: HashMap<RunNo, Option<Box<RunTelemetry>>>,
}

#[derive(Debug)]
struct RunTelemetry {
    logged: LoggedRun,
    seen: TelemetryState,
    /// What the events from this one on have changed is remembered.
    from: u64,
    made: Vec<Telemetry>,
}

impl RunsTelemetry {
    /// What the events from the first to the last of these sequence numbers changed.
    pub(super) fn of(
        &mut self,
        store: &dyn Store,
        run: RunNo,
        (first, last): (u64, u64),
    ) -> Result<Vec<Json>, StoreError> {
        if self.runs.len() >= REMEMBERED && !self.runs.contains_key(&run) {
            self.runs.clear();
        }
        let known = self.runs.get(&run).and_then(Option::as_deref);
        if known.is_some_and(|it| first < it.from) {
            // A delivery of earlier events is made once more.
            self.runs.remove(&run);
        }
        match self.read(store, run, first, last) {
            Ok(made) => Ok(made),
            Err(Error::Store(away)) => Err(away),
            Err(error) => {
                tracing::warn!(%error, run = run.0, "the telemetry of a run cannot be made");
                self.runs.insert(run, None);
                Ok(Vec::new())
            }
        }
    }

    fn read(
        &mut self,
        store: &dyn Store,
        run: RunNo,
        first: u64,
        last: u64,
    ) -> Result<Vec<Json>, Error> {
        let known = match self.runs.entry(run) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(free) => {
                let logged = LoggedRun::numbered(store, run)?;
                let seen = document::telemetry(&logged.plan);
                let begin = |seen| {
                    Box::new(RunTelemetry {
                        logged,
                        seen,
                        from: 1,
                        made: Vec::new(),
                    })
                };
                free.insert(seen.map(begin))
            }
        };
        let Some(known) = known else {
            return Ok(Vec::new());
        };
        if known.logged.state.seq() < last {
            for event in known.logged.unread(store)? {
                known.logged.fold(&event)?;
                let (plan, state) = (&known.logged.plan, &known.logged.state);
                known.made.extend(known.seen.look(plan, state, &event));
            }
        }
        known.made.retain(|it| it.seq >= first);
        known.from = first;
        let made = known.made.iter().filter(|it| it.seq <= last);
        Ok(made.map(Telemetry::json).collect())
    }
}
