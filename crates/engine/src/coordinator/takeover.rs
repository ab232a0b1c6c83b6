//! What is left of servers and workers that died: a lost session of this server, runs of dead servers,
//! commits that came through late, leases of workers outside that have ended.

use stepwell_kernel::command::{Command, LeaseEnd};
use stepwell_kernel::event::WaitKind;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::time::Time;

use super::session_lease::worker_of;
use super::tick::before;
use super::{Coordinator, HotRun, Notice, Request};
use crate::error::Error;
use crate::rows::parse_target;
use crate::store::{Guard, RunNo, SessionNo, StoreError, TaskRow};

/// How many rows are asked for at a time.
const PAGE: usize = 256;

impl Coordinator {
    /// The session is dead: whatever it had is taken over like any other dead server's. Work in this
    /// process is stopped, since its leases are gone.
    pub(super) fn reopen(&mut self, now: Time) -> Result<(), StoreError> {
        let (name, length) = (&self.config.name, self.config.session_ms);
        self.lease.reopen(&*self.store, name, length, now)?;
        self.batches.restart();
        self.schedule.poll_at_once(now);
        let (mut again, mut created) = (Vec::new(), Vec::new());
        // A commit in flight is answered as lost, or has been written before the session died.
        let settled = self.runs.iter().filter(|hot| !hot.is_in_flight());
        let mut settled: Vec<RunNo> = settled.map(HotRun::run).collect();
        // Always in the same order, so that what follows can be repeated.
        settled.sort_unstable();
        for run in settled {
            let Some(left) = self.drop_run(run) else {
                self.invariants
                    .broken(run, "a run was forgotten while all runs are forgotten");
                continue;
            };
            for (target, execution) in left.jobs {
                self.notices.stop(run, target, execution);
            }
            let mut asked: Vec<Request> = Vec::new();
            if let Some(mut draft) = left.draft {
                for message in &draft.discarded {
                    self.inbox.end(*message);
                }
                let create = draft.create.take();
                asked.extend(draft.requests());
                if let Some(new) = create {
                    created.push((run, left.plan, new, asked));
                    continue;
                }
            }
            asked.extend(left.waiting);
            asked.retain(|request| !request.is_found());
            again.push((run, asked));
        }
        self.schedule.unmark_all();
        self.capacity.forget_missing(&self.runs);
        for (run, plan, new, requests) in created {
            self.create_again(run, &plan, new, requests, now);
        }
        self.parked.resolve_guarded();
        for (run, requests) in again {
            self.take_all(run, requests, now);
        }
        Ok(())
    }

    pub(super) fn take_over_dead(&mut self, now: Time) -> Result<(), StoreError> {
        for dead in self.store.dead_sessions(now)? {
            if dead == self.lease.session() {
                self.lease.lose();
                continue;
            }
            for run in self.store.runs_of(dead, PAGE)? {
                // The other shards take theirs over.
                if self.shard.has(run) {
                    self.take_over(run, dead, now);
                }
            }
        }
        Ok(())
    }

    /// Takes over a run of a dead server: its leases have ended with its session.
    fn take_over(&mut self, run: RunNo, dead: SessionNo, now: Time) {
        if self.runs.get(run).is_some_and(HotRun::is_changing) {
            // What is decided for it is answered first.
            return;
        }
        self.drop_run(run);
        let hot = match self.runs.load(run, self.room()) {
            Ok(hot) => hot,
            Err(error) => {
                tracing::error!(%error, "a run of a dead server cannot be taken over");
                return;
            }
        };
        if hot.head().session != Some(dead) {
            // Another server was faster.
            return;
        }
        let guard = Guard::Dead(dead);
        let cause = match self.lease.had(dead) {
            true => LeaseEnd::OwnSession,
            false => LeaseEnd::SessionDead,
        };
        let (requests, people) = leases_of(hot, dead, cause, now);
        hot.draft().guard(&guard);
        for command in requests {
            self.decide(run, Request::own(command).guarded(guard.clone()), now);
        }
        self.attend(run, now);
        if let Some(hot) = self.runs.get_mut(run) {
            for step in people {
                hot.draft().tell(Notice::Person { run, step });
            }
        }
    }

    /// Looks whether commits that were given up have come through: what they claimed is nobody's
    /// otherwise, as long as this session lives.
    pub(super) fn look_for_late_commits(&mut self, now: Time) -> Result<(), StoreError> {
        for (run, after) in self.parked.doubtful(PAGE) {
            let hot = self.runs.get(run);
            if hot.is_some_and(HotRun::is_changing) {
                continue;
            }
            if hot.is_none_or(|hot| hot.committed() <= after) {
                let has_events = !self.store.chunks(run, after, 1)?.is_empty();
                if !has_events && !self.is_ours_unknown(run)? {
                    continue;
                }
                let jobs = self.drop_run(run).map(|left| left.jobs).unwrap_or_default();
                match self.runs.load(run, self.room()) {
                    Ok(_) => {
                        self.keep_jobs(run, jobs);
                        self.attend(run, now);
                    }
                    Err(error) => {
                        if !jobs.is_empty() {
                            // Nothing else was to be done for it; its work goes on.
                            self.park(run, Vec::new(), jobs, error.clone());
                        }
                        if let Error::Store(away) = error {
                            return Err(away);
                        }
                        // One that is damaged must not hold up the others.
                        continue;
                    }
                }
                if !has_events {
                    // One with events may come through yet.
                    continue;
                }
            }
            self.parked.resolve(run);
        }
        Ok(())
    }

    /// Whether the store says that this server has a run, and nothing in memory does. A commit without events, such as
    /// the one that takes over a run that only waits, shows in the head alone.
    fn is_ours_unknown(&self, run: RunNo) -> Result<bool, StoreError> {
        if self
            .runs
            .get(run)
            .is_some_and(|hot| self.lease.owns(hot.head()))
        {
            return Ok(false);
        }
        let stored = self.store.load(run)?;
        Ok(stored.is_some_and(|stored| self.lease.owns(&stored.head)))
    }

    pub(super) fn expire_leases(&mut self, now: Time) -> Result<(), StoreError> {
        let expired = self.store.expired(now, PAGE)?;
        let oldest = || self.runs.iter().filter_map(HotRun::sent_at).min();
        // Their workers may have had no store to renew them in.
        if expired.is_empty() || !self.outage.may_end_leases(oldest(), now) {
            return Ok(());
        }
        for task in expired {
            if self.shard.has(task.run) {
                self.refresh(task.run);
                self.expire(&task, now);
            }
        }
        Ok(())
    }

    /// The lease of a worker outside has ended: exactly one of this and a late result wins.
    fn expire(&mut self, task: &TaskRow, now: Time) {
        let hot = match self.runs.load(task.run, self.room()) {
            Ok(hot) => hot,
            Err(error) => {
                // Found again with the next poll.
                tracing::warn!(%error, run = task.run.0, "a run whose lease ended cannot be read");
                return;
            }
        };
        // The owner of the run looks for this too. An append of ours would take the run away from it,
        // and nobody would notice the death of the work that it does itself.
        if hot.is_owned_by_other(self.lease.session()) {
            return;
        }
        let Some(target) = parse_target(hot.plan(), &task.target) else {
            let what = "a task is named after no step of its run's plan";
            return self.invariants.broken(task.run, what);
        };
        let it = hot.state().target(target);
        let known = it.and_then(|it| it.lease()).map(|lease| &lease.worker) == task.worker.as_ref();
        let Some(it) = it.filter(|_| known) else {
            // What is in memory is older than the lease: read anew, where nothing is to be done for it. Else this
            // server is about to write to the run, which fails and reads it anew. The lease is found again with
            // the next poll.
            if hot.is_idle(self.lease.session()) {
                self.drop_run(task.run);
            }
            return;
        };
        let expire = Command::ExpireLease {
            target,
            execution: it.execution(),
            lease_until: task.until,
            cause: LeaseEnd::Expired,
        };
        let guard = Guard::Expired {
            target: task.target.clone(),
        };
        self.take(task.run, Request::own(expire).guarded(guard), now);
    }
}

/// What the death of a server means for one of its runs: the leases that ended with its session, and the
/// people that must be asked again.
fn leases_of(
    hot: &HotRun,
    dead: SessionNo,
    cause: LeaseEnd,
    now: Time,
) -> (Vec<Command>, Vec<StepRef>) {
    let worker = worker_of(dead);
    let (mut expired, mut people) = (Vec::new(), Vec::new());
    for source in wake_sources(hot.plan(), hot.state()) {
        match source {
            WakeSource::Lease { target, .. } => {
                let it = hot.state().target(target);
                let leased = |lease: &stepwell_kernel::event::Lease| lease.worker == worker;
                // Leases of workers outside end by their own time.
                if let Some(it) = it.filter(|it| it.lease().is_some_and(leased)) {
                    expired.push(Command::ExpireLease {
                        target,
                        execution: it.execution(),
                        lease_until: Some(before(now)),
                        cause,
                    });
                }
            }
            WakeSource::Outside {
                step,
                wait: WaitKind::Gate | WaitKind::Approval | WaitKind::Manual,
            } => people.push(step),
            // Rows move it, or `attend` does.
            WakeSource::Outside {
                wait: WaitKind::Event { .. } | WaitKind::Timer { .. } | WaitKind::Child { .. },
                ..
            }
            | WakeSource::Queue
            | WakeSource::Task { .. }
            | WakeSource::Child { .. }
            | WakeSource::Timer { .. }
            | WakeSource::Operator
            | WakeSource::Ctx { .. }
            | WakeSource::Proceed => {}
        }
    }
    (expired, people)
}
