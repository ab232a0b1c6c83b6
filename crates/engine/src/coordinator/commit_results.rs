//! What the store answered: committed drafts are told, lost ones are read and decided again.

use std::sync::Arc;

use stepwell_kernel::command::{Claim, Command, Reply};
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::StepError;
use stepwell_kernel::plan::ErrorClass;
use stepwell_kernel::rejection::{Code, Rejection};
use stepwell_kernel::state::Phase;
use stepwell_kernel::time::Time;

use super::{Answer, Assignment, Coordinator, Draft, MAX_RETRIES, Notice, Origin, Request};
use crate::error::Error;
use crate::store::{AppendResult, Batch, Guard, MessageNo, RunNo, StoreError};

/// What to do with a batch that the store did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// Send the same once more, after a while.
    Same,
    /// Forget it: its commands are decided again.
    Never,
}

impl Coordinator {
    /// The store has answered.
    pub fn committed(&mut self, batch: &Batch, outcomes: Vec<AppendResult>, now: Time) {
        for (append, outcome) in batch.appends.iter().zip(outcomes) {
            let run = append.run;
            let flight = self.runs.get_mut(&run).and_then(|hot| hot.flight.take());
            let Some(draft) = flight else {
                continue;
            };
            match outcome {
                AppendResult::Committed | AppendResult::Again => self.settle(run, draft, now),
                AppendResult::Moved | AppendResult::KeyExists => self.redo(run, draft, None, now),
                AppendResult::GuardFailed(index) => {
                    let guard = append.guards.get(index).cloned();
                    // A batch of an earlier session says nothing about this one.
                    if guard == Some(Guard::Session) && batch.session == Some(self.session) {
                        self.polls.session_lost = true;
                    }
                    self.redo(run, draft, guard, now);
                }
                AppendResult::RunExists => {
                    let id = self.runs.get(&run).map(|hot| hot.run_id.to_string());
                    let id = id.unwrap_or_default();
                    // Sent before and given up, it was written after all.
                    let ours = draft.decided.first().is_some_and(|(it, _)| it.retries > 0);
                    let message = format!("there is a run {id} already");
                    let answer = match ours {
                        true => Ok(Answer::Run(id)),
                        false => Err(Rejection::new(Code::RunExists, message).into()),
                    };
                    self.not_created(run, draft, answer, now);
                }
                AppendResult::RequestTaken(existing) => {
                    self.not_created(run, draft, Ok(Answer::Run(existing)), now);
                }
                AppendResult::BizKeyTaken => {
                    let key = self.runs.get(&run).map(|hot| hot.event_key.clone());
                    let taken = Error::BizKeyTaken(key.unwrap_or_default());
                    self.not_created(run, draft, Err(taken), now);
                }
                AppendResult::SlotsFull(key) => self.no_slot(run, draft, key, now),
                AppendResult::Refused(why) => self.refused(run, draft, &why, now),
            }
        }
    }

    /// The store could not take a batch: says whether the same is to be sent again. After the write
    /// budget results are not left hanging: their steps fail instead, by a write at the same place in
    /// the log, so that exactly one of the two is recorded.
    pub fn failed(&mut self, batch: &Batch, error: &StoreError, now: Time) -> Retry {
        let budget = self.config.write_budget_ms;
        let runs = batch.appends.iter().filter_map(|it| self.runs.get(&it.run));
        let sent = runs.filter_map(|hot| hot.flight.as_ref()?.sent).min();
        let late = sent.is_some_and(|sent| now.since(sent) > budget);
        if error.kind.may_pass() && !late {
            return Retry::Same;
        }
        tracing::warn!(%error, late, "a commit is given up; its commands are decided again");
        for append in &batch.appends {
            // It may come through yet, for a session that has forgotten it.
            self.polls.doubtful.insert(append.run, append.after);
            let flight = self
                .runs
                .get_mut(&append.run)
                .and_then(|hot| hot.flight.take());
            if let Some(mut draft) = flight {
                if late {
                    draft
                        .decided
                        .iter_mut()
                        .for_each(|(request, _)| too_late(request));
                }
                self.redo(append.run, draft, None, now);
            }
        }
        Retry::Never
    }

    /// Gives a batch up because nobody waits for the store any longer: senders are told, everything
    /// else is derived again from the log.
    pub fn abandon(&mut self, batch: &Batch, error: &StoreError) {
        for append in &batch.appends {
            let flight = self
                .runs
                .get_mut(&append.run)
                .and_then(|hot| hot.flight.take());
            let Some(draft) = flight else { continue };
            let requests: Vec<Request> = draft.decided.iter().map(|(it, _)| it.clone()).collect();
            let old = self.forget_draft(append.run, &draft);
            let waiting = old.into_iter().flat_map(|hot| hot.waiting);
            for request in requests.into_iter().chain(waiting) {
                self.refuse(&request, error.clone().into());
            }
        }
    }

    /// A draft is in the log: everyone is told, and what waited for it goes on.
    pub(super) fn settle(&mut self, run: RunNo, mut draft: Draft, now: Time) {
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        hot.settle(&draft);
        let (run_id, plan, seq) = (hot.run_id.clone(), hot.plan.clone(), hot.committed);
        if !draft.events.is_empty() {
            self.notices.push_back(Notice::Changed { run, seq });
        }
        let created = draft.create.is_some();
        for (request, answer) in std::mem::take(&mut draft.decided) {
            self.answer(&run_id, created, request, answer);
        }
        for claimed in std::mem::take(&mut draft.starts) {
            self.notices.push_back(Notice::Start(Box::new(Assignment {
                run,
                run_id: Arc::clone(&run_id),
                plan: plan.clone(),
                claimed,
            })));
        }
        self.polls.mail |= !draft.mail.is_empty() || !draft.waits.is_empty();
        self.polls.queue |= draft.slots.iter().any(|slot| slot.change < 0);
        for mail in &draft.taken {
            self.reading.remove(mail);
        }
        self.notices.extend(std::mem::take(&mut draft.then));
        self.go_on(run, now);
    }

    /// What waited for a commit is decided now.
    fn go_on(&mut self, run: RunNo, now: Time) {
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        let mut waiting = std::mem::take(&mut hot.waiting);
        if std::mem::take(&mut hot.proceed) {
            waiting.push_front(Request::own(Command::Proceed));
        }
        let ready = hot.next_ready().is_some_and(|(at, _, _)| at <= now);
        if ready && !hot.awaiting_capacity {
            self.dirty.insert(run);
        }
        for request in waiting {
            self.take(run, request, now);
        }
        self.set_timer(run);
        self.forget_ended(run);
    }

    /// A run that has ended needs no place in memory; whoever asks for it reads it.
    fn forget_ended(&mut self, run: RunNo) {
        let session = self.session;
        let over = |hot: &super::HotRun| hot.state.phase.is_ended() && hot.is_idle(session);
        if !self.config.keeps_ended && self.runs.get(&run).is_some_and(over) {
            self.drop_run(run);
        }
    }

    fn answer(
        &mut self,
        run_id: &str,
        created: bool,
        request: Request,
        answer: Result<Reply, Rejection>,
    ) {
        match (request.from, answer) {
            (Origin::Sender(ticket), Ok(reply)) => {
                let is_create = created && matches!(request.command, Command::CreateRun { .. });
                let answer = match is_create {
                    true => Answer::Run(run_id.to_owned()),
                    false => Answer::Reply(reply),
                };
                self.notices.push_back(Notice::Answer(ticket, Ok(answer)));
            }
            (Origin::Message { no, .. }, Ok(_)) => {
                self.reading.remove(&no);
            }
            (Origin::Parent { run, mail }, Ok(_)) => self.child_is_there(run, mail),
            (Origin::Coordinator, _) => {}
            (_, Err(rejection)) => self.refuse(&request, rejection.into()),
        }
    }

    /// A draft was not committed: the run is read again and its commands are decided again.
    fn redo(&mut self, run: RunNo, draft: Draft, guard: Option<Guard>, now: Time) {
        let Some(old) = self.forget_draft(run, &draft) else {
            return;
        };
        let mut requests: Vec<Request> = Vec::new();
        for (mut request, _) in draft.decided {
            // A lost session is nobody's fault but this server's; another is opened before it is tried again.
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
        self.reading_again(&requests);
        if let Some(new) = draft.create {
            return self.create_again(run, &old.plan, new, requests, now);
        }
        match self.ensure(run) {
            Ok(()) => {
                self.keep_jobs(run, old.jobs);
                for request in requests {
                    self.take(run, request, now);
                }
                self.attend(run, now);
            }
            Err(error) => self.park(run, requests, old.jobs, error),
        }
    }

    /// Messages whose draft was lost are dealt with by their request, not read once more.
    fn reading_again(&mut self, requests: &[Request]) {
        for request in requests {
            if let Origin::Message { no, .. } = request.from {
                self.reading.insert(no);
            }
        }
    }

    /// Forgets a run whose draft was lost; claims in the draft never happened.
    fn forget_draft(&mut self, run: RunNo, draft: &Draft) -> Option<super::HotRun> {
        for mail in &draft.taken {
            self.reading.remove(mail);
        }
        if let Some(hot) = self.runs.get_mut(&run) {
            for claimed in &draft.starts {
                self.load.end(hot, claimed.claim.target);
            }
        }
        self.dirty.remove(&run);
        self.drop_run(run)
    }

    /// Work of this process goes on while its run is read again; what the log no longer wants is
    /// stopped.
    pub(super) fn keep_jobs(&mut self, run: RunNo, jobs: std::collections::HashMap<Target, u32>) {
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        for (target, execution) in jobs {
            let ours = hot.state.target(target).is_some_and(|it| {
                let lease = it.lease.as_ref();
                it.execution == execution && lease.is_some_and(|lease| lease.worker == self.worker)
            });
            if ours {
                self.load.begin(hot, target, execution);
            }
            if !ours || hot.state.phase == Phase::Stopping {
                self.notices.push_back(Notice::Stop {
                    run,
                    target,
                    execution,
                });
            }
        }
    }

    /// A run was not created after all. Only who wanted it created gets that answer: what others asked
    /// of it meanwhile is decided by the run that is there, if one is.
    fn not_created(&mut self, run: RunNo, draft: Draft, answer: Result<Answer, Error>, now: Time) {
        let Some(old) = self.forget_draft(run, &draft) else {
            return;
        };
        let mut others = Vec::new();
        for (request, _) in draft.decided {
            match request.from {
                Origin::Sender(ticket) if matches!(request.command, Command::CreateRun { .. }) => {
                    self.notices
                        .push_back(Notice::Answer(ticket, answer.clone()));
                }
                // A child that is there already was started before a crash; it answers by itself.
                Origin::Parent { run, mail } => self.child_is_there(run, mail),
                Origin::Coordinator => {}
                Origin::Sender(_) | Origin::Message { .. } => others.push(request),
            }
        }
        others.extend(old.waiting);
        self.reading_again(&others);
        for request in others {
            match self.number_of(&old.run_id) {
                Ok(run) => self.take(run, request, now),
                Err(error) => self.refuse(&request, error),
            }
        }
    }

    /// The child that a message asks for is there: the message is done.
    fn child_is_there(&mut self, parent: RunNo, mail: MessageNo) {
        self.reading.remove(&mail);
        if self.ensure(parent).is_ok() {
            self.discard(parent, mail);
        }
    }

    /// Someone else was faster: the run stays in the queue.
    fn no_slot(&mut self, run: RunNo, draft: Draft, key: String, now: Time) {
        let create = draft.create.clone();
        let Some(create) = create else {
            // It is queued; it is looked at again when a slot is freed. What others asked for in the same
            // draft has nothing to do with that.
            if let Some(old) = self.forget_draft(run, &draft) {
                let decided = draft.decided.into_iter().map(|(request, _)| request);
                let others: Vec<Request> = decided
                    .filter(|it| !matches!(it.command, Command::StartRun { .. }))
                    .chain(old.waiting)
                    .collect();
                self.reading_again(&others);
                for request in others {
                    self.take(run, request, now);
                }
            }
            return;
        };
        // Create it again without starting it.
        self.polls.queue = true;
        let mut first = draft.decided.first().map(|(request, _)| request.clone());
        if let Some(request) = &mut first
            && let Err(error) = self.too_many(request, key, now)
        {
            self.forget_draft(run, &draft);
            return self.refuse(request, error);
        }
        let plan = self.runs.get(&run).map(|hot| hot.plan.clone());
        self.forget_draft(run, &draft);
        if let (Some(request), Some(plan)) = (first, plan) {
            self.create_queued(run, &plan, create, request, now);
        }
    }

    /// A value cannot be written: whoever sent it is told, and nobody else suffers.
    pub(super) fn refused(&mut self, run: RunNo, mut draft: Draft, why: &str, now: Time) {
        let Some(old) = self.forget_draft(run, &draft) else {
            return;
        };
        if draft.create.is_none() && draft.decided.len() > 1 {
            return self.one_by_one(run, old, std::mem::take(&mut draft.decided), now);
        }
        let error = Error::Refused {
            run_id: old.run_id.to_string(),
            why: why.to_owned(),
        };
        tracing::error!(%error, "a value was refused");
        let mut again = Vec::new();
        let mut unreadable = Vec::new();
        let mut stuck = false;
        for (request, _) in draft.decided {
            match (failure_of(&request.command, why), request.from) {
                // The work was done and its result cannot be kept: the step fails, and says so.
                (Some(command), _) => again.push(Request { command, ..request }),
                // Nobody looks for an answer, and the next time would be no better.
                (None, Origin::Message { no, reply: false }) => unreadable.push(no),
                // What the run itself comes to cannot be written. Deriving it again would come to
                // the same, for ever.
                (None, Origin::Coordinator) => stuck = true,
                (None, _) => self.refuse(&request, error.clone()),
            }
        }
        again.extend(old.waiting);
        if draft.create.is_some() {
            return;
        }
        match self.ensure(run) {
            Ok(()) => {
                self.keep_jobs(run, old.jobs);
                for mail in unreadable {
                    self.discard(run, mail);
                }
                for request in again {
                    self.take(run, request, now);
                }
                if !stuck {
                    self.attend(run, now);
                }
            }
            Err(error) => self.park(run, again, old.jobs, error),
        }
    }
}

impl Coordinator {
    /// One of these commands cannot be written: the first is decided alone, the others after its
    /// commit, until the one that is to blame stands alone.
    fn one_by_one(
        &mut self,
        run: RunNo,
        old: super::HotRun,
        decided: Vec<(Request, Result<Reply, Rejection>)>,
        now: Time,
    ) {
        let requests = decided.into_iter().map(|(request, _)| request);
        let mut requests: std::collections::VecDeque<Request> =
            requests.chain(old.waiting).collect();
        let first = requests.pop_front();
        match self.ensure(run) {
            Ok(()) => {
                self.keep_jobs(run, old.jobs);
                if let Some(first) = first {
                    self.take(run, first, now);
                }
                match self.runs.get_mut(&run) {
                    Some(hot) => {
                        hot.waiting.extend(requests);
                        let after = hot.committed;
                        hot.draft.get_or_insert_with(|| Draft::new(after));
                        self.dirty.insert(run);
                    }
                    // Another server has it now.
                    None => requests
                        .into_iter()
                        .for_each(|request| self.take(run, request, now)),
                }
            }
            Err(error) => {
                let all = first.into_iter().chain(requests).collect();
                self.park(run, all, old.jobs, error);
            }
        }
    }
}

/// A result that took too long to write becomes a failure.
fn too_late(request: &mut Request) {
    let error = StepError::new(
        ErrorClass::Timeout,
        "WRITE_LATENCY_EXCEEDED",
        "the result could not be written within the write budget",
    );
    if let Command::CompleteStep { claim, .. } | Command::FailStep { claim, .. } = &request.command
    {
        request.command = Command::FailStep {
            claim: claim.clone(),
            error,
            retryable: None,
            delay_ms: None,
            ctx: Default::default(),
        };
    }
}

/// What is recorded instead of a result of this process's work that the kernel refuses, such as a wait
/// that its step cannot have. Nobody looks for an answer, and the step would run for ever. Where the
/// execution is no longer current the kernel refuses this too.
pub(super) fn instead_of(request: &Request, rejection: &Rejection) -> Option<Command> {
    if request.from != Origin::Coordinator {
        return None;
    }
    let error = StepError::new(
        ErrorClass::Validation,
        rejection.code.name(),
        rejection.message.clone(),
    );
    match &request.command {
        Command::CompleteStep { claim, .. } | Command::WaitStep { claim, .. } => {
            Some(failure(claim, error))
        }
        _ => None,
    }
}

/// The same work would come to the same result again.
fn failure(claim: &Claim, error: StepError) -> Command {
    Command::FailStep {
        claim: claim.clone(),
        error,
        retryable: Some(false),
        delay_ms: None,
        ctx: Default::default(),
    }
}

/// What is recorded instead of a result that cannot be written.
fn failure_of(command: &Command, why: &str) -> Option<Command> {
    let error = StepError::new(
        ErrorClass::Validation,
        "VALUE_REFUSED",
        format!("the result cannot be written: {why}"),
    );
    match command {
        Command::CompleteStep { claim, .. } | Command::WaitStep { claim, .. } => {
            Some(failure(claim, error))
        }
        Command::ChildEnded {
            step,
            request_key,
            output,
            ..
        } if !output.is_null() => Some(Command::ChildEnded {
            step: *step,
            request_key: request_key.clone(),
            outcome: stepwell_kernel::effect::RunOutcome::Failed(
                stepwell_kernel::event::Rollback::None,
            ),
            output: serde_json::Value::Null,
            error: Some(error),
        }),
        _ => None,
    }
}
