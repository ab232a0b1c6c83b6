//! Which of the run's values the work of a step looks at, so that a claim carries these and no others.

use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::net::{Net, Step, StepNo, Work};
use crate::expr::{Template, has_template};

/// The values of the run that the work of one step reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// The steps whose output the work reads.
    pub steps: Vec<StepNo>,
    pub ctx: CtxReads,
}

/// The variables of ctx that the work of a step reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CtxReads {
    /// Every variable: the work is a program, so nobody knows what it reads.
    All,
    Keys(Vec<String>),
}

impl Default for CtxReads {
    fn default() -> CtxReads {
        CtxReads::Keys(Vec::new())
    }
}

/// The values that the work and the undo of each step read.
pub(super) fn of_all(net: &Net, find: impl Fn(&str) -> Option<StepNo>) -> Vec<Reads> {
    // Read once, not for each step: both may be long.
    let mut library = BTreeSet::new();
    net.library
        .values()
        .for_each(|it| collect(it, &mut library));
    let steps = net.steps.iter();
    steps.map(|step| of(step, &library, &find)).collect()
}

fn of(step: &Step, library: &BTreeSet<String>, find: &impl Fn(&str) -> Option<StepNo>) -> Reads {
    let mut paths = BTreeSet::new();
    let mut all_ctx = false;
    collect(&step.input, &mut paths);
    match &step.work {
        Work::Pipeline { tasks } => {
            collect(tasks, &mut paths);
            // A task of the library sees what the step sees that calls it.
            paths.extend(library.iter().cloned());
        }
        Work::Task { config, .. } => {
            collect(config, &mut paths);
            // A handler is a program: nobody knows what it looks at.
            all_ctx = true;
        }
        Work::Wait(_) | Work::Child(_) => {}
    }
    if let Some(undo) = &step.undo {
        collect(&undo.input, &mut paths);
        collect(&undo.tasks, &mut paths);
    }
    let mut reads = Reads::default();
    let mut keys = Vec::new();
    for path in &paths {
        let (root, rest) = match path.split_once('.') {
            Some((root, rest)) => (root, Some(rest)),
            None => (path.as_str(), None),
        };
        match rest {
            Some(rest) if root == "ctx" => {
                keys.push(rest.split('.').next().unwrap_or(rest).to_owned());
            }
            None if root == "ctx" => all_ctx = true,
            _ => reads.steps.extend(find(root)),
        }
    }
    keys.dedup();
    reads.steps.dedup();
    reads.ctx = match all_ctx {
        true => CtxReads::All,
        false => CtxReads::Keys(keys),
    };
    reads
}

/// The paths that the templates in a value read. What is no template reads nothing.
fn collect(value: &Json, paths: &mut BTreeSet<String>) {
    match value {
        Json::String(text) if has_template(text) => {
            if let Ok(template) = Template::parse(text) {
                paths.extend(template.reads().iter().cloned());
            }
        }
        Json::Array(items) => items.iter().for_each(|item| collect(item, paths)),
        Json::Object(map) => map.values().for_each(|item| collect(item, paths)),
        Json::Null | Json::Bool(_) | Json::Number(_) | Json::String(_) => {}
    }
}
