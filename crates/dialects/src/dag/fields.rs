//! The fields of a workflow resource.

use super::API_VERSION;
use crate::duration::DurationRule;
use crate::losses;
use crate::shape::{KnownFields, Row, Rule, Shape, may, must};

const TIME: Shape = Shape::Duration(DurationRule::TEXT);
const DELAY: Shape = Shape::Duration(DurationRule::TEXT.or_zero());
const INPUT: Row = may(
    &["input"],
    Shape::Any,
    "Anything; texts may hold templates.",
);
const TOOL: Row = may(&["tool"], Shape::Shared("tool"), "");

pub(super) static RESOURCE: KnownFields = KnownFields {
    name: "",
    about: "A workflow resource: a graph of steps that agents perform.",
    rows: &[
        must(
            &["apiVersion"],
            Shape::Words(&[API_VERSION]),
            "Version of the format.",
        ),
        must(&["kind"], Shape::Words(&["Workflow"]), "Kind of resource."),
        must(&["metadata"], Shape::Fields(&METADATA), ""),
        must(&["spec"], Shape::Fields(&SPEC), ""),
    ],
    rules: &[],
    closed: true,
};

pub(super) static METADATA: KnownFields = KnownFields {
    name: "metadata",
    about: "Who the workflow is.",
    rows: &[
        must(
            &["name"],
            Shape::Form("^[a-z][a-z0-9-]{0,199}$"),
            "Name of the workflow: lower-case letters, digits and -, beginning with a letter.",
        ),
        may(
            &["owner"],
            Shape::String,
            "The team or person who answers for it.",
        ),
        may(
            &["version"],
            Shape::Version,
            "A part of every idempotency key.",
        )
        .or("\"1\""),
        may(&["labels"], Shape::ScalarMap, "For finding it."),
        may(&["annotations"], Shape::ScalarMap, "For people and tools."),
    ],
    rules: &[],
    closed: true,
};

pub(super) static SPEC: KnownFields = KnownFields {
    name: "spec",
    about: "Specification.",
    rows: &[
        may(&["description"], Shape::Text, "What it is for."),
        may(
            &["domainsInvolved"],
            Shape::List(&Shape::String),
            "Domains involved.",
        ),
        must(
            &["steps"],
            Shape::Filled(&Shape::Fields(&STEP), usize::MAX),
            "The steps.",
        ),
        may(
            &["compensation"],
            Shape::List(&Shape::Fields(&COMPENSATION)),
            "What undoes which step.",
        ),
        may(&["timeout"], TIME, "Timeout of the whole run."),
        may(
            &["failurePolicy"],
            Shape::Words(&["compensate", "retry", "abort"]),
            "What a run timeout leads to, and the failure of a step without onFailure.",
        )
        .or("\"abort\""),
        may(&["trigger"], Shape::Fields(&TRIGGER), ""),
    ],
    rules: &[],
    closed: true,
};

pub(super) static TRIGGER: KnownFields = KnownFields {
    name: "trigger",
    about: "What starts a run by itself.",
    rows: &[
        may(&["event"], Shape::String, "Event type."),
        may(
            &["condition"],
            Shape::Condition,
            "Condition on the event: a template, such as {{ event.total > 100 }}.",
        ),
        may(
            &["schedule"],
            Shape::Form(r"^\s*@(hourly|daily|midnight|weekly|monthly|yearly|annually)\s*$|^\s*([0-9A-Za-z*/,?-]+\s+){4}[0-9A-Za-z*/,?-]+\s*$"),
            "Five cron fields, or @hourly, @daily, @weekly, @monthly, @yearly. Not beside `event`.",
        )
        .such_as("0 2 * * *"),
        may(
            &["timezone"],
            Shape::String,
            "Time zone of the schedule: a name of the IANA database, such as Europe/Berlin.",
        )
        .or("\"UTC\""),
    ],
    rules: &[
        Rule::AnyOf(&[&["event"], &["schedule"]]),
        Rule::Excludes("event", &["schedule", "timezone"]),
        Rule::Excludes("schedule", &["condition"]),
    ],
    closed: true,
};

pub(super) static STEP: KnownFields = KnownFields {
    name: "step",
    about: "A step.",
    rows: &[
        must(&["name"], Shape::Name, "Name of the step."),
        may(&["description"], Shape::Text, "What it is for."),
        may(
            &["agent"],
            Shape::Name,
            "The queue that the agent's worker serves; at a gate, who is asked.",
        ),
        may(
            &["action"],
            Shape::String,
            "What the agent does; at a gate, what the person is asked.",
        ),
        may(
            &["dependsOn"],
            Shape::OneOrMore,
            "Steps that must be completed or skipped first.",
        ),
        may(
            &["timeout"],
            TIME,
            "Timeout of one execution; at a gate, of the wait.",
        ),
        may(&["retryPolicy"], Shape::Fields(&RETRY), ""),
        losses::AT_MOST_ONCE,
        losses::MAX_LOSSES,
        may(
            &["onFailure"],
            Shape::Words(&["abort", "skip", "compensate"]),
            "What the failure of this step leads to; what failurePolicy says if absent.",
        ),
        may(
            &["gate"],
            Shape::Words(&["approval"]),
            "The step waits for a person.",
        ),
        INPUT,
        TOOL,
        may(
            &["compensable"],
            Shape::Flag,
            "false: it changes something that cannot be undone.",
        ),
    ],
    rules: &[
        Rule::AnyOf(&[&["agent", "action"], &["tool"], &["gate"]]),
        Rule::Excludes("gate", &["tool", "retryPolicy", "atMostOnce", "maxLosses"]),
        losses::RULE,
    ],
    closed: true,
};

pub(super) static RETRY: KnownFields = KnownFields {
    name: "retryPolicy",
    about: "Transient errors are retried; timeouts, validation and governance errors never are.",
    rows: &[
        may(
            &["maxRetries"],
            Shape::Int(0, 1_000),
            "Retries after the first execution.",
        )
        .or("3"),
        may(&["backoff"], Shape::Shared("backoff"), ""),
        may(&["initialDelay"], DELAY, "Delay before the first retry.").or("\"1s\""),
        may(&["maxDelay"], DELAY, "Longest delay.").or("\"60s\""),
        may(&["retryOn"], Shape::Shared("retryOn"), ""),
    ],
    rules: &[Rule::DurationExcludes("backoff", &["initialDelay"])],
    closed: true,
};

pub(super) static COMPENSATION: KnownFields = KnownFields {
    name: "compensation",
    about: "Undoes a step. Must be idempotent: it may run more than once.",
    rows: &[
        must(&["step"], Shape::String, "The step to undo."),
        may(
            &["agent"],
            Shape::String,
            "The queue that the agent's worker serves.",
        ),
        may(&["action"], Shape::String, "What the agent does."),
        INPUT,
        may(&["timeout"], TIME, "Timeout of one execution."),
        TOOL,
    ],
    rules: &[Rule::AnyOf(&[&["agent", "action"], &["tool"]])],
    closed: true,
};
