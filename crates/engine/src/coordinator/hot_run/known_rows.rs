//! What events mean for a run's tasks and waits, and which of these rows the store has. A row is changed
//! only in the commit of the events that change it.

use std::collections::{HashMap, HashSet};

use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event, Lease, WaitKind, notice_events};
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::time::Time;

use crate::rows::{served_by, target_name};
use crate::store::{Append, TaskChange, WaitChange};

/// The rows of a run, as they are once its draft is committed.
#[derive(Debug, Default)]
pub(super) struct KnownRows {
    /// By the target's name; true if a worker outside has a lease.
    tasks: HashMap<String, bool>,
    /// Ids of steps with a row in `waits`.
    waits: HashSet<String>,
}

impl KnownRows {
    pub(super) fn new(
        tasks: impl Iterator<Item = (String, bool)>,
        waits: impl IntoIterator<Item = String>,
    ) -> KnownRows {
        KnownRows {
            tasks: tasks.collect(),
            waits: waits.into_iter().collect(),
        }
    }

    pub(super) fn has_task(&self, plan: &Plan, target: Target) -> bool {
        !self.tasks.is_empty() && self.tasks.contains_key(&target_name(plan, target))
    }

    pub(super) fn has_task_named(&self, name: &str) -> bool {
        self.tasks.contains_key(name)
    }

    /// Offers work to workers outside.
    pub(super) fn offer(&mut self, plan: &Plan, target: Target, at: Time, append: &mut Append) {
        let name = target_name(plan, target);
        self.tasks.insert(name.clone(), false);
        append.tasks.push(put(plan, target, name, at));
    }

    /// Tells the worker outside that has some work to stop.
    pub(super) fn stop(&mut self, plan: &Plan, target: Target, append: &mut Append) {
        if self.tasks.is_empty() {
            return;
        }
        let target = target_name(plan, target);
        if self.tasks.get(&target) == Some(&true) {
            append.tasks.push(TaskChange::Stop { target });
        }
    }

    /// The run has ended: nothing of it is offered any more.
    pub(super) fn withdraw_all(&mut self, append: &mut Append) {
        let mut left: Vec<String> = self.tasks.drain().map(|(target, _)| target).collect();
        left.sort_unstable();
        let gone = left.into_iter().map(|target| TaskChange::Delete { target });
        append.tasks.extend(gone);
    }

    /// Offers a step that waits to the next event of its type once more.
    pub(super) fn wait_again(
        &mut self,
        plan: &Plan,
        step: StepRef,
        event_type: &str,
        append: &mut Append,
    ) {
        let step = plan.step_id(step);
        if self.waits.contains(&step) {
            let event_type = event_type.to_owned();
            append.waits.push(WaitChange::Put { step, event_type });
        }
    }

    /// Changes the rows as an event says. Says whether what is not claimed is to be offered anew, because
    /// the run was paused.
    pub(super) fn apply(&mut self, plan: &Plan, event: &Event, append: &mut Append) -> bool {
        match &event.body {
            Body::StepStarted { step, lease, .. } => {
                self.claimed(plan, Target::Step(*step), lease.as_ref(), append);
            }
            Body::StepExecutionStarted { step, lease, .. } => {
                self.claimed(plan, Target::Step(*step), Some(lease), append);
            }
            Body::UndoStarted { step, lease, .. } => {
                self.claimed(plan, Target::Undo(*step), Some(lease), append);
            }
            Body::StepWaiting { step, wait, .. } => {
                self.gone(plan, Target::Step(*step), append);
                if let WaitKind::Event { event_type, .. } = wait {
                    let step = plan.step_id(*step);
                    self.waits.insert(step.clone());
                    let event_type = event_type.clone();
                    append.waits.push(WaitChange::Put { step, event_type });
                }
            }
            Body::StepWoken { step, .. } => self.awake(plan, *step, append),
            Body::StepCompleted { step, .. }
            | Body::StepFailed { step, .. }
            | Body::StepSkipped { step, .. }
            | Body::StepExecutionFailed { step, .. }
            | Body::StepHeld { step, .. } => {
                self.awake(plan, *step, append);
                self.gone(plan, Target::Step(*step), append);
            }
            Body::UndoExecutionFailed { step, .. }
            | Body::UndoCompleted { step, .. }
            | Body::UndoFailed { step, .. } => self.gone(plan, Target::Undo(*step), append),
            // What is not claimed is offered again at the end of the pause.
            Body::RunPaused { .. } => {
                self.withdraw_unleased(append);
                return true;
            }
            // These say nothing of tasks and waits; the end of a run withdraws all of them (`withdraw_all`).
            Body::Opaque(_)
            | notice_events!()
            | Body::RunCreated { .. }
            | Body::RunQueued { .. }
            | Body::RunApproved { .. }
            | Body::RunStarted { .. }
            | Body::RunResumed { .. }
            | Body::RunCompleted { .. }
            | Body::RunFailed { .. }
            | Body::RunCancelled { .. }
            | Body::StepAnswered { .. }
            | Body::StepApproved { .. }
            | Body::StepRouted { .. }
            | Body::StepRetried { .. }
            | Body::TokensAdmitted { .. }
            | Body::RunFinalizing { .. }
            | Body::RunStopping { .. }
            | Body::CompensationStarted { .. }
            | Body::CompensationInterrupted { .. } => {}
        }
        false
    }

    /// Some work is offered no longer, unless a worker has it.
    pub(super) fn withdraw(&mut self, plan: &Plan, target: Target, append: &mut Append) {
        let target = target_name(plan, target);
        if self.tasks.get(&target) == Some(&false) {
            self.tasks.remove(&target);
            append.tasks.push(TaskChange::Delete { target });
        }
    }

    fn withdraw_unleased(&mut self, append: &mut Append) {
        let unleased = self.tasks.iter().filter(|(_, leased)| !**leased);
        let unleased: Vec<String> = unleased.map(|(target, _)| target.clone()).collect();
        for target in unleased {
            self.tasks.remove(&target);
            append.tasks.push(TaskChange::Delete { target });
        }
    }

    fn claimed(&mut self, plan: &Plan, at: Target, lease: Option<&Lease>, append: &mut Append) {
        if let Target::Step(step) = at {
            self.awake(plan, step, append);
        }
        let outside = lease.filter(|lease| !lease.worker.starts_with('@'));
        let Some(lease) = outside else {
            // A session has the work now, and the session is its lease.
            return self.gone(plan, at, append);
        };
        let target = target_name(plan, at);
        if self.tasks.insert(target.clone(), true).is_none() {
            // This draft took the row away before (a pause), or another server has put it there since
            // the run was read: the lease needs a row in any case.
            append
                .tasks
                .push(put(plan, at, target.clone(), lease.until));
        }
        append.tasks.push(TaskChange::Lease {
            target,
            worker: lease.worker.clone(),
            until: lease.until,
        });
    }

    fn gone(&mut self, plan: &Plan, target: Target, append: &mut Append) {
        if self.tasks.is_empty() {
            return;
        }
        let target = target_name(plan, target);
        if self.tasks.remove(&target).is_some() {
            append.tasks.push(TaskChange::Delete { target });
        }
    }

    fn awake(&mut self, plan: &Plan, step: StepRef, append: &mut Append) {
        if self.waits.is_empty() {
            return;
        }
        let step = plan.step_id(step);
        if self.waits.remove(&step) {
            append.waits.push(WaitChange::Delete { step });
        }
    }
}

fn put(plan: &Plan, at: Target, target: String, visible_at: Time) -> TaskChange {
    let (queue, op) = served_by(plan, at);
    let order = plan.step(at.step_ref().step).order;
    TaskChange::Put {
        target,
        queue: queue.to_owned(),
        op: op.to_owned(),
        priority: i32::try_from(order).unwrap_or(i32::MAX),
        visible_at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::fixture::{plan, target};
    use crate::store::RunNo;

    fn rows() -> (std::sync::Arc<Plan>, KnownRows, Append) {
        let rows = KnownRows::default();
        (plan(&["a", "b"]), rows, Append::new(RunNo(1), 0))
    }

    fn event(body: Body) -> Event {
        Event {
            seq: 1,
            at: Time(1),
            body,
        }
    }

    #[test]
    fn an_offer_is_a_row_until_the_run_ends() {
        let (plan, mut rows, mut append) = rows();
        rows.offer(&plan, target(1), Time(5), &mut append);
        rows.offer(&plan, target(0), Time(5), &mut append);
        assert!(rows.has_task(&plan, target(0)) && rows.has_task_named("b"));
        let mut end = Append::new(RunNo(1), 0);
        rows.withdraw_all(&mut end);
        let gone: Vec<&str> = end.tasks.iter().map(TaskChange::target).collect();
        assert_eq!(gone, ["a", "b"]);
        assert!(!rows.has_task(&plan, target(0)));
    }

    #[test]
    fn a_claim_of_a_worker_outside_is_a_lease_and_of_a_session_takes_the_row_away() {
        let (plan, mut rows, mut append) = rows();
        let lease = |worker: &str| Lease {
            worker: worker.into(),
            until: Time(9),
        };
        let (one, two) = (lease("worker-1"), lease("@4"));
        rows.claimed(&plan, target(0), Some(&one), &mut append);
        assert!(matches!(
            append.tasks[..],
            [TaskChange::Put { .. }, TaskChange::Lease { .. }]
        ));
        rows.stop(&plan, target(0), &mut append);
        assert!(matches!(append.tasks[2], TaskChange::Stop { .. }));
        rows.claimed(&plan, target(0), Some(&two), &mut append);
        assert!(matches!(append.tasks[3], TaskChange::Delete { .. }));
        rows.claimed(&plan, target(1), Some(&two), &mut append);
        assert_eq!(append.tasks.len(), 4, "there was no row");
    }

    #[test]
    fn an_event_that_a_step_waits_for_is_a_row_until_the_step_wakes() {
        let (plan, mut rows, mut append) = rows();
        rows.waits.insert("a".into());
        let step = target(0).step_ref();
        rows.awake(&plan, step, &mut append);
        rows.awake(&plan, step, &mut append);
        assert_eq!(append.waits.len(), 1);
        assert!(!rows.apply(&plan, &event(Body::RunQueued {}), &mut append));
        assert!(append.tasks.is_empty());
    }
}
