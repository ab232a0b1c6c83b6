//! `next`: the arcs out of a step, as `{spec: {mode}, arcs: […]}`, as a list, or as one name.

use serde_json::{Map, Value as Json};
use stepwell_kernel::expr::{Template, TemplateValue};
use stepwell_kernel::plan::Route;

use super::model::{ArcDef, Named};
use super::{fields, step};
use crate::codes;
use crate::field::Field;
use crate::leftover;
use crate::problem::Problems;
use crate::template;
use crate::tools::{Assignments, VarScope};
use crate::tree::Value;

/// Reads `next`: one name, one arc, a list of them, or a router with `spec` and `arcs`.
pub(super) fn read(field: &Field<'_>, p: &mut Problems) -> (Route, Vec<ArcDef>) {
    let mut route = Route::Exclusive;
    let items = match &field.node.value {
        Value::Str(_) => vec![field.clone()],
        Value::Seq(_) => field.list(p).unwrap_or_default(),
        Value::Map(_) if field.node.get("step").is_some() => vec![field.clone()],
        Value::Map(_) | Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) => {
            let Some(mut f) = field.known(&fields::ROUTER, p) else {
                return (route, Vec::new());
            };
            if let Some(mut spec) = f
                .opt("spec", p)
                .and_then(|it| it.known(&fields::ROUTER_SPEC, p))
            {
                let mode = spec.opt("mode", p);
                let word = mode.and_then(|it| it.word(p));
                if word == Some("inclusive") {
                    route = Route::Inclusive;
                }
                leftover::finish(&spec, "`next.spec`", p);
            }
            let arcs = f.req("arcs", p).and_then(|it| it.list(p));
            f.finish(p);
            match arcs {
                Some(arcs) => arcs,
                None => return (route, Vec::new()),
            }
        }
    };
    if items.is_empty() {
        p.warn(codes::NEXT_EMPTY, field.span(), "this step leads nowhere")
            .help("remove `next`: a step without it ends its branch");
    }
    let arcs: Vec<ArcDef> = items.iter().filter_map(|item| arc(item, p)).collect();
    if route == Route::Exclusive {
        unreachable_arcs(&arcs, p);
    }
    (route, arcs)
}

fn unreachable_arcs(arcs: &[ArcDef], p: &mut Problems) {
    let Some(always) = arcs.iter().position(|arc| arc.when.is_none()) else {
        return;
    };
    for arc in &arcs[always + 1..] {
        p.warn(
            codes::ARC_UNREACHABLE,
            arc.to.span,
            "this arc is never taken: one before it always matches",
        )
        .help("put the arc without `when` last, or write `spec: {mode: inclusive}` to take every arc that matches");
    }
}

fn arc(item: &Field<'_>, p: &mut Problems) -> Option<ArcDef> {
    if let Some(name) = item.node.as_str() {
        let to = Named {
            text: name.to_owned(),
            span: item.span(),
        };
        return Some(ArcDef {
            to,
            when: None,
            args: None,
            set_ctx: Vec::new(),
        });
    }
    let mut f = item.known(&fields::ARC, p)?;
    let to = f.req("step", p);
    let when = f.opt("when", p).map(|it| template::condition(&it, p));
    for text in ["desc", "description"] {
        f.opt(text, p).and_then(|it| it.text(p));
    }
    let mut sets = Assignments::default();
    if let Some(field) = f.opt(["args", "input"], p) {
        sets.bare(&field, VarScope::Args, p);
    }
    if let Some(field) = f.opt("set_ctx", p) {
        sets.bare(&field, VarScope::Ctx, p);
    }
    if let Some(field) = f.opt("set", p) {
        sets.scoped(&field, &[VarScope::Ctx, VarScope::Args], p);
    }
    let args = args(&sets);
    let set_ctx = step::patches(&sets, p);
    // A guard under another name would leave an arc that is always taken, so this is strict.
    f.finish(p);
    let to = to?;
    let text = to.string(p)?.to_owned();
    let span = to.span();
    Some(ArcDef {
        to: Named { text, span },
        // A guard that was refused stays a guard, so that the rest of the file is still checked.
        when: match when {
            Some(given) => Some(given.or_else(|| Template::parse("{{ false }}").ok())?),
            None => None,
        },
        args,
        set_ctx,
    })
}

fn args(sets: &Assignments<'_>) -> Option<TemplateValue> {
    let map: Map<String, Json> = sets
        .of(VarScope::Args)
        .map(|(name, node)| (name.to_owned(), node.to_json()))
        .collect();
    if map.is_empty() {
        return None;
    }
    // Every part was checked when it was read.
    TemplateValue::parse(&Json::Object(map)).ok()
}
