//! Notices about the run: signals, events and changes from outside, and what the engine noticed.

use std::sync::Arc;

use super::lawful::{Why, in_force, known, moving, need, not_stopping};
use super::{Fold, MISPLACED};
use crate::codes;
use crate::command::TimerKind;
use crate::effect::Priority;
use crate::event::{Body, outcome_events, run_events, step_events, undo_events};
use crate::plan::Plan;
use crate::signal::SignalKind;
use crate::state::{KeptEvent, State};

/// How many signal times are remembered: one more than a minute allows, so the limit can be seen.
const SIGNAL_TIMES: usize = 64;

/// Whether an event of this group can follow the state.
pub(super) fn check(plan: &Plan, state: &State, body: &Body) -> Result<(), Why> {
    let phase = state.phase;
    match body {
        Body::SignalAccepted { signal_id, .. } | Body::SignalRejected { signal_id, .. } => {
            let known = state.signals.contains_key(signal_id);
            need(!known, "the signal was decided already")
        }
        Body::CtxPatched { .. } => moving(phase),
        Body::ParamsUpdated { .. } => not_stopping(phase),
        Body::OverrideInjected { step, .. } | Body::TargetUpdated { step, .. } => {
            known(plan, *step)?;
            not_stopping(phase)
        }
        Body::EventReceived { event_id, .. } => {
            let seen = state.seen_events.contains(event_id);
            need(!seen, "the event was received already")
        }
        Body::PauseDrainTimedOut { ordinal, .. } => in_force(state, *ordinal),
        Body::RunStalled { .. } => {
            moving(phase)?;
            need(state.stalled.is_none(), "the run is stalled already")
        }
        run_events!() | step_events!() | outcome_events!() | undo_events!() | Body::Opaque(_) => {
            Err(MISPLACED)
        }
    }
}

impl Fold<'_> {
    pub(super) fn apply_notice(&mut self, body: &Body) -> Result<(), Why> {
        match body {
            Body::SignalAccepted {
                signal_id,
                signal,
                payload,
                by,
                ..
            } => {
                self.remember_signal(signal_id, None);
                self.announce_signal(signal, payload, by);
            }
            Body::SignalRejected {
                signal_id, code, ..
            } => self.remember_signal(signal_id, Some(code.clone())),
            Body::CtxPatched { ctx, .. } => self.patch_ctx(ctx),
            Body::ParamsUpdated { params } => self.state.params.push(params.clone()),
            Body::OverrideInjected { step, value } => {
                self.state.overrides.insert(*step, value.clone());
            }
            Body::TargetUpdated { step, target } => {
                self.state.targets.insert(*step, target.clone());
            }
            Body::EventReceived {
                event_id,
                event_type,
                payload,
            } => {
                self.state.seen_events.insert(event_id.clone());
                self.state.inbox.push_back(KeptEvent {
                    id: event_id.clone(),
                    event_type: event_type.clone(),
                    payload: Arc::clone(payload),
                });
            }
            Body::PauseDrainTimedOut { in_flight, .. } => {
                let pause = self.state.pause.as_mut();
                pause.ok_or("this pause is not in force")?.drain_timed_out = true;
                self.state.timers.disarm_own(TimerKind::Drain);
                self.alert(
                    codes::PAUSE_DRAIN_TIMEOUT,
                    Priority::P2,
                    format!(
                        "{in_flight} executions are still in flight after the pause's drain timeout"
                    ),
                );
            }
            Body::RunStalled { stuck, deadline } => {
                self.state.stalled = Some(stuck.clone());
                self.state
                    .timers
                    .arm_own(TimerKind::Stall, *deadline, self.seq);
            }
            run_events!()
            | step_events!()
            | outcome_events!()
            | undo_events!()
            | Body::Opaque(_) => {
                return Err(MISPLACED);
            }
        }
        Ok(())
    }

    fn remember_signal(&mut self, id: &str, refused: Option<String>) {
        self.state.signals.insert(id.to_owned(), refused);
        self.state.signal_times.push_back(self.at);
        while self.state.signal_times.len() > SIGNAL_TIMES {
            self.state.signal_times.pop_front();
        }
    }

    /// Signals that change what was planned, or that ask for it, tell an operator.
    fn announce_signal(&mut self, signal: &str, payload: &serde_json::Value, by: &str) {
        let Some(kind) = SignalKind::from_name(signal) else {
            return;
        };
        if kind.is_destructive() {
            let message = format!("{signal} was sent by {by}");
            self.alert(codes::DESTRUCTIVE_SIGNAL, Priority::P1, message);
        }
        if kind == SignalKind::EscalateAlert {
            let field = |name: &str| {
                payload
                    .get(name)
                    .and_then(|value| value.as_str())
                    .unwrap_or_default()
            };
            let priority = match field("level") {
                "P1" | "CRITICAL" => Priority::P1,
                "WARNING" => Priority::P2,
                _ => Priority::P3,
            };
            self.alert(
                codes::ESCALATED,
                priority,
                format!("{by}: {}", field("note")),
            );
        }
    }
}
