//! Follows the logs of a run and its children, event by event.
//!
//! A commit may hold several events; folding them here one at a time shows the state after each,
//! so that a line about an event speaks of that moment and not of what came after.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use stepwell_kernel::event::{Event, Parent};
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

use super::RunEngine;

/// A run as far as it was followed.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) plan: Arc<Plan>,
    pub(super) state: State,
    /// The steps that lead to a child: `pay/`; empty for the run itself.
    pub(super) prefix: String,
}

/// The runs that are followed.
#[derive(Debug, Default)]
pub(super) struct Follower {
    runs: BTreeMap<String, Followed>,
}

impl Follower {
    /// Tells `sink` every event that is new, each with its run as it is right after it.
    pub(super) fn pull(
        &mut self,
        engine: &RunEngine,
        sink: &mut dyn FnMut(&Followed, &Event) -> io::Result<()>,
    ) -> io::Result<()> {
        for (run_id, live) in engine.runs() {
            if !self.runs.contains_key(run_id) {
                let followed = Followed {
                    plan: live.plan.clone(),
                    state: State::new(run_id.clone(), &live.plan),
                    prefix: prefix(engine, live.state.parent.as_ref()),
                };
                self.runs.insert(run_id.clone(), followed);
            }
            let Some(followed) = self.runs.get_mut(run_id) else {
                continue;
            };
            if live.state.seq <= followed.state.seq {
                continue;
            }
            for event in engine.events(run_id, followed.state.seq) {
                evolve(&followed.plan, &mut followed.state, &event, &mut Vec::new());
                sink(followed, &event)?;
            }
        }
        Ok(())
    }
}

/// The steps that lead to a run: `order/pay/`.
fn prefix(engine: &RunEngine, parent: Option<&Parent>) -> String {
    let mut prefix = String::new();
    let mut above = parent;
    // As deep as runs can be, and no deeper whatever the log says.
    for _ in 0..=stepwell_engine::engine::MAX_CHILD_DEPTH {
        let Some(parent) = above else { break };
        prefix = format!("{}/{prefix}", parent.step_id);
        above = engine
            .run(&parent.run_id)
            .and_then(|live| live.state.parent.as_ref());
    }
    prefix
}
