//! One step of the workflow, but for its arcs and its policies.

use serde_json::Value as Json;
use stepwell_kernel::expr::TemplateValue;
use stepwell_kernel::plan::{Loop, LoopMode, MaxInFlight, OnFailure, OnLoopFailure, Route};

use super::model::{Named, StepDef};
use super::{fields, next, policy};
use crate::codes;
use crate::field::Field;
use crate::leftover;
use crate::problem::Problems;
use crate::reader::Fields;
use crate::template;
use crate::tools::{self, Assignments, VarScope};

/// Most iterations of a parallel loop that are in flight at a time where the file does not say.
pub(super) const MAX_IN_FLIGHT: u32 = 1000;

/// Reads one step. `None` if it has no name that could be used.
pub(super) fn read(item: &Field<'_>, p: &mut Problems) -> Option<StepDef> {
    let mut f = item.known(&fields::STEP, p)?;
    let name = f.req("step", p).and_then(|field| {
        let text = field.name(p)?.to_owned();
        Some(Named {
            text,
            span: field.span(),
        })
    });
    let description = f
        .opt(["desc", "description"], p)
        .and_then(|it| it.text(p))
        .map(str::to_owned);
    let input = f.opt(["args", "input"], p).map(|it| input(&it, p));
    let set_ctx = set_ctx(&mut f, p);
    let spec = f
        .opt("spec", p)
        .and_then(|it| it.known(&fields::STEP_SPEC, p));
    let policy = spec.map(|it| policy::read(it, p)).unwrap_or_default();
    let each = f.opt("loop", p);
    let each = each.and_then(|it| self::each(&it, policy.loop_failure, p));
    let tasks = f.opt("tool", p).and_then(|it| tools::pipeline(&it, p));
    let (route, arcs) = match f.opt("next", p) {
        Some(field) => next::read(&field, p),
        None => (Route::Exclusive, Vec::new()),
    };
    let join = f.opt("join", p);
    let joins = join.as_ref().and_then(|it| it.word(p));
    leftover::finish(&f, "a step", p);
    let on_failure = match (policy.on_failure, &each) {
        // In a loop, going on is meant for the iterations.
        (Some(OnFailure::Skip), Some(_)) | (None, _) => OnFailure::Route,
        (Some(given), _) => given,
    };
    Some(StepDef {
        name: name?,
        description,
        input: input.unwrap_or_default(),
        set_ctx,
        admit: policy.admit,
        timeout_ms: policy.timeout_ms,
        losses: policy.losses,
        on_failure,
        each,
        tasks,
        route,
        arcs,
        join_all: join.filter(|_| joins == Some("all")).map(|it| it.span()),
    })
}

fn input(field: &Field<'_>, p: &mut Problems) -> Json {
    field.map(p);
    template::check(field.node, p);
    field.json()
}

/// `set_ctx: {x: …}` and `set: {ctx.x: …}`.
fn set_ctx(f: &mut Fields<'_>, p: &mut Problems) -> Vec<(String, TemplateValue)> {
    let mut sets = Assignments::default();
    if let Some(field) = f.opt("set_ctx", p) {
        sets.bare(&field, VarScope::Ctx, p);
    }
    if let Some(field) = f.opt("set", p) {
        sets.scoped(&field, &[VarScope::Ctx], p);
    }
    patches(&sets, p)
}

/// The assignments to ctx as the kernel takes them.
pub(super) fn patches(sets: &Assignments<'_>, p: &mut Problems) -> Vec<(String, TemplateValue)> {
    sets.of(VarScope::Ctx)
        .filter_map(|(name, node)| Some((name.to_owned(), template::value(node, p)?)))
        .collect()
}

fn each(field: &Field<'_>, failure: Option<OnLoopFailure>, p: &mut Problems) -> Option<Loop> {
    let mut f = field.known(&fields::LOOP, p)?;
    if let Some(cursor) = f.opt("cursor", p) {
        p.error(
            codes::LOOP_UNSUPPORTED,
            cursor.span(),
            "loops over a cursor are not supported",
        )
        .help("read a page in one step and go back to it with an arc until there is none left");
    }
    let items = if f.has("cursor") {
        f.opt("in", p)
    } else {
        f.req("in", p)
    };
    let items = items.and_then(|it| items_of(&it, p));
    let iterator = f.opt("iterator", p).map(|it| iterator(&it, p));
    let mut shape = LoopShape::default();
    if let Some(spec) = f
        .opt("spec", p)
        .and_then(|it| it.known(&fields::LOOP_SPEC, p))
    {
        shape = LoopShape::read(spec, p);
    }
    f.finish(p);
    Some(Loop {
        items: items?,
        iterator: iterator.unwrap_or(Some("item".to_owned()))?,
        mode: shape.mode,
        max_in_flight: shape.max_in_flight?,
        on_failure: shape.on_failure.or(failure).unwrap_or(OnLoopFailure::Fail),
    })
}

/// A list, or a template for one.
fn items_of(field: &Field<'_>, p: &mut Problems) -> Option<TemplateValue> {
    let value = template::value(field.node, p)?;
    if field.node.as_seq().is_none() && value.as_template().is_none() {
        field
            .error(codes::FIELD_TYPE, "must be a list or a template for one", p)
            .help("write `in: \"{{ workload.items }}\"`");
        return None;
    }
    Some(value)
}

/// The iterator becomes a name in templates, so it must look like one.
fn iterator(field: &Field<'_>, p: &mut Problems) -> Option<String> {
    let text = field.string(p)?;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if text.starts_with(|c: char| c.is_ascii_digit()) || !text.chars().all(word) {
        field
            .error(codes::NAME_INVALID, "must be a name for templates", p)
            .help("letters, digits and `_` only, such as `item`");
        return None;
    }
    Some(text.to_owned())
}

struct LoopShape {
    mode: LoopMode,
    max_in_flight: Option<MaxInFlight>,
    on_failure: Option<OnLoopFailure>,
}

impl Default for LoopShape {
    fn default() -> LoopShape {
        LoopShape {
            mode: LoopMode::Sequential,
            max_in_flight: Some(MaxInFlight::Fixed(1)),
            on_failure: None,
        }
    }
}

impl LoopShape {
    fn read(mut f: Fields<'_>, p: &mut Problems) -> LoopShape {
        let mode = f.opt("mode", p);
        let word = mode.map_or(Some("sequential"), |it| it.word(p));
        let parallel = word == Some("parallel");
        let given = f.opt("max_in_flight", p);
        let max_in_flight = match &given {
            Some(field) => limit(field, p),
            None if parallel => Some(MaxInFlight::Fixed(MAX_IN_FLIGHT)),
            None => Some(MaxInFlight::Fixed(1)),
        };
        let pointless = !matches!(max_in_flight, None | Some(MaxInFlight::Fixed(1)));
        if let Some(field) = given.filter(|_| word == Some("sequential") && pointless) {
            p.warn(
                codes::FIELD_UNUSED,
                field.span(),
                "`max_in_flight` means nothing in a sequential loop",
            )
            .help("write `mode: parallel`, or remove it");
        }
        let mut on_failure = None;
        if let Some(mut policy) = f
            .opt("policy", p)
            .and_then(|it| it.known(&fields::LOOP_POLICY, p))
        {
            if let Some(mut failure) = policy
                .opt("failure", p)
                .and_then(|it| it.known(&fields::LOOP_FAILURE_MODE, p))
            {
                let mode = failure.opt("mode", p);
                on_failure = mode.and_then(|it| policy::loop_failure(&it, p));
                failure.finish(p);
            }
            leftover::finish(&policy, "the policy of a loop", p);
        }
        leftover::finish(&f, "the `spec` of a loop", p);
        LoopShape {
            mode: if parallel {
                LoopMode::Parallel
            } else {
                LoopMode::Sequential
            },
            max_in_flight: max_in_flight.filter(|_| word.is_some()),
            on_failure,
        }
    }
}

fn limit(field: &Field<'_>, p: &mut Problems) -> Option<MaxInFlight> {
    if field.node.as_str().is_some() {
        return template::condition(field, p).map(MaxInFlight::Computed);
    }
    let limit = field.whole(p)?;
    Some(MaxInFlight::Fixed(limit as u32))
}
