//! What the store answered: committed drafts are told and what waited for them goes on; what was not
//! committed is in `lost_commits`.

use stepwell_kernel::command::{Claimed, Command, Reply};
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::time::Time;

use super::hot_run::Flight;
use super::request::{Decided, Origin};
use super::{Assignment, Coordinator, Handoff, HotRun, Notice, Request, substitutes};
use crate::store::{
    Append, AppendResult, Batch, Guard, NewMessage, NewRun, RunNo, StoreError, StoreErrorKind,
};

/// What to do with a batch that the store did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Send the same once more, after a while.
    Same,
    /// Forget it: its commands are decided again.
    Never,
}

/// A wait for the store that is too short to be seen in the times of events, in milliseconds.
const UNNOTICED_MS: u64 = 100;

impl Coordinator {
    /// The store has answered.
    pub fn committed(&mut self, batch: &Batch, outcomes: Vec<AppendResult>, now: Time) {
        let took = self.sent_at(batch).map_or(0, |sent| now.since(sent));
        let budget = self.config.write_budget_ms;
        self.slow_writes.written(batch, took, budget);
        self.outage.took(took, now);
        let mut outcomes = outcomes.into_iter();
        for append in &batch.appends {
            let run = append.run;
            let outcome = outcomes.next();
            let Some(flight) = self.land(run) else {
                self.invariants
                    .broken(run, "a commit was answered that is not in flight");
                continue;
            };
            match outcome {
                Some(AppendResult::Committed | AppendResult::Again) => {
                    self.settle(run, append, flight, now)
                }
                Some(outcome) => self.not_committed(batch, append, flight, outcome, now),
                None => {
                    self.invariants
                        .broken(run, "the store did not answer for an append of its batch");
                    self.redo(run, flight.into_uncommitted(append), None, now);
                }
            }
        }
        self.slow_writes.write(&*self.store, &mut self.notices, now);
    }

    /// When the first append of a batch in flight was sent.
    fn sent_at(&self, batch: &Batch) -> Option<Time> {
        let runs = batch.appends.iter().filter_map(|it| self.runs.get(it.run));
        runs.filter_map(HotRun::sent_at).min()
    }

    /// A batch is sent now that could not be sent, or was not taken, for a while: its events say that they are
    /// appended now.
    pub fn restamp(&mut self, batch: &mut Batch, now: Time) {
        if now.since(batch.now) < UNNOTICED_MS {
            return;
        }
        for append in &mut batch.appends {
            if let Some(hot) = self.runs.get_mut(append.run) {
                hot.restamp(append, now);
            }
        }
    }

    fn not_committed(
        &mut self,
        batch: &Batch,
        append: &Append,
        flight: Flight,
        outcome: AppendResult,
        now: Time,
    ) {
        let run = append.run;
        let passes = matches!(
            outcome,
            AppendResult::GuardFailed(_)
                | AppendResult::SlotsFull(_)
                | AppendResult::UniqueKeyTaken(_)
        );
        if passes && flight.is_doubtful() {
            // It was sent before, and that sending may come through once the reason for this refusal is gone.
            self.parked.doubt(append);
        }
        // Sent before and given up, it was written after all, unless someone else has made a run with its id since.
        let is_other = |new: &NewRun| {
            let there = self.store.find(&new.run_id).ok().flatten();
            there.is_some_and(|it| it != run)
        };
        let ours = outcome == AppendResult::RunExists
            && flight.first().is_some_and(|first| first.retries > 0)
            && !append.create.as_deref().is_some_and(is_other);
        let lost = flight.into_uncommitted(append);
        match outcome {
            AppendResult::Committed
            | AppendResult::Again
            | AppendResult::Moved
            | AppendResult::KeyExists => {
                self.redo(run, lost, None, now);
            }
            AppendResult::GuardFailed(index) => {
                let guard = append.guards.get(index).cloned();
                // A batch of an earlier session says nothing about this one.
                if guard == Some(Guard::Session) && batch.session == Some(self.lease.session()) {
                    self.lease.lose();
                }
                self.redo(run, lost, guard, now);
            }
            AppendResult::RunExists => self.not_created(run, lost, now, |left| {
                let run_id = left.run_id.to_string();
                let message = format!("there is a run {run_id} already");
                match ours {
                    true => Ok(Reply::Created { run_id }),
                    false => Err(Rejection::new(Code::RunExists, message).into()),
                }
            }),
            AppendResult::RequestTaken(run_id) => {
                self.not_created(run, lost, now, |_| Ok(Reply::Created { run_id }));
            }
            AppendResult::UniqueKeyTaken(holder) => self.not_created(run, lost, now, |left| {
                Err(Rejection::key_taken(&left.event_key, &holder).into())
            }),
            AppendResult::SlotsFull(key) => self.no_slot(run, lost, key, now),
            AppendResult::Refused(why) => self.refused(run, lost, &why, now),
        }
    }

    /// The store could not take a batch: says whether the same is to be sent again. After the write
    /// budget results are not left hanging: their steps fail instead, by a write at the same place in
    /// the log, so that exactly one of the two is recorded.
    pub fn failed(&mut self, batch: &Batch, error: &StoreError, now: Time) -> Retry {
        let budget = self.config.write_budget_ms;
        let took = self.sent_at(batch).map_or(0, |sent| now.since(sent));
        let late = took > budget;
        self.outage.took(took, now);
        if error.kind.may_pass() && !late {
            if error.kind == StoreErrorKind::AnswerLost {
                for append in &batch.appends {
                    if let Some(hot) = self.runs.get_mut(append.run) {
                        hot.doubt();
                    }
                }
            }
            return Retry::Same;
        }
        if late {
            self.slow_writes.given_up(batch, took, budget);
        }
        tracing::warn!(%error, late, "a commit is given up; its commands are decided again");
        for append in &batch.appends {
            // It may come through yet, for a session that has forgotten it.
            self.parked.doubt(append);
            let Some(mut flight) = self.land(append.run) else {
                self.invariants
                    .broken(append.run, "a commit failed that is not in flight");
                continue;
            };
            if late {
                flight.requests_mut().for_each(substitutes::too_late);
            }
            if error.kind.may_pass() {
                // The store was away. Only who was slower than others gives up after some retries.
                flight.requests_mut().for_each(|it| it.retries = 0);
            }
            self.redo(append.run, flight.into_uncommitted(append), None, now);
        }
        Retry::Never
    }

    /// Gives a batch up because nobody waits for the store any longer: senders are told, everything
    /// else is derived again from the log.
    pub fn abandon(&mut self, batch: &Batch, error: &StoreError) {
        for append in &batch.appends {
            // A batch that was given up before by `failed` has been redone: its runs may be in flight no
            // longer.
            let Some(flight) = self.land(append.run) else {
                continue;
            };
            let lost = flight.into_uncommitted(append);
            let waiting = self.forget_lost(append.run, &lost).map(|left| left.waiting);
            let waiting = waiting.into_iter().flatten();
            let requests: Vec<Request> = lost.requests().chain(waiting).collect();
            for request in requests {
                self.refuse(&request, error.clone().into());
            }
        }
    }

    fn land(&mut self, run: RunNo) -> Option<Flight> {
        self.runs.get_mut(run).and_then(HotRun::land)
    }

    /// A draft is in the log: everyone is told, and what waited for it goes on.
    fn settle(&mut self, run: RunNo, append: &Append, flight: Flight, now: Time) {
        match self.runs.get_mut(run) {
            Some(hot) => hot.settle(append),
            None => {
                let what = "a commit was answered for a run that is not in memory";
                self.invariants.broken(run, what);
            }
        }
        if append.create.is_some() {
            self.runs.set_created(run);
        }
        if let Some(chunk) = &append.chunk {
            let (first, seq) = (chunk.first, chunk.last);
            self.notices.push(Notice::Changed { run, first, seq });
            self.tell_engine(run);
        }
        self.conclude(run, append, flight, now);
    }

    /// Tells what a draft has come to that is committed, or had nothing to commit.
    pub(super) fn conclude(&mut self, run: RunNo, append: &Append, flight: Flight, now: Time) {
        let committed = flight.into_committed();
        let (starts, notices) = (committed.starts, committed.notices);
        let decided = committed.decided.into_iter();
        let (back, decided) = decided.partition(Decided::goes_back);
        self.give_out(run, committed.handed);
        self.tell_offers(run, committed.offers);
        self.answer_all(decided);
        self.give_back(run, back, now);
        if !starts.is_empty() {
            self.assign(run, starts);
        }
        if !append.mail.is_empty() || !append.waits.is_empty() {
            self.inbox.look();
        }
        let ours = |mail: &NewMessage| {
            let known = self.runs.known_number(&mail.to);
            known.is_some_and(|run| self.shard.has(run))
        };
        if !self.shard.is_all() && !append.mail.iter().all(ours) {
            self.notices.push(Notice::Elsewhere(Handoff::Mailed));
        }
        if append.slots.iter().any(|slot| slot.change < 0) {
            self.slots.freed();
        }
        for message in &append.taken {
            self.inbox.end(*message);
        }
        self.notices.extend(notices);
        self.go_on(run, now);
    }

    /// Hands out work whose claim is committed.
    fn assign(&mut self, run: RunNo, starts: Vec<Claimed>) {
        let Some(hot) = self.runs.get(run) else {
            let what = "work was claimed for a run that is not in memory";
            return self.invariants.broken(run, what);
        };
        for claimed in starts {
            let work = Box::new(Assignment::of(hot, claimed));
            self.notices.push(Notice::Start(work));
        }
    }

    fn answer_all(&mut self, decided: Vec<Decided>) {
        for Decided { request, answer } in decided {
            match (request.origin, answer) {
                (Origin::Sender(ticket), Ok(reply)) => self.notices.answer(ticket, Ok(reply)),
                (Origin::Message { no, reply: true }, Ok(Reply::Duplicate(first))) => {
                    self.tell_first(no, *first);
                }
                (Origin::Message { no, .. }, Ok(_)) => self.inbox.end(no),
                (Origin::Parent { run, mail }, Ok(_)) => self.child_is_there(run, mail),
                // Nobody waits for it.
                (Origin::Coordinator, _) => {}
                (_, Err(rejection)) => self.refuse(&request, rejection.into()),
            }
        }
    }

    /// What waited for a commit is decided now.
    fn go_on(&mut self, run: RunNo, now: Time) {
        let Some(hot) = self.runs.get_mut(run) else {
            // It was idle, and made room for a run that was read to answer someone.
            return;
        };
        let mut waiting = hot.take_waiting();
        if hot.take_proceed() {
            waiting.push_front(Request::own(Command::Proceed));
        }
        let next = hot.work().next_at(hot.plan());
        let by_the_log = now.max(hot.state().last_at());
        if next.is_some_and(|at| at <= by_the_log) && !hot.work().awaits_capacity() {
            self.schedule.mark(run);
        }
        self.take_all(run, waiting, now);
        // Another server may have it by now: then it is forgotten here.
        if let Some(hot) = self.runs.get_mut(run) {
            self.schedule.set_timer(hot, &self.lease);
            // A run that has ended is not kept in memory; a later request reads it from the store.
            let over = hot.state().phase().is_ended() && hot.is_idle(self.lease.session());
            if over && !self.config.keeps_ended {
                self.drop_run(run);
            }
        }
    }
}
