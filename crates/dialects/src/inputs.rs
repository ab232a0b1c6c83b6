//! Parameters of a start request that the definition neither declares nor reads: most are typing mistakes, and the run
//! would go on with a default.

use std::collections::BTreeSet;

use serde_json::Value as Json;
use stepwell_kernel::plan::{Plan, Work};

use crate::codes;
use crate::problem::{Problem, Severity};
use crate::source::Span;
use crate::tools::templates;
use crate::words::{nearest, quote};

/// A warning for each parameter that nothing declares or reads.
#[must_use]
pub fn unused(plan: &Plan, params: &Json) -> Vec<Problem> {
    let given = params.as_object().into_iter().flatten();
    let Some(read) = parameters_read(plan) else {
        return Vec::new();
    };
    let declared = plan.net().workload.as_object();
    let declared: BTreeSet<&str> = declared
        .into_iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect();
    let known: Vec<&str> = declared
        .iter()
        .copied()
        .chain(read.iter().map(String::as_str))
        .collect();
    let strange = given.filter(|(key, _)| !known.contains(&key.as_str()));
    strange
        .map(|(key, _)| {
            let message = format!("nothing declares or reads the input {}", quote(key));
            let mut problem = Problem::new(
                codes::INPUT_UNUSED,
                Severity::Warning,
                Span::default(),
                message,
            );
            problem.help(match nearest(key, &known) {
                Some(near) => format!("did you mean {}?", quote(near)),
                None if known.is_empty() => "the definition has no inputs; leave it out".to_owned(),
                None => format!("the inputs are {}", crate::words::list(&known)),
            });
            problem
        })
        .collect()
}

/// The parameters that templates read, by their names; none if anything may read all of them.
fn parameters_read(plan: &Plan) -> Option<BTreeSet<String>> {
    // A handler is a program: nobody knows what it looks at.
    let has_handler = plan
        .net()
        .steps
        .iter()
        .any(|step| matches!(step.work, Work::Task { .. }));
    if has_handler {
        return None;
    }
    let mut read = Some(BTreeSet::new());
    templates::each(plan, &mut |_, _, template| {
        for path in template.reads() {
            let mut parts = path.split('.');
            let name = match (parts.next(), parts.next()) {
                (Some("workload" | "params"), Some(key)) => Some(key),
                (Some("workload" | "params"), None) => None,
                (name, _) => name,
            };
            match name {
                Some(name) => {
                    if let Some(read) = &mut read {
                        // The bare name of a step or a variable may be a parameter too.
                        read.insert(name.to_owned());
                    }
                }
                None => read = None,
            }
        }
    });
    read
}
