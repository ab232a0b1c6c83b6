//! Drafts that were not committed: the run is read again and its commands are decided again, or the
//! sender gets the reason. Nothing of a lost draft has happened.

use std::collections::VecDeque;

use stepwell_kernel::command::{Command, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::hot_run::{Leftover, Uncommitted};
use super::request::Origin;
use super::{Coordinator, Request, Slots, substitutes};
use crate::error::Error;
use crate::number_map::NumberMap;
use crate::store::{Guard, RunNo};

/// How many times a command is decided again because others were faster.
const MAX_RETRIES: u8 = 8;

impl Coordinator {
    /// A draft was not committed: the run is read again and its commands are decided again.
    pub(super) fn redo(&mut self, run: RunNo, lost: Uncommitted, guard: Option<Guard>, now: Time) {
        let Some(old) = self.forget_lost(run, &lost) else {
            return;
        };
        let create = lost.create.clone();
        let mut requests: Vec<Request> = Vec::new();
        for mut request in lost.requests() {
            // A lost session is nobody's fault but this server's; another is opened before it is tried
            // again.
            request.retries += u8::from(guard != Some(Guard::Session));
            if guard.is_some() && request.guard == guard {
                let lost = Rejection::new(Code::LeaseLost, "the lease has ended");
                self.refuse(&request, lost.into());
            } else if request.retries > MAX_RETRIES {
                self.refuse(&request, Error::Contended(old.run_id.to_string()));
            } else {
                requests.push(request);
            }
        }
        requests.extend(old.waiting);
        requests.retain(|request| !request.is_found());
        self.handle_again(&requests);
        if let Some(new) = create {
            return self.create_again(run, &old.plan, new, requests, now);
        }
        match self.runs.load(run, self.room()) {
            Ok(_) => {
                self.keep_jobs(run, old.jobs);
                self.take_all(run, requests, now);
                self.attend(run, now);
            }
            Err(error) => self.park(run, requests, old.jobs, error),
        }
    }

    /// Messages whose draft was lost are dealt with by their request, not read once more.
    fn handle_again(&mut self, requests: &[Request]) {
        for message in requests.iter().filter_map(Request::message) {
            self.inbox.begin(message);
        }
    }

    /// Forgets a run whose draft was lost; claims in the draft never happened.
    pub(super) fn forget_lost(&mut self, run: RunNo, lost: &Uncommitted) -> Option<Leftover> {
        for message in &lost.discarded {
            self.inbox.end(*message);
        }
        if let Some(hot) = self.runs.get_mut(run) {
            for target in &lost.claimed {
                self.capacity.end(hot, *target);
            }
        }
        self.schedule.unmark(run);
        let old = self.drop_run(run);
        if old.is_none() {
            self.invariants
                .broken(run, "a draft was lost whose run is not in memory");
        }
        old
    }

    /// Work of this process goes on while its run is read again; what the log no longer wants is
    /// stopped.
    pub(super) fn keep_jobs(&mut self, run: RunNo, jobs: NumberMap<Target, u32>) {
        let Some(hot) = self.runs.get_mut(run) else {
            return self
                .invariants
                .broken(run, "a run is not in memory just after it was read");
        };
        for (target, execution) in jobs {
            let ours = hot.state().target(target).is_some_and(|it| {
                let lease = it.lease();
                let worker = lease.is_some_and(|lease| lease.worker == self.lease.worker());
                it.execution() == execution && worker
            });
            if ours {
                self.capacity.keep(hot, target, execution);
            }
            if !ours || hot.state().phase() == Phase::Stopping {
                self.notices.stop(run, target, execution);
            }
        }
    }

    /// A run was not created after all. Only who wanted it created gets that answer: what others asked
    /// of it meanwhile is decided by the run that is there, if one is.
    pub(super) fn not_created(
        &mut self,
        run: RunNo,
        lost: Uncommitted,
        now: Time,
        answer: impl FnOnce(&Leftover) -> Result<Reply, Error>,
    ) {
        let Some(old) = self.forget_lost(run, &lost) else {
            return;
        };
        let answer = answer(&old);
        let mut others = Vec::new();
        for request in lost.requests() {
            match request.origin {
                Origin::Sender(ticket) if matches!(request.command, Command::CreateRun { .. }) => {
                    self.notices.answer(ticket, answer.clone());
                }
                Origin::Parent { run, mail } => match &answer {
                    Err(Error::Rejected(why)) if why.code == Code::KeyTaken => {
                        let Command::CreateRun { parent, .. } = &request.command else {
                            continue;
                        };
                        self.child_refused((run, mail), (&old.run_id, parent.as_ref()), why, now);
                    }
                    // A child that is there already was started before a crash; it answers by itself.
                    _ => self.child_is_there(run, mail),
                },
                // What follows for the run that is there is derived from its state.
                Origin::Coordinator => {}
                Origin::Sender(_) | Origin::Message { .. } => others.push(request),
            }
        }
        others.extend(old.waiting);
        self.ask_by_id(&old.run_id, others, now);
    }

    /// Requests to a run that was not created are decided by the run that has its id, if one is there.
    fn ask_by_id(&mut self, run_id: &str, requests: Vec<Request>, now: Time) {
        self.handle_again(&requests);
        for request in requests {
            match self.runs.number_of(run_id) {
                Ok(run) => self.take(run, request, now),
                Err(error) => self.refuse(&request, error),
            }
        }
    }

    /// Someone else was faster: the run stays in the queue.
    pub(super) fn no_slot(&mut self, run: RunNo, mut lost: Uncommitted, key: String, now: Time) {
        let Some(old) = self.forget_lost(run, &lost) else {
            return;
        };
        let Some(new) = lost.create.take() else {
            // It is queued; it is looked at again when a slot is freed. What others asked for in the same
            // draft has nothing to do with that.
            let others = lost
                .requests()
                .filter(|it| !matches!(it.command, Command::StartRun { .. }));
            let others: Vec<Request> = others.chain(old.waiting).collect();
            self.handle_again(&others);
            return self.take_all(run, others, now);
        };
        // Create it again without starting it.
        self.slots.look();
        let mut requests = lost.requests();
        let Some(mut create) = requests.next() else {
            return self
                .invariants
                .broken(run, "a run was to be created without a command");
        };
        let others: Vec<Request> = requests.filter(is_asked).chain(old.waiting).collect();
        let limits = &self.config.limits;
        match Slots::when_full(limits, key, &mut create.command, now) {
            Ok(()) => {
                self.create_queued(run, &old.plan, new, create, now);
                self.handle_again(&others);
                self.take_all(run, others, now);
            }
            Err(error) => {
                self.refuse(&create, error);
                self.ask_by_id(&old.run_id, others, now);
            }
        }
    }

    /// A value cannot be written: its sender gets the error, and other requests are not affected.
    pub(super) fn refused(&mut self, run: RunNo, lost: Uncommitted, why: &str, now: Time) {
        let Some(old) = self.forget_lost(run, &lost) else {
            return;
        };
        let created = lost.create.is_some();
        if !created && lost.decided.len() > 1 {
            return self.one_by_one(run, old, lost, now);
        }
        let error = Error::Refused {
            run_id: old.run_id.to_string(),
            why: why.to_owned(),
        };
        tracing::error!(%error, "a value was refused");
        let mut again = Vec::new();
        let mut unreadable = Vec::new();
        let mut stuck = false;
        for request in lost.requests() {
            match (
                substitutes::failure_of(&request.command, why),
                request.origin,
            ) {
                // The work was done and its result cannot be kept: the step fails, and says so.
                (Some(command), _) => again.push(Request { command, ..request }),
                // Nobody looks for an answer, and the next time would be no better.
                (None, Origin::Message { no, reply: false }) => unreadable.push(no),
                // What the run itself comes to cannot be written. Deriving it again would come to
                // the same, without end.
                (None, Origin::Coordinator) => stuck = true,
                (None, _) => self.refuse(&request, error.clone()),
            }
        }
        again.extend(old.waiting);
        if created {
            again.retain(is_asked);
            return self.ask_by_id(&old.run_id, again, now);
        }
        match self.runs.load(run, self.room()) {
            Ok(_) => {
                self.keep_jobs(run, old.jobs);
                for message in unreadable {
                    self.discard(run, message);
                }
                self.take_all(run, again, now);
                if !stuck {
                    self.attend(run, now);
                }
            }
            Err(error) => self.park(run, again, old.jobs, error),
        }
    }

    /// One of these commands cannot be written: the first is decided alone, the others after its
    /// commit, until the one that is to blame stands alone.
    fn one_by_one(&mut self, run: RunNo, old: Leftover, lost: Uncommitted, now: Time) {
        let mut requests: VecDeque<Request> = lost.requests().chain(old.waiting).collect();
        if let Err(error) = self.runs.load(run, self.room()) {
            return self.park(run, requests.into(), old.jobs, error);
        }
        self.keep_jobs(run, old.jobs);
        let first = requests.pop_front();
        self.take_all(run, first, now);
        match self.runs.get_mut(run) {
            Some(hot) => {
                requests.into_iter().for_each(|request| hot.wait(request));
                hot.draft();
                self.schedule.mark(run);
            }
            // Another server has it now.
            None => self.take_all(run, requests, now),
        }
    }

    /// Keeps commands until their run can be read again. Senders are told at once.
    pub(super) fn park(
        &mut self,
        run: RunNo,
        requests: Vec<Request>,
        jobs: NumberMap<Target, u32>,
        error: Error,
    ) {
        tracing::warn!(%error, run = run.0, "a run cannot be read now; its commands wait");
        let is_sender = |request: &Request| matches!(request.origin, Origin::Sender(_));
        let (senders, rest): (Vec<_>, Vec<_>) = requests.into_iter().partition(is_sender);
        for request in &senders {
            self.refuse(request, error.clone());
        }
        self.parked.park(run, rest, jobs);
        self.runs.withhold(run, error);
    }

    /// Reads a run that is parked, and brings its commands and its work together with it before anything else is done
    /// for the run: a decision without them would take the work for lost, or write that nobody has it.
    pub(super) fn rejoin(&mut self, run: RunNo, now: Time) {
        let Some(parked) = self.parked.take(run) else {
            return;
        };
        self.runs.admit(run);
        match self.runs.load(run, self.room()) {
            Ok(_) => {
                self.keep_jobs(run, parked.jobs);
                self.take_all(run, parked.requests, now);
                self.attend(run, now);
            }
            // Still not: it was said when it was parked.
            Err(error) => {
                self.parked.put_back(run, parked);
                self.runs.withhold(run, error);
            }
        }
    }
}

/// Whether a caller asked for it. What the coordinator asks for itself is derived from the state.
fn is_asked(request: &Request) -> bool {
    !matches!(request.origin, Origin::Coordinator)
}
