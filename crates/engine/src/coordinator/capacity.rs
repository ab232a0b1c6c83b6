//! Capacity: which runs wait for room to work, and the work of each run. How much this process does at a time is counted
//! in `load`; the work of a run (`RunWork`) changes only together with these counts, and only work that is given
//! out here is claimed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

use super::load::Room;
use super::{Config, HotRun, RunCache, Schedule, SessionLease, SharedParts};
use crate::number_map::NumberMap;
use crate::rows::served_by;
use crate::shard::Shard;
use crate::store::RunNo;

/// Work of this process in flight or being claimed, and the runs that wait for room.
#[derive(Debug)]
pub(super) struct Capacity {
    shard: Shard,
    shared: Arc<SharedParts>,
    /// Work has ended since other shards were told so.
    freed: bool,
    /// Other shards see that runs of this shard wait for room.
    shown_waiting: bool,
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
    /// Everything that is not claimed yet is offered to other servers too.
    shared: bool,
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
        self.shared = false;
    }

    pub(super) fn clear_ready(&mut self) {
        self.ready.clear();
        self.shared = false;
    }

    pub(super) fn retain_ready(&mut self, keep: impl Fn(Target) -> bool) {
        self.ready.retain(|(_, _, target)| keep(*target));
    }

    /// Whether everything that is not claimed yet is offered to other servers too.
    pub(super) fn is_shared(&self) -> bool {
        self.shared
    }

    pub(super) fn set_shared(&mut self, shared: bool) {
        self.shared = shared;
    }

    /// Work that is not claimed yet, with the time from which on it can be.
    pub(super) fn ready_at(&self) -> impl Iterator<Item = (Time, Target)> + '_ {
        self.ready.iter().map(|(at, _, target)| (*at, *target))
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
        ready.find(|(_, _, target)| {
            !self.is_held_back(*target) && (self.lines.is_empty() || free(*target))
        })
    }

    /// Whether work that this would run into has not ended yet, though it counts no longer: the program of an execution
    /// that timed out, or of any step while another is undone. Its report lets the run be looked at again.
    fn is_held_back(&self, target: Target) -> bool {
        let is_step = |job: &Target| matches!(job, Target::Step(_));
        match target {
            Target::Step(_) => self.jobs.contains_key(&target),
            Target::Undo(_) => self.jobs.contains_key(&target) || self.jobs.keys().any(is_step),
        }
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
    pub(super) fn new(shard: Shard, shared: Arc<SharedParts>) -> Capacity {
        Capacity {
            shard,
            shared,
            freed: false,
            shown_waiting: false,
            awaiting: VecDeque::new(),
            lines: BTreeMap::new(),
        }
    }

    /// How much this process does, all shards together.
    pub(super) fn busy(&self) -> usize {
        self.shared.load.busy()
    }

    /// How much more this process may do.
    pub(super) fn room(&self, config: &Config) -> usize {
        self.shared.load.room(config)
    }

    /// How much more of a queue's work this process may do.
    pub(super) fn room_in(&self, queue: &str, config: &Config) -> usize {
        self.shared.load.room_in(queue, config)
    }

    /// Work that `next_claim` gave out was claimed, and is in flight. An execution that timed out may still be
    /// known; it makes room for this one.
    pub(super) fn begin(&mut self, hot: &mut HotRun, target: Target, execution: u32) {
        let (plan, work) = hot.work_mut();
        if work.jobs.insert(target, execution).is_some() {
            self.less(served_by(plan, target).0);
        }
    }

    /// Work that `next_claim` gave out was not claimed.
    pub(super) fn give_back(&mut self, hot: &mut HotRun, target: Target) {
        let (plan, _) = hot.work_mut();
        self.less(served_by(plan, target).0);
    }

    /// A run that was read again still has this work in flight, whether there is room or not.
    pub(super) fn keep(&mut self, hot: &mut HotRun, target: Target, execution: u32) {
        let (plan, work) = hot.work_mut();
        if work.jobs.insert(target, execution).is_none() {
            self.shared.load.add(served_by(plan, target).0);
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
        let counted = self.shared.load.end(queue);
        debug_assert!(counted, "work that was never counted has ended");
        if !counted {
            tracing::error!(queue, "work that was never counted has ended");
        }
        self.freed = true;
    }

    /// Whether other shards wait for room and there is some since this was asked last.
    pub(super) fn has_room_for_others(&mut self) -> bool {
        std::mem::take(&mut self.freed) && self.shared.load.others_wait(self.shard)
    }

    /// Whether runs of this shard wait for room.
    pub(super) fn has_waiting(&self) -> bool {
        !self.awaiting.is_empty() || !self.lines.is_empty()
    }

    /// Runs that wait for room, in turn.
    pub(super) fn waiting(&self) -> impl Iterator<Item = RunNo> + '_ {
        let lines = self.lines.values().flatten();
        self.awaiting.iter().chain(lines).copied()
    }

    /// Runs that are in memory no longer leave their places to the next.
    pub(super) fn forget_missing(&mut self, runs: &RunCache) {
        self.awaiting.retain(|run| runs.get(*run).is_some());
        self.show_waiting();
    }

    /// Shows other shards whether runs of this shard wait for room. Says whether that is new to them.
    fn show_waiting(&mut self) -> bool {
        self.show(self.has_waiting())
    }

    fn show(&mut self, waiting: bool) -> bool {
        let is_new = self.shown_waiting != waiting;
        if is_new {
            self.shown_waiting = waiting;
            self.shared.load.set_waiting(self.shard, waiting);
        }
        is_new
    }

    /// A run leaves the lines of queues.
    fn leave(&mut self, hot: &mut HotRun) {
        let run = hot.run();
        let (_, work) = hot.work_mut();
        for queue in std::mem::take(&mut work.lines) {
            if let Some(line) = self.lines.get_mut(&queue) {
                line.retain(|it| *it != run);
                if line.is_empty() {
                    self.lines.remove(&queue);
                }
            }
        }
        self.show_waiting();
    }

    /// The next work of a run that there is room for; its room is taken, until `begin` or `give_back`. Work that
    /// finds no room stands in line from now on.
    pub(super) fn next_claim(
        &mut self,
        hot: &mut HotRun,
        config: &Config,
        now: Time,
    ) -> Option<Target> {
        let run = hot.run();
        // What is ready by the time of the log is ready, though the clock may have been set back since.
        let now = now.max(hot.state().last_at());
        loop {
            let (plan, work) = hot.work_mut();
            if work.ready.is_empty() {
                self.leave(hot);
                return None;
            }
            let (visible_at, order, target) = work.next(plan).filter(|(at, _, _)| *at <= now)?;
            let queue = served_by(plan, target).0;
            let mut room = self.shared.load.try_add(queue, config);
            // A shard that freed room before it could see that this one waits tells nobody.
            if room != Room::Taken && self.show(true) {
                room = self.shared.load.try_add(queue, config);
            }
            match room {
                Room::Taken => {
                    work.ready.remove(&(visible_at, order, target));
                    self.show_waiting();
                    return Some(target);
                }
                Room::Full => {
                    if !work.awaiting_capacity {
                        work.awaiting_capacity = true;
                        self.awaiting.push_back(run);
                    }
                    return None;
                }
                Room::QueueFull => {
                    if work.lines.insert(queue.to_owned()) {
                        let line = self.lines.entry(queue.to_owned()).or_default();
                        line.push_back(run);
                    }
                }
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
        if self.awaiting.is_empty() && self.lines.is_empty() {
            return;
        }
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
                    let now = now.max(hot.state().last_at());
                    let (plan, work) = hot.work_mut();
                    work.lines.remove(&queue);
                    // A run whose work is gone leaves its turn to the next.
                    room -= usize::from(work.has_ready(plan, &queue, now));
                    look_at(hot);
                }
            }
        }
        self.show_waiting();
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

    fn capacity() -> Capacity {
        Capacity::new(Shard::ALL, Arc::default())
    }

    /// Work that is in flight, whether there is room or not.
    fn begin(capacity: &mut Capacity, hot: &mut HotRun, step: u32, execution: u32) {
        capacity.keep(hot, target(step), execution);
    }

    fn ready(hot: &mut HotRun, steps: &[u32]) {
        for step in steps {
            hot.add_ready(target(*step), Time(*step as i64));
        }
    }

    #[test]
    fn work_is_counted_in_all_and_for_its_queue() {
        let config = config(3, &[("a", 1)]);
        let (mut capacity, mut hot) = (capacity(), hot(1, &["a", "b"]));
        begin(&mut capacity, &mut hot, 0, 1);
        // A later execution takes the place of the one that timed out.
        begin(&mut capacity, &mut hot, 0, 2);
        begin(&mut capacity, &mut hot, 1, 1);
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
        let (mut capacity, mut hot) = (capacity(), hot(1, &["a", "b"]));
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
    fn room_is_taken_when_work_is_given_out() {
        let config = config(1, &[]);
        let (mut capacity, mut hot) = (capacity(), hot(1, &["a", "b"]));
        ready(&mut hot, &[0]);
        assert_eq!(
            capacity.next_claim(&mut hot, &config, Time(0)),
            Some(target(0))
        );
        assert_eq!(capacity.room(&config), 0);
        capacity.give_back(&mut hot, target(0));
        assert_eq!(capacity.room(&config), 1);
        ready(&mut hot, &[0]);
        assert_eq!(
            capacity.next_claim(&mut hot, &config, Time(0)),
            Some(target(0))
        );
        capacity.begin(&mut hot, target(0), 1);
        assert_eq!((capacity.busy(), hot.work().job(target(0))), (1, Some(1)));
    }

    #[test]
    fn room_that_one_shard_frees_is_for_the_others_too() {
        let config = config(1, &[]);
        let (mut one, mut two) = two_shards();
        let (mut first, mut second) = (hot(2, &["a"]), hot(3, &["a"]));
        ready(&mut first, &[0]);
        ready(&mut second, &[0]);
        assert!(one.next_claim(&mut first, &config, Time(0)).is_some());
        assert!(two.next_claim(&mut second, &config, Time(0)).is_none());
        assert!(!one.has_room_for_others());
        one.give_back(&mut first, target(0));
        assert!(one.has_room_for_others());
        assert!(!one.has_room_for_others(), "said once");
    }

    #[test]
    fn a_full_queue_keeps_no_other_work_back() {
        let config = config(9, &[("a", 0)]);
        let (mut capacity, mut hot) = (capacity(), hot(1, &["a", "b"]));
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
        let mut capacity = capacity();
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

    /// Two shards that count together.
    fn two_shards() -> (Capacity, Capacity) {
        let shared = Arc::<SharedParts>::default();
        let mut shards = Shard::all(2).map(|shard| Capacity::new(shard, shared.clone()));
        (shards.next().unwrap(), shards.next().unwrap())
    }

    #[test]
    fn a_shard_whose_waiting_runs_are_gone_is_not_told_of_room() {
        let (store, runs) = store_with(1);
        let mut cache = RunCache::new(store);
        let room = Room {
            limit: 9,
            session: SessionNo(99),
        };
        let (mut one, mut two) = two_shards();
        let hot = cache.load(runs[0], room).unwrap();
        ready(hot, &[0]);
        assert_eq!(two.next_claim(hot, &config(0, &[]), Time(9)), None);
        assert!(one.shared.load.others_wait(one.shard));
        cache.remove(runs[0]);
        two.forget_missing(&cache);
        assert!(!one.shared.load.others_wait(one.shard));

        let mut hot = self::hot(2, &["a"]);
        ready(&mut hot, &[0]);
        let full = config(9, &[("a", 0)]);
        assert_eq!(two.next_claim(&mut hot, &full, Time(9)), None);
        assert!(one.shared.load.others_wait(one.shard));
        two.forget(&mut hot);
        assert!(!one.shared.load.others_wait(one.shard));
        assert!(!one.has_room_for_others());
    }

    /// Room that is freed while another shard looks for some is found by that shard, or that shard is told.
    #[test]
    fn room_freed_at_the_same_moment_is_not_lost() {
        let config = config(1, &[]);
        let round = std::sync::Barrier::new(2);
        for _ in 0..5_000 {
            let (mut one, mut two) = two_shards();
            let (mut first, mut second) = (hot(2, &["a"]), hot(3, &["a"]));
            ready(&mut first, &[0]);
            ready(&mut second, &[0]);
            assert!(one.next_claim(&mut first, &config, Time(0)).is_some());
            let (told, found) = std::thread::scope(|scope| {
                let frees = scope.spawn(|| {
                    round.wait();
                    one.give_back(&mut first, target(0));
                    one.has_room_for_others()
                });
                round.wait();
                let found = two.next_claim(&mut second, &config, Time(0));
                (frees.join().unwrap(), found)
            });
            assert!(told || found.is_some());
            assert_eq!(one.shared.load.others_wait(one.shard), found.is_none());
        }
    }

    proptest::proptest! {
        /// However work begins and ends, the counts are those of the work in flight.
        #[test]
        fn counts_are_those_of_the_work_in_flight(
            acts in proptest::collection::vec((0_usize..3, 0_u32..3, 0_u8..4), 0..80)
        ) {
            let mut capacity = capacity();
            let mut runs: Vec<HotRun> = (1..4).map(|no| hot(no, &["a", "b", "c"])).collect();
            for (run, step, act) in acts {
                match act {
                    0 | 1 => capacity.keep(&mut runs[run], target(step), u32::from(act)),
                    2 => capacity.end(&mut runs[run], target(step)),
                    _ => drop(capacity.forget(&mut runs[run])),
                }
                let jobs = |step| runs.iter().filter(move |it| it.work().job(target(step)).is_some());
                for (step, queue) in ["a", "b", "c"].into_iter().enumerate() {
                    let limit = config(usize::MAX, &[(queue, 99)]);
                    let counted = 99 - capacity.room_in(queue, &limit);
                    proptest::prop_assert_eq!(counted, jobs(step as u32).count());
                }
                let all: usize = (0..3).map(|step| jobs(step).count()).sum();
                proptest::prop_assert_eq!(capacity.busy(), all);
            }
        }
    }
}
