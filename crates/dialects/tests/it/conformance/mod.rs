//! The numbered statements, from a definition in its own language to the last event of its runs.

mod d;
mod loops;
mod p;

use stepwell_dialects::load;
use stepwell_dialects::problem::render;

use crate::source;
use crate::support::Sim;

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
