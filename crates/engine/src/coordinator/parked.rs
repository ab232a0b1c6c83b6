//! What waits for the store: commands for runs that cannot be read just now, and runs with a commit that
//! was given up although it may come through yet. Nothing here is tried again; `tick` does that.

use std::collections::BTreeMap;

use stepwell_kernel::effect::Target;

use super::Request;
use crate::number_map::NumberMap;
use crate::store::RunNo;

/// Runs that wait for the store.
#[derive(Debug, Default)]
pub(super) struct Parked {
    runs: BTreeMap<RunNo, ParkedRun>,
    /// Runs with a commit that was given up, with the last event before that commit.
    doubtful: BTreeMap<RunNo, u64>,
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

    /// Takes everything that is parked, to be tried again.
    pub(super) fn take(&mut self) -> BTreeMap<RunNo, ParkedRun> {
        std::mem::take(&mut self.runs)
    }

    /// Puts back what could not be done yet.
    pub(super) fn put_back(&mut self, run: RunNo, parked: ParkedRun) {
        self.park(run, parked.requests, parked.jobs);
    }

    /// A commit to a run was given up; it would add events after `after`.
    pub(super) fn doubt(&mut self, run: RunNo, after: u64) {
        self.doubtful.insert(run, after);
    }

    /// Some runs whose last commit is in doubt, with the last event before it.
    pub(super) fn doubtful(&self, limit: usize) -> Vec<(RunNo, u64)> {
        let some = self.doubtful.iter().take(limit);
        some.map(|(run, after)| (*run, *after)).collect()
    }

    /// Whether the last commit of a run is in doubt.
    pub(super) fn is_doubtful(&self, run: RunNo) -> bool {
        self.doubtful.contains_key(&run)
    }

    /// The result of a run's doubtful commit is known.
    pub(super) fn resolve(&mut self, run: RunNo) {
        self.doubtful.remove(&run);
    }

    /// Whatever is still on its way is of a session that is dead.
    pub(super) fn resolve_all(&mut self) {
        self.doubtful.clear();
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
        let all = parked.take();
        assert_eq!(all[&RUN].requests.len(), 3);
        assert!(all[&RUN].jobs.is_empty());
        assert!(parked.take().is_empty());
    }

    #[test]
    fn what_is_put_back_comes_before_what_comes_later() {
        let mut parked = Parked::default();
        parked.park(RUN, [request()], NumberMap::default());
        let mut all = parked.take();
        parked.put_back(RUN, all.remove(&RUN).unwrap());
        parked.park(RUN, [request()], NumberMap::default());
        assert_eq!(parked.take()[&RUN].requests.len(), 2);
    }

    #[test]
    fn doubts_last_until_they_are_resolved() {
        let mut parked = Parked::default();
        parked.doubt(RUN, 4);
        parked.doubt(RunNo(2), 7);
        assert_eq!(parked.doubtful(1), [(RUN, 4)]);
        assert!(parked.is_doubtful(RUN));
        parked.resolve(RUN);
        assert!(!parked.is_doubtful(RUN));
        assert_eq!(parked.doubtful(9), [(RunNo(2), 7)]);
        parked.resolve_all();
        assert!(parked.doubtful(9).is_empty());
    }
}
