//! Capacity: how much this process does at a time, in all and of each queue with a limit, and which runs
//! wait for room. The work of a run (`RunWork`) changes only together with these counts: claims are made
//! in `claims`, and only for work that is given out here.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::{Config, HotRun, RunCache, Schedule, SessionLease};
use crate::number_map::NumberMap;
use crate::rows::served_by;
use crate::store::RunNo;

/// Work of this process in flight or being claimed, and the runs that wait for room.
#[derive(Debug, Default)]
pub(super) struct Capacity {
    busy: usize,
    /// How many of `busy` are of which queue.
    queues: HashMap<String, usize>,
    /// Runs with work that found no room at all, in turn.
    awaiting: VecDeque<RunNo>,
    /// Runs with work of a queue that was full, in turn.
    lines: BTreeMap<String, VecDeque<RunNo>>,
}

/// The work of one run in this process. Its jobs and its places in lines change only through `Capacity`.
#[derive(Debug, Default)]
pub(super) struct RunWork {
    /// Work that is not claimed yet: from when on, the step's order in the plan, the target.
    ready: BTreeSet<(Time, u32, Target)>,
    /// Work in flight, by execution.
    jobs: NumberMap<Target, u32>,
    /// Full queues in whose lines the run stands.
    lines: BTreeSet<String>,
    /// The run stands in the line for capacity.
    awaiting_capacity: bool,
}

impl RunWork {
    /// Whether nothing of the run is in flight and it stands in no line.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty() && !self.awaiting_capacity && self.lines.is_empty()
    }

    pub(super) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// The execution of some work in flight.
    pub(super) fn job(&self, target: Target) -> Option<u32> {
        self.jobs.get(&target).copied()
    }

    pub(super) fn awaits_capacity(&self) -> bool {
        self.awaiting_capacity
    }

    pub(super) fn add_ready(&mut self, visible_at: Time, order: u32, target: Target) {
        self.ready.insert((visible_at, order, target));
    }

    pub(super) fn clear_ready(&mut self) {
        self.ready.clear();
    }

    /// Targets of the work that is not claimed yet.
    pub(super) fn ready(&self) -> impl Iterator<Item = Target> + '_ {
        self.ready.iter().map(|(_, _, target)| *target)
    }

    /// From when on the first work that is not claimed yet can be.
    pub(super) fn first_ready(&self) -> Option<Time> {
        self.ready.first().map(|(visible_at, _, _)| *visible_at)
    }

    /// Work that does not stand in line for its queue, the first to be done first.
    fn next(&self, plan: &Plan) -> Option<(Time, u32, Target)> {
        let free = |target| !self.lines.contains(served_by(plan, target).0);
        let mut ready = self.ready.iter().copied();
        ready.find(|(_, _, target)| self.lines.is_empty() || free(*target))
    }

    /// From when on the next work can be claimed that does not stand in line for its queue.
    pub(super) fn next_at(&self, plan: &Plan) -> Option<Time> {
        self.next(plan).map(|(visible_at, _, _)| visible_at)
    }

    /// Whether there is work of a queue that can be claimed now.
    fn has_ready(&self, plan: &Plan, queue: &str, now: Time) -> bool {
        let mut due = self.ready.iter().take_while(|(at, _, _)| *at <= now);
        due.any(|(_, _, target)| served_by(plan, *target).0 == queue)
    }
}

impl Capacity {
    pub(super) fn busy(&self) -> usize {
        self.busy
    }

    /// How much more this process may do.
    pub(super) fn room(&self, config: &Config) -> usize {
        config.capacity.saturating_sub(self.busy)
    }

    /// How much more of a queue's work this process may do.
    pub(super) fn room_in(&self, queue: &str, config: &Config) -> usize {
        let room = self.room(config);
        let Some(limit) = config.queues.get(queue) else {
            return room;
        };
        let busy = self.queues.get(queue).copied().unwrap_or(0);
        room.min(limit.saturating_sub(busy))
    }

    /// A run has this work in flight. An execution that timed out may still be known; it makes room
    /// for this one.
    pub(super) fn begin(&mut self, hot: &mut HotRun, target: Target, execution: u32) {
        let (plan, work) = hot.work_mut();
        if work.jobs.insert(target, execution).is_some() {
            return;
        }
        let queue = served_by(plan, target).0;
        self.busy += 1;
        match self.queues.get_mut(queue) {
            Some(count) => *count += 1,
            None => drop(self.queues.insert(queue.to_owned(), 1)),
        }
    }

    /// A run has this work in flight no longer.
    pub(super) fn end(&mut self, hot: &mut HotRun, target: Target) {
        let (plan, work) = hot.work_mut();
        if work.jobs.remove(&target).is_some() {
            self.less(served_by(plan, target).0);
        }
    }

    /// A run is forgotten: its work counts no longer and it leaves all lines. Says what was in flight.
    pub(super) fn forget(&mut self, hot: &mut HotRun) -> NumberMap<Target, u32> {
        self.leave(hot);
        let (plan, work) = hot.work_mut();
        let jobs = std::mem::take(&mut work.jobs);
        for target in jobs.keys() {
            self.less(served_by(plan, *target).0);
        }
        jobs
    }

    fn less(&mut self, queue: &str) {
        debug_assert!(self.busy > 0, "work that was never counted has ended");
        self.busy = self.busy.saturating_sub(1);
        if let Some(count) = self.queues.get_mut(queue) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.queues.remove(queue);
            }
        }
    }

    /// Runs that are in memory no longer leave their places to the next.
    pub(super) fn forget_missing(&mut self, runs: &RunCache) {
        self.awaiting.retain(|run| runs.get(*run).is_some());
    }

    /// A run leaves the lines of queues.
    fn leave(&mut self, hot: &mut HotRun) {
        let run = hot.run();
        let (_, work) = hot.work_mut();
        for queue in std::mem::take(&mut work.lines) {
            if let Some(line) = self.lines.get_mut(&queue) {
                line.retain(|it| *it != run);
            }
        }
    }

    /// The next work of a run that there is room for. Work that finds no room stands in line from now on.
    pub(super) fn next_claim(
        &mut self,
        hot: &mut HotRun,
        config: &Config,
        now: Time,
    ) -> Option<Target> {
        let run = hot.run();
        loop {
            let (plan, work) = hot.work_mut();
            if work.ready.is_empty() {
                self.leave(hot);
                return None;
            }
            let (visible_at, order, target) = work.next(plan).filter(|(at, _, _)| *at <= now)?;
            if self.room(config) == 0 {
                if !work.awaiting_capacity {
                    work.awaiting_capacity = true;
                    self.awaiting.push_back(run);
                }
                return None;
            }
            let queue = served_by(plan, target).0;
            if self.room_in(queue, config) > 0 {
                work.ready.remove(&(visible_at, order, target));
                return Some(target);
            }
            if work.lines.insert(queue.to_owned()) {
                let line = self.lines.entry(queue.to_owned()).or_default();
                line.push_back(run);
            }
        }
    }

    /// Lets runs that found no room try again in the next batch.
    pub(super) fn feed(
        &mut self,
        runs: &mut RunCache,
        schedule: &mut Schedule,
        lease: &SessionLease,
        config: &Config,
        now: Time,
    ) {
        let mut look_at = |hot: &mut HotRun| {
            // What the run stood in line for may be gone by now, and what is left may be for later.
            schedule.mark(hot.run());
            schedule.set_timer(hot, lease);
        };
        let mut free = self.room(config);
        while free > 0 {
            let Some(run) = self.awaiting.pop_front() else {
                break;
            };
            // A run that was forgotten meanwhile has left its place to the next.
            if let Some(hot) = runs.get_mut(run) {
                let (_, work) = hot.work_mut();
                work.awaiting_capacity = false;
                free = free.saturating_sub(work.ready.len().max(1));
                look_at(hot);
            }
        }
        if self.lines.is_empty() {
            return;
        }
        let queues: Vec<String> = self.lines.keys().cloned().collect();
        for queue in queues {
            let mut room = self.room_in(&queue, config);
            while room > 0 {
                let next = self.lines.get_mut(&queue).and_then(VecDeque::pop_front);
                let Some(run) = next else {
                    self.lines.remove(&queue);
                    break;
                };
                if let Some(hot) = runs.get_mut(run) {
                    let (plan, work) = hot.work_mut();
                    work.lines.remove(&queue);
                    // A run whose work is gone leaves its turn to the next.
                    room -= usize::from(work.has_ready(plan, &queue, now));
                    look_at(hot);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::fixture::{hot, store_with, target};
    use crate::coordinator::run_cache::Room;
    use crate::store::{MemoryStore, SessionNo};

    fn config(capacity: usize, queues: &[(&str, usize)]) -> Config {
        Config {
            capacity,
            queues: queues.iter().map(|(q, n)| ((*q).to_owned(), *n)).collect(),
            ..Config::default()
        }
    }

    fn ready(hot: &mut HotRun, steps: &[u32]) {
        for step in steps {
            hot.add_ready(target(*step), Time(*step as i64));
        }
    }

    #[test]
    fn work_is_counted_in_all_and_for_its_queue() {
        let config = config(3, &[("a", 1)]);
        let (mut capacity, mut hot) = (Capacity::default(), hot(1, &["a", "b"]));
        capacity.begin(&mut hot, target(0), 1);
        // A later execution takes the place of the one that timed out.
        capacity.begin(&mut hot, target(0), 2);
        capacity.begin(&mut hot, target(1), 1);
        assert_eq!(capacity.busy(), 2);
        assert_eq!(capacity.room_in("a", &config), 0);
        assert_eq!(capacity.room_in("b", &config), 1);
        assert_eq!(hot.work().job(target(0)), Some(2));
        capacity.end(&mut hot, target(0));
        capacity.end(&mut hot, target(0));
        assert_eq!((capacity.busy(), capacity.room_in("a", &config)), (1, 1));
        let jobs = capacity.forget(&mut hot);
        assert_eq!(jobs, NumberMap::from_iter([(target(1), 1)]));
        assert_eq!(capacity.busy(), 0);
    }

    #[test]
    fn work_is_given_out_in_order_when_its_time_has_come() {
        let config = config(9, &[]);
        let (mut capacity, mut hot) = (Capacity::default(), hot(1, &["a", "b"]));
        ready(&mut hot, &[1, 0]);
        assert_eq!(
            capacity.next_claim(&mut hot, &config, Time(0)),
            Some(target(0))
        );
        assert_eq!(capacity.next_claim(&mut hot, &config, Time(0)), None);
        assert_eq!(
            capacity.next_claim(&mut hot, &config, Time(1)),
            Some(target(1))
        );
        assert!(hot.work().is_idle());
    }

    #[test]
    fn a_full_queue_keeps_no_other_work_back() {
        let config = config(9, &[("a", 0)]);
        let (mut capacity, mut hot) = (Capacity::default(), hot(1, &["a", "b"]));
        ready(&mut hot, &[0, 1]);
        assert_eq!(
            capacity.next_claim(&mut hot, &config, Time(9)),
            Some(target(1))
        );
        assert_eq!(capacity.next_claim(&mut hot, &config, Time(9)), None);
        assert!(!hot.work().is_idle(), "it stands in line");
        capacity.forget(&mut hot);
        assert!(capacity.lines.values().all(VecDeque::is_empty));
    }

    #[test]
    fn runs_in_line_are_marked_when_there_is_room() {
        let (store, runs) = store_with(2);
        let lease = SessionLease::open(&MemoryStore::default(), "a", 900, Time(0)).unwrap();
        let (mut cache, mut schedule) = (RunCache::new(store), Schedule::new(Time(0)));
        let room = Room {
            limit: 9,
            session: SessionNo(99),
        };
        let mut capacity = Capacity::default();
        for run in &runs {
            let hot = cache.load(*run, room).unwrap();
            ready(hot, &[0]);
            assert_eq!(capacity.next_claim(hot, &config(0, &[]), Time(9)), None);
            assert!(hot.work().awaits_capacity());
        }
        let one = config(1, &[]);
        capacity.feed(&mut cache, &mut schedule, &lease, &one, Time(9));
        assert_eq!(schedule.next_marked(), Some(runs[0]));
        assert_eq!(schedule.next_marked(), None);
        // The second is gone from memory: its place is skipped.
        cache.remove(runs[1]);
        capacity.forget_missing(&cache);
        capacity.feed(&mut cache, &mut schedule, &lease, &one, Time(9));
        assert_eq!(schedule.next_marked(), None);
    }

    proptest::proptest! {
        /// However work begins and ends, the counts are those of the work in flight.
        #[test]
        fn counts_are_those_of_the_work_in_flight(
            acts in proptest::collection::vec((0_usize..3, 0_u32..3, 0_u8..4), 0..80)
        ) {
            let mut capacity = Capacity::default();
            let mut runs: Vec<HotRun> = (1..4).map(|no| hot(no, &["a", "b", "c"])).collect();
            for (run, step, act) in acts {
                match act {
                    0 | 1 => capacity.begin(&mut runs[run], target(step), u32::from(act)),
                    2 => capacity.end(&mut runs[run], target(step)),
                    _ => drop(capacity.forget(&mut runs[run])),
                }
                let jobs = |step| runs.iter().filter(move |it| it.work().job(target(step)).is_some());
                for (step, queue) in ["a", "b", "c"].into_iter().enumerate() {
                    let counted = capacity.queues.get(queue).copied().unwrap_or(0);
                    proptest::prop_assert_eq!(counted, jobs(step as u32).count());
                }
                let all: usize = (0..3).map(|step| jobs(step).count()).sum();
                proptest::prop_assert_eq!(capacity.busy(), all);
            }
        }
    }
}
