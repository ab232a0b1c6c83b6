//! What an open run waits for, as text, with the command that continues the run.

use serde_json::{Value as Json, json};
use stepwell_dialects::words::quote;
use stepwell_engine::rows::{served_by, target_name};
use stepwell_engine::run_id_for;
use stepwell_kernel::command::TimerKind;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::WaitKind;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::state::State;
use stepwell_kernel::time::Time;

use crate::phrases::{losses, waits_for};
use crate::{RunView, duration, people};

/// One thing that can continue a run.
#[derive(Clone, Debug)]
pub struct Reason {
    pub kind: &'static str,
    pub step: Option<String>,
    pub text: String,
}

impl Reason {
    pub fn json(&self) -> Json {
        json!({ "kind": self.kind, "stepId": self.step, "text": self.text })
    }
}

pub fn reasons(view: &RunView, now: Time) -> Vec<Reason> {
    let (plan, state) = (&view.plan, &view.state);
    let run = state.run_id();
    let mut all = Vec::new();
    for source in wake_sources(plan, state) {
        let (kind, step, text) = match source {
            WakeSource::Queue if plan.policy().needs_approval && !state.approved() => {
                let text = format!("an approval (`stepwell runs approve {run}`)");
                ("queue", None, text)
            }
            WakeSource::Queue => match state.start_after().filter(|at| *at > now) {
                Some(at) => {
                    let wait = duration(at.since(now));
                    let text = format!("its time to start, {}, in {wait}", at.to_rfc3339());
                    ("start", None, text)
                }
                None => ("queue", None, "a free slot in the queue".to_owned()),
            },
            WakeSource::Task {
                target, visible_at, ..
            } => {
                let (queue, op) = served_by(plan, target);
                let name = target_name(plan, target);
                let later = match visible_at > now {
                    true => format!(", in {}", duration(visible_at.since(now))),
                    false => String::new(),
                };
                let worker = format!("{}/{}", quote(queue), quote(op));
                let lost = lost(state, target);
                let text = format!("{name}: a worker that serves {worker}{later}{lost}");
                ("task", Some(name), text)
            }
            WakeSource::Lease { target, .. } => {
                let name = target_name(plan, target);
                let lost = lost(state, target);
                let text = format!("{name}: the worker that executes the step{lost}");
                ("lease", Some(name), text)
            }
            WakeSource::Outside { step, wait } => {
                let id = plan.step_id(step);
                let how = match &wait {
                    WaitKind::Event { event_type, .. } => {
                        format!("stepwell runs signal {run} --event {event_type} --id ID")
                    }
                    WaitKind::Gate
                    | WaitKind::Approval
                    | WaitKind::Manual
                    | WaitKind::Timer { .. }
                    | WaitKind::Child { .. } => {
                        format!("stepwell runs complete {run} {id} --outcome succeeded")
                    }
                };
                let people = match people::approvals(view, step) {
                    Some(approvals) => format!(", {}", approvals.text),
                    None => String::new(),
                };
                let text = format!("{id}: {}{people} (`{how}`)", waits_for(&wait));
                ("outside", Some(id), text)
            }
            WakeSource::Child { step, request_key } => {
                let id = plan.step_id(step);
                let text = format!("{id}: its child run {}", run_id_for(&request_key));
                ("child", Some(id), text)
            }
            WakeSource::Timer { kind, due } => {
                let when = match due > now {
                    true => format!("in {}", duration(due.since(now))),
                    false => "due".to_owned(),
                };
                ("timer", None, format!("{}, {when}", timer(kind)))
            }
            WakeSource::Operator if state.pause().is_some() => {
                let text = format!("an operator: the run is paused (`stepwell runs resume {run}`)");
                ("operator", None, text)
            }
            WakeSource::Operator => {
                let how = format!("stepwell runs retry {run} --step STEP");
                let text = format!("an operator: a failed step is held (`{how}`)");
                ("operator", None, text)
            }
            WakeSource::Ctx { step } => {
                let id = plan.step_id(step);
                let text = format!("{id}: a change of ctx that admits the token");
                ("ctx", Some(id), text)
            }
            WakeSource::Proceed => (
                "proceed",
                None,
                "the engine, which continues the run".to_owned(),
            ),
        };
        all.push(Reason { kind, step, text });
    }
    all
}

/// How often the work was lost before, in brackets; empty for work that never was.
fn lost(state: &State, target: Target) -> String {
    let losses = state.target(target).and_then(losses);
    losses.map_or_else(String::new, |losses| format!(" ({losses})"))
}

/// Whether a person, an event, a child run or a slot can continue the run, without a timer or a worker.
pub fn waits_for_someone(view: &RunView) -> bool {
    let sources = wake_sources(&view.plan, &view.state);
    sources.iter().any(|source| {
        matches!(
            source,
            WakeSource::Outside { .. }
                | WakeSource::Operator
                | WakeSource::Ctx { .. }
                | WakeSource::Child { .. }
                | WakeSource::Queue
        )
    })
}

fn timer(kind: TimerKind) -> &'static str {
    match kind {
        TimerKind::Attempt => "timeout of an attempt",
        TimerKind::Wait => "timeout of a wait",
        TimerKind::Hold => "timeout of a hold",
        TimerKind::Run => "timeout of the run",
        TimerKind::Drain => "drain timeout of the pause",
        TimerKind::Stall => "stall timeout",
    }
}
