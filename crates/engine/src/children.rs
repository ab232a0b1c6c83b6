//! Runs that start runs: a child is started once per key, told what its parent is told, and its end is
//! told to its parent.

use serde_json::Value as Json;
use stepwell_kernel::command::Command;
use stepwell_kernel::effect::Outcome;
use stepwell_kernel::event::{Parent, Rollback, StepError};
use stepwell_kernel::plan::{ErrorClass, StepRef, Work};
use stepwell_kernel::run_output;

use crate::engine::{Ask, Engine, Live, engine_actor};
use crate::port::{Catalog, Clock, Store};
use crate::start::{StartRequest, run_id_for};

/// How deep runs may start runs: a definition that calls itself for ever ends here.
pub const MAX_CHILD_DEPTH: usize = 16;

impl<S: Store, C: Clock, F: Catalog> Engine<S, C, F> {
    pub(crate) fn start_child(
        &mut self,
        run_id: &str,
        step: StepRef,
        request_key: String,
        input: Json,
    ) {
        if self.children.contains_key(&request_key) {
            return;
        }
        let Some(live) = self.runs.get(run_id) else {
            return;
        };
        let Work::Child(spec) = &live.plan.step(step.step).work else {
            return;
        };
        if self.depth(run_id) >= MAX_CHILD_DEPTH {
            let message = format!(
                "runs may start runs {MAX_CHILD_DEPTH} deep; {:?} would be one more",
                spec.path
            );
            let error = StepError::new(ErrorClass::Validation, "CHILD_TOO_DEEP", message);
            let end = Command::ChildEnded {
                step,
                request_key,
                outcome: Outcome::Failed(Rollback::None),
                output: Json::Null,
                error: Some(error),
            };
            self.messages.push_back((run_id.to_owned(), end));
            return;
        }
        let Some(plan) = self.catalog.find(&live.plan, &spec.path) else {
            let path = spec.path.clone();
            self.asks.push_back((
                run_id.to_owned(),
                Ask::MissingChild {
                    step,
                    request_key,
                    path,
                },
            ));
            return;
        };
        let parent = Parent {
            run_id: run_id.to_owned(),
            step_id: live.plan.step_id(step),
        };
        let context = live.state.context.clone();
        let child = run_id_for(&request_key);
        self.children.insert(request_key, child.clone());
        if !self.store.events(&child, 0).is_empty() {
            // It was started before a crash.
            let _ = self.load(&plan, &child);
            return;
        }
        let request = StartRequest {
            run_id: child,
            params: input,
            context,
            parent: Some(parent),
            ..StartRequest::default()
        };
        let _ = self.trigger(&plan, request);
    }

    /// How many runs are above this one.
    pub(crate) fn depth(&self, run_id: &str) -> usize {
        let above = |id: &&str| {
            let parent = self.runs.get(*id)?.state.parent.as_ref()?;
            Some(parent.run_id.as_str())
        };
        std::iter::successors(Some(run_id), above).count() - 1
    }

    /// Passes a pause or its end on. The signal's id follows from the pause, so that a child that was
    /// told before a crash is not told twice; the end of a pause is only for children that were paused
    /// by it.
    pub(crate) fn signal_children(&mut self, run_id: &str, signal: &str) {
        let pause = self.runs.get(run_id).map_or(0, |live| live.state.pauses);
        let id = |signal: &str| format!("parent-{signal}-{pause}");
        let prefix = format!("{run_id}|");
        let open = self.children.range(prefix.clone()..);
        for (_, child) in open.take_while(|(key, _)| key.starts_with(&prefix)) {
            let paused = |live: &Live| live.state.signals.contains_key(&id("PAUSE"));
            if signal == "RESUME" && !self.runs.get(child).is_some_and(paused) {
                continue;
            }
            let command = Command::Signal {
                signal_id: id(signal),
                signal: signal.to_owned(),
                payload: Json::Null,
                reason: None,
                actor: engine_actor(),
            };
            self.messages.push_back((child.clone(), command));
        }
    }

    pub(crate) fn ended(&mut self, run_id: &str, outcome: Outcome) {
        self.running.remove(run_id);
        self.tasks.retain(|task| task.run_id != run_id);
        let Some(live) = self.runs.get(run_id) else {
            return;
        };
        let request_key = self
            .children
            .iter()
            .find(|(_, child)| *child == run_id)
            .map(|(key, _)| key.clone());
        if let (Some(parent), Some(request_key)) = (&live.state.parent, request_key) {
            let output = self.output_for_parent(live, parent);
            let step = self
                .runs
                .get(&parent.run_id)
                .and_then(|live| live.plan.parse_step_id(&parent.step_id));
            if let Some(step) = step {
                let error = live.state.error.clone();
                let end = Command::ChildEnded {
                    step,
                    request_key,
                    outcome,
                    output,
                    error,
                };
                self.messages.push_back((parent.run_id.clone(), end));
            }
        }
        self.dequeue_and_start();
    }

    /// What a child returns to the step that waits for it.
    pub(crate) fn output_for_parent(&self, live: &Live, parent: &Parent) -> Json {
        let asked = self.runs.get(&parent.run_id).and_then(|parent_run| {
            let at = parent_run.plan.parse_step_id(&parent.step_id)?;
            match &parent_run.plan.step(at.step).work {
                Work::Child(spec) => spec.return_step.as_deref(),
                _ => None,
            }
        });
        run_output(&live.plan, &live.state, asked)
    }
}
