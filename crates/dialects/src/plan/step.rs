//! One step of a plan, in today's words and the older ones.

use std::collections::HashSet;

use serde_json::{Value as Json, json};
use stepwell_kernel::plan::{
    Duty, ErrorClass, Gate, RetryPolicy, SideEffect, Undo, WaitOn, WaitSpec, Work,
};

use super::model::{PlanStep, StepMention};
use super::{fields, header};
use crate::backoff::{self, Kinds};
use crate::codes;
use crate::losses::Losses;
use crate::problem::Problems;
use crate::reader::{Field, Fields};
use crate::words::quote;
use crate::{template, tools, undo};

/// Executions where a `retryPolicy` does not say how many.
const MAX_ATTEMPTS: u32 = 3;

/// The queue of a step that names none.
const QUEUE: &str = "default";

/// What an engine may try again: everything but what a repetition cannot change.
const RETRIED: [ErrorClass; 7] = [
    ErrorClass::Timeout,
    ErrorClass::RateLimit,
    ErrorClass::Transient,
    ErrorClass::Transport,
    ErrorClass::Agent,
    ErrorClass::External,
    ErrorClass::Unknown,
];

/// Reads a step. `None` only if it has no id, since nothing else can then be said about it.
pub(super) fn read<'n>(field: &Field<'n>, p: &mut Problems) -> Option<PlanStep<'n>> {
    if field.node.as_map().is_none() {
        let message = format!("must be a mapping, but is {}", field.node.describe());
        field
            .error(codes::INVALID_STEP_SCHEMA, &message, p)
            .help("write `- stepId: …` with a `kind`");
        return None;
    }
    let mut f = field.known(&fields::STEP, p)?;
    let id = f.req("stepId", p).and_then(|id| {
        let span = id.span();
        id.name(p).map(|name| StepMention { name, span })
    });
    let name = f.opt("name", p).and_then(|it| it.text(p));
    let description = f.opt("description", p).and_then(|it| it.text(p)).or(name);
    let needs = f.opt(["dependsOn", "dependencies"], p);
    let needs = needs.map_or(Vec::new(), |it| self::needs(&it, p));
    let input = input(&mut f, p);
    let timeout_ms = timeout(&mut f, p);
    let retry_field = f.opt("retryPolicy", p);
    let retry = retry_field.as_ref().and_then(|it| self::retry(it, p));
    let about_losses = ["atMostOnce", "maxLosses"].map(|name| f.opt(name, p));
    let losses = Losses::read(&mut f, p);
    losses.exclude(&retry_field, p);
    let on_failure = f.opt("onStepFailure", p);
    let on_failure = on_failure.and_then(|it| header::failure(&it, p));
    let hold = f.opt("holdTimeout", p).and_then(|it| header::hold(&it, p));
    let undo = f.opt("compensation", p);
    let has_undo = undo.is_some();
    let undo = undo.and_then(|it| compensation(&it, p));
    let side_effect = side_effect(&mut f, has_undo, p);
    let doing = doing(&mut f, id.map(|id| id.name), timeout_ms, p);
    f.finish_as(codes::INVALID_STEP_SCHEMA, p);
    let StepWork { work, gate, duties } = doing;
    let is_wait = matches!(work, Work::Wait(_));
    let repeated = retry_field.iter().chain(about_losses.iter().flatten());
    for field in repeated.filter(|_| is_wait) {
        meaningless(field, "a step that only waits", p);
    }
    Some(PlanStep {
        id: id?,
        description,
        needs,
        work,
        gate,
        duties,
        input,
        timeout_ms: timeout_ms.filter(|_| !is_wait),
        retry,
        losses,
        on_failure,
        hold,
        side_effect,
        undo,
    })
}

fn needs<'n>(field: &Field<'n>, p: &mut Problems) -> Vec<StepMention<'n>> {
    let mut needs = Vec::new();
    let mut seen = HashSet::new();
    for item in field.list_or_one() {
        let Some(name) = item.string(p) else { continue };
        if seen.insert(name) {
            let span = item.span();
            needs.push(StepMention { name, span });
        } else {
            let message = format!("names {} a second time", quote(name));
            item.error(codes::INVALID_PLAN_SCHEMA, &message, p)
                .help("remove one of the two");
        }
    }
    needs
}

fn input(f: &mut Fields<'_>, p: &mut Problems) -> Json {
    let Some(field) = f.opt(["config", "input"], p) else {
        return Json::Null;
    };
    template::check(field.node, p);
    field.json()
}

fn timeout(f: &mut Fields<'_>, p: &mut Problems) -> Option<u64> {
    let field = f.opt("timeout", p)?;
    field.time(p)
}

/// `retryPolicy`, of a plan or of a step.
pub(super) fn retry(field: &Field<'_>, p: &mut Problems) -> Option<RetryPolicy> {
    let mut f = field.known(&fields::RETRY, p)?;
    let attempts = f.opt("maxAttempts", p).map_or(Some(MAX_ATTEMPTS), |it| {
        it.whole(p).and_then(|n| u32::try_from(n).ok())
    });
    let backoff = backoff::read(&mut f, Kinds::All, p);
    f.finish_as(codes::INVALID_STEP_SCHEMA, p);
    match attempts? {
        1 => Some(RetryPolicy::once()),
        max_executions => Some(RetryPolicy {
            max_executions,
            backoff,
            classes: RETRIED.to_vec(),
        }),
    }
}

fn side_effect(f: &mut Fields<'_>, has_undo: bool, p: &mut Problems) -> SideEffect {
    let field = f.opt("sideEffect", p);
    let word = field.as_ref().and_then(|it| it.word(p));
    let (Some(field), Some(word)) = (field, word) else {
        return if has_undo {
            SideEffect::Compensable
        } else {
            SideEffect::Unknown
        };
    };
    let clash = match (word, has_undo) {
        ("compensable", false) => Some(("says that there is a `compensation`", "add one")),
        ("pure" | "irreversible", true) => Some((
            "says that there is nothing to undo",
            "remove the `compensation`",
        )),
        _ => None,
    };
    if let Some((message, help)) = clash {
        let help = format!("{help}, or change `sideEffect`");
        field
            .error(codes::INVALID_STEP_SCHEMA, message, p)
            .help(help);
    }
    match word {
        "pure" => SideEffect::Pure,
        "idempotent" => SideEffect::Idempotent,
        "compensable" => SideEffect::Compensable,
        _ => SideEffect::Irreversible,
    }
}

fn compensation(field: &Field<'_>, p: &mut Problems) -> Option<Undo> {
    let mut f = field.known(&fields::COMPENSATION, p)?;
    let tool = f.opt("tool", p);
    let input = input(&mut f, p);
    let queue = f.opt("queue", p);
    let timeout_ms = timeout(&mut f, p);
    let retry = f.opt("retryPolicy", p).and_then(|it| self::retry(&it, p));
    let work = match &tool {
        Some(tool) => {
            let kind = f.opt(["kind", "type"], p);
            for other in [&kind, &queue].into_iter().flatten() {
                meaningless(other, "a compensation by `tool`", p);
            }
            let tasks = undo::tool_tasks(tool, p);
            tasks.map(|tasks| (undo::TOOL_QUEUE, undo::TOOL_OPERATION, tasks))
        }
        None => {
            let kind = f.req(["kind", "type"], p).and_then(|it| it.string(p));
            let queue = queue.and_then(|it| it.name(p));
            kind.map(|kind| (queue.unwrap_or(QUEUE), kind, Json::Null))
        }
    };
    f.finish_as(codes::INVALID_STEP_SCHEMA, p);
    let (queue, operation, tasks) = work?;
    Some(Undo {
        queue: queue.to_owned(),
        operation: operation.to_owned(),
        input,
        tasks,
        retry: retry.unwrap_or_else(undo::retry),
        timeout_ms,
    })
}

/// What a step does, and whom it asks first.
struct StepWork {
    work: Work,
    gate: Option<Gate>,
    duties: Vec<Duty>,
}

/// Work is a tool, a wait, an approval, a noop or a task, and only one of them.
fn doing(
    f: &mut Fields<'_>,
    id: Option<&str>,
    timeout_ms: Option<u64>,
    p: &mut Problems,
) -> StepWork {
    let kind = f.opt(["kind", "type"], p);
    let queue = f.opt("queue", p);
    let tool = f.opt("tool", p);
    let wait = f.opt("waitFor", p);
    let approval = f.opt("approval", p).and_then(|it| approval(&it, p));
    let nothing = Work::Pipeline { tasks: Json::Null };
    let (work, gate) = match (&tool, &wait) {
        (Some(tool), _) => {
            const WHAT: &str = "a step that runs a `tool`";
            for other in [&kind, &queue, &wait].into_iter().flatten() {
                meaningless(other, WHAT, p);
            }
            (tools::work(tool, p).unwrap_or(nothing), approval)
        }
        (None, Some(wait)) => {
            for other in [&kind, &queue].into_iter().flatten() {
                meaningless(other, "a step that waits", p);
            }
            let wait = wait_for(wait, timeout_ms, p);
            (wait.map_or(nothing, Work::Wait), approval)
        }
        (None, None) => match (kind, approval) {
            (None, Some(gate)) => {
                if let Some(queue) = &queue {
                    meaningless(queue, "an approval", p);
                }
                return only_approval(gate, timeout_ms);
            }
            (kind, approval) => (task(kind, queue, id, p), approval),
        },
    };
    StepWork {
        work,
        gate,
        duties: Vec::new(),
    }
}

/// A step whose only work is a person's decision.
fn only_approval(gate: Gate, timeout_ms: Option<u64>) -> StepWork {
    StepWork {
        work: Work::Wait(WaitSpec {
            on: WaitOn::Approval,
            deadline_ms: gate.deadline_ms.or(timeout_ms),
        }),
        gate: None,
        duties: gate.duties,
    }
}

fn task(
    kind: Option<Field<'_>>,
    queue: Option<Field<'_>>,
    id: Option<&str>,
    p: &mut Problems,
) -> Work {
    let kind = kind.and_then(|it| it.string(p));
    if kind == Some("noop") {
        if let Some(queue) = &queue {
            meaningless(queue, "a `noop`", p);
        }
        return Work::Pipeline {
            tasks: json!([{ "name": "task_1", "kind": "noop" }]),
        };
    }
    let queue = queue.and_then(|it| it.name(p));
    Work::Task {
        queue: queue.unwrap_or(QUEUE).to_owned(),
        operation: kind.or(id).unwrap_or_default().to_owned(),
        config: Json::Null,
    }
}

/// Says that a field does nothing where it stands, rather than dropping it in silence.
fn meaningless(field: &Field<'_>, what: &str, p: &mut Problems) {
    let message = format!("has no meaning in {what}");
    field
        .error(codes::INVALID_STEP_SCHEMA, &message, p)
        .help("remove it, or make two steps of it");
}

/// `approval: true`, or who may approve and until when.
fn approval(field: &Field<'_>, p: &mut Problems) -> Option<Gate> {
    if let Some(wanted) = field.node.as_bool() {
        return wanted.then(Gate::default);
    }
    let mut f = field.known(&fields::APPROVAL, p)?;
    let deadline_ms = timeout(&mut f, p);
    let mut duties = Vec::new();
    let count = f.opt("approvers", p).and_then(|it| it.whole(p));
    if let Some(count) = count.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 1) {
        duties.push(Duty::DistinctApprovers { count });
    }
    if f.opt("makerChecker", p).and_then(|it| it.bool(p)) == Some(true) {
        duties.push(Duty::MakerChecker);
    }
    f.finish_as(codes::INVALID_STEP_SCHEMA, p);
    let gate = Gate {
        duties,
        deadline_ms,
    };
    Some(gate)
}

/// `waitFor: event.type`, `{event: …, timeout: …}`, `{delay: 10m}`.
fn wait_for(field: &Field<'_>, timeout_ms: Option<u64>, p: &mut Problems) -> Option<WaitSpec> {
    if let Some(event_type) = field.node.as_str() {
        field.string(p)?;
        let event_type = event_type.to_owned();
        return Some(WaitSpec {
            on: WaitOn::Event { event_type },
            deadline_ms: timeout_ms,
        });
    }
    let mut f = field.known(&fields::WAIT_FOR, p)?;
    let event = f.opt("event", p);
    let delay = f.opt("delay", p);
    let deadline_ms = timeout(&mut f, p).or(timeout_ms);
    f.finish_as(codes::INVALID_STEP_SCHEMA, p);
    let on = match (event, delay) {
        (Some(event), None) => WaitOn::Event {
            event_type: event.string(p)?.to_owned(),
        },
        (None, Some(delay)) => WaitOn::Timer {
            millis: delay.time(p)?,
        },
        _ => {
            field
                .error(
                    codes::INVALID_STEP_SCHEMA,
                    "needs one of `event` and `delay`",
                    p,
                )
                .help("write `waitFor: {event: order.paid}` or `waitFor: {delay: 10m}`");
            return None;
        }
    };
    Some(WaitSpec { on, deadline_ms })
}
