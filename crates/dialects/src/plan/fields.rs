//! The fields of an execution plan.

use crate::duration::DurationRule;
use crate::losses;
use crate::shape::{KnownFields, Row, Rule, Shape, may, must};

const TIME: Shape = Shape::Duration(DurationRule::TEXT);
const DELAY: Shape = Shape::Duration(DurationRule::TEXT.or_zero());
const TOOL: Row = may(&["tool"], Shape::Shared("tool"), "");
const TIMEOUT: Row = may(&["timeout"], TIME, "Timeout of one execution.");
const QUEUE: Row = may(&["queue"], Shape::Name, "Which workers.").or("\"default\"");
const CONFIG: Row = may(
    &["config", "input"],
    Shape::Any,
    "Anything; texts may hold templates; secrets must be references.",
);
const RETRY_POLICY: Row = may(&["retryPolicy"], Shape::Fields(&RETRY), "");
const ON_FAILURE: Row = may(
    &["onStepFailure"],
    Shape::Words(&["fail", "hold"]),
    "fail: the run fails. hold: it waits for an operator to retry or skip the step.",
)
.or("\"fail\"");
const HOLD: Row = may(&["holdTimeout"], TIME, "How long a failed step is held.").or("\"24h\"");

/// The header: these fields stand in `metadata`, in older files at the root.
macro_rules! header {
    ($($row:expr),* $(,)?) => {
        &[
            may(&["planId"], Shape::Name, "Id of the plan."),
            may(&["planVersion"], Shape::Version, "Version of the plan, a part of every idempotency key."),
            may(&["version"], Shape::Version, "Older word for planVersion."),
            may(&["schemaVersion"], Shape::Form(r"^v?1(\.[0-9]{1,6}){0,2}$"), "Version of the format.").such_as("v1.2"),
            may(&["name"], Shape::Text, "Name for people."),
            may(&["description"], Shape::Text, "What it is for."),
            may(&["labels"], Shape::ScalarMap, "For finding it."),
            may(&["requiresCapabilities"], Shape::List(&Shape::String), "What the engine must be able to do."),
            may(
                &["fallbackBehavior"],
                Shape::Words(&["reject", "emulate", "degrade"]),
                "What to do about a capability that is not there.",
            )
            .or("\"reject\""),
            may(
                &["targetAdapter"],
                Shape::Words(&["native", "temporal", "conductor", "mock", "any"]),
                "The engine it is written for.",
            ),
            ON_FAILURE,
            HOLD,
            may(&["requiresApproval"], Shape::Flag, "Someone must approve the run before it starts.").or("false"),
            may(&["timeout"], TIME, "Timeout of the whole run."),
            may(&["drainTimeout"], TIME, "How long a pause waits for work in flight.").or("\"5m\""),
            may(&["retryPolicy"], Shape::Fields(&RETRY), "Of the steps that have none of their own."),
            $($row),*
        ]
    };
}

pub(super) static PLAN: KnownFields = KnownFields {
    name: "",
    about: "An execution plan: what it is, and its steps.",
    rows: header![
        may(
            &["$schema"],
            Shape::String,
            "The JSON Schema of this file, for editors."
        ),
        may(&["metadata"], Shape::Fields(&METADATA), ""),
        must(
            &["steps"],
            Shape::Filled(&Shape::Fields(&STEP), usize::MAX),
            "Without any dependency they run strictly one after the other.",
        ),
    ],
    rules: &[
        Rule::HereOrIn {
            inside: "metadata",
            names: &["planId"],
            always: true,
        },
        Rule::HereOrIn {
            inside: "metadata",
            names: &["planVersion", "version"],
            always: true,
        },
        // Older files, which have no `metadata`, may leave it out.
        Rule::HereOrIn {
            inside: "metadata",
            names: &["schemaVersion"],
            always: false,
        },
    ],
    closed: false,
};

pub(super) static METADATA: KnownFields = KnownFields {
    name: "metadata",
    about: "What the plan is.",
    rows: header![],
    rules: &[],
    closed: false,
};

pub(super) static STEP: KnownFields = KnownFields {
    name: "step",
    about: "A step.",
    rows: &[
        must(&["stepId"], Shape::Name, "Id of the step."),
        may(&["name"], Shape::Text, "Name for people."),
        may(&["description"], Shape::Text, "What it is for."),
        may(
            &["kind", "type"],
            Shape::String,
            "The operation that a worker performs; noop does nothing. The stepId if absent.",
        ),
        QUEUE,
        may(
            &["dependsOn", "dependencies"],
            Shape::OneOrMore,
            "Steps that must end first.",
        ),
        CONFIG,
        TIMEOUT,
        RETRY_POLICY,
        losses::AT_MOST_ONCE,
        losses::MAX_LOSSES,
        ON_FAILURE,
        HOLD,
        may(
            &["sideEffect"],
            Shape::Words(&["pure", "idempotent", "compensable", "irreversible"]),
            "What mark it leaves on the world.",
        ),
        may(&["compensation"], Shape::Fields(&COMPENSATION), ""),
        TOOL,
        may(
            &["waitFor"],
            Shape::Either(&[Shape::String, Shape::Fields(&WAIT_FOR)]),
            "An event's type, or what to wait for.",
        ),
        may(
            &["approval"],
            Shape::Either(&[Shape::Flag, Shape::Fields(&APPROVAL)]),
            "A person must approve before the step's work; a step without work is the approval itself.",
        ),
    ],
    rules: &[
        Rule::Excludes("tool", &["waitFor", "kind", "type", "queue"]),
        Rule::Excludes(
            "waitFor",
            &[
                "kind",
                "type",
                "queue",
                "retryPolicy",
                "atMostOnce",
                "maxLosses",
            ],
        ),
        Rule::Schema(
            r#"{
                "if": { "anyOf": [
                    { "required": ["kind"], "properties": { "kind": { "const": "noop" } } },
                    { "required": ["type"], "properties": { "type": { "const": "noop" } } }
                ] },
                "then": { "properties": { "queue": { "type": "null" } } }
            }"#,
        ),
        // A step without work is the approval itself.
        Rule::Schema(
            r#"{
                "if": {
                    "required": ["approval"],
                    "properties": {
                        "approval": { "not": { "enum": [null, false] } },
                        "kind": { "type": "null" }, "type": { "type": "null" },
                        "tool": { "type": "null" }, "waitFor": { "type": "null" }
                    }
                },
                "then": { "properties": {
                    "queue": { "type": "null" }, "retryPolicy": { "type": "null" },
                    "atMostOnce": { "type": "null" }, "maxLosses": { "type": "null" }
                } }
            }"#,
        ),
        Rule::Schema(
            r#"{
                "if": {
                    "required": ["sideEffect"],
                    "properties": { "sideEffect": { "const": "compensable" } }
                },
                "then": {
                    "required": ["compensation"],
                    "properties": { "compensation": { "type": "object" } }
                }
            }"#,
        ),
        Rule::Schema(
            r#"{
                "if": {
                    "required": ["sideEffect"],
                    "properties": { "sideEffect": { "enum": ["pure", "irreversible"] } }
                },
                "then": { "properties": { "compensation": { "type": "null" } } }
            }"#,
        ),
        losses::RULE,
    ],
    closed: true,
};

pub(super) static WAIT_FOR: KnownFields = KnownFields {
    name: "",
    about: "",
    rows: &[
        may(&["event"], Shape::String, "Event type."),
        may(&["delay"], TIME, "How long to wait."),
        may(&["timeout"], TIME, "Fails without the event after."),
    ],
    rules: &[Rule::OneOf(&["event", "delay"])],
    closed: true,
};

pub(super) static APPROVAL: KnownFields = KnownFields {
    name: "",
    about: "",
    rows: &[
        may(&["timeout"], TIME, "Fails without an answer after."),
        may(
            &["approvers"],
            Shape::Int(1, 100),
            "How many different people.",
        )
        .or("1"),
        may(
            &["makerChecker"],
            Shape::Flag,
            "Not the one who started the run.",
        )
        .or("false"),
    ],
    rules: &[],
    closed: true,
};

pub(super) static RETRY: KnownFields = KnownFields {
    name: "retryPolicy",
    about: "Retry policy.",
    rows: &[
        may(
            &["maxAttempts"],
            Shape::Int(1, 1_000),
            "Executions, the first included.",
        )
        .or("3"),
        may(&["backoff"], Shape::Shared("backoff"), ""),
        may(&["initialDelay"], DELAY, "Delay before the first retry.").or("\"1s\""),
        may(&["maxDelay"], DELAY, "Longest delay.").or("\"60s\""),
    ],
    rules: &[Rule::DurationExcludes("backoff", &["initialDelay"])],
    closed: true,
};

pub(super) static COMPENSATION: KnownFields = KnownFields {
    name: "compensation",
    about: "What undoes the step. Must be idempotent: it may run more than once.",
    rows: &[
        may(&["kind", "type"], Shape::String, "What is done."),
        QUEUE,
        CONFIG,
        TIMEOUT,
        RETRY_POLICY,
        TOOL,
    ],
    rules: &[
        Rule::AnyOf(&[&["kind"], &["type"], &["tool"]]),
        Rule::Excludes("tool", &["kind", "type", "queue"]),
    ],
    closed: true,
};
