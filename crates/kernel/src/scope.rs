//! What expressions see: the run's parameters, ctx, step outputs, and at a boundary the event, the
//! outcome and the token's arguments. Values are looked up by name, one at a time, and not copied
//! where they need not be.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};

use crate::event::{Patch, StepError};
use crate::expr::{Scope, Template, TemplateValue};
use crate::keys;
use crate::plan::{CtxReads, EdgeNo, Plan, StepNo, StepRef};
use crate::state::{State, Status};

/// What a step's boundary adds to the run's own values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Boundary {
    /// `step.done`, `step.failed`, `loop.done`; the older names are accepted by the scope.
    pub(crate) event: Option<&'static str>,
    /// The step that has just ended, with the output that is not in the state yet.
    pub(crate) this: Option<(StepNo, Arc<Json>)>,
    /// The error of the step; absent if the step succeeded.
    pub(crate) error: Option<StepError>,
    /// The arguments of the token that started the step.
    pub(crate) args: Option<Arc<Json>>,
    /// Patches of ctx that are decided but not applied.
    pub(crate) patch: Patch,
    /// The item of a loop that begins.
    pub(crate) item: Option<LoopItem>,
}

/// An item of a loop, as `iter.name`, `iter.index` and under its bare name.
#[derive(Clone, Debug)]
pub(crate) struct LoopItem {
    pub(crate) name: String,
    pub(crate) index: u32,
    pub(crate) value: Arc<Json>,
}

impl Boundary {
    /// Whether a name means something at the boundary, whatever the run's own values are.
    pub(crate) fn names(&self, name: &str) -> bool {
        const NAMES: [&str; 7] = [
            "event", "outcome", "output", "error", "args", "input", "iter",
        ];
        NAMES.contains(&name) || self.item.as_ref().is_some_and(|item| item.name == name)
    }
}

/// A view of a run for one evaluation.
pub(crate) struct RunScope<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) state: &'a State,
    pub(crate) boundary: &'a Boundary,
    /// The guard that is evaluated, where it is one.
    pub(crate) guard: Option<&'a Template>,
}

impl Scope for RunScope<'_> {
    fn lookup(&self, name: &str) -> Option<Arc<Json>> {
        let boundary = self.boundary;
        match name {
            "event" => {
                let event = boundary.event?;
                let payload = boundary
                    .this
                    .as_ref()
                    .map_or(Json::Null, |(_, output)| Json::clone(output));
                // Guards in real files use either name for the same boundary.
                let name = self.boundary_name(event);
                Some(Arc::new(
                    json!({ "name": name, "type": name, "payload": payload }),
                ))
            }
            "outcome" | "output" => {
                boundary.event?;
                Some(Arc::new(self.outcome()))
            }
            "error" => boundary
                .error
                .as_ref()
                .map(|error| Arc::new(error_json(error))),
            "iter" => {
                let item = boundary.item.as_ref()?;
                let mut iter = json!({ "index": item.index });
                iter[&item.name] = Json::clone(&item.value);
                Some(Arc::new(iter))
            }
            "args" | "input" => boundary.args.clone().or_else(|| Some(Arc::new(json!({})))),
            "ctx" => {
                let mut ctx = ctx_object(self.state);
                ctx.extend(
                    boundary
                        .patch
                        .iter()
                        .map(|(key, value)| (key.clone(), value.clone())),
                );
                Some(Arc::new(Json::Object(ctx)))
            }
            _ => {
                if let Some(item) = boundary.item.as_ref().filter(|item| item.name == name) {
                    return Some(item.value.clone());
                }
                if let Some((step, output)) = &boundary.this
                    && self.plan.find_in_expression(name) == Some(*step)
                {
                    return Some(step_value(output));
                }
                lookup(self.plan, self.state, name)
            }
        }
    }

    /// A guard reads a few variables of ctx, and a run may have thousands: only what is read is copied.
    fn lookup_keys(&self, name: &str, keys: &[String]) -> Option<Arc<Json>> {
        if name != "ctx" {
            return self.lookup(name);
        }
        let read = keys.iter().filter_map(|key| {
            let patched = self.boundary.patch.get(key).cloned();
            let value = patched.or_else(|| self.state.ctx().get(key).map(|it| Json::clone(it)));
            Some((key.clone(), value?))
        });
        Some(Arc::new(Json::Object(read.collect())))
    }

    fn is_strict(&self) -> bool {
        self.plan.policy().strict_templates
    }
}

impl RunScope<'_> {
    /// The name that the guard, or else any guard of the step, uses for this boundary: files say
    /// `call.done` and `call.error` for `step.done` and `step.failed`.
    fn boundary_name(&self, event: &'static str) -> &'static str {
        let Some((step, _)) = &self.boundary.this else {
            return event;
        };
        let old = match event {
            "step.done" => "call.done",
            "step.failed" => "call.error",
            other => return other,
        };
        let says = |when: &Template| when.source().contains(old);
        let said = match self.guard {
            Some(guard) => says(guard),
            None => {
                let mut edges = self.plan.outgoing(*step).iter();
                edges.any(|edge| self.plan.edge(*edge).when.as_ref().is_some_and(says))
            }
        };
        if said { old } else { event }
    }

    fn outcome(&self) -> Json {
        let data = self
            .boundary
            .this
            .as_ref()
            .map_or(Json::Null, |(_, output)| Json::clone(output));
        match &self.boundary.error {
            Some(error) => {
                json!({ "status": "error", "error": error_json(error), "result": null, "data": null })
            }
            None => json!({ "status": "ok", "result": data.clone(), "data": data }),
        }
    }
}

fn error_json(error: &StepError) -> Json {
    json!({ "kind": error.class.name(), "code": error.code, "message": error.message })
}

/// A value of the run by its name: `workload`, `ctx`, `execution_id`, a step, or a parameter.
pub(crate) fn lookup(plan: &Plan, state: &State, name: &str) -> Option<Arc<Json>> {
    match name {
        "workload" => return Some(state.current_params()),
        "ctx" => return Some(Arc::new(Json::Object(ctx_object(state)))),
        "execution_id" => return Some(Arc::new(json!(keys::execution_id(state.run_id())))),
        "run_id" => return Some(Arc::new(json!(state.run_id()))),
        _ => {}
    }
    if let Some(value) = plan
        .find_in_expression(name)
        .and_then(|step| last_output(plan, state, step))
    {
        return Some(value);
    }
    let param = state.params().last()?.get(name);
    match (name, param) {
        (_, Some(value)) => Some(Arc::new(value.clone())),
        ("job", None) => Some(Arc::new(json!({
            "uuid": state.run_id(),
            "execution_id": keys::execution_id(state.run_id()),
        }))),
        _ => None,
    }
}

fn ctx_object(state: &State) -> Map<String, Json> {
    state
        .ctx()
        .iter()
        .map(|(key, value)| (key.clone(), Json::clone(value)))
        .collect()
}

/// The part of ctx that is read.
pub(crate) fn seen_ctx(state: &State, seen: &CtxReads) -> Arc<Json> {
    let ctx = match seen {
        CtxReads::All => ctx_object(state),
        CtxReads::Keys(keys) => keys
            .iter()
            .filter_map(|key| Some((key.clone(), Json::clone(state.ctx().get(key)?))))
            .collect(),
    };
    match ctx.is_empty() {
        true => Arc::default(),
        false => Arc::new(Json::Object(ctx)),
    }
}

/// The outputs of steps that are read.
pub(crate) fn seen_outputs(
    plan: &Plan,
    state: &State,
    seen: &[StepNo],
) -> Vec<(String, Arc<Json>)> {
    let output = |step: &StepNo| {
        let at = last_success(state, *step)?;
        Some((plan.step(*step).name.clone(), output_of(plan, state, at)))
    };
    seen.iter().filter_map(output).collect()
}

/// The output of a step's latest visit that succeeded, as expressions see it.
pub(crate) fn last_output(plan: &Plan, state: &State, step: StepNo) -> Option<Arc<Json>> {
    let at = last_success(state, step)?;
    Some(step_value(&output_of(plan, state, at)))
}

/// A step's latest visit that succeeded.
fn last_success(state: &State, step: StepNo) -> Option<StepRef> {
    let visits = &state.steps().get(step.0 as usize)?.visits();
    let index = visits
        .iter()
        .rposition(|visit| visit.run().status() == Status::Succeeded)?;
    Some(StepRef {
        step,
        visit: index as u32 + 1,
        item: None,
    })
}

/// What a run returns to the one that started it: the output of the step that is named, else of the
/// last step to succeed with one. A step that the plan does not have returns nothing.
#[must_use]
pub fn run_output(plan: &Plan, state: &State, return_step: Option<&str>) -> Json {
    let named = return_step.map(|name| plan.find(name));
    let wanted = |no: &StepNo| named.is_none_or(|named| named == Some(*no));
    let ended = |no: StepNo| {
        let visits = state.step(no).visits().iter().zip(1..);
        visits.filter_map(move |(visit, number)| {
            let returned = visit.run().output().is_some() || visit.each().is_some();
            let at = StepRef {
                step: no,
                visit: number,
                item: None,
            };
            (visit.run().status() == Status::Succeeded && returned)
                .then_some((visit.run().ended_at(), at))
        })
    };
    let last = plan.numbers().filter(wanted).flat_map(ended).max();
    last.map_or(Json::Null, |(_, at)| {
        Json::clone(&output_of(plan, state, at))
    })
}

/// Whether anything that is evaluated at a step's boundary looks at what the step returned. For a loop
/// that is all its items' outputs, which are not gathered for nobody.
pub(crate) fn output_is_read(plan: &Plan, step: StepNo) -> bool {
    let is_it = |root: &str| {
        matches!(root, "event" | "outcome" | "output")
            || plan.find_in_expression(root) == Some(step)
    };
    let looks = |path: &String| match path.split_once('.') {
        Some(("event", "name" | "type")) => false,
        Some((root, _)) => is_it(root),
        None => is_it(path),
    };
    let patches = |patches: &[(String, TemplateValue)]| {
        patches
            .iter()
            .any(|(_, value)| value.reads().iter().any(looks))
    };
    let edge = |no: &EdgeNo| {
        let edge = plan.edge(*no);
        let admission = plan
            .step(edge.to)
            .admit
            .iter()
            .flat_map(|admit| &admit.rules);
        let rules = admission.filter_map(|rule| rule.when.as_ref());
        edge.when
            .iter()
            .chain(rules)
            .any(|when| when.reads().iter().any(looks))
            || edge
                .args
                .as_ref()
                .is_some_and(|args| args.reads().iter().any(looks))
            || patches(&edge.set_ctx)
    };
    patches(&plan.step(step).set_ctx) || plan.outgoing(step).iter().any(edge)
}

/// What a step-run returned; for a loop the outputs of its items in order, and its errors.
pub(crate) fn output_of(_plan: &Plan, state: &State, at: StepRef) -> Arc<Json> {
    let Some(visit) = state.visit(at) else {
        return Arc::default();
    };
    let Some(each) = visit.each() else {
        return visit.run().output().cloned().unwrap_or_default();
    };
    let outputs = each.outputs();
    let errors: Vec<Json> = each
        .errors()
        .map(|(item, error)| json!({ "index": item, "error": error_json(error) }))
        .collect();
    let mut value = json!({ "count": each.count(), "failed": each.failed(), "errors": errors });
    value["data"] = Json::Array(outputs);
    Arc::new(value)
}

/// A step's output as `{{ step }}`: what it returned, with `data` as another way to reach it.
fn step_value(output: &Arc<Json>) -> Arc<Json> {
    let Some(map) = output.as_object().filter(|map| !map.contains_key("data")) else {
        return output.clone();
    };
    let mut map = map.clone();
    map.insert("data".into(), Json::clone(output));
    Arc::new(Json::Object(map))
}
