//! The numbered statements, one module a specification, from a definition in its own language to the
//! last event of its runs.

mod a;
mod d;
mod l;
mod loops;
mod p;

use stepwell_dialects::{load, problem::render};
use stepwell_kernel::plan::Plan;

use crate::source;
use crate::support::Sim;

/// The plan of a definition that must load without problems.
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

/// A run of a definition that does not exist yet. Warnings are allowed: some statements are about
/// what they warn of.
#[track_caller]
fn defined(text: &str) -> Sim {
    let source = source(text);
    let loaded = load(&source);
    let Some(plan) = loaded.plan else {
        panic!("{}", render(&source, &loaded.problems, false));
    };
    Sim::new(plan.net().clone())
}

/// A run of a definition that has started.
#[track_caller]
fn started(text: &str) -> Sim {
    let mut sim = defined(text);
    sim.start().expect("the run starts");
    sim
}
