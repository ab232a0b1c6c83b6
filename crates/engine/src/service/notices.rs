//! What follows from the notices of the coordinator: answers go to their senders, work to the worker, and
//! everything else to the worker and the observer. The only place where an engine interprets notices.

use super::Worker;
use super::service_loop::ServiceLoop;
use crate::coordinator::{Assignment, Notice};
use crate::store::RunNo;

impl<W: Worker> ServiceLoop<W> {
    /// Passes on the notices of the coordinator: answers to their senders, work to the worker, and
    /// everything else to the worker and the observer.
    pub(crate) fn pass_on(&mut self) {
        let notices: Vec<Notice> = self.coordinator.notices().collect();
        for notice in notices {
            self.moved = true;
            match notice {
                Notice::Answer(ticket, answer) => {
                    if let Some(on_answer) = self.answers.remove(&ticket) {
                        on_answer(answer);
                    }
                    continue;
                }
                Notice::Start(assignment) => {
                    self.begin(*assignment);
                    continue;
                }
                Notice::Elsewhere(handoff) => {
                    let shard = self.coordinator.shard();
                    self.reporter.handle().hand_off(shard, handoff);
                    continue;
                }
                Notice::Stop {
                    run,
                    target,
                    execution,
                } => self.worker.stop(run, target, execution),
                Notice::SessionLost => {
                    let shard = self.coordinator.shard();
                    if let Some(work) = self.worker.lost_work() {
                        work.end(&|run| shard.has(run));
                    }
                }
                Notice::Changed { .. } => self.changes += 1,
                Notice::Alert(run, ref alert) => {
                    let (run, tenant) = self.coordinator.name_of(run);
                    tracing::warn!(run, tenant, code = alert.code, priority = ?alert.priority, "{}", alert.message);
                }
                Notice::Offer { .. }
                | Notice::Person { .. }
                | Notice::MissingChild { .. }
                | Notice::Published(..)
                | Notice::Driven(_)
                | Notice::Unserved { .. }
                | Notice::Retried { .. }
                | Notice::Ended { .. } => {}
            }
            self.tell(&notice);
        }
    }

    fn tell(&mut self, notice: &Notice) {
        if self.is_for_worker(notice) {
            self.worker.notice(notice, &self.reporter);
        }
        self.observer.notice(notice);
    }

    /// A worker hears nothing of runs that this engine does not work on.
    fn is_for_worker(&self, notice: &Notice) -> bool {
        let run = match notice {
            Notice::Changed { run, .. }
            | Notice::Person { run, .. }
            | Notice::MissingChild { run, .. } => *run,
            Notice::Answer(..)
            | Notice::Start(_)
            | Notice::Stop { .. }
            | Notice::SessionLost
            | Notice::Offer { .. }
            | Notice::Published(..)
            | Notice::Alert(..)
            | Notice::Driven(_)
            | Notice::Unserved { .. }
            | Notice::Retried { .. }
            | Notice::Ended { .. }
            | Notice::Elsewhere(_) => return true,
        };
        let hot = self.coordinator.hot(run);
        hot.is_some_and(|hot| self.coordinator.works_on(hot.run_id()))
    }

    /// Tells the worker of a run that was in the log before the worker was there.
    pub(super) fn introduce(&mut self, run: RunNo) {
        if let Some(hot) = self.coordinator.hot(run) {
            let seq = hot.state().seq();
            let first = seq + 1;
            self.tell(&Notice::Changed { run, first, seq });
        }
    }

    /// Hands out work. A claim that was on its way to the store when all work was told to stop is told
    /// so too. Nothing is begun for a session that is lost, or whose time may be over before the work could be ended:
    /// the next session finds the claim in the log.
    fn begin(&mut self, assignment: Assignment) {
        if !self.coordinator.term().may_begin() {
            return;
        }
        let claim = &assignment.claimed.claim;
        let (run, target, execution) = (assignment.run, claim.target, claim.execution);
        // The lease began when the claim was decided.
        if let Some(until) = claim.lease_until {
            let waited = self
                .clock
                .now()
                .plus(assignment.plan.lease_ms())
                .since(until);
            self.stats.claim_ms.observe(waited);
        }
        self.worker.start(assignment, &self.reporter);
        if self.stopping.as_ref().is_some_and(|it| it.told) {
            self.worker.stop(run, target, execution);
        }
    }
}
