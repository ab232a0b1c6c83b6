//! The numbered statements, one module a specification, each test starting from a definition in the
//! language itself.

mod a;
mod l;

use stepwell_dialects::{load, problem::render};
use stepwell_kernel::plan::Plan;

use crate::source;
use crate::support::Sim;

/// The plan of a definition that must load without a word.
fn plan(text: &str) -> Plan {
    let source = source(text);
    let loaded = load(&source);
    assert!(
        loaded.problems.is_empty(),
        "{}",
        render(&source, &loaded.problems, false)
    );
    loaded.plan.expect("no problem, so a plan")
}

impl Sim {
    /// A run of this definition that does not exist yet.
    fn load(text: &str) -> Sim {
        Sim::new(plan(text).net().clone())
    }

    /// A run of this definition that has started.
    fn start_of(text: &str) -> Sim {
        Sim::started(plan(text).net().clone())
    }
}
