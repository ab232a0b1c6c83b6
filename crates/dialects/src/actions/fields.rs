//! The fields of an actions workflow (WorkflowV1).

use super::model::Tier;
use crate::duration::DurationRule;
use crate::losses;
use crate::shape::{KnownFields, Row, Rule, Shape, may, must};

const TIER: Shape = Shape::Words(&Tier::NAMES);
const OPERATION: Shape = Shape::Form("^[A-Za-z][A-Za-z0-9_.-]*:[A-Za-z][A-Za-z0-9_.-]*$");
const TIMEOUT: Row = may(
    &["timeoutMs"],
    Shape::Duration(DurationRule::MILLIS),
    "Longest time one attempt may take, in milliseconds.",
)
.or("300000");
const TOOL: Row = may(&["tool"], Shape::Shared("tool"), "");

pub(super) static WORKFLOW: KnownFields = KnownFields {
    name: "",
    about: "An ordered list of actions, or a graph of them, with retries, approvals and compensation (WorkflowV1).",
    rows: &[
        must(
            &["schemaVersion"],
            Shape::Values(&["1", "\"1\"", "\"1.0\"", "\"v1\"", "\"v1.0\""]),
            "The version of this file format.",
        ),
        must(&["workflowId"], Shape::Name, "The workflow's own id."),
        must(
            &["workspaceId"],
            Shape::String,
            "The workspace it belongs to.",
        ),
        must(&["name"], Shape::String, "Its name for people."),
        may(&["description"], Shape::Text, "What it is for."),
        must(
            &["version"],
            Shape::Int(1, i64::MAX),
            "Its version; raise it with every change.",
        ),
        must(&["active"], Shape::Flag, "Whether it is meant to be run."),
        must(
            &["executionTier"],
            TIER,
            "How much a person has to do with every action, unless the action is stricter.",
        ),
        must(
            &["actions"],
            Shape::Filled(&Shape::Fields(&ACTION), usize::MAX),
            "What is done.",
        ),
    ],
    rules: &[],
    closed: true,
};

pub(super) static ACTION: KnownFields = KnownFields {
    name: "step",
    about: "An action.",
    rows: &[
        must(&["actionId"], Shape::Name, "Unique in the workflow."),
        must(
            &["order"],
            Shape::Int(1, i64::MAX),
            "Its place, exactly 1 to N over all actions.",
        ),
        must(
            &["portFamily"],
            Shape::Name,
            "Which workers do it: the name of their queue.",
        ),
        must(&["operation"], OPERATION, "What they do, as `entity:verb`.")
            .such_as("payment:authorise"),
        may(
            &["executionTierOverride"],
            TIER,
            "A stricter tier than the workflow's.",
        ),
        may(
            &["capability"],
            Shape::String,
            "What the worker must be able to do.",
        ),
        may(
            &["inputSchemaRef"],
            Shape::String,
            "Where the input's schema is.",
        ),
        may(
            &["outputSchemaRef"],
            Shape::String,
            "Where the output's schema is.",
        ),
        may(
            &["dependsOn"],
            Shape::Unique(&Shape::String),
            "Actions that must succeed before. If any action has this, `order` no longer chains them.",
        ),
        may(&["retryPolicy"], Shape::Fields(&RETRY), ""),
        losses::AT_MOST_ONCE,
        losses::MAX_LOSSES,
        TIMEOUT,
        may(
            &["completionMode"],
            Shape::Words(&["automatic", "manual"]),
            "Who ends the action: its worker, or a person after the worker.",
        )
        .or("\"automatic\""),
        may(
            &["input"],
            Shape::Any,
            "What the worker gets; texts may hold templates.",
        ),
        may(
            &["sideEffecting"],
            Shape::Flag,
            "Whether it leaves a mark on the world.",
        ),
        may(&["compensation"], Shape::Fields(&COMPENSATION), ""),
        TOOL,
        may(
            &["separationOfDuties"],
            Shape::List(&Shape::Either(&[
                Shape::Words(&["MakerChecker"]),
                Shape::Fields(&DUTY),
            ])),
            "Who may approve or complete it. MakerChecker: not the one who started the run.",
        ),
    ],
    rules: &[losses::RULE],
    closed: true,
};

/// The fields of a retry policy, with its defaults.
macro_rules! retry_policy {
    ($name:literal, $attempts:literal, $longest:literal) => {
        KnownFields {
            name: $name,
            about: "Retry policy.",
            rows: &[
                may(
                    &["maxAttempts"],
                    Shape::Int(1, 10),
                    "Total attempts, the first included.",
                )
                .or($attempts),
                may(
                    &["initialBackoffMs"],
                    Shape::Duration(DurationRule::MILLIS.or_zero()),
                    "The wait before the first retry, in milliseconds.",
                )
                .or("1000"),
                may(
                    &["backoffMultiplier"],
                    Shape::Number(1.0, 100.0),
                    "By how much each wait is longer than the one before.",
                )
                .or("2.0"),
                may(
                    &["maxBackoffMs"],
                    Shape::Duration(DurationRule::MILLIS.or_zero()),
                    "No wait is longer, in milliseconds.",
                )
                .or($longest),
                may(&["retryableErrors"], Shape::Shared("retryableErrors"), ""),
            ],
            rules: &[],
            closed: true,
        }
    };
}

pub(super) static RETRY: KnownFields = retry_policy!("retryPolicy", "3", "30000");
pub(super) static COMPENSATION_RETRY: KnownFields =
    retry_policy!("compensationRetryPolicy", "2", "10000");

pub(super) static COMPENSATION: KnownFields = KnownFields {
    name: "compensation",
    about: "How the action is undone when the run fails later.",
    rows: &[
        must(
            &["compensationOperation"],
            OPERATION,
            "What undoes it, as `entity:verb`; the same workers do it.",
        )
        .such_as("payment:release"),
        must(
            &["compensationInput"],
            Shape::Something,
            "What they get; texts may hold templates.",
        ),
        TIMEOUT,
        may(&["retryPolicy"], Shape::Fields(&COMPENSATION_RETRY), ""),
        TOOL,
    ],
    rules: &[],
    closed: true,
};

pub(super) static DUTY: KnownFields = KnownFields {
    name: "duty",
    about: "A duty.",
    rows: &[
        may(
            &["distinctApprovers"],
            Shape::Int(1, 100),
            "So many different people.",
        ),
        may(
            &["incompatibleDuties"],
            Shape::Filled(&Shape::String, usize::MAX),
            "Not one who approved or completed any of these actions.",
        ),
    ],
    rules: &[Rule::OneOf(&["distinctApprovers", "incompatibleDuties"])],
    closed: true,
};
