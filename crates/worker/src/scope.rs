//! What the templates of a pipeline see: the run's parameters and ctx, what other steps returned, the
//! loop's item, the token's arguments, and what the tasks before have done.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value as Json, json};
use stepwell_dialects::tools::execution_fields;
use stepwell_kernel::command::Claimed;
use stepwell_kernel::effect::Target;
use stepwell_kernel::expr::Scope;
use stepwell_kernel::keys;
use stepwell_kernel::plan::Plan;

use crate::fence::{self, ExecutionRef};
use crate::tool::TaskContext;

/// What stays the same while a step-run is worked on.
#[derive(Debug)]
pub(crate) struct StepInputs {
    run_id: Arc<str>,
    step_id: Arc<str>,
    execution: u32,
    /// Attempts of the step, this one included.
    attempt: u32,
    fence: u64,
    /// The idempotency key of the step or undo.
    idempotency_key: Arc<str>,
    /// The work is an undo, whose tasks all have its key.
    is_undo: bool,
    pub(crate) params: Arc<Json>,
    pub(crate) ctx: Arc<Json>,
    outputs: Vec<Returned>,
    /// The loop's item under its name, and its place.
    item: Option<(String, Arc<Json>, u32)>,
    pub(crate) payload: Option<Arc<Json>>,
    /// Secrets that the templates name.
    pub(crate) keychain: Arc<Json>,
}

impl StepInputs {
    pub(crate) fn new(cx: &TaskContext, plan: &Plan, claimed: &Claimed) -> StepInputs {
        let at = claimed.claim.target.step_ref();
        let step = plan.step(claimed.step);
        let name = step.each.as_ref().map(|each| each.iterator.clone());
        let item = at.item.zip(name).map(|(index, name)| {
            (
                name,
                Arc::new(claimed.item.clone().unwrap_or_default()),
                index,
            )
        });
        StepInputs {
            run_id: Arc::clone(&cx.run_id),
            step_id: Arc::clone(&cx.step_id),
            execution: cx.execution,
            attempt: cx.attempt,
            fence: cx.fence,
            idempotency_key: Arc::clone(&cx.idempotency_key),
            is_undo: matches!(claimed.claim.target, Target::Undo(_)),
            params: Arc::clone(&claimed.params),
            ctx: Arc::clone(&claimed.ctx),
            outputs: outputs(plan, claimed),
            item,
            payload: claimed.payload.clone(),
            keychain: Arc::default(),
        }
    }

    /// Every value that may be a reference to something kept elsewhere.
    pub(crate) fn referable(&mut self) -> impl Iterator<Item = &mut Arc<Json>> {
        let item = self.item.iter_mut().map(|(_, value, _)| value);
        let outputs = self.outputs.iter_mut().map(|it| &mut it.value);
        let others = [&mut self.ctx, &mut self.params];
        outputs.chain(item).chain(&mut self.payload).chain(others)
    }
}

/// What other steps returned. What a loop came to is also there as `stats`, as some files read it.
fn outputs(plan: &Plan, claimed: &Claimed) -> Vec<Returned> {
    let mut outputs: Vec<Returned> = claimed.outputs.iter().map(Returned::new).collect();
    for returned in &mut outputs {
        let step = plan.find(&returned.step).map(|no| plan.step(no));
        if step.is_some_and(|step| step.each.is_some()) {
            with_stats(Arc::make_mut(&mut returned.value));
        }
    }
    outputs
}

fn with_stats(output: &mut Json) {
    let number = |key: &str| output.get(key).and_then(Json::as_u64);
    if let (Some(total), Some(failed)) = (number("count"), number("failed")) {
        let success = total.saturating_sub(failed);
        output["stats"] = json!({ "total": total, "failed": failed, "success": success });
    }
}

/// What a step returned.
#[derive(Debug)]
struct Returned {
    step: String,
    value: Arc<Json>,
    /// The same as templates see it, made when the first one looks.
    seen: OnceLock<Arc<Json>>,
}

impl Returned {
    fn new((step, value): &(String, Arc<Json>)) -> Returned {
        Returned {
            step: step.clone(),
            value: Arc::clone(value),
            seen: OnceLock::new(),
        }
    }

    fn seen(&self) -> Arc<Json> {
        let seen = self.seen.get_or_init(|| {
            match self.value.get("data").is_some() && !is_answer(&self.value) {
                true => Arc::clone(&self.value),
                false => Arc::new(with_data(Json::clone(&self.value))),
            }
        });
        Arc::clone(seen)
    }
}

/// Values that the tasks have set and returned so far. They survive a wait in the memo of the step.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct TaskVars {
    /// Changes of ctx. They reach the run when the step ends.
    pub(crate) ctx: Map<String, Json>,
    /// Variables of this iteration of the loop.
    pub(crate) iter: Map<String, Json>,
    /// Variables of this step, for the tasks that follow.
    pub(crate) step: Map<String, Json>,
    /// The results of the tasks, by task name.
    pub(crate) results: Map<String, Json>,
    /// The result of the last task.
    pub(crate) prev: Json,
}

/// What one template sees.
pub(crate) struct ScopeView<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) fixed: &'a StepInputs,
    pub(crate) vars: &'a TaskVars,
    pub(crate) args: &'a Map<String, Json>,
    pub(crate) task: &'a str,
    /// Which attempt of the task inside this execution, from 1.
    pub(crate) attempt: u32,
    /// The place of the task, and which visit it is; absent for parts of the step that stand outside its tasks.
    pub(crate) place: Option<(usize, u32)>,
    /// The result of the task, after it has ended.
    pub(crate) outcome: Option<&'a Json>,
}

impl ScopeView<'_> {
    fn iter(&self) -> Json {
        let mut iter = self.vars.iter.clone();
        if let Some((name, value, index)) = &self.fixed.item {
            iter.entry("index").or_insert_with(|| json!(index));
            iter.entry(name.clone())
                .or_insert_with(|| Json::clone(value));
        }
        Json::Object(iter)
    }

    fn ctx(&self) -> Json {
        let mut ctx = self.fixed.ctx.as_object().cloned().unwrap_or_default();
        ctx.extend(self.vars.ctx.clone());
        Json::Object(ctx)
    }

    fn own(&self, name: &str) -> Option<Json> {
        Some(match name {
            "ctx" => self.ctx(),
            "iter" => self.iter(),
            "args" | "input" => Json::Object(self.args.clone()),
            "outcome" | "output" => self.outcome?.clone(),
            "error" => self.outcome?.get("error")?.clone(),
            "event" => json!({ "payload": self.fixed.payload.as_deref()? }),
            "_prev" => self.vars.prev.clone(),
            "_task" => json!(self.task),
            "_attempt" => json!(self.attempt),
            "loop_index" | "_index" => json!(self.fixed.item.as_ref()?.2),
            "execution_id" => json!(keys::execution_id(&self.fixed.run_id)),
            "run_id" => json!(&*self.fixed.run_id),
            _ => return None,
        })
    }

    /// Which execution asks: the value of `execution`.
    fn execution(&self) -> Json {
        let fixed = self.fixed;
        let own_key = self
            .place
            .map(|place| fence::task_key(&fixed.idempotency_key, self.task, place));
        let task_key = own_key.as_deref().unwrap_or(&fixed.idempotency_key);
        let execution = ExecutionRef {
            run_id: &fixed.run_id,
            step_id: &fixed.step_id,
            execution: fixed.execution,
            attempt: fixed.attempt - 1 + self.attempt,
            idempotency_key: match fixed.is_undo {
                true => &fixed.idempotency_key,
                false => task_key,
            },
            task_key,
            fence: fixed.fence,
        };
        execution.in_templates()
    }

    /// Names that mean something only if nothing of the playbook is called so.
    fn soft(&self, name: &str) -> Option<Json> {
        Some(match name {
            "result" => self.outcome?.get("result")?.clone(),
            "step" => Json::Object(self.vars.step.clone()),
            "job" => json!({
                "uuid": &*self.fixed.run_id,
                "execution_id": keys::execution_id(&self.fixed.run_id),
            }),
            _ => return None,
        })
    }
}

impl Scope for ScopeView<'_> {
    fn lookup(&self, name: &str) -> Option<Arc<Json>> {
        match name {
            "workload" => return Some(Arc::clone(&self.fixed.params)),
            "keychain" => return Some(Arc::clone(&self.fixed.keychain)),
            _ => {}
        }
        if let Some(value) = self.own(name) {
            return Some(Arc::new(value));
        }
        if let Some((item, value, _)) = &self.fixed.item
            && item == name
        {
            return Some(Arc::clone(value));
        }
        if let Some(value) = self.vars.step.get(name) {
            return Some(Arc::new(value.clone()));
        }
        if let Some(value) = self.vars.results.get(name) {
            return Some(Arc::new(with_data(value.clone())));
        }
        let meant = self.plan.find_in_expression(name);
        let meant = meant.map(|step| self.plan.step(step).name.as_str());
        let mut outputs = self.fixed.outputs.iter();
        if let Some(returned) = outputs.find(|it| Some(it.step.as_str()) == meant) {
            return Some(returned.seen());
        }
        // The input of a run cannot take the place of a fence, unless the definition has such a parameter.
        if name == execution_fields::ROOT && self.plan.net().workload.get(name).is_none() {
            let own = self.args.get(name).cloned();
            return Some(Arc::new(own.unwrap_or_else(|| self.execution())));
        }
        let param = self.fixed.params.get(name);
        let value = param.or_else(|| self.args.get(name)).cloned();
        value.or_else(|| self.soft(name)).map(Arc::new)
    }

    fn is_strict(&self) -> bool {
        self.plan.policy().strict_templates
    }
}

/// Whether a result is an answer over HTTP.
fn is_answer(value: &Json) -> bool {
    let map = value.as_object();
    map.is_some_and(|map| map.len() == 2 && map.contains_key("status_code"))
}

/// What a task or step returned, with `data` as another way to reach it, and `body` for the body of an
/// answer over HTTP.
fn with_data(mut value: Json) -> Json {
    if is_answer(&value) {
        let body = value["data"].clone();
        value["body"] = body;
        return value;
    }
    if let Json::Object(map) = &mut value
        && !map.contains_key("data")
    {
        let data = Json::Object(map.clone());
        map.insert("data".to_owned(), data);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_body_of_an_answer_has_two_names() {
        let answer = with_data(json!({ "status_code": 200, "data": { "page": 1 } }));
        assert_eq!(answer["body"], answer["data"]);
        let other = with_data(json!({ "page": 1 }));
        assert_eq!(other, json!({ "page": 1, "data": { "page": 1 } }));
    }

    #[test]
    fn what_a_loop_came_to_is_counted_in_one_place() {
        let mut output =
            json!({ "count": 5, "failed": 1, "errors": [], "data": [1, 2, 3, null, 5] });
        with_stats(&mut output);
        let expected = json!({ "total": 5, "failed": 1, "success": 4 });
        assert_eq!(output["stats"], expected);
    }
}
