//! The event types that the contract itself lists.

use super::{
    ARTIFACT, COMPLETED_AT, CONTEXT, DURATION, ENGINE_ATTEMPT, ENGINES, FAILED_AT, FAILURE, Field,
    Kind, LOGICAL, ORDINAL, PLAN_REF, PLAN_VERSION, REASON, REQUESTED_BY, SIGNAL_ID, SIGNAL_TYPE,
    STARTED_AT, STEP, SUBSTATUS, Shape, may, must, status,
};

const fn kind(name: &'static str, about: &'static str, fields: &'static [Field]) -> Kind {
    Kind {
        name,
        canonical: true,
        about,
        fields,
    }
}

pub(super) const KINDS: &[Kind] = &[
    kind(
        "RunQueued",
        "The run waits for a slot",
        &[
            status("PENDING"),
            must("queuedAt", Shape::Moment, "Since when"),
        ],
    ),
    kind(
        "RunApproved",
        "The run may start",
        &[
            status("APPROVED"),
            must("approvedAt", Shape::Moment, "When it was approved"),
            may(
                "approvedBy",
                Shape::Text,
                "Who approved it; absent when the plan asks for no approval",
            ),
        ],
    ),
    kind(
        "RunStarted",
        "The run has started",
        &[
            status("RUNNING"),
            must("engineRunRef", Shape::Text, "The engine's own reference"),
            must(
                "engineType",
                Shape::Words(ENGINES),
                "The engine that runs it",
            ),
            must(
                "planRef",
                Shape::Object(PLAN_REF),
                "The plan it is pinned to",
            ),
            must("context", Shape::Object(CONTEXT), "Who it belongs to"),
            STARTED_AT,
        ],
    ),
    kind(
        "StepStarted",
        "The first execution of a logical attempt has started",
        &[STEP, LOGICAL, ENGINE_ATTEMPT, STARTED_AT, PLAN_VERSION],
    ),
    kind(
        "StepCompleted",
        "The step has succeeded",
        &[
            STEP,
            LOGICAL,
            ENGINE_ATTEMPT,
            COMPLETED_AT,
            must(
                "artifactRefs",
                Shape::Objects(ARTIFACT),
                "Pointers to what it made",
            ),
            PLAN_VERSION,
            DURATION,
        ],
    ),
    kind(
        "StepFailed",
        "The step has failed for good in this logical attempt",
        &[
            STEP,
            LOGICAL,
            ENGINE_ATTEMPT,
            FAILED_AT,
            FAILURE,
            may(
                "artifactRefs",
                Shape::Objects(ARTIFACT),
                "Pointers to what it made before it failed",
            ),
            PLAN_VERSION,
            DURATION,
        ],
    ),
    kind(
        "StepSkipped",
        "The step will not run",
        &[
            STEP,
            LOGICAL,
            must("skippedAt", Shape::Moment, "When that was decided"),
            must(
                "reason",
                Shape::Words(&[
                    "ON_FAILURE",
                    "OPERATOR",
                    "DEPENDENCY_FAILED",
                    "CANCELLED",
                    "DISCARDED",
                ]),
                "Why",
            ),
            PLAN_VERSION,
        ],
    ),
    kind(
        "SignalAccepted",
        "A signal was allowed",
        &[
            SIGNAL_ID,
            SIGNAL_TYPE,
            REQUESTED_BY,
            must("acceptedAt", Shape::Moment, "When"),
        ],
    ),
    kind(
        "SignalRejected",
        "A signal was refused",
        &[
            SIGNAL_ID,
            SIGNAL_TYPE,
            REQUESTED_BY,
            must("rejectedAt", Shape::Moment, "When"),
            must("code", Shape::Text, "Why, for programs"),
            must("message", Shape::Text, "Why, for people"),
        ],
    ),
    kind(
        "RunPaused",
        "Nothing new starts",
        &[
            status("PAUSED"),
            ORDINAL,
            must("pausedAt", Shape::Moment, "Since when"),
            may(
                "drainDeadline",
                Shape::Moment,
                "When a drain that is not done raises an alert",
            ),
        ],
    ),
    kind(
        "RunResumed",
        "The run goes on",
        &[
            status("RUNNING"),
            ORDINAL,
            must("resumedAt", Shape::Moment, "Since when"),
        ],
    ),
    kind(
        "RunCompleted",
        "The run has succeeded",
        &[status("COMPLETED"), SUBSTATUS, COMPLETED_AT, DURATION],
    ),
    kind(
        "RunFailed",
        "The run has failed",
        &[status("FAILED"), SUBSTATUS, FAILED_AT, FAILURE, DURATION],
    ),
    kind(
        "RunCancelled",
        "The run was cancelled",
        &[
            status("CANCELLED"),
            SUBSTATUS,
            must("cancelledAt", Shape::Moment, "When"),
            may("cancelledBy", Shape::Text, "By whom"),
            REASON,
            DURATION,
        ],
    ),
];
