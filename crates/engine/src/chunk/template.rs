//! The templates of codec 1. A template that changes changes every stored event of its type, so these
//! never do; what is to be shared differently needs a new codec.

use std::fmt::Write as _;

use stepwell_kernel::contract::FieldName;
use stepwell_kernel::event::EventType;

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

/// What all events have in common.
pub(super) const ENVELOPE: Fields = from!("engine");

/// The template of a type.
pub(super) fn fields(event_type: EventType) -> Fields {
    match event_type {
        EventType::RunCreated => from!("engine", CreatedAt = Part::At),
        EventType::RunQueued => from!(
            "engine",
            QueuedAt = Part::At,
            Status = Part::Text("PENDING")
        ),
        EventType::RunApproved => from!(
            "planner",
            ApprovedAt = Part::At,
            Status = Part::Text("APPROVED")
        ),
        EventType::RunStarted => from!(
            "engine",
            EngineType = Part::Text("native"),
            StartedAt = Part::At,
            Status = Part::Text("RUNNING")
        ),
        EventType::StepStarted => attempt!("activity-worker", StartedAt = Part::At),
        EventType::StepCompleted => attempt!(
            "activity-worker",
            ArtifactRefs = Part::EmptyList,
            CompletedAt = Part::At,
            DurationMs = Part::Number(0)
        ),
        EventType::StepFailed => attempt!("activity-worker", FailedAt = Part::At),
        EventType::StepSkipped => from!(
            "engine",
            LogicalAttemptId = Part::Number(1),
            PlanVersion = Part::PlanVersion,
            SkippedAt = Part::At
        ),
        EventType::StepExecutionStarted => attempt!("activity-worker", StartedAt = Part::At),
        EventType::StepExecutionFailed => attempt!("activity-worker", FailedAt = Part::At),
        EventType::StepWaiting => attempt!("engine"),
        EventType::StepAnswered => from!(
            "system",
            EngineAttemptId = Part::Number(1),
            LogicalAttemptId = Part::Number(1)
        ),
        EventType::StepApproved | EventType::StepWoken => {
            from!("engine", EngineAttemptId = Part::Number(1))
        }
        EventType::StepRouted => from!("engine", Handled = Part::Flag(false)),
        EventType::UndoStarted => from!(
            "activity-worker",
            EngineAttemptId = Part::Number(1),
            StartedAt = Part::At
        ),
        EventType::UndoCompleted => from!(
            "activity-worker",
            CompletedAt = Part::At,
            EngineAttemptId = Part::Number(1)
        ),
        EventType::UndoExecutionFailed | EventType::UndoFailed => from!(
            "activity-worker",
            EngineAttemptId = Part::Number(1),
            FailedAt = Part::At
        ),
        EventType::SignalAccepted => from!("system", AcceptedAt = Part::At),
        EventType::SignalRejected => from!("system", RejectedAt = Part::At),
        EventType::RunPaused => from!(
            "engine",
            LogicalAttemptId = Part::Number(1),
            PausedAt = Part::At,
            Status = Part::Text("PAUSED")
        ),
        EventType::RunResumed => from!(
            "engine",
            LogicalAttemptId = Part::Number(1),
            ResumedAt = Part::At,
            Status = Part::Text("RUNNING")
        ),
        EventType::RunCompleted => from!(
            "engine",
            CompletedAt = Part::At,
            Status = Part::Text("COMPLETED")
        ),
        EventType::RunFailed => from!("engine", FailedAt = Part::At, Status = Part::Text("FAILED")),
        EventType::RunCancelled => from!(
            "engine",
            CancelledAt = Part::At,
            Status = Part::Text("CANCELLED")
        ),
        // Only the envelope is shared. A new type is added here and nowhere else: an older version, which does not
        // know the type, reads its events by the envelope and would find another hash.
        EventType::StepHeld
        | EventType::StepRetried
        | EventType::TokensAdmitted
        | EventType::CtxPatched
        | EventType::ParamsUpdated
        | EventType::OverrideInjected
        | EventType::TargetUpdated
        | EventType::EventReceived
        | EventType::PauseDrainTimedOut
        | EventType::RunStalled
        | EventType::RunFinalizing
        | EventType::RunStopping
        | EventType::CompensationStarted
        | EventType::CompensationInterrupted
        | EventType::Opaque => ENVELOPE,
    }
}

/// All templates, for the stores' view of the log.
#[must_use]
pub fn templates() -> Vec<ChunkTemplate> {
    let template = |event_type: &EventType| ChunkTemplate {
        codec: CODEC,
        event_type: event_type.name(),
        json: json(fields(*event_type)),
    };
    let mut types = EventType::ALL.to_vec();
    types.sort_by_key(|it| *it as u8);
    types.iter().map(template).collect()
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
