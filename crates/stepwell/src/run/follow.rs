//! Follows the logs of a run and its children, event by event.
//!
//! A commit may hold several events; folding them here one at a time shows the state after each,
//! so that a line about an event speaks of that moment and not of what came after.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use stepwell_engine::coordinator::HotRun;
use stepwell_kernel::contract::Recorder;
use stepwell_kernel::event::{Body, Event, Parent, WaitKind};
use stepwell_kernel::evolve::evolve;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

use super::RunEngine;

/// A run as far as it was followed.
#[derive(Debug)]
pub(super) struct Followed {
    pub(super) plan: Arc<Plan>,
    pub(super) state: State,
    /// The run's log as records, as far as it was followed.
    pub(super) recorder: Recorder,
    /// The steps that lead to a child: `pay/`; empty for the run itself.
    pub(super) prefix: String,
}

/// The runs that are followed: one and those below it.
#[derive(Debug)]
pub(super) struct Follower {
    root: String,
    runs: BTreeMap<String, Followed>,
}

/// A run and those below it that are in memory. Others may be there too, which are not our business.
pub(super) fn family<'e>(engine: &'e RunEngine, root: &str) -> Vec<&'e HotRun> {
    let belongs = |live: &HotRun| {
        let mut at = Some(live);
        for _ in 0..=stepwell_engine::MAX_CHILD_DEPTH {
            let Some(live) = at else { break };
            if *live.run_id == *root {
                return true;
            }
            at = live
                .state
                .parent
                .as_ref()
                .and_then(|parent| engine.run(&parent.run_id));
        }
        false
    };
    let runs = engine.runs().into_iter().map(|(_, live)| live);
    runs.filter(|live| belongs(live)).collect()
}

/// Who is told an event, together with its run as it is right after it.
type Sink<'s> = dyn FnMut(&mut Followed, &Event) -> io::Result<()> + 's;

impl Follower {
    pub(super) fn new(root: &str) -> Follower {
        Follower {
            root: root.to_owned(),
            runs: BTreeMap::new(),
        }
    }

    /// Tells `sink` every event that is new. Each run's in their order; a child's between the
    /// event that started it and the one that took its end.
    pub(super) fn pull(&mut self, engine: &RunEngine, sink: &mut Sink<'_>) -> io::Result<()> {
        let mut fresh: BTreeMap<String, Vec<Event>> = BTreeMap::new();
        let mut known: Vec<(usize, String)> = Vec::new();
        for live in family(engine, &self.root) {
            let run_id = &*live.run_id;
            let seen = self.runs.get(run_id).map_or(0, |run| run.state.seq);
            if live.state.seq <= seen {
                continue;
            }
            fresh.insert(
                run_id.to_owned(),
                engine.events(run_id, seen).map_err(io::Error::other)?,
            );
            if let Some(run) = self.runs.get(run_id) {
                known.push((run.prefix.matches('/').count(), run_id.to_owned()));
            }
        }
        // The deepest first: its end is what moves those above it.
        known.sort_by(|one, other| other.cmp(one));
        for (_, run_id) in known {
            self.tell(engine, &run_id, &mut fresh, sink)?;
        }
        let root = self.root.clone();
        self.tell(engine, &root, &mut fresh, sink)?;
        while let Some(run_id) = fresh.keys().next().cloned() {
            self.tell(engine, &run_id, &mut fresh, sink)?;
        }
        Ok(())
    }

    fn tell(
        &mut self,
        engine: &RunEngine,
        run_id: &str,
        fresh: &mut BTreeMap<String, Vec<Event>>,
        sink: &mut Sink<'_>,
    ) -> io::Result<()> {
        let Some((events, live)) = fresh.remove(run_id).zip(engine.run(run_id)) else {
            return Ok(());
        };
        self.runs
            .entry(run_id.to_owned())
            .or_insert_with(|| Followed {
                plan: live.plan.clone(),
                state: State::new(run_id, &live.plan),
                recorder: Recorder::new(run_id),
                prefix: prefix(engine, live.state.parent.as_ref()),
            });
        for event in events {
            if let Some(run) = self.runs.get_mut(run_id) {
                evolve(&run.plan, &mut run.state, &event, &mut Vec::new());
                sink(run, &event)?;
            }
            let Body::StepWaiting {
                step,
                wait: WaitKind::Child { .. },
                ..
            } = event.body
            else {
                continue;
            };
            let parent = Parent {
                run_id: run_id.to_owned(),
                step_id: live.plan.step_id(step),
            };
            let is_child = |id: &&String| {
                let live = engine.run(id);
                live.is_some_and(|live| live.state.parent.as_ref() == Some(&parent))
            };
            let children: Vec<String> = fresh.keys().filter(is_child).cloned().collect();
            for child in children {
                self.tell(engine, &child, fresh, sink)?;
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
    for _ in 0..=stepwell_engine::MAX_CHILD_DEPTH {
        let Some(parent) = above else { break };
        prefix = format!("{}/{prefix}", parent.step_id);
        above = engine
            .run(&parent.run_id)
            .and_then(|live| live.state.parent.as_ref());
    }
    prefix
}
