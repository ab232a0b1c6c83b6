//! The fields of a linear workflow.

use stepwell_kernel::plan::MAX_STEPS;

use crate::duration::DurationRule;
use crate::losses;
use crate::shape::{KnownFields, Row, Rule, Shape, may, must};

/// Most attempts a step may have.
const MOST_ATTEMPTS: i64 = 1_000;
/// Longest lease: a day. A worker that dies is noticed when its lease ends.
const LONGEST_LEASE: i64 = 86_400;

const ATTEMPTS: Row = may(
    &["maxAttempts"],
    Shape::Int(1, MOST_ATTEMPTS),
    "How many executions a step may have.",
)
.or("10");
const WAIT_BETWEEN: Row = may(&["backoff"], Shape::Fields(&BACKOFF), "");
const TIMES: Shape = Shape::Duration(DurationRule::SECONDS.or_zero());
const TIMEOUT: Shape = Shape::Duration(DurationRule::SECONDS);

pub(super) static WORKFLOW: KnownFields = KnownFields {
    name: "",
    about: "A strictly linear chain of steps, persisted row by row.",
    rows: &[
        must(
            &["workflowType"],
            Shape::Name,
            "The workflow's name, such as `order.process`.",
        ),
        must(
            &["workflowVersion"],
            Shape::Int(1, i64::MAX),
            "Its version; raise it with every change.",
        ),
        may(&["description"], Shape::Text, "What it is for."),
        may(
            &["bizKey"],
            Shape::String,
            "What an instance is about, as a template; unique among running instances.",
        )
        .such_as("{{ workload.orderId }}"),
        may(
            &["timeoutClaims"],
            Shape::Flag,
            "Whether a handler is told when its wait ran out.",
        )
        .or("true"),
        may(&["defaults"], Shape::Fields(&DEFAULTS), ""),
        must(
            &["steps"],
            Shape::Filled(&Shape::Fields(&STEP), MAX_STEPS),
            "The chain, in order.",
        ),
    ],
    rules: &[],
    closed: true,
};

pub(super) static DEFAULTS: KnownFields = KnownFields {
    name: "defaults",
    about: "What holds for steps that say nothing themselves.",
    rows: &[
        ATTEMPTS,
        may(
            &["leaseSeconds"],
            Shape::Int(1, LONGEST_LEASE),
            "How long a worker holds a step without a sign of life.",
        )
        .or("30"),
        WAIT_BETWEEN,
    ],
    rules: &[],
    closed: true,
};

pub(super) static BACKOFF: KnownFields = KnownFields {
    name: "backoff",
    about: "The wait before a retry; it doubles each time.",
    rows: &[
        may(
            &["initial"],
            TIMES,
            "Before the first retry, in seconds or as text with a unit.",
        )
        .or("\"1s\""),
        may(&["max"], TIMES, "No wait is longer.").or("\"300s\""),
    ],
    rules: &[],
    closed: true,
};

pub(super) static STEP: KnownFields = KnownFields {
    name: "step",
    about: "A step.",
    rows: &[
        must(
            &["stepType"],
            Shape::Name,
            "What kind of step it is, such as `VALIDATE`; also its name.",
        ),
        may(
            &["name"],
            Shape::Name,
            "Its name, where the same type occurs more than once.",
        ),
        may(&["description"], Shape::Text, "What it is for."),
        may(
            &["queue"],
            Shape::Name,
            "Which workers do it; the workflow type if absent.",
        ),
        may(
            &["operation", "handler"],
            Shape::Name,
            "What they do; the step type if absent.",
        ),
        ATTEMPTS,
        WAIT_BETWEEN,
        losses::AT_MOST_ONCE,
        may(
            &["timeout"],
            TIMEOUT,
            "Longest time one execution may take, in seconds or as text with a unit.",
        ),
        may(
            &["input"],
            Shape::Any,
            "What the handler gets; texts may hold templates.",
        ),
        may(&["tool"], Shape::Shared("tool"), ""),
        may(&["waitFor"], Shape::Fields(&WAIT_FOR), ""),
    ],
    rules: &[
        Rule::Excludes("tool", &["queue", "operation", "handler", "waitFor"]),
        Rule::Alone {
            field: "waitFor",
            without: &["queue", "operation", "handler", "tool"],
            excludes: &["maxAttempts", "backoff", "timeout", "input", "atMostOnce"],
        },
        losses::LINEAR_RULE,
    ],
    closed: true,
};

pub(super) static WAIT_FOR: KnownFields = KnownFields {
    name: "waitFor",
    about: "An event that the step waits for. Without a handler the event completes the step.",
    rows: &[
        must(&["event"], Shape::String, "The event's type."),
        may(
            &["timeout"],
            TIMEOUT,
            "How long, in seconds or as text with a unit.",
        ),
        may(
            &["outbound"],
            Shape::List(&Shape::Any),
            "Events that are published when the wait begins: by the handler, or without one by the engine.",
        ),
    ],
    rules: &[],
    closed: true,
};
