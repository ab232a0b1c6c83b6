//! Timers as a value: what is due when. Nothing sleeps here; the engine reads the earliest and sends
//! `FireTimer`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::command::{TimerId, TimerKind};
use crate::time::Time;

/// The armed timers of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timers {
    armed: BTreeSet<(Time, TimerId)>,
    /// The run's own, of which there is at most one a kind.
    own: BTreeMap<TimerKind, (Time, TimerId)>,
}

impl Timers {
    /// Arms a step-run's timer; the step-run remembers it.
    pub fn arm(&mut self, due: Time, id: TimerId) {
        self.armed.insert((due, id));
    }

    /// Disarms a step-run's timer.
    pub fn disarm(&mut self, due: Time, id: TimerId) {
        self.armed.remove(&(due, id));
    }

    /// Arms the run's own timer of a kind, instead of the one before.
    pub fn arm_own(&mut self, kind: TimerKind, due: Time, armed: u64) {
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
    pub fn disarm_own(&mut self, kind: TimerKind) {
        if let Some(entry) = self.own.remove(&kind) {
            self.armed.remove(&entry);
        }
    }

    /// Disarms everything.
    pub fn clear(&mut self) {
        self.armed.clear();
        self.own.clear();
    }

    /// The run's own timer of a kind.
    #[must_use]
    pub fn own(&self, kind: TimerKind) -> Option<(Time, TimerId)> {
        self.own.get(&kind).copied()
    }

    /// The earliest.
    #[must_use]
    pub fn next(&self) -> Option<(Time, TimerId)> {
        self.armed.first().copied()
    }

    /// All, earliest first.
    pub fn iter(&self) -> impl Iterator<Item = (Time, TimerId)> {
        self.armed.iter().copied()
    }
}
