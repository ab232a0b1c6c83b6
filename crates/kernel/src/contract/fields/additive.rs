//! The event types that the contract does not list: evidence and detail. None changes the run's status.

use super::{
    COMPLETED_AT, CONTEXT, ENGINE_ATTEMPT, FAILED_AT, FAILURE, Field, Kind, LOGICAL, ORDINAL,
    PLAN_REF, PLAN_VERSION, REASON, RETRY_AT, STARTED_AT, STEP, Shape, may, must,
};

const fn kind(name: &'static str, about: &'static str, fields: &'static [Field]) -> Kind {
    Kind {
        name,
        canonical: false,
        about,
        fields,
    }
}

pub(super) const KINDS: &[Kind] = &[
    kind(
        "RunCreated",
        "The run exists",
        &[
            must(
                "planRef",
                Shape::Object(PLAN_REF),
                "The plan it is pinned to",
            ),
            must("context", Shape::Object(CONTEXT), "Who it belongs to"),
            must("createdAt", Shape::Moment, "When"),
            may(
                "parentRunId",
                Shape::Text,
                "The run that waits for this one",
            ),
            may(
                "parentStepId",
                Shape::Text,
                "The step that waits for this run",
            ),
            may(
                "originalRunId",
                Shape::Text,
                "The run that this one repeats",
            ),
            may("startAfter", Shape::Moment, "Not to be started before"),
        ],
    ),
    kind(
        "StepExecutionStarted",
        "A later execution of the same logical attempt has started",
        &[STEP, LOGICAL, ENGINE_ATTEMPT, STARTED_AT, PLAN_VERSION],
    ),
    kind(
        "StepExecutionFailed",
        "An execution failed and another follows",
        &[
            STEP,
            LOGICAL,
            ENGINE_ATTEMPT,
            FAILED_AT,
            FAILURE,
            RETRY_AT,
            PLAN_VERSION,
        ],
    ),
    kind(
        "StepWaiting",
        "The step waits without a worker",
        &[
            STEP,
            LOGICAL,
            ENGINE_ATTEMPT,
            must(
                "waitingFor",
                Shape::Words(&["gate", "approval", "manual", "event", "timer", "child"]),
                "For what",
            ),
            may(
                "awaitedEventType",
                Shape::Text,
                "The type of the event it waits for",
            ),
            may("deadline", Shape::Moment, "Until when"),
            PLAN_VERSION,
        ],
    ),
    kind(
        "StepApproved",
        "One of several people needed has approved",
        &[
            STEP,
            ENGINE_ATTEMPT,
            must("approvedBy", Shape::Text, "Who"),
            must("approvals", Shape::Number(1), "How many have"),
        ],
    ),
    kind(
        "StepWoken",
        "The wait is over and the step may run",
        &[
            STEP,
            ENGINE_ATTEMPT,
            may("externalEventId", Shape::Text, "The event that woke it"),
            may("approvedBy", Shape::Text, "The person who approved"),
        ],
    ),
    kind(
        "StepRouted",
        "The tokens of a finished step moved later than its end",
        &[
            STEP,
            must(
                "handled",
                Shape::Flag,
                "The failure that led here counts as dealt with",
            ),
        ],
    ),
    kind(
        "StepHeld",
        "A failed step waits for an operator",
        &[STEP, must("until", Shape::Moment, "Until when")],
    ),
    kind(
        "StepRetried",
        "An operator asked for a new logical attempt",
        &[STEP, LOGICAL],
    ),
    kind(
        "TokensAdmitted",
        "Tokens that had been denied may enter now",
        &[must("stepIds", Shape::Texts, "Which, oldest first")],
    ),
    kind(
        "CtxPatched",
        "Someone changed ctx from outside",
        &[
            must("changedBy", Shape::Text, "Who"),
            must("keys", Shape::Texts, "Which of its keys"),
        ],
    ),
    kind(
        "ParamsUpdated",
        "The parameters of steps that start later changed",
        &[],
    ),
    kind(
        "OverrideInjected",
        "The input of one step's later attempts changed",
        &[STEP],
    ),
    kind(
        "TargetUpdated",
        "One step's later executions go to another target",
        &[STEP],
    ),
    kind(
        "EventReceived",
        "An event came that nobody waited for; it is kept",
        &[
            must("externalEventId", Shape::Text, "Its id"),
            must("externalEventType", Shape::Text, "Its type"),
        ],
    ),
    kind(
        "PauseDrainTimedOut",
        "Work in flight did not end in time after a pause",
        &[
            ORDINAL,
            must(
                "inFlight",
                Shape::Number(0),
                "How many executions are still in flight",
            ),
        ],
    ),
    kind(
        "RunStalled",
        "Only tokens that may not enter and joins that starve are left",
        &[
            must("stuck", Shape::Texts, "What is stuck, in words"),
            must(
                "deadline",
                Shape::Moment,
                "When the run fails if nothing changes",
            ),
        ],
    ),
    kind(
        "RunFinalizing",
        "Everything is done but the final step",
        &[],
    ),
    kind(
        "RunStopping",
        "Nothing fires and nothing retries any more",
        &[
            must(
                "cause",
                Shape::Words(&[
                    "step_failed",
                    "run_timeout",
                    "stall_timeout",
                    "cancel",
                    "emergency",
                ]),
                "Why",
            ),
            must("compensate", Shape::Flag, "Whether what was done is undone"),
            may("stepId", Shape::Text, "The step that failed"),
            may("requestedBy", Shape::Text, "Who asked for it"),
            REASON,
        ],
    ),
    kind(
        "CompensationStarted",
        "What was done is being undone",
        &[
            must("stepIds", Shape::Texts, "What is undone, first to last"),
            must("notCompensable", Shape::Texts, "What has no undo"),
        ],
    ),
    kind(
        "UndoStarted",
        "An execution of an undo has started",
        &[STEP, ENGINE_ATTEMPT, STARTED_AT],
    ),
    kind(
        "UndoExecutionFailed",
        "An execution of an undo failed and another follows",
        &[STEP, ENGINE_ATTEMPT, FAILED_AT, FAILURE, RETRY_AT],
    ),
    kind(
        "UndoCompleted",
        "The step is undone",
        &[STEP, ENGINE_ATTEMPT, COMPLETED_AT],
    ),
    kind(
        "UndoFailed",
        "The step could not be undone",
        &[STEP, ENGINE_ATTEMPT, FAILED_AT, FAILURE],
    ),
    kind(
        "CompensationInterrupted",
        "Someone cancelled the run while it was being undone",
        &[may("requestedBy", Shape::Text, "Who"), REASON],
    ),
];
