//! From the tree to the model, with everything that can be wrong.

use std::collections::HashMap;

use serde_json::Value as Json;
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::MAX_STEPS;

use super::fields;
use super::model::{BackoffFields, LinearDefaults, LinearStep, LinearWorkflow, StepAction};
use crate::codes;
use crate::losses::Losses;
use crate::problem::Problems;
use crate::reader::{Field, Fields};
use crate::source::Span;
use crate::tree::Node;
use crate::words::quote;
use crate::{template, tools};

pub(super) fn workflow(root: &Node, p: &mut Problems) -> Option<LinearWorkflow> {
    let mut f = Fields::known(root, "a workflow", &fields::WORKFLOW, p)?;
    let workflow_type = f.req("workflowType", p).and_then(|v| v.name(p));
    let version = f.req("workflowVersion", p);
    let version = version.and_then(|v| v.whole(p));
    let description = f.opt("description", p).and_then(|v| v.text(p));
    let biz_key = f.opt("bizKey", p).and_then(|v| {
        template::check(v.node, p);
        v.string(p)
    });
    let claims = f.opt("timeoutClaims", p).and_then(|v| v.bool(p));
    let timeout_claims = claims.unwrap_or(true);
    let defaults = f.opt("defaults", p).map(|v| defaults(&v, p));
    let defaults = defaults.unwrap_or(LinearDefaults::GLOBAL);
    let whole = Whole {
        defaults,
        timeout_claims,
    };
    let steps = f.req("steps", p).and_then(|v| steps(&v, whole, p));
    f.finish(p);
    Some(LinearWorkflow {
        workflow_type: workflow_type?.to_owned(),
        version: version?,
        description: description.map(str::to_owned),
        biz_key: biz_key.map(str::to_owned),
        defaults,
        timeout_claims,
        steps: steps?,
    })
}

/// What a step must know of the file around it.
#[derive(Clone, Copy)]
struct Whole {
    defaults: LinearDefaults,
    timeout_claims: bool,
}

fn defaults(field: &Field<'_>, p: &mut Problems) -> LinearDefaults {
    let mut defaults = LinearDefaults::GLOBAL;
    let Some(mut f) = field.known(&fields::DEFAULTS, p) else {
        return defaults;
    };
    if let Some(attempts) = max_attempts(&mut f, p) {
        defaults.max_attempts = attempts;
    }
    let lease = f.opt("leaseSeconds", p);
    if let Some(seconds) = lease.and_then(|v| v.whole(p)) {
        defaults.lease_seconds = seconds;
    }
    defaults.backoff = backoff(&mut f, defaults.backoff, p);
    f.finish(p);
    defaults
}

fn max_attempts(f: &mut Fields<'_>, p: &mut Problems) -> Option<u32> {
    let attempts = f.opt("maxAttempts", p);
    let attempts = attempts.and_then(|v| v.whole(p));
    attempts.and_then(|attempts| u32::try_from(attempts).ok())
}

fn backoff(f: &mut Fields<'_>, base: BackoffFields, p: &mut Problems) -> BackoffFields {
    let mut backoff = base;
    let Some(field) = f.opt("backoff", p) else {
        return backoff;
    };
    let Some(mut f) = field.known(&fields::BACKOFF, p) else {
        return backoff;
    };
    if let Some(millis) = f.opt("initial", p).and_then(|v| v.time(p)) {
        backoff.initial_ms = millis;
    }
    if let Some(millis) = f.opt("max", p).and_then(|v| v.time(p)) {
        backoff.max_ms = millis;
    }
    if backoff.initial_ms > backoff.max_ms {
        let (initial, max) = (backoff.initial_ms, backoff.max_ms);
        p.warn(
            codes::BACKOFF_CAPPED,
            field.span(),
            format!("the first wait of {initial} ms is longer than the longest, {max} ms"),
        )
        .help("raise `max`, or lower `initial`");
    }
    f.finish(p);
    backoff
}

fn steps(field: &Field<'_>, whole: Whole, p: &mut Problems) -> Option<Vec<LinearStep>> {
    let items = field.list(p)?;
    if items.is_empty() {
        field
            .error(codes::FIELD_VALUE, "must not be empty", p)
            .help("add at least one step, such as `- stepType: VALIDATE`");
    }
    if items.len() > MAX_STEPS {
        let message = format!("has more than {MAX_STEPS} steps");
        field
            .error(codes::PLAN_TOO_LARGE, &message, p)
            .help("split the workflow");
        return None;
    }
    let mut names: HashMap<String, Span> = HashMap::new();
    let mut steps = Vec::new();
    for item in &items {
        steps.extend(step(item, whole, &mut names, p));
    }
    Some(steps)
}

fn step(
    item: &Field<'_>,
    whole: Whole,
    names: &mut HashMap<String, Span>,
    p: &mut Problems,
) -> Option<LinearStep> {
    let mut f = item.known(&fields::STEP, p)?;
    let step_type = f.req("stepType", p).and_then(|v| v.name(p));
    let own_name = f.opt("name", p);
    let span = f.span_of(if own_name.is_some() {
        "name"
    } else {
        "stepType"
    });
    let name = match own_name {
        Some(name) => name.name(p),
        None => step_type,
    };
    if let Some(name) = name {
        unique(name, span, names, p);
    }
    let description = f.opt("description", p).and_then(|v| v.text(p));
    let losses = Losses::read_once(&mut f, p);
    let retries = ["maxAttempts", "backoff"].map(|name| f.opt(name, p));
    losses.exclude(retries.iter().flatten(), p);
    let attempts = max_attempts(&mut f, p);
    let backoff = backoff(&mut f, whole.defaults.backoff, p);
    let timeout = f.opt("timeout", p);
    let timeout_ms = timeout.and_then(|v| v.time(p));
    let input = f.opt("input", p).map(|v| {
        template::check(v.node, p);
        v.json()
    });
    let does = does(&mut f, whole, p);
    f.finish(p);
    Some(LinearStep {
        name: name?.to_owned(),
        step_type: step_type?.to_owned(),
        description: description.map(str::to_owned),
        max_attempts: attempts.unwrap_or(whole.defaults.max_attempts),
        backoff,
        timeout_ms,
        losses,
        input: input.unwrap_or_default(),
        does: does?,
    })
}

fn unique(name: &str, span: Span, names: &mut HashMap<String, Span>, p: &mut Problems) {
    if names.insert(name.to_owned(), span).is_some() {
        let message = format!("two steps are named {}", quote(name));
        p.error(codes::NAME_DUPLICATE, span, message).help(
            "a step is named after its `stepType`; where the type occurs again, add a `name`",
        );
    }
}

/// A handler, a tool or a wait: which of them depends on which keys are there.
fn does(f: &mut Fields<'_>, whole: Whole, p: &mut Problems) -> Option<StepAction> {
    let queue = f.opt("queue", p);
    let operation = f.opt(["operation", "handler"], p);
    let named = ["queue", "operation", "handler"];
    let named = named.into_iter().find(|key| f.has(key));
    let tool = f.opt("tool", p);
    let wait = f.opt("waitFor", p);
    if tool.is_some()
        && let Some(key) = named
    {
        p.error(
            codes::WORK_CONFLICT,
            f.key_span_of(key),
            format!("`{key}` names a worker, but `tool` is run by the built-in one"),
        )
        .help(format!("remove `{key}` or `tool`"));
    }
    if tool.is_some() && wait.is_some() {
        p.error(
            codes::WORK_CONFLICT,
            f.key_span_of("waitFor"),
            "a step with a `tool` cannot wait for an event",
        )
        .help("put `waitFor` into a step of its own, behind this one");
    }
    let wait_json = wait.as_ref().map(Field::json);
    let alone = named.is_none() && tool.is_none();
    let wait = wait.and_then(|v| wait_for(&v, alone, whole, p));
    if alone && f.has("waitFor") {
        only_waits(f, p);
        return wait;
    }
    if let Some(tool) = tool {
        return tools::work(&tool, p).map(StepAction::Tool);
    }
    let queue = queue.and_then(|v| v.name(p)).map(str::to_owned);
    let operation = operation.and_then(|v| v.name(p)).map(str::to_owned);
    Some(StepAction::Handler {
        queue,
        operation,
        wait_for: wait_json.unwrap_or(Json::Null),
    })
}

/// Fields that only work has, in a step that has none.
fn only_waits(f: &Fields<'_>, p: &mut Problems) {
    for key in ["maxAttempts", "backoff", "atMostOnce", "timeout", "input"] {
        if f.has(key) {
            p.error(
                codes::WAIT_FIELD,
                f.key_span_of(key),
                format!("`{key}` has no meaning in a step that only waits"),
            )
            .help(if key == "timeout" {
                "move it into `waitFor`"
            } else {
                "remove it, or add a `handler` that works before and after the wait"
            });
        }
    }
}

fn wait_for(field: &Field<'_>, alone: bool, whole: Whole, p: &mut Problems) -> Option<StepAction> {
    let mut f = field.known(&fields::WAIT_FOR, p)?;
    let event = f.req("event", p).and_then(|v| v.string(p));
    let timeout = f.opt("timeout", p);
    let span = timeout.as_ref().map(Field::span);
    let timeout_ms = timeout.and_then(|v| v.time(p));
    if let Some(span) = span.filter(|_| alone && !whole.timeout_claims) {
        p.warn(
            codes::WAIT_TIMEOUT_UNUSED,
            span,
            "with `timeoutClaims: false` a wait never times out",
        )
        .help("remove `timeout`, or `timeoutClaims: false`");
    }
    if alone && whole.timeout_claims && span.is_none() {
        p.warn(
            codes::WAIT_WITHOUT_TIMEOUT,
            field.span(),
            "the step waits without a timeout: if the event never comes, the instance never ends",
        )
        .help("add `timeout: 24h`; the step is DEAD when the time is over");
    }
    let mut published = Vec::new();
    if let Some(outbound) = f.opt("outbound", p) {
        template::check(outbound.node, p);
        let events = outbound.list(p).unwrap_or_default();
        // What cannot be parsed was reported by the check.
        published.extend(
            events
                .iter()
                .filter_map(|it| TemplateValue::parse(&it.json()).ok()),
        );
    }
    f.finish(p);
    Some(StepAction::Wait {
        event: event?.to_owned(),
        timeout_ms: timeout_ms.filter(|_| whole.timeout_claims),
        outbound: published,
    })
}
