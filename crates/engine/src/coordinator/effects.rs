//! What the coordinator does about each effect: in the draft what is a row, in memory what is not.

use stepwell_kernel::command::{Actor, Command, Role};
use stepwell_kernel::effect::Effect;
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::state::{State, Status, StepRun};

use super::{Coordinator, Draft, Message, Notice};
use crate::rows::{served_by, target_name};
use crate::start::run_id_for;
use crate::store::{NewAlert, NewMessage, RunNo, SlotChange, TaskChange};

impl Coordinator {
    pub(super) fn perform(&mut self, run: RunNo, effect: Effect) {
        if let Effect::RunEnded(outcome) = effect {
            self.tell_parent(run, outcome);
        }
        let Some(hot) = self.runs.get_mut(&run) else {
            return;
        };
        let draft = hot.draft.get_or_insert_with(|| Draft::new(hot.committed));
        match effect {
            Effect::Dispatch {
                target, visible_at, ..
            } => {
                // The same decision may have ended it already, as when a run is resumed too late.
                let open = |it: &StepRun| matches!(it.status, Status::Ready | Status::Waiting);
                if !hot.state.target(target).is_some_and(open) {
                    return;
                }
                let order = hot.plan.step(target.step_ref().step).order;
                if self.config.does(&hot.run_id, &hot.plan, target) {
                    hot.ready.insert((visible_at, order, target));
                    self.dirty.insert(run);
                    return;
                }
                let (queue, op) = served_by(&hot.plan, target);
                let name = target_name(&hot.plan, target);
                hot.tasks.insert(name.clone(), false);
                draft.tasks.push(TaskChange::Put {
                    target: name,
                    queue: queue.to_owned(),
                    op: op.to_owned(),
                    priority: i32::try_from(order).unwrap_or(i32::MAX),
                    visible_at,
                });
                draft.then.push(Notice::Offer {
                    run,
                    target,
                    visible_at,
                });
            }
            Effect::CancelWork { target, execution } => {
                let name = target_name(&hot.plan, target);
                if hot.tasks.get(&name) == Some(&true) {
                    draft.tasks.push(TaskChange::Stop { target: name });
                }
                draft.then.push(Notice::Stop {
                    run,
                    target,
                    execution,
                });
            }
            Effect::IssueToken { step, .. } => draft.then.push(Notice::Person { run, step }),
            Effect::Publish(event) => draft.then.push(Notice::Published(run, event)),
            Effect::Alert {
                code,
                priority,
                message,
            } => {
                let alert = NewAlert {
                    code: code.to_owned(),
                    priority,
                    message,
                };
                draft.alerts.push(alert.clone());
                draft.then.push(Notice::Alert(run, alert));
            }
            Effect::Proceed => hot.proceed = true,
            Effect::StartChild {
                step,
                request_key,
                input,
            } => {
                let message = Message::StartChild {
                    step,
                    request_key,
                    input,
                };
                draft.mail.push(message.to(&hot.run_id));
            }
            Effect::CancelChild { request_key, .. } => {
                let cancel = Command::CancelRun {
                    actor: engine_actor(),
                    reason: Some("the parent stops".into()),
                    compensate: false,
                };
                draft
                    .mail
                    .push(Message::from(cancel).to(&run_id_for(&request_key)));
            }
            Effect::PauseChildren => {
                let pause = hot.state.pauses;
                let message = Message::ParentPaused { pause };
                draft.mail.extend(tell_children(&hot.state, &message));
            }
            Effect::ResumeChildren => {
                let pause = hot.state.pauses;
                let message = Message::ParentResumed { pause };
                draft.mail.extend(tell_children(&hot.state, &message));
            }
            Effect::RunEnded(outcome) => {
                // It may have taken them in this very draft: started and cancelled in one commit.
                let held = draft.holds.replace(Vec::new());
                for key in held.unwrap_or_else(|| hot.head.slots.clone()) {
                    draft.slots.push(SlotChange {
                        key,
                        change: -1,
                        limit: None,
                    });
                }
                // An undo that was offered when its run was cancelled once more has no end of its own.
                let mut left: Vec<String> = hot.tasks.drain().map(|(target, _)| target).collect();
                left.sort_unstable();
                let gone = left.into_iter().map(|target| TaskChange::Delete { target });
                draft.tasks.extend(gone);
                hot.ready.clear();
                hot.proceed = false;
                draft
                    .then
                    .push(Notice::Ended(run, hot.run_id.clone(), outcome));
            }
            // Timers are read off the state.
            Effect::WakeAt(_) => {}
        }
    }
}

/// Passes a pause or its end on to the children that the run waits for.
fn tell_children(state: &State, message: &Message) -> Vec<NewMessage> {
    let child = |at: &StepRef| state.run(*at)?.child().cloned();
    let keys = state.open.iter().filter_map(child);
    keys.map(|key| message.to(&run_id_for(&key))).collect()
}

/// The engine itself, as the sender of what it passes on.
#[must_use]
pub fn engine_actor() -> Actor {
    Actor {
        id: "engine".into(),
        role: Role::System,
        tenant: None,
    }
}
