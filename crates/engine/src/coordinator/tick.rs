//! Time, and everything that this server learns only by asking the store: what is due is read off the
//! states of the runs and off the store, so no timer can be lost.

use std::collections::BTreeMap;

use stepwell_kernel::command::{Command, TimerKind};
use stepwell_kernel::effect::Effect;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::{Coordinator, HotRun, Request, Serves};
use crate::error::Error;
use crate::rows::parse_target;
use crate::store::{Guard, RunNo, StoreError, TaskRow};

/// How many rows are asked for at a time.
const PAGE: usize = 256;
/// How long a run that is being woken is not offered to other servers, in milliseconds.
const WAKE_MS: u64 = 10_000;
/// How long a task that is about to be claimed is not offered to other workers, in milliseconds.
const RESERVE_MS: u64 = 10_000;

impl Coordinator {
    /// When `tick` must be called at the latest.
    #[must_use]
    pub fn next_tick(&self) -> Time {
        self.schedule
            .next_tick(self.must_ask(), self.lease.renew_at())
    }

    /// The store could not be asked: it is asked again after a while.
    pub fn rest(&mut self, now: Time) {
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
            self.reopen(now)?;
        }
        while let Some(run) = self.schedule.next_fired(&mut self.runs, now) {
            self.wake(run, now);
        }
        self.unpark(now);
        let poll = self.schedule.take_poll(now, self.config.poll_ms);
        if poll {
            self.take_over_dead(now)?;
            self.expire_leases(now)?;
            self.look_for_late_commits(now)?;
            self.slots.look();
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
        if poll {
            self.reserve_tasks(now)?;
            self.inbox.read_answers(&*self.store, &mut self.notices)?;
        }
        Ok(())
    }

    /// Fires what is due in a run, and sees to everything else that it needs.
    pub(super) fn wake(&mut self, run: RunNo, now: Time) {
        if let Err(error) = self.runs.load(run, self.room()) {
            tracing::warn!(%error, "a run could not be woken yet");
            return;
        }
        while let Some(hot) = self.runs.get(run) {
            if hot.is_in_flight() {
                // Its timer is set again once the commit is answered.
                return;
            }
            let state = hot.state();
            if matches!(state.phase(), Phase::Created | Phase::Queued) {
                self.slots.look();
                break;
            }
            let timer = match state.pause() {
                Some(_) => state.timers().own(TimerKind::Drain),
                None => state.timers().next(),
            };
            let Some((_, id)) = timer.filter(|(due, _)| *due <= now) else {
                break;
            };
            let before = state.seq();
            self.decide(run, Request::own(Command::FireTimer(id)), now);
            let is_moved = |hot: &HotRun| hot.state().seq() != before;
            if !self.runs.get(run).is_some_and(is_moved) {
                // The kernel refused it: the timer is not due by the log's own time.
                break;
            }
        }
        self.attend(run, now);
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
                    let does = self.config.does(hot.run_id(), hot.plan(), target);
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
                        });
                    }
                }
                // Rows or people move it: timers, children, events, a slot.
                _ => {}
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
        if self.config.only.is_some() && !self.store_is_ours() {
            self.wake_own(now);
            return Ok(());
        }
        let due = self.store.due(now, now.plus(WAKE_MS), PAGE)?;
        let more = due.len() == PAGE;
        for run in due {
            // What is in memory may be older than what made it due.
            self.refresh(run);
            self.wake(run, now);
        }
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
        let page = self.inbox.read(&*self.store, self.lease.session(), poll)?;
        let mut begun = false;
        for message in page.messages {
            if !self.inbox.is_handling(message.no) {
                self.refresh(message.run);
                self.read_message(&message, now);
                begun |= self.inbox.is_handling(message.no);
            }
        }
        // Where nothing could be begun, the same messages would come at once and again; they wait for the
        // next poll.
        if page.has_more && begun {
            self.inbox.look();
        }
        Ok(())
    }

    /// Work that others have left and that this process has room for.
    fn reserve_tasks(&mut self, now: Time) -> Result<(), StoreError> {
        let set = match &self.config.serves {
            // A server that serves everything does so only for the runs that it is asked for.
            Serves::Nothing | Serves::Everything => return Ok(()),
            Serves::Only(set) => set.clone(),
        };
        if self.stopping {
            return Ok(());
        }
        // Each limited queue is asked for by itself: no more of it than it has room for.
        let mut asked: BTreeMap<Option<&str>, Vec<(String, String)>> = BTreeMap::new();
        for pair in &*set {
            let limited = self.config.queues.contains_key(&pair.0);
            let queue = limited.then_some(pair.0.as_str());
            asked.entry(queue).or_default().push(pair.clone());
        }
        let mut left = self.capacity.room(&self.config).min(PAGE);
        for (queue, pairs) in asked {
            let room = match queue {
                Some(queue) => self.capacity.room_in(queue, &self.config).min(left),
                None => left,
            };
            if room == 0 {
                continue;
            }
            let (worker, until) = (self.lease.worker(), now.plus(RESERVE_MS));
            let tasks = self.store.reserve(&pairs, worker, now, until, room)?;
            left = left.saturating_sub(tasks.len());
            for task in tasks {
                self.refresh(task.run);
                self.adopt(&task);
            }
        }
        Ok(())
    }

    /// A reserved task becomes work of this process: the claim takes the row away. A task that cannot be
    /// adopted is offered to others again when its reservation ends.
    fn adopt(&mut self, task: &TaskRow) {
        let hot = match self.runs.load(task.run, self.room()) {
            Ok(hot) => hot,
            Err(error) => {
                tracing::warn!(%error, run = task.run.0, "a task's run cannot be read now");
                return;
            }
        };
        if hot.is_in_flight() || hot.is_owned_by_other(self.lease.session()) {
            return;
        }
        let Some(target) = parse_target(hot.plan(), &task.target) else {
            let what = "a task is named after no step of its run's plan";
            return self.invariants.broken(task.run, what);
        };
        hot.add_ready(target, task.visible_at);
        hot.draft().guard(&Guard::Lease {
            target: task.target.clone(),
            worker: self.lease.worker().to_owned(),
        });
        self.schedule.mark(task.run);
    }

    /// Tries again what waits for runs that could not be read.
    fn unpark(&mut self, now: Time) {
        for (run, parked) in self.parked.take() {
            match self.runs.load(run, self.room()) {
                Ok(_) => {
                    self.keep_jobs(run, parked.jobs);
                    self.take_all(run, parked.requests, now);
                    self.attend(run, now);
                }
                // Still not: it was said when it was parked.
                Err(_) => self.parked.put_back(run, parked),
            }
        }
    }
}

/// The last instant before now: a lease that ended then is over.
pub(super) fn before(now: Time) -> Time {
    Time(now.0 - 1)
}

pub(super) fn store_error(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        other => StoreError::new(crate::store::StoreErrorKind::Internal, other),
    }
}
