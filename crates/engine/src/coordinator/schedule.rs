//! When something is to be done: which runs have something for the next batch, the timers of this
//! session's runs, when the next run that nobody has is due, and when the store is asked again. Times
//! only; what is done then is in `tick`.

use std::collections::BTreeSet;

use stepwell_kernel::time::Time;

use super::{HotRun, RunCache, SessionLease};
use crate::store::RunNo;

/// When something is to be done.
#[derive(Debug)]
pub(super) struct Schedule {
    /// Runs with something for the next batch.
    marked: BTreeSet<RunNo>,
    /// When runs of this session must be looked at.
    timers: BTreeSet<(Time, RunNo)>,
    /// When the next run that nobody has is due, as far as this server knows.
    due: Option<Time>,
    /// When queued runs may start, as far as this server knows.
    starts: BTreeSet<Time>,
    /// When the store is asked for what others have left there.
    poll_at: Time,
    /// The store could not be reached: it is not asked before.
    rest_until: Time,
}

/// A run's entry among the timers. Only the schedule changes it.
#[derive(Debug, Default)]
pub(super) struct TimerEntry(Option<Time>);

impl Schedule {
    pub(super) fn new(now: Time) -> Schedule {
        Schedule {
            marked: BTreeSet::new(),
            timers: BTreeSet::new(),
            due: None,
            starts: BTreeSet::new(),
            poll_at: now,
            rest_until: Time(0),
        }
    }

    /// The next batch looks at a run.
    pub(super) fn mark(&mut self, run: RunNo) {
        self.marked.insert(run);
    }

    pub(super) fn mark_all(&mut self, runs: impl IntoIterator<Item = RunNo>) {
        self.marked.extend(runs);
    }

    /// A run has nothing for the next batch after all.
    pub(super) fn unmark(&mut self, run: RunNo) {
        self.marked.remove(&run);
    }

    pub(super) fn unmark_all(&mut self) {
        self.marked.clear();
    }

    /// The next run that the batch looks at; the smallest number first, as a batch is ordered.
    pub(super) fn next_marked(&mut self) -> Option<RunNo> {
        self.marked.pop_first()
    }

    pub(super) fn has_marked(&self) -> bool {
        !self.marked.is_empty()
    }

    /// Remembers when a run must be looked at.
    pub(super) fn set_timer(&mut self, hot: &mut HotRun, lease: &SessionLease) {
        self.clear_timer(hot);
        let head = hot.head();
        if lease.owns(head) {
            if let Some(at) = hot.alarm() {
                self.timers.insert((at, hot.run()));
                hot.timer().0 = Some(at);
            }
        } else if head.session.is_none()
            && let Some(at) = head.wake_at
        {
            if head.queued {
                self.starts.insert(at);
                return;
            }
            self.due = Some(self.due.map_or(at, |due| due.min(at)));
        }
    }

    pub(super) fn clear_timer(&mut self, hot: &mut HotRun) {
        if let Some(at) = hot.timer().0.take() {
            self.timers.remove(&(at, hot.run()));
        }
    }

    /// The next run whose timer has fired.
    pub(super) fn next_fired(&mut self, runs: &mut RunCache, now: Time) -> Option<RunNo> {
        let (at, run) = self.timers.first().copied().filter(|(at, _)| *at <= now)?;
        self.timers.remove(&(at, run));
        if let Some(hot) = runs.get_mut(run) {
            hot.timer().0 = None;
        }
        Some(run)
    }

    /// When something that is known here happens by itself: polls aside.
    pub(super) fn next_due(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let starts = self.starts.first().copied();
        timer.into_iter().chain(self.due).chain(starts).min()
    }

    /// When `tick` must be called at the latest: at once if `pressed`, but never while the store rests.
    pub(super) fn next_tick(&self, pressed: bool, renew_at: Time) -> Time {
        if pressed {
            return self.rest_until;
        }
        let soonest = self.poll_at.min(renew_at);
        let soonest = self.next_due().map_or(soonest, |due| due.min(soonest));
        soonest.max(self.rest_until)
    }

    /// Whether the store is to be asked now for what others have left there; asked for once.
    pub(super) fn take_poll(&mut self, now: Time, every_ms: u64) -> bool {
        let poll = now >= self.poll_at;
        if poll {
            self.poll_at = now.plus(every_ms);
        }
        poll
    }

    /// The store is asked with the next tick, whenever that is.
    pub(super) fn poll_at_once(&mut self, now: Time) {
        self.poll_at = now;
    }

    /// The store is not asked for a while.
    pub(super) fn rest(&mut self, until: Time) {
        self.rest_until = until;
    }

    /// Whether a run that nobody has is due.
    pub(super) fn is_due(&self, now: Time) -> bool {
        self.due.is_some_and(|due| due <= now)
    }

    /// When the next run that nobody has is due.
    pub(super) fn set_due(&mut self, due: Option<Time>) {
        self.due = due;
    }

    /// Whether the time has come when a queued run may start; asked for once.
    pub(super) fn take_starts(&mut self, now: Time) -> bool {
        let later = self.starts.split_off(&Time(now.0.saturating_add(1)));
        !std::mem::replace(&mut self.starts, later).is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::fixture::{hot, store_with};
    use crate::coordinator::run_cache::Room;
    use crate::store::{Append, Head, MemoryStore, SessionNo};

    fn lease() -> SessionLease {
        SessionLease::open(&MemoryStore::default(), "a", 900, Time(0)).unwrap()
    }

    fn with_head(run: i64, head: Head) -> HotRun {
        let mut hot = hot(run, &["a"]);
        let mut append = Append::new(RunNo(run), 0);
        append.head = Some(head);
        hot.settle(&append);
        hot
    }

    #[test]
    fn a_run_of_this_session_has_one_timer() {
        let (mut schedule, lease) = (Schedule::new(Time(0)), lease());
        let head = Head {
            session: Some(lease.session()),
            ..Head::default()
        };
        let mut hot = with_head(1, head);
        schedule.set_timer(&mut hot, &lease);
        assert_eq!(schedule.next_due(), None, "nothing is to be done");
        hot.add_ready(crate::coordinator::fixture::target(0), Time(50));
        schedule.set_timer(&mut hot, &lease);
        schedule.set_timer(&mut hot, &lease);
        assert_eq!(schedule.next_due(), Some(Time(50)));
        schedule.clear_timer(&mut hot);
        assert_eq!(schedule.next_due(), None);
    }

    #[test]
    fn a_run_that_nobody_has_is_due_at_its_wake_up_time() {
        let (mut schedule, lease) = (Schedule::new(Time(0)), lease());
        let head = |at, queued| Head {
            wake_at: Some(Time(at)),
            queued,
            ..Head::default()
        };
        schedule.set_timer(&mut with_head(1, head(70, false)), &lease);
        schedule.set_timer(&mut with_head(2, head(60, false)), &lease);
        assert!(schedule.is_due(Time(60)) && !schedule.is_due(Time(59)));
        schedule.set_timer(&mut with_head(3, head(40, true)), &lease);
        assert!(schedule.take_starts(Time(40)), "a queued run may start");
        let foreign = Head {
            session: Some(SessionNo(77)),
            ..head(10, false)
        };
        schedule.set_timer(&mut with_head(4, foreign), &lease);
        assert!(!schedule.is_due(Time(10)), "it is another server's");
    }

    #[test]
    fn a_timer_fires_once_even_if_its_run_was_forgotten() {
        let (store, _) = store_with(0);
        let (mut schedule, lease) = (Schedule::new(Time(0)), lease());
        let mut cache = RunCache::new(store);
        let head = Head {
            session: Some(lease.session()),
            ..Head::default()
        };
        let room = Room {
            limit: 9,
            session: lease.session(),
        };
        for run in [1, 2] {
            let hot = cache.insert(Box::new(with_head(run, head.clone())), room);
            hot.add_ready(crate::coordinator::fixture::target(0), Time(run));
            schedule.set_timer(hot, &lease);
        }
        cache.remove(RunNo(1));
        assert_eq!(schedule.next_fired(&mut cache, Time(0)), None);
        assert_eq!(schedule.next_fired(&mut cache, Time(2)), Some(RunNo(1)));
        assert_eq!(schedule.next_fired(&mut cache, Time(2)), Some(RunNo(2)));
        assert_eq!(schedule.next_fired(&mut cache, Time(2)), None);
        let hot = cache.get_mut(RunNo(2)).unwrap();
        assert!(hot.timer().0.is_none());
    }

    #[test]
    fn marked_runs_come_once_in_the_order_of_their_numbers() {
        let mut schedule = Schedule::new(Time(0));
        schedule.mark_all([RunNo(3), RunNo(1), RunNo(2), RunNo(1)]);
        schedule.unmark(RunNo(2));
        assert_eq!(schedule.next_marked(), Some(RunNo(1)));
        assert_eq!(schedule.next_marked(), Some(RunNo(3)));
        assert!(!schedule.has_marked());
    }

    #[test]
    fn the_next_tick_is_the_soonest_of_all_but_not_while_the_store_rests() {
        let mut schedule = Schedule::new(Time(100));
        assert_eq!(schedule.next_tick(false, Time(300)), Time(100));
        assert!(schedule.take_poll(Time(100), 500));
        assert!(!schedule.take_poll(Time(599), 500));
        assert_eq!(schedule.next_tick(false, Time(300)), Time(300));
        schedule.set_due(Some(Time(200)));
        assert_eq!(schedule.next_tick(false, Time(300)), Time(200));
        assert!(schedule.is_due(Time(200)) && !schedule.is_due(Time(199)));
        schedule.rest(Time(900));
        assert_eq!(schedule.next_tick(false, Time(300)), Time(900));
        assert_eq!(schedule.next_tick(true, Time(300)), Time(900));
    }

    #[test]
    fn starts_that_have_come_are_told_once() {
        let mut schedule = Schedule::new(Time(0));
        schedule.starts.extend([Time(5), Time(7), Time(9)]);
        assert!(!schedule.take_starts(Time(4)));
        assert!(schedule.take_starts(Time(7)));
        assert!(!schedule.take_starts(Time(8)));
        assert_eq!(schedule.next_due(), Some(Time(9)));
    }
}
