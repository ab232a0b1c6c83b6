//! Time, and everything that this server learns only by asking the store: what is due is read off the
//! states of the runs and off the store, so no timer can be lost.

use std::sync::Arc;

use stepwell_kernel::command::{Command, LeaseEnd, TimerKind};
use stepwell_kernel::effect::Effect;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::{Coordinator, Handoff, HotRun, Notice, Request};
use crate::error::Error;
use crate::store::{RunNo, StoreError};

/// How many rows are asked for at a time.
const PAGE: usize = 256;
/// How long a run that is being woken is not offered to other servers, in milliseconds.
const WAKE_MS: u64 = 10_000;

impl Coordinator {
    /// When `tick` must be called at the latest.
    #[must_use]
    pub fn next_tick(&self) -> Time {
        self.schedule
            .next_tick(self.must_ask(), self.lease.renew_at())
    }

    /// The store could not be asked: it is asked again after a while.
    pub fn rest(&mut self, now: Time) {
        self.outage.unanswered(now);
        let length = self.config.poll_ms.clamp(10, 1_000);
        self.schedule.rest(now.plus(length));
        self.look();
    }

    /// Something may have changed in the store.
    pub fn look(&mut self) {
        self.inbox.look();
        self.slots.look();
    }

    /// When something that is known here happens by itself: polls aside.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        self.schedule.next_due()
    }

    /// Whether something is to be done now, whatever the time.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.must_ask() || self.schedule.has_marked()
    }

    /// Whether the store is to be asked now, whatever the time.
    fn must_ask(&self) -> bool {
        self.inbox.must_look()
            || self.slots.must_look()
            || self.sharing.must_look()
            || self.lease.is_lost()
            || self.invariants.are_broken()
    }

    /// Does what is due. On `Err` the store was not there; what could not be done is done later.
    pub fn tick(&mut self, now: Time) -> Result<(), StoreError> {
        for (run, error) in self.runs.take_invalid() {
            self.invariants.log_invalid(run, &error);
        }
        self.invariants
            .write(&*self.store, &mut self.notices, now)?;
        self.lease
            .renew(&*self.store, self.config.session_ms, now)?;
        if self.lease.is_lost() {
            // Told first: whether another session can be opened or not, its work must end.
            self.notices.push(Notice::SessionLost);
            self.reopen(now)?;
        }
        while let Some(run) = self.schedule.next_fired(&mut self.runs, now) {
            if !self.config.driven {
                self.wake_in_time(run, now);
            }
        }
        self.unpark(now);
        let poll = self.schedule.take_poll(now, self.config.poll_ms);
        if poll {
            self.take_over_dead(now)?;
            // What came through late may have the leases that are looked at next.
            self.look_for_late_commits(now)?;
            self.outage.answered(now);
            self.expire_leases(now)?;
            self.slots.freed();
            self.runs.set_quarantined(self.store.quarantined()?);
        }
        if poll || self.schedule.is_due(now) {
            self.wake_due(now)?;
        }
        if self.schedule.take_starts(now) {
            self.slots.look();
        }
        self.read_messages(poll, now)?;
        if self.slots.take_look() && !self.stopping {
            self.dequeue(now).map_err(store_error)?;
        }
        if self.sharing.take_look() || poll {
            self.reserve_tasks(now)?;
        }
        if poll {
            self.share(now)?;
            self.inbox.read_answers(&*self.store, &mut self.notices)?;
        }
        Ok(())
    }

    /// Fires what is due in a run, and sees to everything else that it needs.
    pub(super) fn wake(&mut self, run: RunNo, now: Time) {
        self.rejoin(run, now);
        if let Err(error) = self.runs.load(run, self.room()) {
            tracing::warn!(%error, "a run could not be woken yet");
            return;
        }
        if self.runs.get(run).is_some_and(HotRun::is_in_flight) {
            // Its timer is set again once the commit is answered.
            return;
        }
        let phase = self.runs.get(run).map(|hot| hot.state().phase());
        match phase {
            Some(Phase::Created | Phase::Queued) => self.slots.look(),
            // Another engine has its timers, and another process should serve that engine.
            _ if !self.is_ours(run) => return self.tell_unserved(run),
            _ => self.fire(run, now, |due, last_at| due <= now.max(last_at)),
        }
        self.attend(run, now);
    }

    /// The time of a run has come. If an engine outside moves the run, that engine is told, and says when.
    pub(super) fn wake_in_time(&mut self, run: RunNo, now: Time) {
        if self.config.routes.is_none() {
            return self.wake(run, now);
        }
        self.rejoin(run, now);
        let room = self.room();
        match self.runs.load(run, room) {
            Ok(hot) if self.config.is_routed(hot) => self.tell_engine(run),
            Ok(_) => self.wake(run, now),
            Err(error) => tracing::warn!(%error, "a run could not be woken yet"),
        }
    }

    /// Tells who serves the engine outside that moves a run, if there is one.
    pub(super) fn tell_engine(&mut self, run: RunNo) {
        let routed = |hot: &HotRun| self.config.is_routed(hot);
        if self.runs.get(run).is_some_and(routed) {
            self.notices.push(Notice::Driven(run));
        }
    }

    /// Tells that another engine should have moved a run by now.
    fn tell_unserved(&mut self, run: RunNo) {
        let Some(hot) = self.runs.get(run) else {
            return;
        };
        let Some(engine) = hot.state().engine().map(str::to_owned) else {
            return;
        };
        let (run_id, seq) = (Arc::clone(hot.run_id()), hot.state().seq());
        self.notices.push(Notice::Unserved {
            run,
            run_id,
            engine,
            seq,
        });
    }

    /// Whether this engine moves the run.
    fn is_ours(&self, run: RunNo) -> bool {
        let ours = |hot: &HotRun| self.config.is_of_this_engine(hot);
        self.runs.get(run).is_none_or(ours)
    }

    /// Decides what was overdue in a run when a command came, before the command is: a person, a
    /// worker or an event that comes after a deadline comes too late, also if nobody was there to notice the deadline.
    pub(super) fn fire_overdue(&mut self, run: RunNo, came: Time, now: Time) {
        let session = self.lease.session();
        let other_owner = |hot: &HotRun| hot.other_owner(session).is_some();
        if self.runs.get(run).is_some_and(other_owner) {
            // The timers of the run are for the server that has it.
            return;
        }
        self.fire(run, now, |due, _| due < came);
    }

    /// Fires the timers of a run that are due, by their time and by the time of the log.
    fn fire(&mut self, run: RunNo, now: Time, is_due: impl Fn(Time, Time) -> bool) {
        while let Some(hot) = self.runs.get(run) {
            let state = hot.state();
            if hot.is_in_flight() || matches!(state.phase(), Phase::Created | Phase::Queued) {
                return;
            }
            let timer = match state.pause() {
                Some(_) => state.timers().own(TimerKind::Drain),
                None => state.timers().next(),
            };
            let last_at = state.last_at();
            let Some((_, id)) = timer.filter(|(due, _)| is_due(*due, last_at)) else {
                return;
            };
            let before = state.seq();
            self.decide_now(run, Request::own(Command::FireTimer(id)), now);
            let is_moved = |hot: &HotRun| hot.state().seq() != before;
            if !self.runs.get(run).is_some_and(is_moved) {
                // The kernel refused it: the timer is not due by the log's own time.
                return;
            }
        }
    }

    /// Derives from the state what this server must do for a run, and writes the head accordingly.
    pub(super) fn attend(&mut self, run: RunNo, now: Time) {
        let Some(hot) = self.runs.get_mut(run) else {
            // Another server has it by now, and it is forgotten here.
            return;
        };
        hot.set_attended();
        if hot.is_in_flight() || hot.other_owner(self.lease.session()).is_some() {
            return;
        }
        let mut effects = Vec::new();
        let mut lost = Vec::new();
        for source in wake_sources(hot.plan(), hot.state()) {
            match source {
                WakeSource::Task {
                    target,
                    visible_at,
                    task,
                } => {
                    // What was offered to others and is not claimed is done here where it can be.
                    let does = self.config.does(hot, target);
                    let offered = !does && hot.has_task(target);
                    if !offered && hot.work().job(target).is_none() {
                        effects.push(Effect::Dispatch {
                            target,
                            visible_at,
                            task,
                        });
                    }
                }
                WakeSource::Proceed => effects.push(Effect::Proceed),
                WakeSource::Lease { target, .. } => {
                    let it = hot.state().target(target);
                    let Some((it, lease)) = it.and_then(|it| Some((it, it.lease()?))) else {
                        let what = "a lease is named as a wake source and is not in the state";
                        self.invariants.broken(run, what);
                        continue;
                    };
                    // A claim of ours whose work is not here was lost with an answer, unless its result
                    // is here and waits.
                    let here = hot.work().job(target).is_some() || hot.has_result(target);
                    if lease.worker == self.lease.worker() && !here {
                        lost.push(Command::ExpireLease {
                            target,
                            execution: it.execution(),
                            lease_until: Some(before(now)),
                            cause: LeaseEnd::Unanswered,
                        });
                    }
                }
                // Rows or people move it.
                WakeSource::Queue
                | WakeSource::Outside { .. }
                | WakeSource::Child { .. }
                | WakeSource::Timer { .. }
                | WakeSource::Operator
                | WakeSource::Ctx { .. } => {}
            }
        }
        for expire in lost {
            self.decide(run, Request::own(expire), now);
        }
        self.follow(run, effects);
        if self.runs.get_mut(run).is_some_and(HotRun::take_proceed) {
            self.decide(run, Request::own(Command::Proceed), now);
        }
        // The run's head is looked at in the next batch.
        if let Some(hot) = self.runs.get_mut(run) {
            hot.draft();
            self.schedule.mark(run);
        }
    }

    /// Sees to all runs in memory, after what is served here has changed.
    pub fn attend_all(&mut self, now: Time) {
        let runs: Vec<RunNo> = self.runs.iter().map(HotRun::run).collect();
        for run in runs {
            self.attend(run, now);
        }
    }

    fn wake_due(&mut self, now: Time) -> Result<(), StoreError> {
        if self.config.driven {
            // The engine outside has the timers of its runs.
            self.schedule.set_due(None);
            return Ok(());
        }
        if self.config.only.is_some() && !self.store_is_ours() {
            self.wake_own(now);
            return Ok(());
        }
        let due = self.store.due(now, now.plus(WAKE_MS), PAGE)?;
        let more = due.len() == PAGE;
        self.runs.expect(due.iter().copied());
        for run in due {
            if !self.hands_off(run, || Handoff::Due(run)) {
                // What is in memory may be older than what made it due.
                self.refresh(run);
                self.wake_in_time(run, now);
            }
        }
        self.runs.expect_no_more();
        self.schedule.set_due(match more {
            true => Some(now),
            false => self.store.next_due()?.filter(|due| *due > now),
        });
        Ok(())
    }

    /// If other servers share the store, a server that works only on some runs leaves the timers of the rest to them: what
    /// it woke would be ready without anyone to do it.
    fn wake_own(&mut self, now: Time) {
        let ours = self.runs.iter().filter(|hot| {
            let head = hot.head();
            head.session.is_none() && !head.queued && self.works_on(hot.run_id())
        });
        let times = ours.filter_map(|hot| Some((hot.head().wake_at?, hot.run())));
        let (due, later): (Vec<_>, Vec<_>) = times.partition(|(at, _)| *at <= now);
        let next = later.into_iter().map(|(at, _)| at).min();
        self.schedule.set_due(next);
        for (_, run) in due {
            self.wake(run, now);
        }
    }

    fn read_messages(&mut self, poll: bool, now: Time) -> Result<(), StoreError> {
        let session = self.lease.session();
        let page = self.inbox.read(&*self.store, session, self.shard, poll)?;
        let mut begun = false;
        self.runs.expect(page.messages.iter().map(|it| it.run));
        for message in page.messages {
            // The other shards read theirs.
            if self.shard.has(message.run) && !self.inbox.is_handling(message.no) {
                self.refresh(message.run);
                self.read_message(&message, now);
                begun |= self.inbox.is_handling(message.no);
            }
        }
        self.runs.expect_no_more();
        // Where nothing could be begun, the same messages would come at once and again; they wait for the
        // next poll.
        if page.has_more && begun {
            self.inbox.look();
        }
        Ok(())
    }

    /// Tries again what waits for runs that could not be read.
    fn unpark(&mut self, now: Time) {
        for run in self.parked.runs() {
            self.rejoin(run, now);
        }
    }
}

/// The last instant before now: a lease that ended then is over.
pub(super) fn before(now: Time) -> Time {
    Time(now.0 - 1)
}

fn store_error(error: Error) -> StoreError {
    if let Error::Store(error) = error {
        return error;
    }
    StoreError::new(crate::store::StoreErrorKind::Internal, error)
}
