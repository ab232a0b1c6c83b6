//! The fields of every event type in the contract's view, as one table. The published schemas and the
//! check that every event passes are both read from it, so they cannot disagree.

mod additive;
mod canonical;

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// Exactly this word.
    Word(&'static str),
    /// One of these words.
    Words(&'static [&'static str]),
    /// Any text.
    Text,
    Uuid,
    /// `run_` and letters, digits, `_` or `-`.
    RunId,
    /// 64 lower-case hex digits.
    Hash,
    /// RFC 3339.
    Moment,
    Uri,
    /// `v1.2`.
    Version,
    /// A whole number, at least this.
    Number(u64),
    /// True or false.
    Flag,
    /// An object with these fields and no others.
    Object(&'static [Field]),
    /// A list of such objects.
    Objects(&'static [Field]),
    /// A list of texts.
    Texts,
}

/// One field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) shape: Shape,
    pub(crate) about: &'static str,
}

/// One event type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// Listed by the contract itself; the others are additive.
    pub(crate) canonical: bool,
    pub(crate) about: &'static str,
    /// Beside the envelope.
    pub(crate) fields: &'static [Field],
}

pub(super) const fn must(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field {
        name,
        required: true,
        shape,
        about,
    }
}

pub(super) const fn may(name: &'static str, shape: Shape, about: &'static str) -> Field {
    Field {
        name,
        required: false,
        shape,
        about,
    }
}

/// What every event has beside its `eventType`.
pub(crate) const ENVELOPE: &[Field] = &[
    must(
        "eventId",
        Shape::Uuid,
        "Unique id of the event, derived from the run and its sequence number",
    ),
    must("runId", Shape::RunId, "The run"),
    must(
        "runSeq",
        Shape::Number(1),
        "Place in the run's log, strictly increasing",
    ),
    must(
        "idempotencyKey",
        Shape::Hash,
        "SHA256(runId|stepId|logicalAttemptId|eventType|planVersion), with RUN and 1 where absent",
    ),
    must(
        "emittedAt",
        Shape::Moment,
        "When the event was appended (processing time)",
    ),
    must(
        "emittedBy",
        Shape::Words(&["engine", "planner", "activity-worker", "system"]),
        "The component that emitted the event",
    ),
    may(
        "occurredAt",
        Shape::Moment,
        "When it happened at its source, if measurably different (event time)",
    ),
];

pub(super) const CONTEXT: &[Field] = &[
    must("tenantId", Shape::Text, "The tenant"),
    must("projectId", Shape::Text, "The project"),
    must("environmentId", Shape::Text, "The environment"),
    may(
        "triggeredBy",
        Shape::Text,
        "The person or system that started the run",
    ),
    may(
        "triggerSource",
        Shape::Words(TRIGGER_SOURCES),
        "How it was started",
    ),
];

/// The contract's list; a run started in another way says so only in `ext`.
pub(crate) const TRIGGER_SOURCES: &[&str] = &["manual", "schedule", "webhook", "api"];

/// The contract's three and, as the one minor extension, our own.
pub(crate) const ENGINES: &[&str] = &["temporal", "conductor", "mock", "native"];

pub(super) const PLAN_REF: &[Field] = &[
    must("uri", Shape::Uri, "Where the definition is"),
    must("sha256", Shape::Hash, "Hash of its bytes"),
    must("schemaVersion", Shape::Version, "Version of its format"),
    must("planId", Shape::Text, "The plan"),
    must("planVersion", Shape::Text, "Its version"),
];

pub(super) const ARTIFACT: &[Field] = &[
    must("uri", Shape::Uri, "Where it is"),
    must("kind", Shape::Text, "What it is"),
    may("sha256", Shape::Hash, "Its hash"),
    may("sizeBytes", Shape::Number(0), "Its size"),
    may("expiresAt", Shape::Moment, "When it may be deleted"),
];

pub(super) const ERROR: &[Field] = &[
    must("code", Shape::Text, "Stable code"),
    must("message", Shape::Text, "For people"),
    must(
        "retryable",
        Shape::Flag,
        "Whether the same work may succeed when tried again",
    ),
    may(
        "category",
        Shape::Words(&["infrastructure", "business", "validation", "timeout"]),
        "What kind of error",
    ),
    may("stackTrace", Shape::Text, "Where it happened"),
];

pub(super) const STEP: Field = must(
    "stepId",
    Shape::Text,
    "The step: its name, with #n for a later visit and [n] for an item of a loop",
);
pub(super) const LOGICAL: Field = must(
    "logicalAttemptId",
    Shape::Number(1),
    "Attempt as operators count them",
);
pub(super) const ENGINE_ATTEMPT: Field = may(
    "engineAttemptId",
    Shape::Number(1),
    "Execution: every claim counts",
);
pub(super) const PLAN_VERSION: Field = may(
    "planVersion",
    Shape::Text,
    "The plan's version, a part of the key",
);
pub(super) const DURATION: Field = may("durationMs", Shape::Number(0), "From start to end");
pub(super) const STARTED_AT: Field = must("startedAt", Shape::Moment, "When it started");
pub(super) const COMPLETED_AT: Field = must("completedAt", Shape::Moment, "When it succeeded");
pub(super) const FAILED_AT: Field = must("failedAt", Shape::Moment, "When it failed");
pub(super) const FAILURE: Field = must("error", Shape::Object(ERROR), "Why it failed");
pub(super) const RETRY_AT: Field = must(
    "retryAt",
    Shape::Moment,
    "When it is tried again at the earliest",
);
pub(super) const ORDINAL: Field = must(
    "logicalAttemptId",
    Shape::Number(1),
    "Which pause of the run",
);
pub(super) const SUBSTATUS: Field = may(
    "substatus",
    Shape::Text,
    "Detail of the status, as stepwell/ROLLED_BACK",
);
pub(super) const REASON: Field = may("reason", Shape::Text, "Why");
pub(super) const SIGNAL_ID: Field = must("signalId", Shape::Text, "The signal");
pub(super) const SIGNAL_TYPE: Field = must("signalType", Shape::Text, "Its type, as PAUSE");
pub(super) const REQUESTED_BY: Field = must("requestedBy", Shape::Text, "Who sent it");

pub(super) const fn status(word: &'static str) -> Field {
    must("status", Shape::Word(word), "The run's status from here on")
}

/// Every event type, the contract's own first.
pub(crate) fn kinds() -> impl Iterator<Item = &'static Kind> {
    canonical::KINDS.iter().chain(additive::KINDS)
}

/// The event type of that name.
pub(crate) fn kind(name: &str) -> Option<&'static Kind> {
    kinds().find(|kind| kind.name == name)
}
