//! What the engine itself does when a token reaches a step: open a gate, begin a wait, start a child,
//! start or end a loop. No worker is involved.
//!
//! | state and command | what follows | refused with |
//! |---|---|---|
//! | a token has reached a step with a gate | `StepWaiting` | – |
//! | a token has reached a wait or a child run | `StepStarted`, `StepWaiting`; `StepWoken` if the event has come before | – |
//! | a token has reached a loop | `StepStarted`; a list that cannot be evaluated fails the step | – |
//! | all items of a loop have ended | the step succeeds or fails, by `report.rs` and `failure.rs` | – |
//! | Stopping, an entry is due | the step ends, by `stop.rs` | – |

use std::sync::Arc;

use serde_json::Value as Json;

use super::{Decider, MAX_ITEMS, MAX_PARALLEL};
use crate::codes;
use crate::event::{Body, LoopItems, LoopStart, Patch, StepError, WaitKind};
use crate::expr::TemplateError;
use crate::keys;
use crate::plan::{
    ErrorClass, Loop, LoopMode, MaxInFlight, OnLoopFailure, StepRef, WaitOn, WaitSpec, Work,
};
use crate::reference;
use crate::scope::{Boundary, LoopItem, RunScope, output_is_read, output_of};
use crate::state::{Phase, Status};
use crate::time::Time;

impl Decider<'_> {
    pub(super) fn enter(&mut self, at: StepRef) {
        let step = self.plan.step(at.step);
        let Some(run) = self.state.run(at) else {
            return self.missing(at);
        };
        let looping = run.status() == Status::Looping;
        if self.state.phase() == Phase::Stopping {
            return self.cancel_step(at, "the run is stopping");
        }
        if looping {
            return self.end_loop(at);
        }
        if let Some(gate) = step
            .gate
            .as_ref()
            .filter(|_| at.item.is_none() && !run.is_answered())
        {
            let deadline = gate.deadline_ms.map(|deadline| self.now.plus(deadline));
            return self.begin_wait(
                at,
                run.execution(),
                WaitKind::Gate,
                deadline,
                Vec::new(),
                None,
            );
        }
        match (&step.each, &step.work) {
            (Some(each), _) if at.item.is_none() => self.start_loop(at, each),
            (_, Work::Wait(spec)) => self.start_wait(at, spec),
            (_, Work::Child(child)) => {
                let boundary = self.item_boundary(at);
                let view = RunScope {
                    plan: self.plan,
                    state: self.state,
                    boundary: &boundary,
                    guard: None,
                };
                match child.input.evaluate(&view) {
                    Ok(input) => self.start_child(at, Arc::new(input)),
                    Err(error) => {
                        let error = self.broken(at, "the child's input", &error);
                        self.fail_unstarted(at, error, None);
                    }
                }
            }
            // A worker does these; they are dispatched when the token arrives.
            (_, Work::Task { .. } | Work::Pipeline { .. }) => {
                self.invalid("the engine is to act on a step that a worker does");
            }
        }
    }

    /// The scope of a step that begins: its token's arguments, and in a loop the item.
    fn item_boundary(&self, at: StepRef) -> Boundary {
        let visit = self.state.visit(at);
        let item = at.item.and_then(|index| {
            let each = self.plan.step(at.step).each.as_ref()?;
            let item = visit?.each()?.item(index)?;
            Some(LoopItem {
                name: each.iterator.clone(),
                index,
                value: Arc::new(item),
            })
        });
        Boundary {
            args: visit.and_then(|visit| visit.args().cloned()),
            item,
            ..Boundary::default()
        }
    }

    /// Starts a step without a worker, if it has not started, and says which execution that is.
    fn start_by_engine(&mut self, at: StepRef) -> u32 {
        let Some(run) = self.state.run(at) else {
            self.missing(at);
            return 0;
        };
        let (logical, execution) = (run.logical(), run.execution() + 1);
        if run.has_started() {
            return run.execution();
        }
        self.emit(Body::StepStarted {
            step: at,
            logical,
            execution,
            lease: None,
            each: None,
        });
        execution
    }

    /// A step fails before any work: it is started by the engine first, since only what has started
    /// can fail.
    pub(super) fn fail_unstarted(&mut self, at: StepRef, error: StepError, by: Option<String>) {
        let execution = self.start_by_engine(at);
        self.fail_for_good(at, execution, error, by);
    }

    fn start_wait(&mut self, at: StepRef, spec: &WaitSpec) {
        let Some(run) = self.state.run(at) else {
            return self.missing(at);
        };
        if run.has_started()
            && let Some(payload) = run.payload().cloned()
        {
            // The event it waited for has come.
            let execution = run.execution();
            return self.succeed(at, execution, payload, Patch::new(), Vec::new(), None);
        }
        let outbound = match self.outbound(at) {
            Ok(outbound) => outbound,
            Err(error) => {
                let error = self.broken(at, "the outbound events", &error);
                return self.fail_unstarted(at, error, None);
            }
        };
        let execution = self.start_by_engine(at);
        let (kind, deadline_ms) = match &spec.on {
            WaitOn::Approval => (WaitKind::Approval, spec.deadline_ms),
            WaitOn::Manual => (WaitKind::Manual, spec.deadline_ms),
            WaitOn::Event { event_type } => (
                WaitKind::Event {
                    event_type: event_type.clone(),
                    rerun: false,
                },
                spec.deadline_ms,
            ),
            WaitOn::Timer { millis } => (WaitKind::Timer { rerun: false }, Some(*millis)),
        };
        let deadline = deadline_ms.map(|deadline| self.now.plus(deadline));
        self.begin_wait(at, execution, kind, deadline, outbound, None);
    }

    /// What a step that only waits publishes.
    fn outbound(&self, at: StepRef) -> Result<Vec<Json>, TemplateError> {
        let boundary = self.item_boundary(at);
        let view = RunScope {
            plan: self.plan,
            state: self.state,
            boundary: &boundary,
            guard: None,
        };
        let events = self.plan.step(at.step).outbound.iter();
        events.map(|event| event.evaluate(&view)).collect()
    }

    fn start_child(&mut self, at: StepRef, input: Arc<Json>) {
        let execution = self.start_by_engine(at);
        let request_key = self.child_key(at, execution);
        // The child does the step's work, so the step's timeout is the child's.
        let timeout = self.plan.step(at.step).timeout_ms;
        let deadline = timeout.map(|timeout| self.now.plus(timeout));
        let wait = WaitKind::Child {
            request_key,
            input,
            call: None,
        };
        self.begin_wait(at, execution, wait, deadline, Vec::new(), None);
    }

    /// What the child of an execution is asked for under: a crash never starts two.
    pub(super) fn child_key(&self, at: StepRef, execution: u32) -> String {
        let logical = self.state.run(at).map_or(1, |run| run.logical());
        let step_id = self.plan.step_id(at);
        format!("{}|{step_id}|{logical}|{execution}", self.state.run_id())
    }

    /// Begins a wait; an event that came before it ends it at once.
    pub(super) fn begin_wait(
        &mut self,
        at: StepRef,
        execution: u32,
        wait: WaitKind,
        deadline: Option<Time>,
        outbound: Vec<Json>,
        memo: Option<Json>,
    ) {
        let Some(run) = self.state.run(at) else {
            return self.missing(at);
        };
        let logical = run.logical();
        let token_hash = match wait {
            WaitKind::Gate | WaitKind::Approval | WaitKind::Manual => {
                Some(keys::sha256_hex(&self.token(at, &wait, logical, execution)))
            }
            WaitKind::Event { .. } | WaitKind::Timer { .. } | WaitKind::Child { .. } => None,
        };
        let kept = match &wait {
            WaitKind::Event { event_type, .. } => self
                .state
                .inbox()
                .iter()
                .find(|kept| kept.event_type() == *event_type)
                .cloned(),
            WaitKind::Gate
            | WaitKind::Approval
            | WaitKind::Manual
            | WaitKind::Timer { .. }
            | WaitKind::Child { .. } => None,
        };
        self.emit(Body::StepWaiting {
            step: at,
            logical,
            execution,
            wait,
            deadline,
            token_hash,
            outbound,
            memo: memo.map(Arc::new),
        });
        if let Some(kept) = kept {
            self.emit(Body::StepWoken {
                step: at,
                execution,
                event_id: Some(kept.id().to_owned()),
                payload: Some(kept.payload().clone()),
                by: None,
            });
        }
    }

    fn start_loop(&mut self, at: StepRef, each: &Loop) {
        let boundary = self.item_boundary(at);
        match self.loop_start(at, each, &boundary) {
            Ok(start) => {
                let Some(run) = self.state.run(at) else {
                    return self.missing(at);
                };
                let (logical, execution) = (run.logical(), run.execution() + 1);
                self.emit(Body::StepStarted {
                    step: at,
                    logical,
                    execution,
                    lease: None,
                    each: Some(start),
                });
            }
            Err(error) => self.fail_unstarted(at, error, None),
        }
    }

    fn loop_start(
        &self,
        at: StepRef,
        each: &Loop,
        boundary: &Boundary,
    ) -> Result<LoopStart, StepError> {
        let view = RunScope {
            plan: self.plan,
            state: self.state,
            boundary,
            guard: None,
        };
        let wrong = |code: &str, message: String| {
            Err(StepError::new(ErrorClass::Validation, code, message))
        };
        // A plain path is read where it is: the list may be too large to evaluate, and need not be
        // repeated in the log.
        let path = each
            .items
            .as_template()
            .and_then(|template| template.as_path())
            .filter(|path| !boundary.names(&path[0]));
        let found = path.and_then(|path| crate::evolve::at_path(self.plan, self.state, path));
        let (count, items) = match (path, found.as_deref().and_then(Json::as_array)) {
            (Some(path), Some(list)) => (list.len(), LoopItems::Path(path.to_vec())),
            _ => {
                let value = each
                    .items
                    .evaluate(&view)
                    .map_err(|error| self.broken(at, "the list", &error))?;
                match list_of(value) {
                    Ok(Listed::Here(list)) => (list.len(), LoopItems::Inline(Arc::new(list))),
                    Ok(Listed::Elsewhere(value, count)) => {
                        (count, LoopItems::Reference(Arc::new(value)))
                    }
                    Err(found) => {
                        return wrong(
                            codes::LOOP_NOT_A_LIST,
                            format!("`in` gives {found}, a loop needs a list"),
                        );
                    }
                }
            }
        };
        if count > MAX_ITEMS {
            return wrong(
                codes::LOOP_TOO_LARGE,
                format!("{count} items; at most {MAX_ITEMS} fit one loop"),
            );
        }
        let most = match &each.max_in_flight {
            MaxInFlight::Fixed(most) => i64::from(*most),
            MaxInFlight::Computed(template) => {
                let value = template
                    .evaluate(&view)
                    .map_err(|error| self.broken(at, "max_in_flight", &error))?;
                let number = value
                    .as_i64()
                    .or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()));
                number.unwrap_or(0)
            }
        };
        if most < 1 {
            return wrong(
                codes::LOOP_BAD_LIMIT,
                "max_in_flight must be a whole number of at least 1".into(),
            );
        }
        let window = match each.mode {
            LoopMode::Sequential => 1,
            LoopMode::Parallel => u32::try_from(most)
                .unwrap_or(MAX_PARALLEL)
                .min(MAX_PARALLEL),
        };
        Ok(LoopStart {
            count: count as u32,
            window,
            items,
        })
    }

    /// All items of a loop have ended.
    fn end_loop(&mut self, at: StepRef) {
        let visit = self.state.visit(at);
        let Some((run, each)) = visit.and_then(|it| Some((it.run(), it.each()?))) else {
            return self.missing(at);
        };
        let execution = run.execution();
        let fails = self
            .plan
            .step(at.step)
            .each
            .as_ref()
            .is_some_and(|each| each.on_failure == OnLoopFailure::Fail);
        let first = each
            .errors()
            .next()
            .map(|(item, error)| (item, error.clone()));
        match first.filter(|_| fails) {
            Some((item, error)) => {
                let message = format!("item {item} failed: {}", error.message);
                self.fail_for_good(at, execution, StepError { message, ..error }, None);
            }
            None => {
                let output = match output_is_read(self.plan, at.step) {
                    true => output_of(self.plan, self.state, at),
                    false => Arc::default(),
                };
                self.succeed(at, execution, output, Patch::new(), Vec::new(), None);
            }
        }
    }
}

/// Where the items of a loop are.
enum Listed {
    Here(Vec<Json>),
    /// What stands for the list, and how many it has.
    Elsewhere(Json, usize),
}

/// A list, also where a template made text of one, or what stands for one. A single number or mapping
/// is a list of one: what answers with many items often answers with a bare one too.
fn list_of(value: Json) -> Result<Listed, &'static str> {
    if let Some(count) = reference::count(&value) {
        return Ok(Listed::Elsewhere(value, count));
    }
    match value {
        Json::Array(list) => Ok(Listed::Here(list)),
        Json::Null => Ok(Listed::Here(Vec::new())),
        Json::String(text) => match serde_json::from_str(&text) {
            Ok(Json::Array(list)) => Ok(Listed::Here(list)),
            _ => Err("text"),
        },
        Json::Bool(_) => Err("a boolean"),
        one @ (Json::Number(_) | Json::Object(_)) => Ok(Listed::Here(vec![one])),
    }
}
