//! What the tables of fields in `view` are made of: shapes, the envelope, and the fields that several types have.
//! The published schemas and the check that every event passes are both read from these tables, so they cannot
//! disagree.

/// What a field holds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    /// This word and no other text.
    Word(&'static str),
    /// One of these words.
    Words(&'static [&'static str]),
    Text,
    Uuid,
    /// `run_` and letters, digits, `_` or `-`.
    RunId,
    /// 64 lower-case hex digits.
    Hash,
    /// A time as RFC 3339 writes it, such as `2026-02-11T10:30:00.000Z`.
    Moment,
    Uri,
    /// A major and a minor number, such as `v1.2`.
    Version,
    /// A whole number, at least this.
    Number(u64),
    Flag,
    /// An object with these fields and no others.
    Object(&'static [Field]),
    /// A list of such objects.
    Objects(&'static [Field]),
    /// A list of texts.
    Texts,
}

/// A field of an event in the contract: its name, whether it may be absent, and its values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) required: bool,
    pub(crate) shape: Shape,
    pub(crate) about: &'static str,
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

/// The fields that every event has beside `eventType`.
pub(crate) const ENVELOPE: &[Field] = &[
    must(
        "eventId",
        Shape::Uuid,
        "Unique id of the event, derived from the run and its sequence number",
    ),
    must("runId", Shape::RunId, "The id of the run"),
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
        "When the event happened at its source, if measurably different (event time)",
    ),
];

pub(super) const CONTEXT: &[Field] = &[
    must("tenantId", Shape::Text, "The tenant that owns the run"),
    must(
        "projectId",
        Shape::Text,
        "The project of the tenant that the run belongs to",
    ),
    must(
        "environmentId",
        Shape::Text,
        "The environment that the run works in, such as production",
    ),
    may(
        "triggeredBy",
        Shape::Text,
        "The person or system that started the run",
    ),
    may(
        "triggerSource",
        Shape::Words(TRIGGER_SOURCES),
        "How the run was started; absent if the start request did not say",
    ),
];

/// The contract's list; a run started in another way says so only in `ext`.
pub(crate) const TRIGGER_SOURCES: &[&str] = &["manual", "schedule", "webhook", "api"];

/// The contract's three and, as the one minor extension, our own.
pub(crate) const ENGINES: &[&str] = &["temporal", "conductor", "mock", "native"];

pub(super) const PLAN_REF: &[Field] = &[
    must("uri", Shape::Uri, "The address of the definition"),
    must(
        "sha256",
        Shape::Hash,
        "SHA-256 of the bytes of the definition",
    ),
    must(
        "schemaVersion",
        Shape::Version,
        "The version of the file format",
    ),
    must("planId", Shape::Text, "The name of the workflow"),
    must("planVersion", Shape::Text, "The version of the workflow"),
];

pub(super) const ARTIFACT: &[Field] = &[
    must("uri", Shape::Uri, "The address of the artifact"),
    must(
        "kind",
        Shape::Text,
        "What the artifact is, in the word of the worker",
    ),
    may("sha256", Shape::Hash, "SHA-256 of the artifact"),
    may(
        "sizeBytes",
        Shape::Number(0),
        "The size of the artifact in bytes",
    ),
    may(
        "expiresAt",
        Shape::Moment,
        "The time from which the artifact may be deleted; absent: never",
    ),
];

pub(super) const ERROR: &[Field] = &[
    must(
        "code",
        Shape::Text,
        "The reason for programs; the code of an error never changes",
    ),
    must("message", Shape::Text, "The reason for people"),
    must(
        "retryable",
        Shape::Flag,
        "Whether the same work may succeed when tried again: true if another execution follows, else by the class of the error, also where no attempt is left",
    ),
    may(
        "category",
        Shape::Words(&["infrastructure", "business", "validation", "timeout"]),
        "The kind of the error",
    ),
    may(
        "stackTrace",
        Shape::Text,
        "The place in the program where the error happened",
    ),
];

pub(super) const STEP: Field = must(
    "stepId",
    Shape::Text,
    "The step: its name, with #n for a later visit and [n] for an item of a loop",
);
pub(super) const LOGICAL: Field = must(
    "logicalAttemptId",
    Shape::Number(1),
    "The logical attempt, from 1; RETRY_STEP raises it",
);
pub(super) const ENGINE_ATTEMPT: Field = may(
    "engineAttemptId",
    Shape::Number(1),
    "The number of the execution; every claim by a worker counts",
);
pub(super) const PLAN_VERSION: Field = may(
    "planVersion",
    Shape::Text,
    "The version of the workflow, a part of the idempotency key",
);
pub(super) const DURATION: Field = may(
    "durationMs",
    Shape::Number(0),
    "The time from the start to the end, in milliseconds",
);
pub(super) const STARTED_AT: Field = must(
    "startedAt",
    Shape::Moment,
    "When the run, the step or the undo started",
);
pub(super) const COMPLETED_AT: Field = must(
    "completedAt",
    Shape::Moment,
    "When the run, the step or the undo succeeded",
);
pub(super) const FAILED_AT: Field = must(
    "failedAt",
    Shape::Moment,
    "When the run, the step or the undo failed",
);
pub(super) const FAILURE: Field = must(
    "error",
    Shape::Object(ERROR),
    "Why the run, the step or the undo failed",
);
pub(super) const RETRY_AT: Field = must(
    "retryAt",
    Shape::Moment,
    "When the next execution can start at the earliest",
);
pub(super) const ORDINAL: Field = must(
    "logicalAttemptId",
    Shape::Number(1),
    "The number of the pause in the run, from 1",
);
pub(super) const SUBSTATUS: Field = may(
    "substatus",
    Shape::Text,
    "Detail of the status, such as stepwell/ROLLED_BACK",
);
pub(super) const REASON: Field = may(
    "reason",
    Shape::Text,
    "The reason that the sender gave; absent if none was given",
);
pub(super) const SIGNAL_ID: Field = must(
    "signalId",
    Shape::Text,
    "The id that the sender of the signal chose",
);
pub(super) const SIGNAL_TYPE: Field = must(
    "signalType",
    Shape::Text,
    "The type of the signal, such as PAUSE",
);
pub(super) const REQUESTED_BY: Field = must(
    "requestedBy",
    Shape::Text,
    "The person or system that sent the signal",
);

pub(super) const fn status(word: &'static str) -> Field {
    must("status", Shape::Word(word), "The run's status from here on")
}
