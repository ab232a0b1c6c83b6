//! `--fail` rules, checked against the steps that there are: a misspelt one would fail nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use stepwell_dialects::words::{list, nearest, quote};
use stepwell_engine::MAX_CHILD_DEPTH;
use stepwell_engine::mock::FailRule;
use stepwell_engine::port::Catalog;
use stepwell_kernel::plan::{Plan, Work};

use crate::usage;
use stepwell::files::Files;

/// Most names that a message lists.
const LISTED: usize = 12;

pub(super) fn read(texts: &[String], plan: &Arc<Plan>, catalog: &Files) -> Result<Vec<FailRule>> {
    let mut rules = Vec::with_capacity(texts.len());
    if texts.is_empty() {
        return Ok(rules);
    }
    let plans = reachable(plan, catalog);
    for text in texts {
        let rule: FailRule = match text.parse() {
            Ok(rule) => rule,
            Err(error) => return usage(format!("--fail {error}")),
        };
        let known = |plan: &Arc<Plan>| plan.parse_step_id(&rule.step).is_some();
        if !plans.iter().any(known) {
            return usage(unknown(&rule.step, &plans));
        }
        rules.push(rule);
    }
    Ok(rules)
}

/// The plan and those of its children, as far as they are found.
fn reachable(plan: &Arc<Plan>, catalog: &Files) -> Vec<Arc<Plan>> {
    let mut seen: BTreeSet<String> = BTreeSet::from([plan.hash().to_owned()]);
    let mut found = vec![plan.clone()];
    let mut edge = vec![plan.clone()];
    for _ in 0..MAX_CHILD_DEPTH {
        let mut next = Vec::new();
        for plan in &edge {
            for step in &plan.net().steps {
                if let Work::Child(child) = &step.work
                    && let Some(child) = catalog.find(plan, &child.path)
                    && seen.insert(child.hash().to_owned())
                {
                    next.push(child);
                }
            }
        }
        found.extend(next.iter().cloned());
        edge = next;
    }
    found
}

fn unknown(step: &str, plans: &[Arc<Plan>]) -> String {
    let steps = plans.iter().flat_map(|plan| &plan.net().steps);
    let names: Vec<&str> = steps.map(|step| step.name.as_str()).collect();
    let hint = match nearest(step, &names) {
        Some(near) => format!("did you mean {}?", quote(near)),
        None if names.len() <= LISTED => format!("there are {}", list(&names)),
        None => format!("there are {} and others", list(&names[..LISTED])),
    };
    format!("--fail: there is no step {}; {hint}", quote(step))
}
