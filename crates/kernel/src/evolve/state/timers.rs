//! Timers as a value: which timer is due when. Nothing sleeps here; the engine reads the earliest timer
//! and sends `FireTimer`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::command::{TimerId, TimerKind};
use crate::time::Time;

/// The armed timers of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    armed: BTreeSet<(Time, TimerId)>,
    /// The timers of the run itself; there is at most one of each kind.
    own: BTreeMap<TimerKind, (Time, TimerId)>,
}

impl Timers {
    /// Arms a step-run's timer; the step-run remembers it.
    pub(in crate::evolve) fn arm(&mut self, due: Time, id: TimerId) {
        self.armed.insert((due, id));
    }

    /// Disarms a step-run's timer.
    pub(in crate::evolve) fn disarm(&mut self, due: Time, id: TimerId) {
        self.armed.remove(&(due, id));
    }

    /// Arms the run's own timer of a kind; it replaces an earlier one of this kind.
    pub(in crate::evolve) fn arm_own(&mut self, kind: TimerKind, due: Time, armed: u64) {
        self.disarm_own(kind);
        let id = TimerId {
            kind,
            target: None,
            armed,
        };
        self.own.insert(kind, (due, id));
        self.armed.insert((due, id));
    }

    /// Disarms the run's own timer of a kind.
    pub(in crate::evolve) fn disarm_own(&mut self, kind: TimerKind) {
        if let Some(entry) = self.own.remove(&kind) {
            self.armed.remove(&entry);
        }
    }

    /// Disarms the timers of the run and of all step-runs.
    pub(in crate::evolve) fn clear(&mut self) {
        self.armed.clear();
        self.own.clear();
    }

    /// The run's own timer of this kind, if it is armed.
    #[must_use]
    pub fn own(&self, kind: TimerKind) -> Option<(Time, TimerId)> {
        self.own.get(&kind).copied()
    }

    /// The timer that is due first.
    #[must_use]
    pub fn next(&self) -> Option<(Time, TimerId)> {
        self.armed.first().copied()
    }

    /// All armed timers, the earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (Time, TimerId)> {
        self.armed.iter().copied()
    }
}
