//! What an open run waits for, as text, with the command that continues the run.

use std::collections::BTreeMap;

use stepwell_engine::rows::{BUILT_IN, served_by, target_name};
use stepwell_engine::{engine_outside, run_id_for};
use stepwell_kernel::command::TimerKind;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event, StepError, WaitKind};
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::{Plan, StepRef, Work};
use stepwell_kernel::signal::SignalKind;
use stepwell_kernel::state::{State, Status};
use stepwell_kernel::time::Time;

use crate::phrases::{self, losses, waits_for_whom};
pub use crate::reason::{Need, NextAttempt, Reason, ReasonRow, WorkName};
use crate::{RunView, duration, people};

/// The most characters of the message of an error in a reason.
const MAX_MESSAGE: usize = 300;

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

/// Everything that can continue a run. `unserved` is work of which it is known that nobody serves it.
pub fn reasons(view: &RunView, now: Time, unserved: &[WorkName]) -> Vec<Reason> {
    let teller = Teller {
        view,
        now,
        unserved,
        since: last_events(view),
    };
    let sources = wake_sources(&view.plan, &view.state);
    let mut all = Vec::new();
    for source in sources {
        // The end of a hold is told with the step that is held.
        if let WakeSource::Timer { kind, .. } = source
            && kind == TimerKind::Hold
        {
            continue;
        }
        let is_held = matches!(source, WakeSource::Operator) && view.state.pause().is_none();
        if !is_held {
            all.push(teller.reason(source));
        } else if !all.iter().any(|it: &Reason| it.kind == "operator") {
            // There is one source for each step that is held: all of them are told with the first one.
            all.extend(teller.held());
        }
    }
    all
}

/// Who puts what a run waits for into words.
struct Teller<'a> {
    view: &'a RunView,
    now: Time,
    unserved: &'a [WorkName],
    /// When something was last said about each step-run.
    since: BTreeMap<StepRef, Time>,
}

impl Teller<'_> {
    fn reason(&self, source: WakeSource) -> Reason {
        let (plan, state) = (&self.view.plan, &self.view.state);
        let run = state.run_id();
        let (reason, since) = match source {
            WakeSource::Queue if plan.policy().needs_approval && !state.approved() => {
                let reason = Reason::new("queue", None, "an approval")
                    .needs(Need::Approval)
                    .by(format!("stepwell runs approve {run}"));
                (reason, Some(state.created_at()))
            }
            WakeSource::Queue => (queued(state, self.now), Some(state.created_at())),
            WakeSource::Task {
                target, visible_at, ..
            } => self.task(target, visible_at),
            WakeSource::Lease { target, until } => self.lease(target, until),
            WakeSource::Outside { step, wait } => (self.outside(step, &wait), self.of_step(step)),
            WakeSource::Child { step, request_key } => {
                let run_id = run_id_for(&request_key);
                let what = format!("its child run {run_id}");
                let reason = Reason::new("child", Some(plan.step_id(step)), what);
                let need = Need::ChildRun { run_id };
                (reason.needs(need), self.of_step(step))
            }
            WakeSource::Timer { kind, due } => self.timer(kind, due),
            WakeSource::Operator => {
                let pause = last_pause(self.view);
                let who = pause.and_then(|pause| paused_by(self.view, pause));
                let what = match who {
                    Some(who) => format!("an operator: the run is paused by {who}"),
                    None => "an operator: the run is paused".to_owned(),
                };
                let reason = Reason::new("operator", None, what).needs(Need::Resume);
                let reason = reason.by(format!("stepwell runs resume {run}"));
                (reason, pause.map(|event| event.at))
            }
            WakeSource::Ctx { step } => {
                let what = "a change of ctx that admits the token";
                let reason = Reason::new("ctx", Some(plan.step_id(step)), what);
                (reason, self.of_step(step))
            }
            WakeSource::Proceed => {
                let what = "the engine, which continues the run";
                (Reason::new("proceed", None, what), None)
            }
        };
        Reason { since, ..reason }
    }

    /// When something was last said about a step-run; one that nothing was said about waits since the run has started.
    fn of_step(&self, at: StepRef) -> Option<Time> {
        let said = self.since.get(&at).copied();
        said.or(self.view.state.started_at())
    }

    /// Work that a worker can take, now or later, and since when.
    fn task(&self, target: Target, visible_at: Time) -> (Reason, Option<Time>) {
        let (plan, state) = (&self.view.plan, &self.view.state);
        let work = work_of(plan, target);
        let is_later = visible_at > self.now;
        let is_unserved = self.unserved.contains(&work);
        let engine = engine_outside(state).filter(|_| work.queue == BUILT_IN);
        let nobody = match (is_unserved, engine) {
            (true, Some(_)) => {
                "; the engine does not answer, or nobody serves it: `stepwell engines --server URL` says why".to_owned()
            }
            (true, None) => format!("; nobody serves it now: {}", work.how_to_serve("URL")),
            (false, _) => String::new(),
        };
        let who = match engine {
            Some(engine) => {
                format!("the engine `{engine}`, which gives the step to a process that serves it")
            }
            None if work.queue == BUILT_IN => {
                format!("a server or worker that runs {}", tools(plan, target))
            }
            None => format!("a worker that serves {work}"),
        };
        let retry = next_attempt(plan, state, target).filter(|_| is_later);
        let (what, failed) = match &retry {
            None => (who, String::new()),
            Some(retry) => {
                let before = phrases::attempt(retry.attempt - 1, 0);
                let error = retry.error.as_ref().map(phrases::error);
                let failed = error.map(|error| format!("; {before} failed: {error}"));
                let next = phrases::attempt(retry.attempt, retry.of);
                (
                    format!("{next}, after a backoff"),
                    failed.unwrap_or_default(),
                )
            }
        };
        let reason = Reason {
            left: self
                .left(visible_at)
                .filter(|_| is_later)
                .unwrap_or_default(),
            more: format!("{failed}{}{nobody}", lost(state, target)),
            // A worker is no help where an engine outside has the work.
            work: (engine.is_none() || !is_unserved).then(|| work.clone()),
            is_unserved,
            retry,
            ..Reason::new("task", Some(target_name(plan, target)), what)
        };
        // No event says that work can be claimed: it can from `visible_at` on.
        let said = self.since.get(&target.step_ref()).copied();
        let since = match is_later {
            true => said.or(state.started_at()),
            false => said.max(Some(visible_at)),
        };
        (reason.until(is_later.then_some(visible_at)), since)
    }

    /// Work that a worker has: its result moves the run, or the end of its lease.
    fn lease(&self, target: Target, until: Time) -> (Reason, Option<Time>) {
        let (plan, state) = (&self.view.plan, &self.view.state);
        let run = state.target(target);
        let lease = run.and_then(|run| run.lease());
        let worker = lease.map(|it| it.worker.as_str());
        let since = self.of_step(target.step_ref());
        let what = match worker.filter(|it| !it.starts_with('@')) {
            Some(worker) => format!("at work: the worker {worker} executes it"),
            // The name of a process that has no worker is a number that nobody knows.
            None => format!("at work: Stepwell runs {}", tools(plan, target)),
        };
        // Heartbeats extend the lease in the store, each by its whole length.
        let silence = match since.map_or(0, |since| until.since(since)) {
            0 => String::new(),
            _ if worker.is_none_or(|it| it.starts_with('@')) => String::new(),
            length => format!(
                "; if nothing is heard from the worker for {}, the engine takes the step back",
                duration(length)
            ),
        };
        let reason = Reason {
            more: format!("{}{silence}", lost(state, target)),
            ..Reason::new("lease", Some(target_name(plan, target)), what)
        };
        let timeout = run.and_then(|run| run.timer());
        (reason.until(timeout.map(|it| it.0)), since)
    }

    /// A person or an event that a step waits for.
    fn outside(&self, step: StepRef, wait: &WaitKind) -> Reason {
        let (plan, state) = (&self.view.plan, &self.view.state);
        let (run, id) = (state.run_id(), plan.step_id(step));
        let complete = format!("stepwell runs complete {run} {id} --outcome succeeded");
        let (need, how) = match wait {
            WaitKind::Event { event_type, .. } => (
                Need::Event {
                    event_type: event_type.clone(),
                },
                format!("stepwell runs signal {run} --event {event_type} --id ID"),
            ),
            WaitKind::Gate | WaitKind::Approval => (Need::Approval, complete),
            WaitKind::Manual | WaitKind::Timer { .. } | WaitKind::Child { .. } => {
                (Need::Completion, complete)
            }
        };
        let people = match people::approvals(self.view, step) {
            Some(approvals) => format!(", {}", approvals.text),
            None => String::new(),
        };
        let what = format!("{}{people}", waits_for_whom(plan, state, step, wait));
        let until = state.run(step).and_then(|it| it.wait()?.deadline());
        let reason = Reason::new("outside", Some(id), what).needs(need);
        reason.by(how).until(until)
    }

    fn timer(&self, kind: TimerKind, due: Time) -> (Reason, Option<Time>) {
        let (plan, state) = (&self.view.plan, &self.view.state);
        let owner = timed(state, kind, due);
        let wait = owner.and_then(|at| state.run(at)?.wait());
        let sleeps = wait.is_some_and(|it| matches!(it.kind(), WaitKind::Timer { .. }));
        let (told, what) = match sleeps {
            true => ("timer", "the end of the time that the step sleeps"),
            false => ("limit", limit(kind)),
        };
        let reason = Reason {
            left: self.left(due).unwrap_or_else(|| ", due".to_owned()),
            ..Reason::new(told, owner.map(|at| plan.step_id(at)), what)
        };
        let since = match (owner, kind) {
            (Some(at), _) => self.of_step(at),
            (None, TimerKind::Drain) => last_pause(self.view).map(|event| event.at),
            (None, TimerKind::Run) => state.started_at(),
            (None, TimerKind::Attempt | TimerKind::Wait | TimerKind::Hold | TimerKind::Stall) => {
                None
            }
        };
        (reason.until(Some(due)), since)
    }

    /// The steps that have failed and wait for an operator.
    fn held(&self) -> Vec<Reason> {
        let (plan, state) = (&self.view.plan, &self.view.state);
        let is_held = |at: &&StepRef| {
            let status = state.run(**at).map(|run| run.status());
            status == Some(Status::Held)
        };
        let open = state.open().iter().filter(is_held);
        open.map(|at| {
            let (run, id) = (state.run_id(), plan.step_id(*at));
            let what = "a person: the step has failed and is held";
            let how = format!("stepwell runs retry {run} --step {id}");
            let timer = state.run(*at).and_then(|run| run.timer());
            let due = timer.map(|it| it.0);
            let left =
                due.map(|due| format!("; the run stops in {}", duration(due.since(self.now))));
            let reason = Reason::new("operator", Some(id), what).needs(Need::Repair);
            Reason {
                since: self.of_step(*at),
                left: left.unwrap_or_default(),
                ..reason.by(how).until(due)
            }
        })
        .collect()
    }

    /// `, in 5 s`; none if the time has come.
    fn left(&self, at: Time) -> Option<String> {
        (at > self.now).then(|| format!(", in {}", duration(at.since(self.now))))
    }
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
            let left = duration(at.since(now));
            let reason = Reason {
                left: format!(", {}, in {left}", at.to_rfc3339()),
                ..Reason::new("start", None, "its time to start")
            };
            reason.until(Some(at))
        }
        None => Reason::new(
            "queue",
            None,
            "its start, as soon as the limits of runs allow it",
        ),
    }
}

/// When something was last said about each step-run: a step that waits has waited since then. An answer that does not end
/// a wait does not begin it anew.
fn last_events(view: &RunView) -> BTreeMap<StepRef, Time> {
    let is_answer = |event: &&Event| {
        matches!(
            event.body,
            Body::StepAnswered { .. } | Body::StepApproved { .. }
        )
    };
    let events = view.events.iter();
    events
        .filter(|event| !is_answer(event))
        .filter_map(|event| Some((event.body.step()?, event.at)))
        .collect()
}

/// The event of the last pause.
fn last_pause(view: &RunView) -> Option<&Event> {
    let mut events = view.events.iter().rev();
    events.find(|event| matches!(event.body, Body::RunPaused { .. }))
}

/// Who has paused the run, and why: `ada (the price is wrong)`.
fn paused_by(view: &RunView, pause: &Event) -> Option<String> {
    let before = view.events.iter().rev().skip_while(|it| it.seq > pause.seq);
    let mut signals = before.filter_map(|event| {
        let Body::SignalAccepted {
            signal, by, reason, ..
        } = &event.body
        else {
            return None;
        };
        (signal == SignalKind::Pause.name()).then_some((by, reason))
    });
    let (by, reason) = signals.next()?;
    Some(match reason {
        Some(reason) => format!("{by} ({reason})"),
        None => by.clone(),
    })
}

/// The attempt of a target that comes after a backoff; none if no attempt has failed.
fn next_attempt(plan: &Plan, state: &State, target: Target) -> Option<NextAttempt> {
    let run = state.target(target).filter(|run| run.is_backing_off())?;
    let step = plan.step(target.step_ref().step);
    let undo = step.undo.as_ref().map(|it| &it.retry);
    let retry = match target {
        Target::Step(_) => &step.retry,
        Target::Undo(_) => undo?,
    };
    let error = run.error().map(|error| StepError {
        message: cut(&error.message),
        ..error.clone()
    });
    Some(NextAttempt {
        attempt: run.tries() + 1,
        of: retry.max_executions,
        error,
    })
}

/// The beginning of a message: the whole one is with the step.
fn cut(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message.to_owned(),
    }
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

/// A time that only comes if nothing else does before, and what it does then.
fn limit(kind: TimerKind) -> &'static str {
    match kind {
        TimerKind::Attempt => {
            "time limit of the attempt: the attempt fails if it has not ended by then"
        }
        TimerKind::Wait => "time limit of the wait: the step fails if nobody has answered by then",
        TimerKind::Hold => "time limit of the hold: the run stops if nobody has decided by then",
        TimerKind::Run => "time limit of the run: the run is stopped if it has not ended by then",
        TimerKind::Drain => {
            "time limit of the pause for work in flight: an alert is raised if the work has not ended by then"
        }
        TimerKind::Stall => {
            "time limit of the stall: the run stops if no token can enter a step by then"
        }
    }
}

/// The built-in tools that the work of a target uses: `shell`, `http and python`.
fn tools(plan: &Plan, target: Target) -> String {
    let step = plan.step(target.step_ref().step);
    let tasks = match (target, &step.work, &step.undo) {
        (Target::Undo(_), _, Some(undo)) => &undo.tasks,
        (Target::Step(_), Work::Pipeline { tasks }, _) => tasks,
        _ => &serde_json::Value::Null,
    };
    let mut names: Vec<&str> = Vec::new();
    for task in tasks.as_array().into_iter().flatten() {
        let name = task["kind"].as_str().unwrap_or_default();
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [] => "it".to_owned(),
        names => names.join(" and "),
    }
}
