//! The fields of a playbook.

use super::step::MAX_IN_FLIGHT;
use crate::duration::DurationRule;
use crate::losses;
use crate::shape::{KnownFields, Row, Rule, Shape, may, must};

const TIME: Shape = Shape::Duration(DurationRule::SECONDS);
const ARGS: Row = may(&["args", "input"], Shape::Assignments("args"), "Arguments.");
const SET_CTX: Row = may(
    &["set_ctx"],
    Shape::Assignments("ctx"),
    "Variables of the run that are set here.",
);
const SET: Row = may(
    &["set"],
    Shape::Scoped(&["ctx", "args", "input"]),
    "Assignments with their scope, such as ctx.x.",
);
const DESC: Row = may(&["desc"], Shape::Text, "What it is for.");
const DESCRIPTION: Row = may(&["description"], Shape::Text, "What it is for.");
const FAILURE: Row = may(&["failure"], Shape::Fields(&FAILURE_MODE), "");
const TOOL: Shape = Shape::Shared("tool");

/// A mapping in which other keys are reported as unused.
const fn open(name: &'static str, about: &'static str, rows: &'static [Row]) -> KnownFields {
    KnownFields {
        name,
        about,
        rows,
        rules: &[],
        closed: false,
    }
}

/// A mapping in which other keys are refused: ignoring them would change what happens.
const fn closed(name: &'static str, about: &'static str, rows: &'static [Row]) -> KnownFields {
    KnownFields {
        closed: true,
        ..open(name, about, rows)
    }
}

pub(super) static PLAYBOOK: KnownFields = open(
    "",
    "A workflow as steps that pass tokens along guarded arcs.",
    &[
        must(
            &["apiVersion"],
            Shape::Words(&["noetl.io/v2"]),
            "The version of the language.",
        ),
        must(&["kind"], Shape::Words(&["Playbook"]), "The language."),
        must(&["metadata"], Shape::Fields(&METADATA), ""),
        may(
            &["keychain"],
            Shape::OrNull(&Shape::List(&Shape::Fields(&KEYCHAIN))),
            "Secrets by reference.",
        ),
        may(
            &["executor"],
            Shape::OrNull(&Shape::Fields(&EXECUTOR)),
            "Where a run begins and ends.",
        ),
        may(
            &["workload"],
            Shape::OrNull(&Shape::Map),
            "Parameters with their defaults; a start request is merged over them.",
        ),
        must(
            &["workflow"],
            Shape::Filled(&Shape::Fields(&STEP), usize::MAX),
            "The steps.",
        ),
        may(
            &["workbook"],
            Shape::OrNull(&Shape::List(&Shape::Fields(&WORKBOOK))),
            "Tasks that steps call by name.",
        ),
    ],
);

pub(super) static METADATA: KnownFields = open(
    "metadata",
    "What the playbook is called; further keys are yours.",
    &[
        must(&["name"], Shape::Name, "Its name."),
        may(&["path"], Shape::String, "Where others find it."),
        may(&["version"], Shape::ScalarName, "Its version.").or("\"1\""),
        DESC,
        DESCRIPTION,
    ],
);

pub(super) static KEYCHAIN: KnownFields = open(
    "keychain",
    "A secret; further keys say where it is.",
    &[
        must(&["name"], Shape::String, "Its name in templates."),
        may(&["password"], Shape::Any, "A reference to a stored secret."),
        may(&["secret"], Shape::Any, "A reference to a stored secret."),
        may(&["token"], Shape::Any, "A reference to a stored secret."),
        may(&["value"], Shape::Any, "A reference to a stored secret."),
        may(&["api_key"], Shape::Any, "A reference to a stored secret."),
    ],
);

pub(super) static WORKBOOK: KnownFields = open(
    "workbook",
    "A workbook entry.",
    &[
        must(&["name"], Shape::Name, "What steps call it."),
        must(&["tool"], TOOL, ""),
        DESC,
        DESCRIPTION,
    ],
);

pub(super) static EXECUTOR: KnownFields = open(
    "executor",
    "Where a run begins and ends.",
    &[
        may(&["profile"], Shape::String, "The kind of executor."),
        may(&["version"], Shape::Scalar, "Its version."),
        may(&["requires"], Shape::Fields(&REQUIRES), ""),
        may(&["spec"], Shape::Fields(&RUN_SPEC), ""),
    ],
);

pub(super) static REQUIRES: KnownFields = open(
    "requires",
    "What the worker must have.",
    &[
        may(&["tools"], Shape::List(&Shape::String), "Kinds of tools."),
        may(&["features"], Shape::List(&Shape::String), "Features."),
    ],
);

pub(super) static RUN_SPEC: KnownFields = open(
    "runSpec",
    "Settings of the run.",
    &[
        may(
            &["entry_step"],
            Shape::String,
            "The step that gets the first token; the first of the list if absent.",
        ),
        may(
            &["final_step"],
            Shape::String,
            "Runs once, when everything else is done. No arc may touch it.",
        ),
        may(
            &["no_next_is_error"],
            Shape::Flag,
            "Whether a step whose arcs all say no fails the run.",
        )
        .or("false"),
        may(
            &["strict"],
            Shape::Flag,
            "Whether a template fails that makes a value from a name without a value.",
        )
        .or("false"),
        may(
            &["timeout", "timeout_s"],
            TIME,
            "Longest time for the whole run.",
        ),
        may(&["policy"], Shape::Fields(&RUN_POLICY), ""),
    ],
);

pub(super) static RUN_POLICY: KnownFields = open(
    "runPolicy",
    "Policy of the run.",
    &[
        may(
            &["completion"],
            Shape::Words(&["fail", "partial"]),
            "What a run is after a failure that no arc handled.",
        )
        .or("\"fail\""),
        FAILURE,
        may(
            &["final"],
            Shape::Words(&["fail", "partial"]),
            "What a run is after its final step failed.",
        )
        .or("\"fail\""),
        may(
            &["stall_timeout", "stall_timeout_s"],
            TIME,
            "How long a run waits when only denied tokens are left.",
        )
        .or("\"24h\""),
        may(
            &["drain_timeout", "drain_timeout_s"],
            TIME,
            "How long a pause waits for work in flight before it says so.",
        )
        .or("\"5m\""),
        may(&["defaults"], Shape::Fields(&STEP_DEFAULTS), ""),
        may(&["results"], Shape::Fields(&RESULTS), ""),
    ],
);

pub(super) static STEP_DEFAULTS: KnownFields = open(
    "stepDefaults",
    "Defaults of steps.",
    &[may(
        &["timeout_s", "timeout"],
        TIME,
        "The timeout of steps that give none.",
    )],
);

pub(super) static RESULTS: KnownFields = open(
    "results",
    "Results.",
    &[may(
        &["reference_first"],
        Shape::Flag,
        "Large results are passed by reference whatever this says.",
    )],
);

const MODES: &[Row] = &[may(
    &["mode"],
    Shape::Words(&["fail_fast", "continue", "best_effort"]),
    "fail_fast stops; continue (or best_effort) goes on.",
)];

pub(super) static FAILURE_MODE: KnownFields = open("failureMode", "What a failure means.", MODES);

pub(super) static LOOP_FAILURE_MODE: KnownFields = closed(
    "loopFailureMode",
    "What the failure of an iteration means.",
    MODES,
);

pub(super) static ARC: KnownFields = closed(
    "arcFields",
    "An arc.",
    &[
        must(&["step"], Shape::String, "Where it leads."),
        may(&["when"], Shape::Condition, "The guard; true if absent."),
        ARGS,
        SET_CTX,
        SET,
        DESC,
        DESCRIPTION,
    ],
);

const ARCS: Shape = Shape::List(&Shape::Either(&[Shape::String, Shape::Fields(&ARC)]));

pub(super) static ROUTER: KnownFields = closed(
    "router",
    "Arcs, and how many of them are taken.",
    &[
        may(&["spec"], Shape::Fields(&ROUTER_SPEC), ""),
        must(
            &["arcs"],
            ARCS,
            "The arcs, each a name of a step or a mapping.",
        ),
    ],
);

pub(super) static ROUTER_SPEC: KnownFields = open(
    "routerSpec",
    "Settings.",
    &[may(
        &["mode"],
        Shape::Words(&["exclusive", "inclusive"]),
        "exclusive: the first arc that matches; inclusive: every arc that matches.",
    )
    .or("\"exclusive\"")],
);

pub(super) static ADMIT_RULE: KnownFields = KnownFields {
    rules: &[
        Rule::OneOf(&["when", "else"]),
        Rule::AnyOf(&[&["when", "then"], &["else"]]),
        Rule::Excludes("else", &["then"]),
    ],
    ..closed(
        "admitRule",
        "An admission rule.",
        &[
            may(&["when"], Shape::Condition, "The condition."),
            may(
                &["then"],
                Shape::Fields(&ALLOW),
                "What holds if the condition is true.",
            ),
            may(
                &["else"],
                Shape::Either(&[Shape::Fields(&ALLOW_THEN), Shape::Fields(&ALLOW)]),
                "For the last rule, which always matches.",
            ),
        ],
    )
};

pub(super) static ALLOW: KnownFields = closed(
    "allow",
    "The decision.",
    &[must(
        &["allow"],
        Shape::Flag,
        "Whether the token may enter.",
    )],
);

static ALLOW_THEN: KnownFields = closed(
    "",
    "",
    &[must(&["then"], Shape::Fields(&ALLOW), "The decision.")],
);

pub(super) static LOOP: KnownFields = closed(
    "loop",
    "Runs the tasks once for each item.",
    &[
        must(
            &["in"],
            Shape::Either(&[Shape::List(&Shape::Any), Shape::Template]),
            "A list, or a template for one.",
        ),
        may(&["cursor"], Shape::Any, "").refused(),
        may(
            &["iterator"],
            Shape::Form("^[A-Za-z_][A-Za-z0-9_]*$"),
            "The name of an item in templates.",
        )
        .or("\"item\""),
        may(&["spec"], Shape::Fields(&LOOP_SPEC), ""),
    ],
);

pub(super) static LOOP_SPEC: KnownFields = open(
    "loopSpec",
    "Settings of the loop.",
    &[
        may(
            &["mode"],
            Shape::Words(&["sequential", "parallel"]),
            "One after the other, or several at a time.",
        )
        .or("\"sequential\""),
        may(
            &["max_in_flight"],
            Shape::IntOrTemplate(1, MAX_IN_FLIGHT as i64),
            "The most that run at a time; 1000 in a parallel loop if absent.",
        ),
        may(&["policy"], Shape::Fields(&LOOP_POLICY), ""),
    ],
);

pub(super) static LOOP_POLICY: KnownFields = open(
    "loopPolicy",
    "Policy of the loop.",
    &[may(&["failure"], Shape::Fields(&LOOP_FAILURE_MODE), "")],
);

pub(super) static STEP: KnownFields = open(
    "step",
    "A step.",
    &[
        must(&["step"], Shape::Name, "The step's name; none is reserved."),
        may(&["desc", "description"], Shape::Text, "What it is for."),
        may(&["args", "input"], Shape::Map, "Input of all tasks of the step."),
        may(
            &["set_ctx"],
            Shape::Assignments("ctx"),
            "Variables of the run, set at the step's end, before arcs are looked at.",
        ),
        may(&["set"], Shape::Scoped(&["ctx"]), "The same with scopes: ctx.x."),
        may(&["spec"], Shape::Fields(&STEP_SPEC), ""),
        may(&["loop"], Shape::Fields(&LOOP), ""),
        may(&["tool"], TOOL, ""),
        may(
            &["next"],
            Shape::Either(&[Shape::String, ARCS, Shape::Fields(&ARC), Shape::Fields(&ROUTER)]),
            "Where the tokens go. Absent: the branch ends here.",
        ),
        may(
            &["join"],
            Shape::Words(&["all", "each"]),
            "each: run for every token that arrives; all: wait for a token on every arc that leads here.",
        )
        .or("\"each\""),
    ],
);

pub(super) static STEP_SPEC: KnownFields = open(
    "stepSpec",
    "Settings of the step.",
    &[
        may(
            &["timeout", "timeout_s"],
            TIME,
            "Longest time one execution may take.",
        ),
        losses::AT_MOST_ONCE_SNAKE,
        losses::MAX_LOSSES_SNAKE,
        may(&["policy"], Shape::Fields(&STEP_POLICY), ""),
    ],
);

pub(super) static STEP_POLICY: KnownFields = open(
    "stepPolicy",
    "Policy of the step.",
    &[
        may(&["admit"], Shape::Fields(&ADMIT), ""),
        may(&["lifecycle"], Shape::Fields(&LIFECYCLE), ""),
        FAILURE,
    ],
);

pub(super) static ADMIT: KnownFields = closed(
    "admit",
    "Who may enter; everyone if absent.",
    &[
        may(
            &["mode"],
            Shape::Words(&["exclusive"]),
            "The first rule that matches decides.",
        ),
        may(
            &["denied"],
            Shape::Words(&["pending", "discard"]),
            "Whether a denied token waits for ctx to change or is dropped.",
        )
        .or("\"pending\""),
        must(
            &["rules"],
            Shape::List(&Shape::Fields(&ADMIT_RULE)),
            "The rules.",
        ),
    ],
);

pub(super) static LIFECYCLE: KnownFields = open(
    "lifecycle",
    "Times.",
    &[may(
        &["timeout_s", "timeout"],
        TIME,
        "The same as spec.timeout.",
    )],
);
