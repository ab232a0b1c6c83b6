//! Sessions and leases: this server's own, those of servers that died, and those of workers outside.

use stepwell_kernel::command::Command;
use stepwell_kernel::event::WaitKind;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::time::Time;

use super::polling::{before, store_error};
use super::{Coordinator, Draft, Notice, Request, worker_of};
use crate::rows::parse_target;
use crate::store::{Guard, RunNo, SessionNo, StoreError, TaskRow};

/// How many rows are asked for at a time.
const PAGE: usize = 256;

impl Coordinator {
    pub(super) fn keep_session(&mut self, now: Time) -> Result<(), StoreError> {
        if now >= self.polls.renew && !self.polls.session_lost {
            let until = now.plus(self.config.session_ms);
            if self.store.renew_session(self.session, now, until)? {
                self.session_until = until;
                self.polls.renew = now.plus(self.config.session_ms / 3);
            } else {
                self.polls.session_lost = true;
            }
        }
        if self.polls.session_lost {
            self.reopen(now)?;
        }
        Ok(())
    }

    /// The session is dead: whatever it had is taken over like any other dead server's. Work in this
    /// process is stopped, since its leases are gone.
    fn reopen(&mut self, now: Time) -> Result<(), StoreError> {
        // Much may have to be decided again before anything can be sent, so it lives longer at first.
        let until = now.plus(self.config.session_ms.saturating_mul(10));
        let session = self.store.open_session(&self.config.name, now, until)?;
        tracing::warn!(
            lost = self.session.0,
            opened = session.0,
            "the session was lost; another one is opened"
        );
        self.session = session;
        self.worker = worker_of(session);
        self.session_until = until;
        self.commits = 0;
        self.polls.session_lost = false;
        self.polls.renew = now;
        self.polls.next = now;
        let (mut again, mut created) = (Vec::new(), Vec::new());
        // A commit in flight is answered as lost, or has been written before the session died.
        let mut settled: Vec<RunNo> = self
            .runs
            .iter()
            .filter(|(_, hot)| hot.flight.is_none())
            .map(|(run, _)| *run)
            .collect();
        // Always in the same order, so that what follows can be repeated.
        settled.sort_unstable();
        for run in settled {
            let Some(hot) = self.drop_run(run) else {
                continue;
            };
            for (target, execution) in &hot.jobs {
                self.notices.push_back(Notice::Stop {
                    run,
                    target: *target,
                    execution: *execution,
                });
            }
            let draft = hot.draft.unwrap_or_default();
            for mail in &draft.taken {
                self.reading.remove(mail);
            }
            let decided = draft.decided.into_iter().map(|(request, _)| request);
            if let Some(new) = draft.create {
                created.push((run, hot.plan, new, decided.collect()));
                continue;
            }
            let asked = decided.chain(hot.waiting);
            let asked = asked.filter(|request| !request.is_found());
            again.extend(asked.map(|request| (run, request)));
        }
        self.dirty.clear();
        self.awaiting_capacity.clear();
        for (run, plan, new, requests) in created {
            self.create_again(run, &plan, new, requests, now);
        }
        // Whatever is still on its way is of a session that is dead.
        self.polls.doubtful.clear();
        for (run, request) in again {
            self.take(run, request, now);
        }
        Ok(())
    }

    pub(super) fn look_for_the_dead(&mut self, now: Time) -> Result<(), StoreError> {
        for dead in self.store.dead_sessions(now)? {
            if dead == self.session {
                self.polls.session_lost = true;
                continue;
            }
            for run in self.store.runs_of(dead, PAGE)? {
                self.take_over(run, dead, now);
            }
        }
        Ok(())
    }

    /// Takes over a run of a dead server: its leases have ended with its session.
    fn take_over(&mut self, run: RunNo, dead: SessionNo, now: Time) {
        let busy = |hot: &super::HotRun| hot.flight.is_some() || hot.draft.is_some();
        if self.runs.get(&run).is_some_and(busy) {
            return;
        }
        self.drop_run(run);
        if let Err(error) = self.ensure(run) {
            tracing::error!(%error, "a run of a dead server cannot be taken over");
            return;
        }
        let Some(hot) = self.runs.get(&run) else {
            return;
        };
        if hot.head.session != Some(dead) {
            return;
        }
        let guard = Guard::Dead(dead);
        let worker = worker_of(dead);
        let mut requests = Vec::new();
        let mut people = Vec::new();
        for source in wake_sources(&hot.plan, &hot.state) {
            match source {
                WakeSource::Lease { target, .. } => {
                    let Some(it) = hot.state.target(target) else {
                        continue;
                    };
                    if it
                        .lease
                        .as_ref()
                        .is_some_and(|lease| lease.worker == worker)
                    {
                        requests.push(Command::ExpireLease {
                            target,
                            execution: it.execution,
                            lease_until: Some(before(now)),
                        });
                    }
                }
                WakeSource::Outside {
                    step,
                    wait: WaitKind::Gate | WaitKind::Approval | WaitKind::Manual,
                } => people.push(step),
                _ => {}
            }
        }
        if let Some(hot) = self.runs.get_mut(&run) {
            let draft = hot.draft.get_or_insert_with(|| Draft::new(hot.committed));
            draft.guards.push(guard.clone());
        }
        for command in requests {
            let request = Request {
                guard: Some(guard.clone()),
                ..Request::own(command)
            };
            self.decide(run, request, now);
        }
        self.attend(run, now);
        if let Some(draft) = self.runs.get_mut(&run).and_then(|hot| hot.draft.as_mut()) {
            let ask = |step| Notice::Person { run, step };
            draft.then.extend(people.into_iter().map(ask));
        }
    }

    /// Looks whether commits that were given up have come through: what they claimed is nobody's
    /// otherwise, as long as this session lives.
    pub(super) fn look_for_the_late(&mut self, now: Time) -> Result<(), StoreError> {
        let some: Vec<(RunNo, u64)> = { self.polls.doubtful.iter() }
            .take(PAGE)
            .map(|(run, after)| (*run, *after))
            .collect();
        for (run, after) in some {
            let busy = |hot: &super::HotRun| hot.flight.is_some() || hot.draft.is_some();
            if self.runs.get(&run).is_some_and(busy) {
                continue;
            }
            if self.runs.get(&run).is_none_or(|hot| hot.committed <= after) {
                if self.store.chunks(run, after, 1)?.is_empty() {
                    continue;
                }
                let jobs = self.drop_run(run).map(|old| old.jobs);
                self.ensure(run).map_err(store_error)?;
                self.keep_jobs(run, jobs.unwrap_or_default());
                self.attend(run, now);
            }
            self.polls.doubtful.remove(&run);
        }
        Ok(())
    }

    pub(super) fn expire_leases(&mut self, now: Time) -> Result<(), StoreError> {
        for task in self.store.expired(now, PAGE)? {
            self.refresh(task.run);
            self.expire(&task, now);
        }
        Ok(())
    }

    /// The lease of a worker outside has ended: exactly one of this and a late result wins.
    fn expire(&mut self, task: &TaskRow, now: Time) {
        if self.ensure(task.run).is_err() {
            return;
        }
        let Some(hot) = self.runs.get(&task.run) else {
            return;
        };
        // Whoever has the run looks for this too. An append of ours would take the run away from it,
        // and nobody would notice the death of the work that it does itself.
        if hot.head.session.is_some_and(|it| it != self.session) {
            return;
        }
        let target = parse_target(&hot.plan, &task.target);
        let Some((target, it)) = target.and_then(|at| Some((at, hot.state.target(at)?))) else {
            return;
        };
        let request = Request {
            guard: Some(Guard::Expired {
                target: task.target.clone(),
            }),
            ..Request::own(Command::ExpireLease {
                target,
                execution: it.execution,
                lease_until: task.until,
            })
        };
        self.take(task.run, request, now);
    }

    /// Nothing new is started or claimed from now on.
    pub fn stop(&mut self) {
        self.stopping = true;
    }

    /// Gives everything back: others may take it over at once.
    pub fn close(&mut self) -> Result<(), StoreError> {
        self.store.close_session(self.session)
    }
}
