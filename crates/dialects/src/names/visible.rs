//! Which names the templates of a plan see, as far as the definition says it.

use std::collections::BTreeSet;

use serde_json::{Map, Value as Json};
use stepwell_kernel::plan::{Dialect, Plan, StepNo, Work};

use crate::tools::templates::Evaluated;

/// Names that every template of a running run sees.
const ALWAYS: [&str; 7] = [
    "args",
    "ctx",
    "execution_id",
    "input",
    "job",
    "run_id",
    "workload",
];

/// What the engine adds where it evaluates.
const OF_ENGINE: [&str; 5] = ["error", "event", "iter", "outcome", "output"];

/// What the worker adds.
const OF_WORKER: [&str; 15] = [
    "_attempt",
    "_index",
    "_prev",
    "_task",
    "error",
    "event",
    "execution",
    "iter",
    "keychain",
    "loop_index",
    "outcome",
    "output",
    "result",
    "step",
    "workload",
];

/// Whether a path can have a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Known {
    /// It can, or nobody can tell.
    Yes,
    NoName,
    /// The definition declares its parameters, and this is none of them.
    NoParameter,
    /// No step, arc or task sets this variable of ctx.
    NoVariable,
    /// No input, arc or task gives this argument.
    NoArgument,
    NoSecret,
}

/// What the definition gives names to.
pub(super) struct Visible<'p> {
    plan: &'p Plan,
    steps: Vec<OfStep<'p>>,
    /// What the steps that call the library see, all together.
    library: OfStep<'p>,
    /// The variables of ctx; absent if they cannot be told.
    ctx: Option<BTreeSet<&'p str>>,
    secrets: Option<BTreeSet<&'p str>>,
}

/// What the tasks of a step see by its bare name.
#[derive(Default)]
struct OfStep<'p> {
    /// Arguments: of the step, of the arcs to it, of its tasks.
    arguments: BTreeSet<&'p str>,
    /// Whether a template makes the arguments, so that their names are not known.
    open: bool,
    /// Names of tasks, variables that tasks set, the item of the loop.
    others: BTreeSet<&'p str>,
}

impl<'p> Visible<'p> {
    pub(super) fn of(plan: &'p Plan) -> Visible<'p> {
        let net = plan.net();
        let mut steps: Vec<OfStep<'p>> = plan.numbers().map(|no| of_step(plan, no)).collect();
        let mut library = OfStep::default();
        for entry in net.library.values() {
            library.tasks(entry.get("tasks").unwrap_or(&Json::Null));
        }
        for edge in &net.edges {
            let given = edge.args.as_ref().map(|args| args.keys());
            steps[edge.to.0 as usize]
                .arguments
                .extend(given.into_iter().flatten());
        }
        if let Some(last) = net.policy.final_step {
            // The final step is given a summary.
            steps[last.0 as usize].open = true;
        }
        if !net.library.is_empty() {
            let tasks: Vec<&str> = library.others.iter().copied().collect();
            for step in &mut steps {
                library.arguments.extend(step.arguments.iter());
                library.others.extend(step.others.iter());
                library.open |= step.open;
                step.others.extend(&tasks);
            }
        }
        Visible {
            plan,
            steps,
            library,
            ctx: ctx(plan),
            secrets: secrets(plan),
        }
    }

    pub(super) fn knows(&self, step: Option<StepNo>, by: Evaluated, path: &str) -> Known {
        let mut parts = path.split('.');
        let root = parts.next().unwrap_or_default();
        let key = parts.next();
        let own = self.seen_by(step);
        match (by, root, key) {
            (_, "workload", Some(_)) => self.parameter(path),
            // Nothing but the parameters is there yet, so a bare name is one of them, as of the start request.
            (Evaluated::AsKey, ..) => Known::Yes,
            (Evaluated::AtCreation, "workload" | "run_id" | "execution_id" | "job", _) => {
                Known::Yes
            }
            // Other parameters, also those that only the start request has.
            (Evaluated::AtCreation, ..) => Known::Yes,
            (Evaluated::AtAdmission, "ctx", _) => Known::Yes,
            (_, "ctx", Some(key)) => match &self.ctx {
                Some(keys) if !keys.contains(key) => Known::NoVariable,
                _ => Known::Yes,
            },
            (_, "args" | "input", Some(key)) => {
                let given = own.open || own.arguments.contains(key);
                if given { Known::Yes } else { Known::NoArgument }
            }
            (_, "keychain", Some(key)) if by.is_by_worker() => match &self.secrets {
                Some(names) if !names.contains(key) => Known::NoSecret,
                _ => Known::Yes,
            },
            // Reported with its own words.
            (_, "execution", _) => Known::Yes,
            _ if ALWAYS.contains(&root) => Known::Yes,
            _ if by.is_by_worker() => {
                let worker = OF_WORKER.contains(&root)
                    || own.open
                    || own.arguments.contains(root)
                    || own.others.contains(root);
                if worker { Known::Yes } else { self.named(root) }
            }
            _ if OF_ENGINE.contains(&root) || own.others.contains(root) => Known::Yes,
            _ => self.named(root),
        }
    }

    fn seen_by(&self, step: Option<StepNo>) -> &OfStep<'p> {
        step.map_or(&self.library, |no| &self.steps[no.0 as usize])
    }

    /// A step, or a parameter by its bare name.
    fn named(&self, root: &str) -> Known {
        let is_parameter = self.plan.net().workload.get(root).is_some();
        match is_parameter || self.plan.find_in_expression(root).is_some() {
            true => Known::Yes,
            false => Known::NoName,
        }
    }

    /// Only playbooks declare parameters, and only if they declare any.
    fn parameter(&self, path: &str) -> Known {
        let net = self.plan.net();
        let strict = net.policy.strict_templates;
        let declares = net.workload.as_object().is_some_and(|it| !it.is_empty());
        if net.dialect != Dialect::Playbook || !(declares || strict) {
            return Known::Yes;
        }
        let mut value = &net.workload;
        for key in path.split('.').skip(1) {
            match value.as_object() {
                // Below an empty mapping, a list or a text nobody can tell.
                None => return Known::Yes,
                Some(map) if map.is_empty() && !std::ptr::eq(value, &net.workload) => {
                    return Known::Yes;
                }
                Some(map) => match map.get(key) {
                    Some(below) => value = below,
                    None => return Known::NoParameter,
                },
            }
        }
        Known::Yes
    }

    /// Names that may have been meant by a name that does not exist.
    pub(super) fn names(&self, step: Option<StepNo>) -> Vec<&str> {
        let own = self.seen_by(step);
        let steps = self.plan.net().steps.iter();
        let steps = steps.map(|step| step.name.as_str());
        let parameters = self.plan.net().workload.as_object();
        let parameters = parameters.into_iter().flatten();
        steps
            .chain(parameters.map(|(key, _)| key.as_str()))
            .chain(own.arguments.iter().copied())
            .chain(own.others.iter().copied())
            .chain(ALWAYS)
            .chain(OF_WORKER)
            .collect()
    }

    /// The parameters in the same mapping.
    pub(super) fn parameters_beside(&self, path: &str) -> Vec<&str> {
        let mut value = &self.plan.net().workload;
        for key in path.split('.').skip(1) {
            match value.get(key) {
                Some(below) => value = below,
                None => break,
            }
        }
        let map = value.as_object().into_iter().flatten();
        map.map(|(key, _)| key.as_str()).collect()
    }

    pub(super) fn variables(&self) -> Vec<&str> {
        self.ctx.iter().flatten().copied().collect()
    }

    pub(super) fn arguments(&self, step: Option<StepNo>) -> Vec<&str> {
        self.seen_by(step).arguments.iter().copied().collect()
    }

    pub(super) fn secrets(&self) -> Vec<&str> {
        self.secrets.iter().flatten().copied().collect()
    }
}

impl<'p> OfStep<'p> {
    /// The keys of a mapping; the keys of anything else are not known.
    fn given(&mut self, value: &'p Json) {
        match value {
            Json::Object(map) => self.arguments.extend(map.keys().map(String::as_str)),
            Json::Null => {}
            Json::String(_) | Json::Array(_) | Json::Bool(_) | Json::Number(_) => self.open = true,
        }
    }

    fn tasks(&mut self, tasks: &'p Json) {
        for task in objects(tasks) {
            self.others.extend(task.get("name").and_then(Json::as_str));
            self.given(task.get("args").unwrap_or(&Json::Null));
            for part in std::iter::once(task).chain(rules(task)) {
                let set = part.get("set_step").and_then(Json::as_object);
                self.others
                    .extend(set.into_iter().flatten().map(|(key, _)| key.as_str()));
            }
        }
    }
}

fn of_step(plan: &Plan, no: StepNo) -> OfStep<'_> {
    let step = plan.step(no);
    let mut own = OfStep::default();
    own.others
        .extend(step.each.as_ref().map(|it| it.iterator.as_str()));
    own.given(&step.input);
    if let Work::Pipeline { tasks } = &step.work {
        own.tasks(tasks);
    }
    if let Some(undo) = &step.undo {
        own.given(&undo.input);
        own.tasks(&undo.tasks);
    }
    own
}

fn objects(list: &Json) -> impl Iterator<Item = &Map<String, Json>> {
    let items = list.as_array().into_iter().flatten();
    items.filter_map(Json::as_object)
}

fn rules(task: &Map<String, Json>) -> impl Iterator<Item = &Map<String, Json>> {
    objects(task.get("rules").unwrap_or(&Json::Null))
}

/// The variables of ctx that anything sets. A handler may set any.
fn ctx(plan: &Plan) -> Option<BTreeSet<&str>> {
    let net = plan.net();
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    let arcs = net.edges.iter().flat_map(|edge| &edge.set_ctx);
    let steps = net.steps.iter().flat_map(|step| &step.set_ctx);
    keys.extend(arcs.chain(steps).map(|(key, _)| key.as_str()));
    let mut lists: Vec<&Json> = Vec::new();
    for step in &net.steps {
        match &step.work {
            Work::Pipeline { tasks } => lists.push(tasks),
            Work::Task { .. } => return None,
            Work::Wait(_) | Work::Child(_) => {}
        }
        lists.extend(step.undo.iter().map(|undo| &undo.tasks));
    }
    lists.extend(net.library.values().filter_map(|it| it.get("tasks")));
    for task in lists.into_iter().flat_map(objects) {
        for part in std::iter::once(task).chain(rules(task)) {
            match part.get("set_ctx") {
                None => {}
                Some(Json::Object(map)) => keys.extend(map.keys().map(String::as_str)),
                Some(_) => return None,
            }
        }
    }
    Some(keys)
}

/// The entries of the keychain. Only playbooks have one.
fn secrets(plan: &Plan) -> Option<BTreeSet<&str>> {
    let net = plan.net();
    let entries = net.extra.get("keychain").unwrap_or(&Json::Null);
    let names = objects(entries).filter_map(|entry| entry.get("name").and_then(Json::as_str));
    Some(names.collect())
}
