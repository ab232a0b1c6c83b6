//! Time: what is due is read off the states of the runs, so no timer can be lost.

use stepwell_kernel::command::{Command, TimerKind};
use stepwell_kernel::decide::next_wake;
use stepwell_kernel::state::{Phase, State};
use stepwell_kernel::time::Time;

use crate::engine::Engine;
use crate::port::{Catalog, Clock, Store};

impl<S: Store, C: Clock, F: Catalog> Engine<S, C, F> {
    /// Fires everything that is due. Says whether anything was.
    pub fn fire_due(&mut self) -> bool {
        let now = self.now();
        let due: Vec<_> = self
            .runs
            .iter()
            .filter(|(_, live)| next_wake(&live.state).is_some_and(|wake| wake <= now))
            .map(|(id, live)| {
                (
                    id.clone(),
                    live.state.timers.next(),
                    live.state.phase,
                    live.state.pause.is_some(),
                )
            })
            .collect();
        let mut fired = false;
        for (run_id, timer, phase, paused) in due {
            fired |= match (phase, timer) {
                (Phase::Created | Phase::Queued, _) => !self.dequeue_and_start().is_empty(),
                (_, Some((_, id))) if !paused => {
                    self.submit(&run_id, Command::FireTimer(id)).is_ok()
                }
                (_, _) => {
                    let drain = self
                        .runs
                        .get(&run_id)
                        .and_then(|live| live.state.timers.own(TimerKind::Drain));
                    drain
                        .is_some_and(|(_, id)| self.submit(&run_id, Command::FireTimer(id)).is_ok())
                }
            };
        }
        fired
    }

    /// When something happens next by itself.
    pub fn next_wake(&self) -> Option<Time> {
        let now = self.now();
        // A run whose start time has passed waits for a slot or an approval, not for time.
        let waits = |state: &State| matches!(state.phase, Phase::Created | Phase::Queued);
        let timers = self
            .runs
            .values()
            .filter_map(|live| {
                next_wake(&live.state).filter(|wake| *wake > now || !waits(&live.state))
            })
            .min();
        let task = self.tasks.first().map(|task| task.visible_at);
        timers.into_iter().chain(task).min()
    }
}
