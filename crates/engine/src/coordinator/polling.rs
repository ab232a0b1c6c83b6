//! Time: what is due is read off the states of the runs and off the store, so no timer can be lost.
//! Here also everything that this server learns only by asking: messages, queued runs, dead servers,
//! ended leases.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use stepwell_kernel::command::{Command, TimerKind};
use stepwell_kernel::effect::{Effect, Target};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::{Answer, Coordinator, Draft, Notice, Origin, Request, Serves, Ticket};
use crate::error::Error;
use crate::rows::parse_target;
use crate::store::{Guard, MessageNo, MessageState, RunNo, StoreError, TaskRow};
use stepwell_kernel::command::Reply;

/// How many rows are asked for at a time.
const PAGE: usize = 256;
/// How long a run that is being woken is not offered to other servers, in milliseconds.
const WAKE_MS: u64 = 10_000;
/// How long a task that is about to be claimed is not offered to other workers, in milliseconds.
const RESERVE_MS: u64 = 10_000;

/// When the store is asked next, and for what.
#[derive(Debug)]
pub(super) struct Polls {
    pub(super) next: Time,
    pub(super) renew: Time,
    /// The store was not there: it is not asked before.
    rest: Time,
    /// When the next run that nobody has is due, as far as this coordinator knows.
    due: Option<Time>,
    /// When queued runs may start, as far as this coordinator knows.
    starts: BTreeSet<Time>,
    pub(super) mail: bool,
    pub(super) queue: bool,
    news: i64,
    pub(super) session_lost: bool,
    /// Messages to other servers whose senders wait.
    pub(super) awaited: Vec<(MessageNo, Ticket)>,
    parked: BTreeMap<RunNo, Parked>,
    /// Runs with a commit that was given up and may come through yet, with the last event before it.
    pub(super) doubtful: BTreeMap<RunNo, u64>,
}

/// Commands for a run that cannot be read just now.
#[derive(Debug, Default)]
struct Parked {
    requests: Vec<Request>,
    jobs: HashMap<Target, u32>,
}

impl Polls {
    pub(super) fn at(now: Time) -> Polls {
        Polls {
            next: now,
            renew: now,
            rest: Time(0),
            due: None,
            starts: BTreeSet::new(),
            mail: false,
            queue: false,
            news: 0,
            session_lost: false,
            awaited: Vec::new(),
            parked: BTreeMap::new(),
            doubtful: BTreeMap::new(),
        }
    }
}

impl Coordinator {
    /// When `tick` must be called at the latest.
    #[must_use]
    pub fn next_tick(&self) -> Time {
        if self.polls.mail || self.polls.queue || self.polls.session_lost {
            return self.polls.rest;
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let starts = self.polls.starts.first().copied();
        let all = timer.into_iter().chain(self.polls.due).chain(starts);
        let soonest = all.fold(self.polls.next.min(self.polls.renew), Time::min);
        soonest.max(self.polls.rest)
    }

    /// The store could not be asked: it is asked again after a while.
    pub fn rest(&mut self, now: Time) {
        self.polls.rest = now.plus(self.config.poll_ms.clamp(10, 1_000));
        self.polls.mail = true;
        self.polls.queue = true;
    }

    /// Something may have changed in the store.
    pub fn look(&mut self) {
        self.polls.mail = true;
        self.polls.queue = true;
    }

    /// When something that is known here happens by itself: polls aside.
    #[must_use]
    pub fn next_due(&self) -> Option<Time> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let starts = self.polls.starts.first().copied();
        let all = timer.into_iter().chain(self.polls.due);
        all.chain(starts).min()
    }

    /// Whether something is to be done now, whatever the time.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.polls.mail || self.polls.queue || self.polls.session_lost || !self.dirty.is_empty()
    }

    /// Does what is due. On `Err` the store was not there; what could not be done is done later.
    pub fn tick(&mut self, now: Time) -> Result<(), StoreError> {
        self.keep_session(now)?;
        self.fire_timers(now);
        self.unpark(now);
        let poll = now >= self.polls.next;
        if poll {
            self.polls.next = now.plus(self.config.poll_ms);
            self.look_for_the_dead(now)?;
            self.expire_leases(now)?;
            self.look_for_the_late(now)?;
            self.polls.queue = true;
        }
        if poll || self.polls.due.is_some_and(|due| due <= now) {
            self.wake_due(now)?;
        }
        while self.polls.starts.first().is_some_and(|at| *at <= now) {
            self.polls.starts.pop_first();
            self.polls.queue = true;
        }
        self.read_all_mail(poll, now)?;
        if std::mem::take(&mut self.polls.queue) && !self.stopping {
            self.dequeue(now).map_err(store_error)?;
        }
        if poll {
            self.reserve_tasks(now)?;
            self.read_answers()?;
        }
        Ok(())
    }

    fn fire_timers(&mut self, now: Time) {
        while let Some((at, run)) = self.timers.first().copied() {
            if at > now {
                break;
            }
            self.timers.remove(&(at, run));
            if let Some(hot) = self.runs.get_mut(&run) {
                hot.timer = None;
            }
            self.wake(run, now);
        }
    }

    /// Fires what is due in a run, and sees to everything else that it needs.
    pub(super) fn wake(&mut self, run: RunNo, now: Time) {
        if let Err(error) = self.ensure(run) {
            tracing::warn!(%error, "a run could not be woken yet");
            return;
        }
        while let Some(hot) = self.runs.get(&run) {
            if hot.flight.is_some() {
                // Its timer is set again once the commit is answered.
                return;
            }
            if matches!(hot.state.phase, Phase::Created | Phase::Queued) {
                self.polls.queue = true;
                break;
            }
            let timer = match hot.state.pause {
                Some(_) => hot.state.timers.own(TimerKind::Drain),
                None => hot.state.timers.next(),
            };
            let Some((_, id)) = timer.filter(|(due, _)| *due <= now) else {
                break;
            };
            let before = hot.state.seq;
            self.decide(run, Request::own(Command::FireTimer(id)), now);
            if self
                .runs
                .get(&run)
                .is_none_or(|hot| hot.state.seq == before)
            {
                break;
            }
        }
        self.attend(run, now);
    }

    /// Derives from the state what this server must do for a run, and writes the head accordingly.
    pub(super) fn attend(&mut self, run: RunNo, now: Time) {
        if let Some(hot) = self.runs.get_mut(&run) {
            hot.fresh = false;
        }
        let Some(hot) = self.runs.get(&run) else {
            return;
        };
        if hot.flight.is_some() || hot.owner(hot.draft.as_ref(), self.session).is_some() {
            return;
        }
        let mut effects = Vec::new();
        let mut lost = Vec::new();
        for source in wake_sources(&hot.plan, &hot.state) {
            match source {
                WakeSource::Task {
                    target,
                    visible_at,
                    task,
                } => {
                    let name = crate::rows::target_name(&hot.plan, target);
                    // What was offered to others and is not claimed is done here where it can be.
                    let offered = hot.tasks.contains_key(&name) && self.offers(hot, target);
                    if !offered && !hot.jobs.contains_key(&target) {
                        effects.push(Effect::Dispatch {
                            target,
                            visible_at,
                            task,
                        });
                    }
                }
                WakeSource::Proceed => effects.push(Effect::Proceed),
                WakeSource::Lease { target, .. } => {
                    let it = hot.state.target(target);
                    let Some((it, lease)) = it.and_then(|it| Some((it, it.lease.as_ref()?))) else {
                        continue;
                    };
                    // A claim of ours whose work is not here was lost with an answer, unless its result
                    // is here and waits.
                    let here = hot.jobs.contains_key(&target) || hot.has_result(target);
                    if lease.worker == self.worker && !here {
                        lost.push((target, it.execution));
                    }
                }
                _ => {}
            }
        }
        for (target, execution) in lost {
            let expire = Command::ExpireLease {
                target,
                execution,
                lease_until: Some(before(now)),
            };
            self.decide(run, Request::own(expire), now);
        }
        self.follow(run, effects);
        if let Some(hot) = self.runs.get_mut(&run) {
            if std::mem::take(&mut hot.proceed) {
                self.decide(run, Request::own(Command::Proceed), now);
            }
            self.touch(run);
        }
    }

    /// Sees to all runs in memory, after what is served here has changed.
    pub fn attend_all(&mut self, now: Time) {
        let runs: Vec<RunNo> = self.runs.keys().copied().collect();
        for run in runs {
            self.attend(run, now);
        }
    }

    /// The run's head is looked at in the next batch.
    fn touch(&mut self, run: RunNo) {
        if let Some(hot) = self.runs.get_mut(&run) {
            hot.draft.get_or_insert_with(|| Draft::new(hot.committed));
            self.dirty.insert(run);
        }
    }

    /// Remembers when a run must be looked at.
    pub(super) fn set_timer(&mut self, run: RunNo) {
        let session = self.session;
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        if let Some(at) = hot.timer.take() {
            self.timers.remove(&(at, run));
        }
        let head = &hot.head;
        if head.session == Some(session) {
            if let Some(at) = hot.alarm() {
                hot.timer = Some(at);
                self.timers.insert((at, run));
            }
        } else if head.session.is_none()
            && let Some(at) = head.wake_at
        {
            if head.queued {
                self.polls.starts.insert(at);
                return;
            }
            self.polls.due = Some(self.polls.due.map_or(at, |due| due.min(at)));
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
        self.polls.due = match more {
            true => Some(now),
            false => self.store.next_due()?.filter(|due| *due > now),
        };
        Ok(())
    }

    /// Where others have runs too, whoever works only on some leaves the time of the rest to them: what
    /// it woke would be ready without anyone to do it.
    fn wake_own(&mut self, now: Time) {
        let ours = self.runs.values().filter(|hot| {
            hot.head.session.is_none() && !hot.head.queued && self.works_on(&hot.run_id)
        });
        let times = ours.filter_map(|hot| Some((hot.head.wake_at?, hot.run)));
        let (due, later): (Vec<_>, Vec<_>) = times.partition(|(at, _)| *at <= now);
        self.polls.due = later.into_iter().map(|(at, _)| at).min();
        for (_, run) in due {
            self.wake(run, now);
        }
    }

    /// Forgets a run that others have moved while nobody here had it. Says whether that was so.
    pub fn forget_if_moved(&mut self, run_id: &str) -> Result<bool, Error> {
        let run = self.number_of(run_id)?;
        let idle = |hot: &&super::HotRun| hot.is_idle(self.session);
        let Some(hot) = self.runs.get(&run).filter(idle) else {
            return Ok(false);
        };
        let moved = !self.store.chunks(run, hot.committed, 1)?.is_empty();
        if moved {
            self.drop_run(run);
        }
        Ok(moved)
    }

    /// Forgets a run that nobody here has, so that it is read anew.
    pub(super) fn refresh(&mut self, run: RunNo) {
        let session = self.session;
        if self.runs.get(&run).is_some_and(|hot| hot.is_idle(session)) && !self.store_is_ours() {
            self.drop_run(run);
        }
    }

    /// Whether no other process writes to this store.
    fn store_is_ours(&self) -> bool {
        !self.store.is_shared()
    }

    fn read_all_mail(&mut self, poll: bool, now: Time) -> Result<(), StoreError> {
        let asked = std::mem::take(&mut self.polls.mail);
        let news = self.store.news()?;
        if !asked && !poll && news == self.polls.news {
            return Ok(());
        }
        self.polls.news = news;
        for mail in self.store.mail(self.session, PAGE)? {
            if !self.reading.contains(&mail.no) {
                self.refresh(mail.run);
                self.read_mail(&mail, now);
            }
        }
        Ok(())
    }

    /// Work that others have left and that this process has room for.
    fn reserve_tasks(&mut self, now: Time) -> Result<(), StoreError> {
        let set = match &self.config.serves {
            // Whoever serves everything does so for the runs that it is asked for.
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
        let mut left = self.load.room(&self.config).min(PAGE);
        for (queue, pairs) in asked {
            let room = match queue {
                Some(queue) => self.load.room_in(queue, &self.config).min(left),
                None => left,
            };
            if room == 0 {
                continue;
            }
            let (worker, until) = (self.worker.clone(), now.plus(RESERVE_MS));
            let tasks = self.store.reserve(&pairs, &worker, now, until, room)?;
            left = left.saturating_sub(tasks.len());
            for task in tasks {
                self.refresh(task.run);
                self.adopt(&task);
            }
        }
        Ok(())
    }

    /// A reserved task becomes work of this process: the claim takes the row away.
    fn adopt(&mut self, task: &TaskRow) {
        if self.ensure(task.run).is_err() {
            return;
        }
        let Some(hot) = self.runs.get_mut(&task.run) else {
            return;
        };
        if hot.flight.is_some() || hot.head.session.is_some_and(|it| it != self.session) {
            return;
        }
        let Some(target) = parse_target(&hot.plan, &task.target) else {
            return;
        };
        let order = hot.plan.step(target.step_ref().step).order;
        hot.ready.insert((task.visible_at, order, target));
        let draft = hot.draft.get_or_insert_with(|| Draft::new(hot.committed));
        draft.guards.push(Guard::Lease {
            target: task.target.clone(),
            worker: self.worker.clone(),
        });
        self.dirty.insert(task.run);
    }

    /// What other servers have answered.
    fn read_answers(&mut self) -> Result<(), StoreError> {
        let mut awaited = std::mem::take(&mut self.polls.awaited).into_iter();
        while let Some((mail, ticket)) = awaited.next() {
            match self.store.take_answer(mail) {
                Ok(MessageState::Waiting) => self.polls.awaited.push((mail, ticket)),
                Ok(MessageState::Taken) => {
                    let done = Ok(Answer::Reply(Reply::Done));
                    self.notices.push_back(Notice::Answer(ticket, done));
                }
                Ok(MessageState::Answered(text)) => {
                    let error = Err(refusal(&text));
                    self.notices.push_back(Notice::Answer(ticket, error));
                }
                Err(error) => {
                    self.polls.awaited.push((mail, ticket));
                    self.polls.awaited.extend(awaited);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Keeps commands until their run can be read again. Senders are told at once.
    pub(super) fn park(
        &mut self,
        run: RunNo,
        requests: Vec<Request>,
        jobs: HashMap<Target, u32>,
        error: Error,
    ) {
        tracing::warn!(%error, run = run.0, "a run cannot be read now; its commands wait");
        let (senders, rest): (Vec<Request>, Vec<Request>) = requests
            .into_iter()
            .partition(|request| matches!(request.from, Origin::Sender(_)));
        for request in &senders {
            self.refuse(request, error.clone());
        }
        // What belongs to one run goes on at once: half of it would take the other half for lost.
        let parked = self.polls.parked.entry(run).or_default();
        parked.requests.extend(rest);
        parked.jobs.extend(jobs);
    }

    /// Work for a run that cannot be read just now has ended: its result waits with the rest. Gives
    /// the result back if the run is not one of these.
    pub(super) fn park_result(
        &mut self,
        run: RunNo,
        target: Target,
        execution: u32,
        result: Request,
    ) -> Option<Request> {
        let Some(parked) = self.polls.parked.get_mut(&run) else {
            return Some(result);
        };
        // The log still says that it is ours, and it would be waited for for ever.
        if parked.jobs.get(&target) == Some(&execution) {
            parked.jobs.remove(&target);
        }
        parked.requests.push(result);
        None
    }

    fn unpark(&mut self, now: Time) {
        for (run, parked) in std::mem::take(&mut self.polls.parked) {
            match self.ensure(run) {
                Ok(()) => {
                    self.keep_jobs(run, parked.jobs);
                    for request in parked.requests {
                        self.take(run, request, now);
                    }
                    self.attend(run, now);
                }
                Err(_) => {
                    self.polls.parked.insert(run, parked);
                }
            }
        }
    }
}

pub(super) fn before(now: Time) -> Time {
    Time(now.0 - 1)
}

pub(super) fn store_error(error: Error) -> StoreError {
    match error {
        Error::Store(error) => error,
        other => StoreError::new(crate::store::StoreErrorKind::Internal, other),
    }
}

/// A refusal that another server has written down.
fn refusal(text: &str) -> Error {
    let (code, message) = text.split_once(": ").unwrap_or(("", text));
    let known = Code::ALL.iter().find(|it| it.name() == code);
    Rejection::new(*known.unwrap_or(&Code::InvalidTransition), message).into()
}
