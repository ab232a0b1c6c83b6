//! One step of a workflow.

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::{ErrorClass, RetryPolicy, WaitOn, WaitSpec, Work};

use super::mention;
use crate::backoff::{self, Kinds};
use crate::codes;
use crate::dag::fields;
use crate::dag::model::{DagOnFailure, DagStep, StepMention};
use crate::losses::Losses;
use crate::problem::Problems;
use crate::reader::{Field, Fields};
use crate::words::quote;
use crate::{template, tools};

/// Retries where a `retryPolicy` does not say how many.
const MAX_RETRIES: u32 = 3;
/// Errors that pass by themselves.
const TRANSIENT: [ErrorClass; 3] = [
    ErrorClass::Transient,
    ErrorClass::Transport,
    ErrorClass::RateLimit,
];

/// Reads a step. `None` only if it has no name, since nothing else can then be said about it.
pub(super) fn step<'n>(field: &Field<'n>, p: &mut Problems) -> Option<DagStep<'n>> {
    let mut f = field.known(&fields::STEP, p)?;
    let name = f.req("name", p).and_then(|name| {
        let span = name.span();
        name.name(p).map(|name| StepMention { name, span })
    });
    let description = f.opt("description", p).and_then(|text| text.text(p));
    let agent = f.opt("agent", p).and_then(|agent| agent.name(p));
    let action = f.opt("action", p).and_then(|action| action.string(p));
    let needs = f.opt("dependsOn", p).map_or(Vec::new(), |it| needs(&it, p));
    let timeout_ms = f.opt("timeout", p).and_then(|field| field.time(p));
    let retry_field = f.opt("retryPolicy", p);
    let about_losses = ["atMostOnce", "maxLosses"].map(|name| f.opt(name, p));
    let losses = Losses::read(&mut f, p);
    losses.exclude(&retry_field, p);
    let on_failure = f.opt("onFailure", p).and_then(|it| on_failure(&it, p));
    let compensable = f
        .opt("compensable", p)
        .and_then(|it| it.bool(p).map(|value| (value, it.span())));
    let input = f.opt("input", p);
    if let Some(input) = &input {
        template::check(input.node, p);
    }
    let gate = f.opt("gate", p).filter(|it| it.word(p).is_some());
    let tool = f.opt("tool", p);

    let is_gate = gate.is_some();
    if let Some(gate) = &gate {
        let [once, most] = &about_losses;
        only_waits(gate, [&tool, &retry_field, once, most], p);
    }
    let work = match (&gate, &tool) {
        (Some(_), _) => Some(Work::Wait(WaitSpec {
            on: WaitOn::Approval,
            deadline_ms: timeout_ms,
        })),
        (None, Some(tool)) => tools::work(tool, p),
        // A gate that cannot be read was reported; nobody asked for a task.
        (None, None) if f.has("gate") => None,
        (None, None) => task(&f, agent, action, p),
    };
    let retry = retry_field.and_then(|it| retry(&it, p));
    f.finish(p);
    Some(DagStep {
        name: name?,
        // Where no agent acts, the action still says what the step is for.
        description: description.or(action.filter(|_| is_gate || tool.is_some())),
        agent,
        // A step without work was reported; the rest of it is still worth checking.
        work: work.unwrap_or(Work::Pipeline { tasks: Json::Null }),
        is_gate,
        input: input.map_or(Json::Null, |input| input.json()),
        needs,
        timeout_ms: timeout_ms.filter(|_| !is_gate),
        retry,
        losses,
        on_failure,
        compensable,
    })
}

/// Work for an agent. Without one nobody would ever do it.
fn task(
    f: &Fields<'_>,
    agent: Option<&str>,
    action: Option<&str>,
    p: &mut Problems,
) -> Option<Work> {
    for key in ["agent", "action"] {
        if !f.has(key) {
            let message = format!("a step needs `{key}`");
            // Whichever of these was misspelt, the step is not without work.
            let names = [key, "tool", "gate"];
            p.missing(codes::FIELD_MISSING, f.span(), &names, message)
                .help(format!(
                    "add `{key}: …`, or a `tool` that the built-in worker runs, or `gate: approval`"
                ));
        }
    }
    Some(Work::Task {
        queue: agent?.to_owned(),
        operation: action?.to_owned(),
        config: Json::Null,
    })
}

/// A gate waits for a person: there is nothing to run and nothing to run again.
fn only_waits(gate: &Field<'_>, others: [&Option<Field<'_>>; 4], p: &mut Problems) {
    for other in others.into_iter().flatten() {
        let message = format!(
            "{} has no meaning at a gate, which waits for a person",
            other.label
        );
        p.error(codes::FIELD_CONFLICT, other.span(), message)
            .help(format!(
                "remove it, or make a step of its own that depends on the {} step",
                gate.label
            ));
    }
}

fn needs<'n>(field: &Field<'n>, p: &mut Problems) -> Vec<StepMention<'n>> {
    let mut needs = Vec::new();
    let mut seen = HashSet::new();
    for item in field.list_or_one() {
        let Some(need) = mention(&item, p) else {
            continue;
        };
        if seen.insert(need.name) {
            needs.push(need);
        } else {
            let message = format!("names {} a second time", quote(need.name));
            item.error(codes::FIELD_VALUE, &message, p)
                .help("remove one of the two");
        }
    }
    needs
}

fn on_failure(field: &Field<'_>, p: &mut Problems) -> Option<(DagOnFailure, crate::source::Span)> {
    let word = field.word(p)?;
    let action = match word {
        "abort" => DagOnFailure::Abort,
        "skip" => DagOnFailure::Skip,
        _ => DagOnFailure::Compensate,
    };
    Some((action, field.span()))
}

/// Errors that pass are retried also where a step says nothing; only `maxRetries: 0` forbids it.
pub(in crate::dag) fn default_retry() -> RetryPolicy {
    RetryPolicy {
        max_executions: MAX_RETRIES + 1,
        backoff: backoff::default(),
        classes: TRANSIENT.to_vec(),
    }
}

fn retry(field: &Field<'_>, p: &mut Problems) -> Option<RetryPolicy> {
    let mut f = field.known(&fields::RETRY, p)?;
    let retries = f.opt("maxRetries", p).map_or(Some(MAX_RETRIES), |it| {
        it.whole(p).and_then(|n| u32::try_from(n).ok())
    });
    let backoff = backoff::read(&mut f, Kinds::Specified, p);
    let mut classes = TRANSIENT.to_vec();
    if let Some(field) = f.opt("retryOn", p) {
        for item in field.list_or_one() {
            if let Some(class) = retried_class(&item, p)
                && !classes.contains(&class)
            {
                classes.push(class);
            }
        }
    }
    f.finish(p);
    let retries = retries?;
    if retries == 0 {
        return Some(RetryPolicy::once());
    }
    Some(RetryPolicy {
        max_executions: retries + 1,
        backoff,
        classes,
    })
}

/// The categories that `retryOn` may name.
const CATEGORIES: [ErrorClass; 4] = [
    ErrorClass::Transient,
    ErrorClass::Agent,
    ErrorClass::External,
    ErrorClass::Unknown,
];

/// The JSON Schema of `retryOn`.
pub(in crate::dag) fn retry_on_schema() -> Json {
    let category = json!({ "enum": CATEGORIES.map(ErrorClass::name) });
    json!({
        "title": "Further categories to retry",
        "anyOf": [category, { "type": "array", "items": category }],
    })
}

/// A category that `retryOn` may add. Transient errors are retried anyway; three kinds never are.
fn retried_class(field: &Field<'_>, p: &mut Problems) -> Option<ErrorClass> {
    let word = field.text(p)?;
    if matches!(word, "timeout" | "validation" | "governance") {
        let message = format!("names {}, which is never retried", quote(word));
        field
            .error(codes::FIELD_VALUE, &message, p)
            .help("remove it; only `agent`, `external` and `unknown` can be added");
        return None;
    }
    let word = field.one_of(&CATEGORIES.map(ErrorClass::name), p)?;
    ErrorClass::from_name(word)
}
