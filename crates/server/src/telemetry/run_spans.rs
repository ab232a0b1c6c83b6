//! The spans of a run, made from its log: one for the run, one for each execution of a step or of an undo, and one for
//! each wait. A span is complete when the event is there that ends it.

use std::collections::BTreeMap;
use std::sync::Arc;

use stepwell_engine::rows::target_name;
use stepwell_kernel::effect::Target;
use stepwell_kernel::event::{Body, Event, RunContext, StepError, WaitKind};
use stepwell_kernel::plan::{Plan, StepRef};
use stepwell_kernel::time::Time;
use stepwell_kernel::trace::{TraceContext, execution_span, run_span, wait_span};

use super::otlp::{Kind, Span, Status, Value};

/// What is known of a run so far.
#[derive(Debug)]
pub(super) struct RunSpans {
    run_id: String,
    plan: Arc<Plan>,
    /// The first event, once it was read; absent also if the run is not recorded.
    begin: Option<Begin>,
    /// What has begun and not ended, by the name of its target.
    open: BTreeMap<String, OpenSpan>,
}

#[derive(Debug)]
struct Begin {
    trace: TraceContext,
    at: Time,
    context: RunContext,
    parent_run: Option<String>,
}

#[derive(Debug)]
struct OpenSpan {
    what: What,
    execution: u32,
    attempt: u32,
    at: Time,
    worker: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Work,
    Undo,
    Wait(&'static str),
}

impl RunSpans {
    pub(super) fn new(run_id: &str, plan: &Arc<Plan>) -> RunSpans {
        RunSpans {
            run_id: run_id.to_owned(),
            plan: Arc::clone(plan),
            begin: None,
            open: BTreeMap::new(),
        }
    }

    /// Whether the spans of the run are recorded. Known once the first event was read.
    pub(super) fn is_recorded(&self) -> bool {
        self.begin.is_some()
    }

    /// Takes the next event of the log; returns the spans that it ends.
    pub(super) fn take(&mut self, event: &Event) -> Vec<Span> {
        let at = event.at;
        match &event.body {
            Body::RunCreated {
                context, parent, ..
            } => {
                let trace = context.trace.clone().filter(|it| it.recorded);
                self.begin = trace.map(|trace| Begin {
                    trace,
                    at,
                    context: context.clone(),
                    parent_run: parent.as_ref().map(|it| it.run_id.clone()),
                });
                Vec::new()
            }
            Body::StepStarted {
                step,
                logical,
                execution,
                lease,
                ..
            } => {
                let worker = lease.as_ref().map(|it| it.worker.clone());
                self.opens(*step, What::Work, (*execution, *logical), at, worker)
            }
            Body::StepExecutionStarted {
                step,
                logical,
                execution,
                lease,
                ..
            } => {
                let worker = Some(lease.worker.clone());
                self.opens(*step, What::Work, (*execution, *logical), at, worker)
            }
            Body::UndoStarted {
                step,
                execution,
                lease,
            } => {
                let worker = Some(lease.worker.clone());
                self.opens(*step, What::Undo, (*execution, 1), at, worker)
            }
            Body::StepWaiting {
                step,
                logical,
                execution,
                wait,
                ..
            } => {
                let what = What::Wait(word(wait));
                self.opens(*step, what, (*execution, *logical), at, None)
            }
            Body::StepWoken { step, .. } => self.ends(Target::Step(*step), at, Status::Unset),
            Body::StepCompleted { step, .. } => self.ends(Target::Step(*step), at, Status::Good),
            Body::StepExecutionFailed { step, error, .. }
            | Body::StepFailed { step, error, .. } => {
                self.ends(Target::Step(*step), at, failed(error))
            }
            Body::UndoCompleted { step, .. } => self.ends(Target::Undo(*step), at, Status::Good),
            Body::UndoExecutionFailed { step, error, .. }
            | Body::UndoFailed { step, error, .. } => {
                self.ends(Target::Undo(*step), at, failed(error))
            }
            Body::RunCompleted { .. } => self.all_end(at, Status::Good),
            Body::RunFailed { error, .. } => self.all_end(at, failed(error)),
            Body::RunCancelled { .. } => self.all_end(at, Status::Failed("CANCELLED".to_owned())),
            Body::RunQueued { .. }
            | Body::RunApproved { .. }
            | Body::RunStarted { .. }
            | Body::RunPaused { .. }
            | Body::RunResumed { .. }
            | Body::RunFinalizing { .. }
            | Body::RunStopping { .. }
            | Body::SignalAccepted { .. }
            | Body::SignalRejected { .. }
            | Body::EventReceived { .. }
            | Body::CtxPatched { .. }
            | Body::ParamsUpdated { .. }
            | Body::OverrideInjected { .. }
            | Body::TargetUpdated { .. }
            | Body::PauseDrainTimedOut { .. }
            | Body::RunStalled { .. }
            | Body::StepAnswered { .. }
            | Body::StepApproved { .. }
            | Body::StepHeld { .. }
            | Body::StepRetried { .. }
            | Body::StepSkipped { .. }
            | Body::StepRouted { .. }
            | Body::TokensAdmitted { .. }
            | Body::CompensationStarted { .. }
            | Body::CompensationInterrupted { .. }
            | Body::Opaque(_) => Vec::new(),
        }
    }

    fn opens(
        &mut self,
        step: StepRef,
        what: What,
        (execution, attempt): (u32, u32),
        at: Time,
        worker: Option<String>,
    ) -> Vec<Span> {
        let target = match what {
            What::Work | What::Wait(_) => Target::Step(step),
            What::Undo => Target::Undo(step),
        };
        // A wait follows the execution that asked for it, and an execution the wait before it.
        let ended = self.ends(target, at, Status::Unset);
        let open = OpenSpan {
            what,
            execution,
            attempt,
            at,
            worker,
        };
        self.open.insert(target_name(&self.plan, target), open);
        ended
    }

    fn ends(&mut self, target: Target, at: Time, status: Status) -> Vec<Span> {
        let name = target_name(&self.plan, target);
        let open = self.open.remove(&name);
        let ended = open.map(|open| self.ended(&name, &open, at, status));
        ended.flatten().into_iter().collect()
    }

    fn ended(&self, target: &str, open: &OpenSpan, at: Time, status: Status) -> Option<Span> {
        let begin = self.begin.as_ref()?;
        let (run_id, execution) = (&self.run_id, open.execution);
        let (name, id) = match open.what {
            What::Work => (
                format!("step {target}"),
                execution_span(run_id, target, execution),
            ),
            What::Undo => (
                format!("undo {target}"),
                execution_span(run_id, target, execution),
            ),
            What::Wait(word) => (
                format!("wait for {word}"),
                wait_span(run_id, target, execution),
            ),
        };
        let mut attributes = vec![
            ("stepwell.run.id", Value::Text(run_id.clone())),
            ("stepwell.step.id", Value::Text(target.to_owned())),
            ("stepwell.execution", Value::Number(execution.into())),
            ("stepwell.attempt", Value::Number(open.attempt.into())),
        ];
        if let Some(worker) = &open.worker {
            attributes.push(("stepwell.worker", Value::Text(worker.clone())));
        }
        error_type(&status, &mut attributes);
        Some(Span {
            trace: begin.trace.trace_id().to_owned(),
            id,
            parent: Some(run_span(run_id)),
            state: begin.trace.tracestate.clone(),
            name,
            kind: match open.worker {
                Some(_) => Kind::Consumer,
                None => Kind::Internal,
            },
            start: nanos(open.at),
            end: nanos(at),
            attributes,
            status,
        })
    }

    /// The run has ended, and with it everything that had not.
    fn all_end(&mut self, at: Time, status: Status) -> Vec<Span> {
        let open = std::mem::take(&mut self.open);
        let ended = open.iter();
        let ended = ended.map(|(target, open)| self.ended(target, open, at, Status::Unset));
        let mut ended: Vec<Span> = ended.flatten().collect();
        let Some(begin) = &self.begin else {
            return ended;
        };
        let (net, context) = (self.plan.net(), &begin.context);
        let id = run_span(&self.run_id);
        let mut attributes = vec![
            ("stepwell.run.id", Value::Text(self.run_id.clone())),
            ("stepwell.plan.id", Value::Text(net.plan_id.clone())),
            (
                "stepwell.plan.version",
                Value::Text(net.plan_version.clone()),
            ),
            ("stepwell.tenant", Value::Text(context.tenant_id.clone())),
            ("stepwell.project", Value::Text(context.project_id.clone())),
        ];
        let parent_run = begin.parent_run.as_ref();
        attributes.extend(parent_run.map(|it| ("stepwell.run.parent", Value::Text(it.clone()))));
        error_type(&status, &mut attributes);
        ended.push(Span {
            trace: begin.trace.trace_id().to_owned(),
            // A run that nobody outside caused has its own span as its cause.
            parent: Some(begin.trace.span_id().to_owned()).filter(|it| *it != id),
            id,
            state: begin.trace.tracestate.clone(),
            name: format!("run {}", net.plan_id),
            kind: Kind::Internal,
            start: nanos(begin.at),
            end: nanos(at),
            attributes,
            status,
        });
        ended
    }
}

fn error_type(status: &Status, attributes: &mut Vec<(&'static str, Value)>) {
    if let Status::Failed(code) = status {
        attributes.push(("error.type", Value::Text(code.clone())));
    }
}

/// Only the code: the message of an error is for people who may see the run.
fn failed(error: &StepError) -> Status {
    Status::Failed(error.code.clone())
}

fn word(wait: &WaitKind) -> &'static str {
    match wait {
        WaitKind::Gate | WaitKind::Approval => "approval",
        WaitKind::Manual => "a person",
        WaitKind::Event { .. } => "an event",
        WaitKind::Timer { .. } => "a timer",
        WaitKind::Child { .. } => "a child run",
    }
}

fn nanos(at: Time) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}
