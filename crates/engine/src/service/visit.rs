//! Visits: a caller outside the loop looks at a run as it is in memory, on the thread of the loop. For engines that move runs from
//! outside (`Config::driven`): they learn from a visit what a run waits for.

use stepwell_kernel::time::Time;

use super::service_loop::ServiceLoop;
use super::{Handle, Input, Worker};
use crate::coordinator::HotRun;
use crate::error::Error;
use crate::store::RunNo;

/// Is lent the run.
type OnVisit = Box<dyn FnOnce(Result<&HotRun, Error>) + Send>;

/// A caller that wants to look at a run.
pub(crate) struct Visit {
    run: VisitedRun,
    /// Fire what is due first.
    wake: bool,
    /// Wait until everything that is decided is in the store.
    settled: bool,
    on_visit: OnVisit,
}

/// How a run is named.
enum VisitedRun {
    Id(String),
    Number(RunNo),
}

/// A visit whose run was found.
pub(super) struct Visitor {
    run: RunNo,
    settled: bool,
    on_visit: OnVisit,
}

impl Handle {
    /// Fires what is due in a run and sees to everything that the run needs; `on_visit` is lent the run once all of that is in
    /// the store. It is called on the engine's thread, and must not block.
    pub fn wake(
        &self,
        run_id: &str,
        on_visit: impl FnOnce(Result<&HotRun, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.visit(run_id, (true, true), Box::new(on_visit))
    }

    /// Lends the run of this number once everything that is decided for it is in the store.
    pub fn look_at_number(
        &self,
        run: RunNo,
        on_visit: impl FnOnce(Result<&HotRun, Error>) + Send + 'static,
    ) {
        let visit = Visit {
            run: VisitedRun::Number(run),
            wake: false,
            settled: true,
            on_visit: Box::new(on_visit),
        };
        self.send_to_run(run, Input::Visit(visit));
    }

    /// Lends a run once everything that is decided for it is in the store.
    pub fn look_at(
        &self,
        run_id: &str,
        on_visit: impl FnOnce(Result<&HotRun, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.visit(run_id, (false, true), Box::new(on_visit))
    }

    /// Lends a run as it is in memory, with what is decided and not yet in the store.
    pub fn peek(
        &self,
        run_id: &str,
        on_visit: impl FnOnce(Result<&HotRun, Error>) + Send + 'static,
    ) -> Result<(), Error> {
        self.visit(run_id, (false, false), Box::new(on_visit))
    }

    fn visit(
        &self,
        run_id: &str,
        (wake, settled): (bool, bool),
        on_visit: OnVisit,
    ) -> Result<(), Error> {
        let visit = Visit {
            run: VisitedRun::Id(run_id.to_owned()),
            wake,
            settled,
            on_visit,
        };
        self.send_to_id(run_id, Input::Visit(visit))
    }
}

impl Visit {
    /// The id of the run, for a visit that may have to be passed on to another shard.
    pub(super) fn run_id(&self) -> Option<&String> {
        match &self.run {
            VisitedRun::Id(run_id) => Some(run_id),
            VisitedRun::Number(_) => None,
        }
    }
}

impl<W: Worker> ServiceLoop<W> {
    /// Someone wants to look at a run.
    pub(super) fn take_visit(&mut self, visit: Visit, now: Time) {
        let run = match &visit.run {
            VisitedRun::Id(run_id) => self.coordinator.number_of(run_id),
            VisitedRun::Number(run) => Ok(*run),
        };
        let run = match run {
            Ok(run) => run,
            Err(error) => return (visit.on_visit)(Err(error)),
        };
        // A caller that only peeks does so while the store does not answer, too.
        if !visit.settled
            && let Some(hot) = self.coordinator.hot(run)
        {
            return (visit.on_visit)(Ok(hot));
        }
        match self.coordinator.prepare_visit(run, visit.wake, now) {
            Ok(()) => self.visitors.push(Visitor {
                run,
                settled: visit.settled,
                on_visit: visit.on_visit,
            }),
            Err(error) => (visit.on_visit)(Err(error)),
        }
    }

    /// Lends the runs that may be looked at now.
    pub(super) fn serve_visitors(&mut self) {
        if self.visitors.is_empty() {
            return;
        }
        for visitor in std::mem::take(&mut self.visitors) {
            if visitor.settled && self.coordinator.is_changing(visitor.run) {
                self.visitors.push(visitor);
                continue;
            }
            (visitor.on_visit)(self.coordinator.visited(visitor.run));
        }
    }
}
