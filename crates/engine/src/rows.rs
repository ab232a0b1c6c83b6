//! How targets are named in the rows beside the log, and who does their work. Nothing is decided here.
//! Tasks and waits are in `coordinator::hot_run`.

use stepwell_kernel::effect::Target;
use stepwell_kernel::plan::{Plan, Work};

/// The queue of steps that the built-in worker does.
pub const BUILT_IN: &str = "stepwell";

/// What a target's row is called: the step's id, with `~undo` for its undo.
#[must_use]
pub fn target_name(plan: &Plan, target: Target) -> String {
    let id = plan.step_id(target.step_ref());
    match target {
        Target::Step(_) => id,
        Target::Undo(_) => id + "~undo",
    }
}

/// The target that a row's name stands for.
#[must_use]
pub fn parse_target(plan: &Plan, name: &str) -> Option<Target> {
    match name.strip_suffix("~undo") {
        Some(id) => plan.parse_step_id(id).map(Target::Undo),
        None => plan.parse_step_id(name).map(Target::Step),
    }
}

/// Which workers do a target's work, and as what.
#[must_use]
pub fn served_by(plan: &Plan, target: Target) -> (&str, &str) {
    let step = plan.step(target.step_ref().step);
    match (target, &step.work, &step.undo) {
        (Target::Undo(_), _, Some(undo)) if undo.tasks.is_null() => (&undo.queue, &undo.operation),
        (Target::Undo(_), _, _) => (BUILT_IN, "pipeline"),
        (
            Target::Step(_),
            Work::Task {
                queue, operation, ..
            },
            _,
        ) => (queue, operation),
        (Target::Step(_), _, _) => (BUILT_IN, "pipeline"),
    }
}
