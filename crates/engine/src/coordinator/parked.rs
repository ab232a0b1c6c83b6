//! What waits for the store: commands for runs that cannot be read just now, and runs with a commit that
//! was given up although it may come through yet. Nothing here is tried again; `Coordinator::rejoin` does that. As
//! long as a run is parked, the cache does not read it for anyone else (`RunCache::withhold`).

use std::collections::BTreeMap;

use stepwell_kernel::effect::Target;

use super::Request;
use crate::number_map::NumberMap;
use crate::store::{Append, Guard, RunNo};

/// Runs that wait for the store.
#[derive(Debug, Default)]
pub(super) struct Parked {
    runs: BTreeMap<RunNo, ParkedRun>,
    /// Runs with a commit that was given up.
    doubtful: BTreeMap<RunNo, Doubt>,
}

/// A commit that was given up and may come through yet.
#[derive(Clone, Copy, Debug)]
struct Doubt {
    /// The last event before the commit.
    after: u64,
    /// The commit cannot come through once the session is dead.
    ends_with_session: bool,
}

/// Commands for one run that cannot be read just now, and the work of this process that goes on
/// meanwhile.
#[derive(Debug, Default)]
pub(super) struct ParkedRun {
    pub(super) requests: Vec<Request>,
    pub(super) jobs: NumberMap<Target, u32>,
}

impl Parked {
    /// Keeps commands until their run can be read. What belongs to one run goes on together: half of it
    /// would take the other half for lost.
    pub(super) fn park(
        &mut self,
        run: RunNo,
        requests: impl IntoIterator<Item = Request>,
        jobs: NumberMap<Target, u32>,
    ) {
        let parked = self.runs.entry(run).or_default();
        parked.requests.extend(requests);
        parked.jobs.extend(jobs);
    }

    /// Work for a parked run has ended: the result waits with the rest. Gives the result back if the run
    /// is not parked.
    pub(super) fn add_result(
        &mut self,
        run: RunNo,
        target: Target,
        execution: u32,
        result: Request,
    ) -> Option<Request> {
        let Some(parked) = self.runs.get_mut(&run) else {
            return Some(result);
        };
        // The log still says that it is ours, and it would be waited for without end.
        if parked.jobs.get(&target) == Some(&execution) {
            parked.jobs.remove(&target);
        }
        parked.requests.push(result);
        None
    }

    /// The runs that are parked.
    pub(super) fn runs(&self) -> Vec<RunNo> {
        self.runs.keys().copied().collect()
    }

    /// Takes what is parked for a run, to be tried again.
    pub(super) fn take(&mut self, run: RunNo) -> Option<ParkedRun> {
        self.runs.remove(&run)
    }

    /// Puts back what could not be done yet.
    pub(super) fn put_back(&mut self, run: RunNo, parked: ParkedRun) {
        self.park(run, parked.requests, parked.jobs);
    }

    /// A commit to a run was given up; it would add events after `append.after`.
    pub(super) fn doubt(&mut self, append: &Append) {
        let mut doubt = Doubt {
            after: append.after,
            ends_with_session: append.guards.contains(&Guard::Session),
        };
        if let Some(earlier) = self.doubtful.get(&append.run) {
            // Two commits at the same place may both be on their way.
            doubt.ends_with_session &= earlier.ends_with_session || earlier.after < doubt.after;
        }
        self.doubtful.insert(append.run, doubt);
    }

    /// Some runs whose last commit is in doubt, with the last event before it.
    pub(super) fn doubtful(&self, limit: usize) -> Vec<(RunNo, u64)> {
        let some = self.doubtful.iter().take(limit);
        some.map(|(run, doubt)| (*run, doubt.after)).collect()
    }

    /// Whether the last commit of a run is in doubt.
    pub(super) fn is_doubtful(&self, run: RunNo) -> bool {
        self.doubtful.contains_key(&run)
    }

    /// The result of a run's doubtful commit is known.
    pub(super) fn resolve(&mut self, run: RunNo) {
        self.doubtful.remove(&run);
    }

    /// The session is dead: what is guarded by it cannot come through any more.
    pub(super) fn resolve_guarded(&mut self) {
        self.doubtful.retain(|_, doubt| !doubt.ends_with_session);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stepwell_kernel::command::Command;
    use stepwell_kernel::plan::{StepNo, StepRef};

    const RUN: RunNo = RunNo(1);

    fn target() -> Target {
        Target::Step(StepRef::first(StepNo(0)))
    }

    fn request() -> Request {
        Request::own(Command::Proceed)
    }

    #[test]
    fn a_result_waits_with_its_run_and_its_work_is_over() {
        let mut parked = Parked::default();
        assert!(parked.add_result(RUN, target(), 1, request()).is_some());
        parked.park(RUN, [request()], NumberMap::from_iter([(target(), 1)]));
        // A result of an execution that is no longer current says nothing about the one that is.
        assert!(parked.add_result(RUN, target(), 9, request()).is_none());
        assert!(parked.add_result(RUN, target(), 1, request()).is_none());
        assert_eq!(parked.runs(), [RUN]);
        let all = parked.take(RUN).unwrap();
        assert_eq!(all.requests.len(), 3);
        assert!(all.jobs.is_empty());
        assert!(parked.take(RUN).is_none());
    }

    #[test]
    fn what_is_put_back_comes_before_what_comes_later() {
        let mut parked = Parked::default();
        parked.park(RUN, [request()], NumberMap::default());
        let all = parked.take(RUN).unwrap();
        parked.put_back(RUN, all);
        parked.park(RUN, [request()], NumberMap::default());
        assert_eq!(parked.take(RUN).unwrap().requests.len(), 2);
    }

    fn append(run: RunNo, after: u64, guards: &[Guard]) -> Append {
        Append {
            guards: guards.to_vec(),
            ..Append::new(run, after)
        }
    }

    #[test]
    fn doubts_last_until_they_are_resolved() {
        let mut parked = Parked::default();
        parked.doubt(&append(RUN, 4, &[Guard::Session]));
        parked.doubt(&append(RunNo(2), 7, &[Guard::Session]));
        assert_eq!(parked.doubtful(1), [(RUN, 4)]);
        assert!(parked.is_doubtful(RUN));
        parked.resolve(RUN);
        assert!(!parked.is_doubtful(RUN));
        assert_eq!(parked.doubtful(9), [(RunNo(2), 7)]);
        parked.resolve_guarded();
        assert!(parked.doubtful(9).is_empty());
    }

    #[test]
    fn the_death_of_a_session_ends_only_what_is_guarded_by_it() {
        let mut parked = Parked::default();
        // A claim of a worker outside is guarded by the task's row alone.
        parked.doubt(&append(RUN, 4, &[]));
        parked.doubt(&append(RUN, 4, &[Guard::Session]));
        parked.doubt(&append(RunNo(2), 4, &[]));
        parked.doubt(&append(RunNo(2), 5, &[Guard::Session]));
        parked.resolve_guarded();
        assert_eq!(parked.doubtful(9), [(RUN, 4)]);
    }
}
