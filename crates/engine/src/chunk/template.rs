//! The templates of codec 1. A template that changes changes every stored event of its type, so these
//! never do; what is to be shared differently needs a new codec.

use std::fmt::Write as _;

use stepwell_kernel::contract::FieldName;
use stepwell_kernel::keys::EVENT_TYPES;

use super::CODEC;

/// The contract part that most events of a type share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkTemplate {
    pub codec: i16,
    pub event_type: &'static str,
    /// JSON text with placeholders.
    pub json: String,
}

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

type Fields = &'static [(FieldName, Part)];

/// A template: the envelope of an event from this component, and more.
macro_rules! from {
    ($by:literal $(, $name:ident = $part:expr)*) => {
        &[
            (FieldName::EmittedAt, Part::At),
            (FieldName::EmittedBy, Part::Text($by)),
            (FieldName::RunId, Part::RunId),
            $((FieldName::$name, $part),)*
        ]
    };
}

/// The same for one attempt of a step, usually the first.
macro_rules! attempt {
    ($by:literal $(, $name:ident = $part:expr)*) => {
        from!(
            $by,
            EngineAttemptId = Part::Number(1),
            LogicalAttemptId = Part::Number(1),
            PlanVersion = Part::PlanVersion
            $(, $name = $part)*
        )
    };
}

/// The template of a type.
pub(super) fn fields(event_type: &str) -> Fields {
    match event_type {
        "RunCreated" => from!("engine", CreatedAt = Part::At),
        "RunQueued" => from!(
            "engine",
            QueuedAt = Part::At,
            Status = Part::Text("PENDING")
        ),
        "RunApproved" => from!(
            "planner",
            ApprovedAt = Part::At,
            Status = Part::Text("APPROVED")
        ),
        "RunStarted" => from!(
            "engine",
            EngineType = Part::Text("native"),
            StartedAt = Part::At,
            Status = Part::Text("RUNNING")
        ),
        "StepStarted" => attempt!("activity-worker", StartedAt = Part::At),
        "StepCompleted" => attempt!(
            "activity-worker",
            ArtifactRefs = Part::EmptyList,
            CompletedAt = Part::At,
            DurationMs = Part::Number(0)
        ),
        "StepFailed" => attempt!("activity-worker", FailedAt = Part::At),
        "StepSkipped" => from!(
            "engine",
            LogicalAttemptId = Part::Number(1),
            PlanVersion = Part::PlanVersion,
            SkippedAt = Part::At
        ),
        "StepExecutionStarted" => attempt!("activity-worker", StartedAt = Part::At),
        "StepExecutionFailed" => attempt!("activity-worker", FailedAt = Part::At),
        "StepWaiting" => attempt!("engine"),
        "StepApproved" | "StepWoken" => from!("engine", EngineAttemptId = Part::Number(1)),
        "StepRouted" => from!("engine", Handled = Part::Flag(false)),
        "UndoStarted" => from!(
            "activity-worker",
            EngineAttemptId = Part::Number(1),
            StartedAt = Part::At
        ),
        "UndoCompleted" => from!(
            "activity-worker",
            CompletedAt = Part::At,
            EngineAttemptId = Part::Number(1)
        ),
        "UndoExecutionFailed" | "UndoFailed" => from!(
            "activity-worker",
            EngineAttemptId = Part::Number(1),
            FailedAt = Part::At
        ),
        "SignalAccepted" => from!("system", AcceptedAt = Part::At),
        "SignalRejected" => from!("system", RejectedAt = Part::At),
        "RunPaused" => from!(
            "engine",
            LogicalAttemptId = Part::Number(1),
            PausedAt = Part::At,
            Status = Part::Text("PAUSED")
        ),
        "RunResumed" => from!(
            "engine",
            LogicalAttemptId = Part::Number(1),
            ResumedAt = Part::At,
            Status = Part::Text("RUNNING")
        ),
        "RunCompleted" => from!(
            "engine",
            CompletedAt = Part::At,
            Status = Part::Text("COMPLETED")
        ),
        "RunFailed" => from!("engine", FailedAt = Part::At, Status = Part::Text("FAILED")),
        "RunCancelled" => from!(
            "engine",
            CancelledAt = Part::At,
            Status = Part::Text("CANCELLED")
        ),
        _ => from!("engine"),
    }
}

/// All templates, for the stores' view of the log.
#[must_use]
pub fn templates() -> Vec<ChunkTemplate> {
    let template = |event_type: &'static str| ChunkTemplate {
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
        let _ = write!(json, "{separator}{}", name.member());
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
