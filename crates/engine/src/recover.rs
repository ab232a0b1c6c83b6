//! After a crash: a run is read back from its log, and whatever it had asked of the outside is asked
//! for again. Nothing here decides anything; what was asked is derived from the state.

use std::sync::Arc;

use stepwell_kernel::effect::Effect;
use stepwell_kernel::event::WaitKind;
use stepwell_kernel::explain::{WakeSource, wake_sources};
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::Phase;

use crate::engine::{Engine, Error, Live};
use crate::port::{Catalog, Clock, Store};

impl<S: Store, C: Clock, F: Catalog> Engine<S, C, F> {
    /// The store, which is all that outlives an engine.
    pub fn into_store(self) -> S {
        self.store
    }

    /// Reads a run back from the store, with the children that it waits for.
    pub fn load(&mut self, plan: &Arc<Plan>, run_id: &str) -> Result<(), Error> {
        let events = self.store.events(run_id, 0);
        if events.is_empty() {
            return Err(Error::UnknownRun(run_id.to_owned()));
        }
        let live = Live::replayed(plan, run_id, &events)?;
        let (phase, child) = (live.state.phase, live.state.parent.is_some());
        let effects = asked(&live);
        self.runs.insert(run_id.to_owned(), live);
        match phase {
            // Its parent may not have been told.
            Phase::Ended(outcome) => self.perform(run_id, Effect::RunEnded(outcome)),
            Phase::Created | Phase::Queued => {
                self.queue.push_back(run_id.to_owned());
                self.dequeue_and_start();
            }
            _ if !child => {
                self.running.insert(run_id.to_owned());
            }
            _ => {}
        }
        for effect in effects {
            self.perform(run_id, effect);
        }
        self.deliver_messages();
        Ok(())
    }
}

/// What a run has asked for and not been given yet. Work in flight is not among it: its lease ends.
fn asked(live: &Live) -> Vec<Effect> {
    let stops = live.state.phase == Phase::Stopping;
    let mut effects = Vec::new();
    for source in wake_sources(&live.plan, &live.state) {
        match source {
            WakeSource::Task {
                target,
                visible_at,
                task,
            } => effects.push(Effect::Dispatch {
                target,
                visible_at,
                task,
            }),
            WakeSource::Outside {
                step,
                wait: WaitKind::Gate | WaitKind::Approval | WaitKind::Manual,
            } => {
                let execution = live.state.run(step).map_or(0, |run| run.execution);
                effects.push(Effect::IssueToken { step, execution });
            }
            WakeSource::Child { step, request_key } => {
                let wait = live.state.run(step).and_then(|run| run.wait.as_deref());
                if let Some(WaitKind::Child { input, .. }) = wait.map(|wait| &wait.kind) {
                    effects.push(Effect::StartChild {
                        step,
                        request_key: request_key.clone(),
                        input: input.clone(),
                    });
                }
                if stops {
                    effects.push(Effect::CancelChild { step, request_key });
                }
            }
            WakeSource::Lease { target, .. } if stops => {
                let execution = live.state.target(target).map_or(0, |run| run.execution);
                effects.push(Effect::CancelWork { target, execution });
            }
            _ => {}
        }
    }
    // The children may not have been told of the last pause, or of its end.
    effects.push(if live.state.pause.is_some() {
        Effect::PauseChildren
    } else {
        Effect::ResumeChildren
    });
    // A decision may have been cut short; where nothing follows, this does nothing.
    effects.push(Effect::Proceed);
    effects
}
