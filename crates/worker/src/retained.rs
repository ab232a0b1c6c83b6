//! Which parts of a large output stay in the log: the parts that the definition asks for, and the parts that
//! expressions of the plan read, because expressions see only the log. What the expressions of a plan read is gathered
//! once for all its steps: looking through a plan for each of its steps would take the square of its length.

use std::collections::{HashMap, HashSet};

use stepwell_kernel::expr::{Template, TemplateValue};
use stepwell_kernel::plan::{Plan, StepNo, Work};

use crate::artifacts::RetainedPaths;

/// No part of the value stays in the log.
pub(crate) fn nothing() -> RetainedPaths {
    RetainedPaths::default()
}

/// What the expressions of a plan read of the outputs of its steps.
#[derive(Debug, Default)]
pub(crate) struct OutputReads {
    of_step: HashMap<StepNo, Vec<String>>,
}

impl OutputReads {
    /// Reads all expressions of a plan, the edges first, both in the order of the plan.
    pub(crate) fn of(plan: &Plan) -> OutputReads {
        let mut gathered = Gathered {
            plan,
            seen: HashSet::new(),
            reads: OutputReads::default(),
        };
        each_read(plan, &mut |path, at_end| gathered.see(path, at_end));
        gathered.reads
    }

    /// The parts of the output of a step that stay in the log; those that the definition selects go first.
    pub(crate) fn retained<'a>(
        &'a self,
        step: StepNo,
        select: impl Iterator<Item = &'a String>,
    ) -> RetainedPaths {
        let read = self.of_step.get(&step).into_iter().flatten();
        let mut seen = HashSet::new();
        let paths = select.map(String::as_str).chain(read.map(String::as_str));
        let paths = paths.filter(|path| seen.insert(*path));
        RetainedPaths {
            paths: paths
                .map(|path| path.split('.').map(str::to_owned).collect())
                .collect(),
        }
    }
}

/// The parts of a parameter that stay in the log: those that expressions read, as `workload.NAME.…` or as `NAME.…`.
pub(crate) fn of_parameter(plan: &Plan, name: &str) -> RetainedPaths {
    let mut paths: Vec<Vec<String>> = Vec::new();
    each_read(plan, &mut |path, _| {
        let mut parts = path.split('.').map(str::to_owned).peekable();
        parts.next_if(|root| root == "workload" || root == "params");
        let is_it = parts.next().is_some_and(|root| root == name);
        let rest: Vec<String> = parts.collect();
        if is_it && !rest.is_empty() && !paths.contains(&rest) {
            paths.push(rest);
        }
    });
    RetainedPaths { paths }
}

/// Every path that an expression of the engine reads, with the step whose end evaluates the expression, if one does: the
/// edges first, both in the order of the plan.
fn each_read(plan: &Plan, see: &mut dyn FnMut(&str, Option<StepNo>)) {
    fn templates<'a>(
        all: impl Iterator<Item = &'a Template>,
        at_end: Option<StepNo>,
        see: &mut dyn FnMut(&str, Option<StepNo>),
    ) {
        all.flat_map(|it| it.reads().iter())
            .for_each(|path| see(path, at_end));
    }
    fn values<'a>(
        all: impl Iterator<Item = &'a TemplateValue>,
        at_end: Option<StepNo>,
        see: &mut dyn FnMut(&str, Option<StepNo>),
    ) {
        all.flat_map(|it| it.reads())
            .for_each(|path| see(&path, at_end));
    }
    for edge in plan.net().edges.iter() {
        let at_end = Some(edge.from);
        templates(edge.when.iter(), at_end, see);
        let set = edge.set_ctx.iter().map(|(_, value)| value);
        values(edge.args.iter().chain(set), at_end, see);
    }
    for (no, step) in plan.numbers().zip(plan.net().steps.iter()) {
        let set = step.set_ctx.iter().map(|(_, value)| value);
        values(set, Some(no), see);
        values(step.outbound.iter(), None, see);
        values(step.each.iter().map(|each| &each.items), None, see);
        let rules = step.admit.iter().flat_map(|admit| &admit.rules);
        templates(rules.filter_map(|rule| rule.when.as_ref()), None, see);
        if let Work::Child(child) = &step.work {
            values([&child.input].into_iter(), None, see);
        }
    }
}

/// What was gathered so far.
struct Gathered<'p> {
    plan: &'p Plan,
    seen: HashSet<(StepNo, String)>,
    reads: OutputReads,
}

impl Gathered<'_> {
    /// A path that an expression reads; `at_end` is the step whose end evaluates the expression, if one does.
    fn see(&mut self, path: &str, at_end: Option<StepNo>) {
        let Some((root, rest)) = path.split_once('.') else {
            return;
        };
        let of_ended = match root {
            "outcome" => Some(["result.", "data."].as_slice()),
            "output" => Some(["data.", "result."].as_slice()),
            "event" => Some(["payload."].as_slice()),
            _ => None,
        };
        let ended = at_end.zip(of_ended);
        if let Some((step, prefixes)) = ended {
            let rest = prefixes.iter().find_map(|it| rest.strip_prefix(it));
            self.read(step, rest);
        }
        let named = self.plan.find_in_expression(root);
        // At the end of a step that is called `output`, `output` is what the step came to.
        if let Some(step) = named.filter(|step| ended.map(|(step, _)| step) != Some(*step)) {
            self.read(step, Some(rest));
        }
    }

    fn read(&mut self, step: StepNo, part: Option<&str>) {
        let Some(part) = part else {
            return;
        };
        self.add(step, part);
        if let Some(inner) = part.strip_prefix("data.") {
            self.add(step, inner);
        }
    }

    fn add(&mut self, step: StepNo, part: &str) {
        if self.seen.insert((step, part.to_owned())) {
            let parts = self.reads.of_step.entry(step).or_default();
            parts.push(part.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value as Json, json};
    use stepwell_kernel::plan::{
        Admission, AdmitRule, ChildSpec, Dialect, Edge, Loop, LoopMode, MaxInFlight, Net, OnDenied,
        OnLoopFailure, RunPolicy, SourceRef, Step,
    };

    use super::*;

    /// The definition, step by step: every expression of the plan is asked what it reads of this one step.
    fn defined(plan: &Plan, step: StepNo, select: &[String]) -> RetainedPaths {
        let mut keep = RetainedPaths::default();
        let mut add = |path: &str| {
            let path: Vec<String> = path.split('.').map(str::to_owned).collect();
            if !keep.paths.contains(&path) {
                keep.paths.push(path);
            }
        };
        select.iter().for_each(|path| add(path));
        let mut see = |path: &str, at_end: bool| {
            let Some((root, rest)) = path.split_once('.') else {
                return;
            };
            let either = |first, second| {
                let of = |prefix| rest.strip_prefix(prefix);
                of(first).or_else(|| of(second))
            };
            let rest = match root {
                "outcome" if at_end => either("result.", "data."),
                "output" if at_end => either("data.", "result."),
                "event" if at_end => rest.strip_prefix("payload."),
                _ if plan.find_in_expression(root) == Some(step) => Some(rest),
                _ => None,
            };
            if let Some(rest) = rest {
                add(rest);
                rest.strip_prefix("data.").into_iter().for_each(&mut add);
            }
        };
        let values = |all: &[&TemplateValue]| -> Vec<String> {
            all.iter().flat_map(|it| it.reads()).collect()
        };
        for edge in plan.net().edges.iter() {
            let at_end = edge.from == step;
            let when = edge.when.iter().flat_map(|it| it.reads().iter().cloned());
            let set = edge.set_ctx.iter().map(|(_, value)| value);
            let others: Vec<&TemplateValue> = edge.args.iter().chain(set).collect();
            when.chain(values(&others))
                .for_each(|path| see(&path, at_end));
        }
        for (no, other) in plan.numbers().zip(plan.net().steps.iter()) {
            let set: Vec<&TemplateValue> = other.set_ctx.iter().map(|(_, value)| value).collect();
            let at_end = no == step;
            values(&set).iter().for_each(|path| see(path, at_end));
            let items: Vec<&TemplateValue> = other.each.iter().map(|each| &each.items).collect();
            values(&items).iter().for_each(|path| see(path, false));
            let rules = other.admit.iter().flat_map(|admit| &admit.rules);
            for when in rules.filter_map(|rule| rule.when.as_ref()) {
                when.reads().iter().for_each(|path| see(path, false));
            }
            if let Work::Child(child) = &other.work {
                values(&[&child.input])
                    .iter()
                    .for_each(|path| see(path, false));
            }
        }
        keep
    }

    /// Names of steps, two of them names that expressions have for something else as well.
    const NAMES: [&str; 6] = ["a", "b-c", "output", "event", "load.all", "z"];
    /// Roots of paths, as expressions say them.
    const ROOTS: [&str; 9] = [
        "a", "b_c", "output", "event", "load_all", "z", "outcome", "ctx", "unknown",
    ];
    const PARTS: [&str; 7] = [
        "data.rows",
        "result.rows.id",
        "payload.x",
        "x",
        "data",
        "name",
        "data.data.x",
    ];

    fn any_template() -> impl Strategy<Value = String> {
        let path = (
            prop::sample::select(&ROOTS[..]),
            prop::option::of(0..PARTS.len()),
        );
        prop::collection::vec(path, 1..4).prop_map(|paths| {
            let paths = paths.iter().map(|(root, part)| match part {
                Some(part) => format!("{root}.{}", PARTS[*part]),
                None => (*root).to_owned(),
            });
            format!("{{{{ {} }}}}", paths.collect::<Vec<_>>().join(" ~ "))
        })
    }

    fn template(text: &str) -> Template {
        Template::parse(text).unwrap()
    }

    fn value(json: &Json) -> TemplateValue {
        TemplateValue::parse(json).unwrap()
    }

    /// Every place of a step that has expressions.
    fn any_step(name: &'static str) -> impl Strategy<Value = Step> {
        let maybe = || prop::option::weighted(0.4, any_template());
        (maybe(), maybe(), maybe(), maybe()).prop_map(move |(set, items, admit, child)| {
            let work = match child {
                Some(text) => Work::Child(ChildSpec {
                    path: "p".to_owned(),
                    return_step: None,
                    input: value(&json!({ "x": text })),
                }),
                None => Work::Pipeline { tasks: json!([]) },
            };
            let mut step = Step::new(name, work);
            step.set_ctx
                .extend(set.map(|text| ("k".to_owned(), value(&json!([text])))));
            step.each = items.map(|text| Loop {
                items: value(&json!(text)),
                iterator: "item".to_owned(),
                mode: LoopMode::Parallel,
                max_in_flight: MaxInFlight::Fixed(2),
                on_failure: OnLoopFailure::Fail,
            });
            step.admit = admit.map(|text| Admission {
                rules: vec![AdmitRule {
                    when: Some(template(&text)),
                    allow: true,
                }],
                denied: OnDenied::Pending,
            });
            step
        })
    }

    fn any_edge() -> impl Strategy<Value = Edge> {
        let maybe = || prop::option::weighted(0.5, any_template());
        let end = || 0..NAMES.len() as u32;
        (end(), end(), maybe(), maybe(), maybe()).prop_map(|(from, to, when, args, set)| {
            let mut edge = Edge::plain(StepNo(from), StepNo(to));
            edge.when = when.map(|text| template(&text));
            edge.args = args.map(|text| value(&json!({ "x": text })));
            edge.set_ctx
                .extend(set.map(|text| ("k".to_owned(), value(&json!(text)))));
            edge
        })
    }

    fn any_plan() -> impl Strategy<Value = Plan> {
        let steps: Vec<_> = NAMES.iter().map(|name| any_step(name)).collect();
        let edges = prop::collection::vec(any_edge(), 0..8);
        (steps, edges).prop_map(|(steps, edges)| {
            Plan::new(Net {
                dialect: Dialect::Playbook,
                plan_id: "p".to_owned(),
                plan_version: "1".to_owned(),
                schema_version: "v1".to_owned(),
                source: SourceRef::default(),
                workload: Json::Null,
                steps,
                edges,
                policy: RunPolicy::default(),
                library: Default::default(),
                extra: Json::Null,
            })
            .unwrap()
        })
    }

    proptest! {
        #[test]
        fn what_is_gathered_once_is_what_each_step_asks_for(
            plan in any_plan(),
            select in prop::collection::vec(prop::sample::select(&PARTS[..]), 0..3),
        ) {
            let select: Vec<String> = select.into_iter().map(str::to_owned).collect();
            let reads = OutputReads::of(&plan);
            for step in plan.numbers() {
                let gathered = reads.retained(step, select.iter());
                prop_assert_eq!(gathered, defined(&plan, step, &select));
            }
        }
    }
}
