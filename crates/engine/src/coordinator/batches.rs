//! Batches: claims what this process can do, seals the drafts of all runs that have one, and puts the
//! appends together for one commit.

use stepwell_kernel::command::{Command, Env, Reply};
use stepwell_kernel::time::Time;

use super::batch_builder::MAX_APPENDS;
use super::hot_run::Sealed;
use super::{Coordinator, Handoff, Notice};
use crate::error::Error;
use crate::store::{Append, Batch, RunNo};

impl Coordinator {
    /// The next batch for the store, if there is anything to commit.
    pub fn next_batch(&mut self, now: Time) -> Option<Batch> {
        // Without a session nothing could be committed; `tick` opens another one.
        if self.lease.is_lost() {
            return None;
        }
        if self.capacity.has_room_for_others() {
            self.notices.push(Notice::Elsewhere(Handoff::Room));
        }
        let (runs, schedule) = (&mut self.runs, &mut self.schedule);
        self.capacity
            .feed(runs, schedule, &self.lease, &self.config, now);
        if !self.schedule.has_marked() {
            return None;
        }
        self.runs.next_turn();
        let mut appends = Vec::with_capacity(MAX_APPENDS.min(self.runs.len()));
        let mut later = Vec::new();
        while appends.len() < MAX_APPENDS {
            let Some(run) = self.schedule.next_marked() else {
                break;
            };
            // A run that was forgotten since it was marked has nothing for the batch.
            let Some(hot) = self.runs.get_mut(run) else {
                continue;
            };
            // What a run in flight has to do is looked at when its commit is answered.
            if hot.is_in_flight() {
                continue;
            }
            if hot.is_fresh() {
                // Work that is not due yet is in no row but the head's wake-up time, and this batch
                // writes the head: it must be known first.
                self.attend(run, now);
                self.schedule.unmark(run);
            }
            if !self.tell_parent_again(run) {
                later.push(run);
                continue;
            }
            self.fire_overdue(run, now, now);
            self.claim_ready(run, now);
            self.hand_out(run, now);
            appends.extend(self.seal(run, now));
        }
        self.schedule.mark_all(later);
        self.batches.batch(self.lease.session(), appends, now)
    }

    /// Claims what this process can do now, in the same commit as what made it ready.
    fn claim_ready(&mut self, run: RunNo, now: Time) {
        loop {
            let Some(hot) = self.runs.get_mut(run) else {
                let what = "a run is not in memory while its work is claimed";
                return self.invariants.broken(run, what);
            };
            if hot.other_owner(self.lease.session()).is_some() {
                // It is for the server that has the run.
                hot.work_mut().1.clear_ready();
            }
            if self.stopping {
                return;
            }
            let Some(target) = self.capacity.next_claim(hot, &self.config, now) else {
                return;
            };
            hot.unshare();
            let claim = Command::ClaimStep {
                target,
                worker: self.lease.worker().to_owned(),
                // What this process does itself is its session's as long as that lives, whatever this says.
                lease_until: now.max(hot.state().last_at()).plus(hot.plan().lease_ms()),
            };
            let env = Env {
                now,
                key: self.key.clone(),
            };
            // A task that is out of date is dropped: the state offers it again when it is due.
            let Ok((effects, reply)) = hot.decide(claim, &env) else {
                self.capacity.give_back(hot, target);
                continue;
            };
            match reply {
                Reply::Claimed(claimed) => {
                    self.capacity.begin(hot, target, claimed.claim.execution);
                    hot.draft().claim(*claimed);
                }
                // The step ended without work, as one that has nothing to loop over.
                Reply::Done
                | Reply::Created { .. }
                | Reply::Duplicate(_)
                | Reply::Refused(_)
                | Reply::RetryRun { .. } => self.capacity.give_back(hot, target),
            }
            self.follow(run, effects);
        }
    }

    /// Turns a run's draft into an append and sends it on its way.
    fn seal(&mut self, run: RunNo, now: Time) -> Option<Append> {
        let alone = self.is_alone(run);
        let Some(hot) = self.runs.get_mut(run) else {
            self.invariants
                .broken(run, "a run is not in memory while its draft is sealed");
            return None;
        };
        if hot.has_draft() && self.parked.is_doubtful(run) {
            hot.draft().doubt_head();
        }
        // A run without a draft was marked because work of it could be claimed, and no room was left.
        let (owner, chunks) = ((self.lease.session(), alone), self.batches.chunks());
        match hot.seal(owner, &self.config, chunks, now)? {
            Sealed::Append(append) => return Some(append),
            Sealed::Nothing(append, flight) => self.conclude(run, &append, flight, now),
            // Refused as the database would have refused it, only sooner.
            Sealed::Failed(Error::Refused { why, .. }, lost) => {
                self.refused(run, lost, &why, now);
            }
            Sealed::Failed(error, lost) => {
                // A bug: nothing of this draft can be written, and the state in memory is worth nothing.
                // Only the log is truth.
                self.invariants.dropped(run, &error);
                self.forget_lost(run, &lost);
                for request in lost.requests() {
                    self.refuse(&request, error.clone());
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::fixture::{commit_all, store_with};
    use crate::coordinator::{Config, Ticket};
    use crate::port::NoCatalog;
    use stepwell_kernel::codes::ENGINE_INVARIANT;
    use stepwell_kernel::rejection::Code;

    fn cancel() -> Command {
        Command::CancelRun {
            actor: crate::coordinator::engine_actor(),
            reason: None,
            compensate: false,
            keep_undo: false,
        }
    }

    #[test]
    fn nothing_is_written_for_a_run_whose_state_does_not_fit_its_rules() {
        let (store, runs) = store_with(2);
        let now = Time(2_000);
        let catalog = Box::new(NoCatalog);
        let mut coordinator =
            Coordinator::open(store.clone(), catalog, Config::default(), now).unwrap();
        coordinator.recover("run_0", now).unwrap();
        commit_all(&mut coordinator, now);
        let before = store.load(runs[0]).unwrap().unwrap().head;
        coordinator.runs.get_mut(runs[0]).unwrap().set_fault();
        coordinator.submit("run_0", cancel(), Ticket(7), now);
        coordinator.submit("run_1", cancel(), Ticket(8), now);
        commit_all(&mut coordinator, now);
        coordinator.tick(now).unwrap();
        let (mut refused, mut alerts) = (Vec::new(), Vec::new());
        for notice in coordinator.notices() {
            match notice {
                Notice::Answer(ticket, Err(Error::Rejected(rejection))) => {
                    refused.push((ticket, rejection.code));
                }
                Notice::Alert(run, alert) => alerts.push((run, alert.code)),
                _ => {}
            }
        }
        assert_eq!(refused, [(Ticket(7), Code::LogInvalid)]);
        assert_eq!(alerts, [(runs[0], ENGINE_INVARIANT.to_owned())]);
        let after = store.load(runs[0]).unwrap().unwrap().head;
        assert_eq!(before, after, "the log and the head are as they were");
        // The faulty state is gone: the run goes on from its log.
        coordinator.submit("run_0", cancel(), Ticket(9), now);
        commit_all(&mut coordinator, now);
        let answered = |notice| matches!(notice, Notice::Answer(Ticket(9), Ok(_)));
        assert!(coordinator.notices().any(answered));
    }
}
