//! What of a large output stays in the log: what the file asks for, and what the plan's own expressions
//! read, since they see the log and nothing else.

use stepwell_kernel::expr::{Template, TemplateValue};
use stepwell_kernel::plan::{Plan, StepNo, Work};

use crate::artifacts::RetainedPaths;

/// Nothing stays.
pub(crate) fn nothing() -> RetainedPaths {
    RetainedPaths::default()
}

/// Of the output of a step.
pub(crate) fn of<'a>(
    plan: &Plan,
    step: StepNo,
    select: impl Iterator<Item = &'a String>,
) -> RetainedPaths {
    let mut keep = RetainedPaths::default();
    for path in select {
        add(&mut keep, path);
    }
    let is_it = |root: &str| plan.find_in_expression(root) == Some(step);
    let mut see = |path: &str, at_end: bool| {
        let Some((root, rest)) = path.split_once('.') else {
            return;
        };
        let rest = match root {
            "outcome" if at_end => rest
                .strip_prefix("result.")
                .or_else(|| rest.strip_prefix("data.")),
            "output" if at_end => rest
                .strip_prefix("data.")
                .or_else(|| rest.strip_prefix("result.")),
            "event" if at_end => rest.strip_prefix("payload."),
            _ if is_it(root) => Some(rest),
            _ => None,
        };
        if let Some(rest) = rest {
            add(&mut keep, rest);
            if let Some(inner) = rest.strip_prefix("data.") {
                add(&mut keep, inner);
            }
        }
    };
    for edge in plan.net().edges.iter() {
        let at_end = edge.from == step;
        templates(edge.when.iter(), &mut |path| see(path, at_end));
        let set = edge.set_ctx.iter().map(|(_, value)| value);
        values(edge.args.iter().chain(set), &mut |path| see(path, at_end));
    }
    for (at, other) in plan.net().steps.iter().enumerate() {
        let at_end = at == step.0 as usize;
        let set = other.set_ctx.iter().map(|(_, value)| value);
        values(set, &mut |path| see(path, at_end));
        values(other.each.iter().map(|each| &each.items), &mut |path| {
            see(path, false)
        });
        let rules = other.admit.iter().flat_map(|admit| &admit.rules);
        templates(rules.filter_map(|rule| rule.when.as_ref()), &mut |path| {
            see(path, false)
        });
        if let Work::Child(child) = &other.work {
            values([&child.input].into_iter(), &mut |path| see(path, false));
        }
    }
    keep
}

fn add(keep: &mut RetainedPaths, path: &str) {
    let path: Vec<String> = path.split('.').map(str::to_owned).collect();
    if !keep.paths.contains(&path) {
        keep.paths.push(path);
    }
}

fn templates<'a>(all: impl Iterator<Item = &'a Template>, see: &mut dyn FnMut(&str)) {
    all.flat_map(|it| it.reads().iter())
        .for_each(|path| see(path));
}

fn values<'a>(all: impl Iterator<Item = &'a TemplateValue>, see: &mut dyn FnMut(&str)) {
    all.flat_map(|it| it.reads()).for_each(|path| see(&path));
}
