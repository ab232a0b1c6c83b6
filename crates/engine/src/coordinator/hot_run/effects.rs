//! What follows from a decision, for each effect: in the draft what is a row, in memory what is not.
//! What concerns another run is a message; only the end of a run needs its parent first, which is in
//! `children`.

use std::sync::Arc;

use stepwell_kernel::command::{Actor, Command, Role};
use stepwell_kernel::effect::{Effect, Target};
use stepwell_kernel::plan::StepRef;
use stepwell_kernel::state::{State, Status, StepRun};
use stepwell_kernel::time::Time;

use super::HotRun;
use super::draft::Offer;
use crate::coordinator::{Config, Message, Notice};
use crate::start::run_id_for;
use crate::store::{NewAlert, NewMessage};

impl HotRun {
    /// Does what an effect says. Says whether there is work for this process that the next batch can
    /// claim.
    pub(in crate::coordinator) fn perform(&mut self, effect: Effect, config: &Config) -> bool {
        // Whatever the effect comes to, the head is looked at in the next batch.
        self.draft();
        let run = self.run;
        match effect {
            Effect::Dispatch {
                target, visible_at, ..
            } => return self.dispatch(target, visible_at, config),
            Effect::CancelWork { target, execution } => {
                let (plan, rows, draft) = self.rows_and_draft();
                rows.stop(plan, target, draft.append());
                draft.tell(Notice::Stop {
                    run,
                    target,
                    execution,
                });
            }
            Effect::IssueToken { step, .. } => self.draft().tell(Notice::Person { run, step }),
            Effect::Publish(event) => self.draft().tell(Notice::Published(run, event)),
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
                self.draft().alert(alert.clone());
                self.draft().tell(Notice::Alert(run, alert));
            }
            Effect::Proceed => self.proceed = true,
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
                let message = message.to(&self.run_id);
                self.draft().send(message);
            }
            Effect::CancelChild { request_key, .. } => {
                let message = Message::from(cancel_child()).to(&run_id_for(&request_key));
                self.draft().send(message);
            }
            Effect::PauseChildren => {
                let pause = self.state.pauses();
                let all = to_children(&self.state, &Message::ParentPaused { pause });
                self.draft().send_all(all);
            }
            Effect::ResumeChildren => {
                let pause = self.state.pauses();
                let all = to_children(&self.state, &Message::ParentResumed { pause });
                self.draft().send_all(all);
            }
            Effect::RunEnded(outcome) => {
                self.end();
                let ended = Notice::Ended {
                    run,
                    run_id: Arc::clone(&self.run_id),
                    plan: Arc::clone(&self.plan),
                    outcome,
                };
                self.draft().tell(ended);
            }
            // Timers are read off the state.
            Effect::WakeAt(_) => {}
        }
        false
    }

    /// Work can be claimed: by this process, by workers outside, or by the engine outside that moves the run.
    fn dispatch(&mut self, target: Target, visible_at: Time, config: &Config) -> bool {
        // The same decision may have ended it already, as when a run is resumed too late.
        if !can_be_claimed(&self.state, target) {
            return false;
        }
        if config.does(self, target) {
            self.add_ready(target, visible_at);
            return true;
        }
        if config.hands_out_outside(self, target) {
            return false;
        }
        let (plan, rows, draft) = self.rows_and_draft();
        rows.offer(plan, target, visible_at, draft.append());
        draft.offers.push(Offer { target, visible_at });
        false
    }

    /// This process may claim some work from `visible_at` on.
    pub(in crate::coordinator) fn add_ready(&mut self, target: Target, visible_at: Time) {
        let order = self.plan.step(target.step_ref().step).order;
        self.work.add_ready(visible_at, order, target);
    }

    /// The run has ended: it holds nothing and has nothing to do.
    fn end(&mut self) {
        let held = self.head.slots.clone();
        let (_, rows, draft) = self.rows_and_draft();
        draft.free_slots(held);
        // An undo that was offered when its run was cancelled once more has no end of its own.
        rows.withdraw_all(draft.append());
        self.work.clear_ready();
        self.proceed = false;
    }
}

/// Whether a claim can succeed. A claim of a paused run is refused; the end of the pause offers what is ready then.
pub(in crate::coordinator) fn can_be_claimed(state: &State, target: Target) -> bool {
    let open = |it: &StepRun| matches!(it.status(), Status::Ready | Status::Waiting);
    state.pause().is_none() && state.target(target).is_some_and(open)
}

/// The command to a child whose parent stops.
pub(in crate::coordinator) fn cancel_child() -> Command {
    Command::CancelRun {
        actor: engine_actor(),
        reason: Some("the parent stops".into()),
        compensate: false,
        keep_undo: false,
    }
}

/// Passes a pause or its end on to the children that the run waits for.
fn to_children(state: &State, message: &Message) -> Vec<NewMessage> {
    let child = |at: &StepRef| state.run(*at)?.child().map(str::to_owned);
    let keys = state.open().iter().filter_map(child);
    keys.map(|key| message.to(&run_id_for(&key))).collect()
}

/// The engine itself, as the sender of what it passes on.
#[must_use]
pub fn engine_actor() -> Actor {
    Actor {
        id: "engine".into(),
        role: Role::System,
        tenant: None,
        may_answer: true,
    }
}
