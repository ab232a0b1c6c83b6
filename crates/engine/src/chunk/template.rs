//! The templates of codec 1. A template that changes changes every stored event of its type, so these
//! never do; what is to be shared differently needs a new codec.

use std::fmt::Write as _;

use stepwell_kernel::keys::EVENT_TYPES;

use super::CODEC;

/// The contract part that most events of a type share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Of which codec.
    pub codec: i16,
    /// Of which type.
    pub event_type: &'static str,
    /// JSON text with placeholders.
    pub json: String,
}

/// Members of the contract part that are in neither the template nor the residual.
pub(super) const KEPT_ELSEWHERE: [&str; 4] = ["eventId", "eventType", "idempotencyKey", "runSeq"];

/// What a template has at a place.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    At,
    RunId,
    PlanVersion,
    Text(&'static str),
    Number(u64),
    Flag(bool),
    EmptyList,
}

type Fields = &'static [(&'static str, Part)];

/// A template: the envelope of an event from this component, and more.
macro_rules! from {
    ($by:literal $(, $name:literal = $part:expr)*) => {
        &[
            ("emittedAt", Part::At),
            ("emittedBy", Part::Text($by)),
            ("runId", Part::RunId),
            $(($name, $part),)*
        ]
    };
}

/// The same for one attempt of a step, usually the first.
macro_rules! attempt {
    ($by:literal $(, $name:literal = $part:expr)*) => {
        from!(
            $by,
            "engineAttemptId" = Part::Number(1),
            "logicalAttemptId" = Part::Number(1),
            "planVersion" = Part::PlanVersion
            $(, $name = $part)*
        )
    };
}

/// The template of a type.
pub(super) fn fields(event_type: &str) -> Fields {
    match event_type {
        "RunCreated" => from!("engine", "createdAt" = Part::At),
        "RunQueued" => from!(
            "engine",
            "queuedAt" = Part::At,
            "status" = Part::Text("PENDING")
        ),
        "RunApproved" => from!(
            "planner",
            "approvedAt" = Part::At,
            "status" = Part::Text("APPROVED")
        ),
        "RunStarted" => from!(
            "engine",
            "engineType" = Part::Text("native"),
            "startedAt" = Part::At,
            "status" = Part::Text("RUNNING")
        ),
        "StepStarted" => attempt!("activity-worker", "startedAt" = Part::At),
        "StepCompleted" => attempt!(
            "activity-worker",
            "artifactRefs" = Part::EmptyList,
            "completedAt" = Part::At,
            "durationMs" = Part::Number(0)
        ),
        "StepFailed" => attempt!("activity-worker", "failedAt" = Part::At),
        "StepSkipped" => from!(
            "engine",
            "logicalAttemptId" = Part::Number(1),
            "planVersion" = Part::PlanVersion,
            "skippedAt" = Part::At
        ),
        "StepExecutionStarted" => attempt!("activity-worker", "startedAt" = Part::At),
        "StepExecutionFailed" => attempt!("activity-worker", "failedAt" = Part::At),
        "StepWaiting" => attempt!("engine"),
        "StepApproved" | "StepWoken" => from!("engine", "engineAttemptId" = Part::Number(1)),
        "StepRouted" => from!("engine", "handled" = Part::Flag(false)),
        "UndoStarted" => from!(
            "activity-worker",
            "engineAttemptId" = Part::Number(1),
            "startedAt" = Part::At
        ),
        "UndoCompleted" => from!(
            "activity-worker",
            "completedAt" = Part::At,
            "engineAttemptId" = Part::Number(1)
        ),
        "UndoExecutionFailed" | "UndoFailed" => from!(
            "activity-worker",
            "engineAttemptId" = Part::Number(1),
            "failedAt" = Part::At
        ),
        "SignalAccepted" => from!("system", "acceptedAt" = Part::At),
        "SignalRejected" => from!("system", "rejectedAt" = Part::At),
        "RunPaused" => from!(
            "engine",
            "logicalAttemptId" = Part::Number(1),
            "pausedAt" = Part::At,
            "status" = Part::Text("PAUSED")
        ),
        "RunResumed" => from!(
            "engine",
            "logicalAttemptId" = Part::Number(1),
            "resumedAt" = Part::At,
            "status" = Part::Text("RUNNING")
        ),
        "RunCompleted" => from!(
            "engine",
            "completedAt" = Part::At,
            "status" = Part::Text("COMPLETED")
        ),
        "RunFailed" => from!(
            "engine",
            "failedAt" = Part::At,
            "status" = Part::Text("FAILED")
        ),
        "RunCancelled" => from!(
            "engine",
            "cancelledAt" = Part::At,
            "status" = Part::Text("CANCELLED")
        ),
        _ => from!("engine"),
    }
}

/// All templates, for the stores' view of the log.
#[must_use]
pub fn templates() -> Vec<Template> {
    let template = |event_type: &'static str| Template {
        codec: CODEC,
        event_type,
        json: json(fields(event_type)),
    };
    EVENT_TYPES.into_iter().map(template).collect()
}

/// Neither names nor texts have anything that JSON would escape.
fn json(fields: Fields) -> String {
    let mut json = String::new();
    for (name, part) in fields {
        let separator = if json.is_empty() { '{' } else { ',' };
        let _ = write!(json, "{separator}\"{name}\":");
        let _ = match part {
            Part::At => write!(json, "\"$at\""),
            Part::RunId => write!(json, "\"$runId\""),
            Part::PlanVersion => write!(json, "\"$planVersion\""),
            Part::Text(text) => write!(json, "\"{text}\""),
            Part::Number(number) => write!(json, "{number}"),
            Part::Flag(flag) => write!(json, "{flag}"),
            Part::EmptyList => write!(json, "[]"),
        };
    }
    json.push('}');
    json
}
