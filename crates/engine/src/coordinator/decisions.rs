//! Decisions: a request is decided at once, waits for the run's commit in flight, goes to the server that
//! has the run, or is refused. What a decision comes to is in the run's draft.

use stepwell_kernel::command::{Command, Env, Reply};
use stepwell_kernel::effect::Effect;
use stepwell_kernel::rejection::Rejection;
use stepwell_kernel::time::Time;

use super::creation::RepeatOf;
use super::request::Origin;
use super::{Coordinator, HotRun, Message, Request, SessionLease, Slots, substitutes};
use crate::error::Error;
use crate::store::{Guard, RunNo};

impl Coordinator {
    /// Decides a request, or lets it wait until the run's commit is answered.
    pub(super) fn take(&mut self, run: RunNo, mut request: Request, now: Time) {
        request.came.get_or_insert(now);
        self.rejoin(run, now);
        let hot = match self.runs.load(run, self.room()) {
            Ok(hot) => hot,
            Err(error) => return self.refuse(&request, error),
        };
        if hot.is_in_flight() {
            return hot.wait(request);
        }
        if hot.is_owned_by_other(self.lease.session()) && request.guard.is_none() {
            return self.forward(run, request, now);
        }
        self.decide(run, request, now);
    }

    pub(super) fn take_all(
        &mut self,
        run: RunNo,
        requests: impl IntoIterator<Item = Request>,
        now: Time,
    ) {
        for request in requests {
            self.take(run, request, now);
        }
    }

    /// Decides a request: the run is in memory and nothing of it is in flight. What is overdue is decided before.
    pub(super) fn decide(&mut self, run: RunNo, request: Request, now: Time) {
        // A decision that was cut short goes on first; it does not come from anyone.
        if !matches!(request.command, Command::Proceed) {
            let came = request.came.map_or(now, |came| came.min(now));
            self.fire_overdue(run, came, now);
        }
        self.decide_now(run, request, now);
    }

    pub(super) fn decide_now(&mut self, run: RunNo, request: Request, now: Time) {
        let env = Env {
            now,
            key: self.key.clone(),
        };
        let Some(hot) = self.runs.get_mut(run) else {
            self.invariants.broken(
                run,
                "a command was to be decided for a run that is not in memory",
            );
            return self.refuse(&request, Error::UnknownRun(format!("number {}", run.0)));
        };
        let start = matches!(request.command, Command::StartRun { .. });
        let (effects, decided) = decide_in(hot, &request, &self.lease, &env);
        if let (Command::DeliverEvent { event_type, .. }, Ok(Reply::Duplicate(_))) =
            (&request.command, &decided)
        {
            hot.await_again(event_type);
        }
        if start && decided.is_ok() {
            Slots::acquire(&self.config.limits, hot);
        }
        if let (Ok(Reply::RetryRun { request_key }), Command::Signal { actor, .. }) =
            (&decided, &request.command)
        {
            let repeat = RepeatOf::new(hot, request_key, Some(actor.id.clone()));
            let message = Message::Repeat {
                request_key: request_key.clone(),
                by: Some(actor.id.clone()),
            };
            // The sender is told now what would keep the new run from being created.
            if let Err(error) = self.check_repeat(&repeat, now) {
                return self.refuse(&request, error);
            }
            if let Some(hot) = self.runs.get_mut(run) {
                // In the same commit as the signal, so that a crash cannot lose it.
                let message = message.to(hot.run_id());
                hot.draft().send(message);
            }
        }
        let Some(hot) = self.runs.get_mut(run) else {
            let what = "the run of a decision is not in memory";
            return self.invariants.broken(run, what);
        };
        hot.decided(request, decided);
        self.schedule.mark(run);
        self.follow(run, effects);
    }

    /// The id and the tenant of a run, for messages to people; the number if the run is not in memory any more.
    pub fn name_of(&self, run: RunNo) -> (String, String) {
        match self.runs.get(run) {
            Some(hot) => (
                hot.run_id().to_string(),
                hot.state().context().tenant_id.clone(),
            ),
            None => (format!("number {}", run.0), String::new()),
        }
    }

    /// Does what follows from a decision: in the draft what is a row, in memory what is not.
    pub(super) fn follow(&mut self, run: RunNo, effects: Vec<Effect>) {
        for effect in effects {
            if let Effect::RunEnded(outcome) = effect {
                self.tell_parent(run, outcome);
            }
            match self.runs.get_mut(run) {
                Some(hot) => {
                    if hot.perform(effect, &self.config) {
                        self.schedule.mark(run);
                    }
                }
                None => {
                    let what = "the run of a decision is not in memory";
                    return self.invariants.broken(run, what);
                }
            }
        }
    }

    /// Answers a request that could not be decided.
    pub(super) fn refuse(&mut self, request: &Request, error: Error) {
        match request.origin {
            Origin::Sender(ticket) => self.notices.answer(ticket, Err(error)),
            Origin::Message { no, reply } => {
                self.inbox.end(no);
                if reply && let Err(away) = self.store.answer(no, &error.to_string()) {
                    // The message stays unanswered, so it is read and refused once more.
                    tracing::warn!(error = %away, "a refusal could not be written yet");
                }
            }
            Origin::Parent { mail, .. } => self.inbox.end(mail),
            // Nobody waits for an answer: what is still due is found again in the state.
            Origin::Coordinator => {}
        }
    }
}

/// Decides a request by the kernel's rules, with what follows and what the sender is answered.
fn decide_in(
    hot: &mut HotRun,
    request: &Request,
    lease: &SessionLease,
    env: &Env,
) -> (Vec<Effect>, Result<Reply, Rejection>) {
    let leased = matches!(request.guard, Some(Guard::Lease { .. }));
    let until = Some(env.now.max(hot.state().last_at()));
    let alive = |mut command: Command| {
        if let Some(claim) = command.claim_mut()
            && (leased || claim.worker == lease.worker())
        {
            // The append's guard says whether the session or the row still has it. By the clock alone a
            // result that had to wait for a commit, or for a clock that was set back, would be lost.
            claim.lease_until = until;
        }
        command
    };
    let mut command = request.command.clone();
    if let (Command::ClaimStep { lease_until, .. }, Some(came)) = (&mut command, request.came) {
        // A claim that had to wait for the store has its whole lease from now on.
        *lease_until = lease_until.plus(env.now.since(came));
    }
    let mut decided = hot.decide(alive(command), env);
    if let Err(rejection) = &decided
        && let Some(failure) = substitutes::instead_of(request, rejection)
        && let Ok(decision) = hot.decide(alive(failure), env)
    {
        decided = Ok(decision);
    }
    if let Some(guard) = &request.guard {
        hot.draft().guard(guard);
    }
    match decided {
        Ok((effects, reply)) => (effects, Ok(reply)),
        Err(rejection) => (Vec::new(), Err(rejection)),
    }
}
