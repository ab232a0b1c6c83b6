//! What an open run waits for, as text, with the command that continues the run.

use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;
use stepwell_dialects::words::quote;
use stepwell_engine::rows::{BUILT_IN, served_by, target_name};
use stepwell_engine::run_id_for;
use stepwell_kernel::command::TimerKind;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, WaitKind};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::state::{State, Status};
use stepwell_kernel::time::Time;

use crate::phrases::{losses, waits_for};
use crate::{RunView, duration, people};

/// One thing that can continue a run.
#[derive(Clone, Debug)]
pub struct Reason {
    pub kind: &'static str,
    pub step: Option<String>,
    /// What is waited for, without the command.
    pub says: String,
    /// The command that gives what is waited for, where a person can give it.
    pub command: Option<String>,
    /// Since when it is waited for.
    pub since: Option<Time>,
    /// When the wait ends by itself.
    pub until: Option<Time>,
    /// The work that a worker must serve, if that is waited for.
    pub work: Option<WorkName>,
    /// Whether it is known that nobody serves it.
    pub is_unserved: bool,
}

/// The name of a kind of work, which workers serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkName {
    pub queue: String,
    pub operation: String,
}

impl WorkName {
    /// How to get somebody who does the work. `server` is the address of the server, if it is known.
    #[must_use]
    pub fn how_to_serve(&self, server: &str) -> String {
        match self.queue == BUILT_IN {
            true => format!("start `stepwell worker --server {server}`"),
            false => "start a worker that serves this queue and operation".to_owned(),
        }
    }
}

impl fmt::Display for WorkName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", quote(&self.queue), quote(&self.operation))
    }
}

impl Reason {
    fn new(kind: &'static str, step: Option<String>, says: impl Into<String>) -> Reason {
        Reason {
            kind,
            step,
            says: says.into(),
            command: None,
            since: None,
            until: None,
            work: None,
            is_unserved: false,
        }
    }

    fn by(mut self, command: String) -> Reason {
        self.command = Some(command);
        self
    }

    fn until(mut self, until: Option<Time>) -> Reason {
        self.until = until;
        self
    }

    /// What is waited for, with the command that gives it.
    #[must_use]
    pub fn text(&self) -> String {
        match &self.command {
            Some(command) => format!("{} (`{command}`)", self.says),
            None => self.says.clone(),
        }
    }

    #[must_use]
    pub fn row(&self) -> ReasonRow {
        ReasonRow {
            kind: self.kind.to_owned(),
            step_id: self.step.clone(),
            text: self.text(),
            says: self.says.clone(),
            command: self.command.clone(),
            since: self.since.map(Time::to_rfc3339),
            until: self.until.map(Time::to_rfc3339),
            queue: self.work.as_ref().map(|it| it.queue.clone()),
            operation: self.work.as_ref().map(|it| it.operation.clone()),
            unserved: self.is_unserved,
        }
    }
}

/// One thing that can continue a run, for programs.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReasonRow {
    /// What is waited for: `task`, `lease`, `outside`, `operator`, `child`, `timer`, `queue`, `start`, `ctx` or `proceed`.
    pub kind: String,
    /// The step that waits; null if the whole run does.
    pub step_id: Option<String>,
    /// What is waited for, with the command that gives it.
    pub text: String,
    /// What is waited for, without the command.
    pub says: String,
    /// The command that gives what is waited for, where a person can give it.
    pub command: Option<String>,
    /// Since when it is waited for.
    pub since: Option<String>,
    /// When the wait ends by itself.
    pub until: Option<String>,
    /// The queue that a worker must serve, if that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The operation that a worker must serve, if that is waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// Whether it is known that nobody serves it; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
}

/// The kinds of work that a run waits for a worker to take.
#[must_use]
pub fn work_needed(view: &RunView) -> Vec<WorkName> {
    let mut needed = Vec::new();
    for source in wake_sources(&view.plan, &view.state) {
        let WakeSource::Task { target, .. } = source else {
            continue;
        };
        let work = work_of(&view.plan, target);
        if !needed.contains(&work) {
            needed.push(work);
        }
    }
    needed
}

fn work_of(plan: &Plan, target: Target) -> WorkName {
    let (queue, operation) = served_by(plan, target);
    WorkName {
        queue: queue.to_owned(),
        operation: operation.to_owned(),
    }
}

/// The engine outside that moves a run, if one does.
fn engine_outside(state: &State) -> Option<&str> {
    state.engine().filter(|it| !["native", "mock"].contains(it))
}

/// Everything that can continue a run. `unserved` is work of which it is known that nobody serves it.
pub fn reasons(view: &RunView, now: Time, unserved: &[WorkName]) -> Vec<Reason> {
    let (plan, state) = (&view.plan, &view.state);
    let run = state.run_id();
    let since = last_events(view);
    // A step that nothing was said about waits since the run has started.
    let of_step = |at: StepRef| since.get(&at).copied().or(state.started_at());
    let mut all = Vec::new();
    let mut held_before = 0;
    for source in wake_sources(plan, state) {
        let (reason, since) = match source {
            WakeSource::Queue if plan.policy().needs_approval && !state.approved() => {
                let reason = Reason::new("queue", None, "an approval")
                    .by(format!("stepwell runs approve {run}"));
                (reason, Some(state.created_at()))
            }
            WakeSource::Queue => (queued(state, now), Some(state.created_at())),
            WakeSource::Task {
                target, visible_at, ..
            } => {
                let served = work_of(plan, target);
                let name = target_name(plan, target);
                let is_later = visible_at > now;
                let later = match is_later {
                    true => format!(", in {}", duration(visible_at.since(now))),
                    false => String::new(),
                };
                let lost = lost(state, target);
                let is_unserved = unserved.contains(&served);
                let nobody = match is_unserved {
                    true => format!("; nobody serves it now: {}", served.how_to_serve("URL")),
                    false => String::new(),
                };
                let who = match engine_outside(state).filter(|_| served.queue == BUILT_IN) {
                    Some(engine) => {
                        format!(
                            "the engine `{engine}`, which gives the step to a process that serves it"
                        )
                    }
                    None => format!("a worker that serves {served}"),
                };
                let says = format!("{name}: {who}{later}{lost}{nobody}");
                let reason = Reason {
                    work: Some(served),
                    is_unserved,
                    ..Reason::new("task", Some(name), says)
                };
                // Work that can be taken waits since then, however long ago something was said about its step.
                let since = match is_later {
                    true => of_step(target.step_ref()),
                    false => of_step(target.step_ref()).max(Some(visible_at)),
                };
                (reason.until(is_later.then_some(visible_at)), since)
            }
            WakeSource::Lease { target, until } => {
                let name = target_name(plan, target);
                let lost = lost(state, target);
                let run = state.target(target);
                let worker = run.and_then(|run| run.lease()).map(|it| &*it.worker);
                let worker = worker.map_or_else(String::new, |it| format!(" {it}"));
                // Heartbeats extend the lease in the store, each by its whole length.
                let granted = of_step(target.step_ref()).map(|since| until.since(since));
                let within = match granted {
                    Some(length) if length > 0 => format!(" within {}", duration(length)),
                    _ => String::new(),
                };
                let says = format!(
                    "{name}: the worker{worker} that executes the step{lost}; without a sign of life from the worker the lease \
                     ends{within}, and the engine goes on with the step as its definition says"
                );
                let timeout = run.and_then(|run| run.timer());
                let reason = Reason::new("lease", Some(name), says);
                (
                    reason.until(timeout.map(|it| it.0)),
                    of_step(target.step_ref()),
                )
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
                let says = format!("{id}: {}{people}", waits_for(&wait));
                let until = state.run(step).and_then(|it| it.wait()?.deadline());
                let reason = Reason::new("outside", Some(id), says).by(how);
                (reason.until(until), of_step(step))
            }
            WakeSource::Child { step, request_key } => {
                let id = plan.step_id(step);
                let says = format!("{id}: its child run {}", run_id_for(&request_key));
                (Reason::new("child", Some(id), says), of_step(step))
            }
            WakeSource::Timer { kind, due } => {
                let when = match due > now {
                    true => format!("in {}", duration(due.since(now))),
                    false => "due".to_owned(),
                };
                let owner = timed(state, kind, due);
                let wait = owner.and_then(|at| state.run(at)?.wait());
                let sleeps = wait.is_some_and(|it| matches!(it.kind(), WaitKind::Timer { .. }));
                let what = if sleeps {
                    "the end of its sleep"
                } else {
                    timer(kind)
                };
                let id = owner.map(|at| plan.step_id(at));
                let says = match &id {
                    Some(id) => format!("{id}: {what}, {when}"),
                    None => format!("{what}, {when}"),
                };
                let reason = Reason::new("timer", id, says);
                (reason.until(Some(due)), owner.and_then(of_step))
            }
            WakeSource::Operator if state.pause().is_some() => {
                let reason = Reason::new("operator", None, "an operator: the run is paused");
                (
                    reason.by(format!("stepwell runs resume {run}")),
                    last_pause(view),
                )
            }
            WakeSource::Operator => {
                // Each step that is held is a source; the sources do not name their steps.
                let held = state.open().iter().copied();
                let mut held =
                    held.filter(|at| state.run(*at).is_some_and(|it| it.status() == Status::Held));
                let at = held.nth(held_before);
                held_before += 1;
                let id = at.map(|at| plan.step_id(at));
                let step = id.as_deref().unwrap_or("STEP");
                let says = match &id {
                    Some(id) => format!("{id}: an operator: the step has failed and is held"),
                    None => "an operator: a failed step is held".to_owned(),
                };
                let how = format!("stepwell runs retry {run} --step {step}");
                (
                    Reason::new("operator", id, says).by(how),
                    at.and_then(of_step),
                )
            }
            WakeSource::Ctx { step } => {
                let id = plan.step_id(step);
                let says = format!("{id}: a change of ctx that admits the token");
                (Reason::new("ctx", Some(id), says), of_step(step))
            }
            WakeSource::Proceed => {
                let says = "the engine, which continues the run";
                (Reason::new("proceed", None, says), None)
            }
        };
        all.push(Reason { since, ..reason });
    }
    all
}

/// The open step-run that a timer belongs to; none for a timer of the run.
fn timed(state: &State, kind: TimerKind, due: Time) -> Option<StepRef> {
    let is_it = |at: &StepRef| {
        let timer = state.run(*at).and_then(|run| run.timer());
        timer.is_some_and(|(at, id)| at == due && id.kind == kind)
    };
    state.open().iter().copied().find(is_it)
}

/// A run that has not started and needs no approval.
fn queued(state: &State, now: Time) -> Reason {
    match state.start_after().filter(|at| *at > now) {
        Some(at) => {
            let wait = duration(at.since(now));
            let says = format!("its time to start, {}, in {wait}", at.to_rfc3339());
            Reason::new("start", None, says).until(Some(at))
        }
        None => Reason::new("queue", None, "a free slot in the queue"),
    }
}

/// When something was last said about each step-run: a step that waits has waited since then.
fn last_events(view: &RunView) -> BTreeMap<StepRef, Time> {
    let events = view.events.iter();
    events
        .filter_map(|event| Some((event.body.step()?, event.at)))
        .collect()
}

/// When the run was last paused.
fn last_pause(view: &RunView) -> Option<Time> {
    let mut events = view.events.iter().rev();
    let paused = events.find(|event| matches!(event.body, Body::RunPaused { .. }));
    paused.map(|event| event.at)
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
