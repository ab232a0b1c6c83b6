//! Broken invariants: states that the code of the coordinator rules out. A test or the simulator stops at
//! once (`debug_assert`); in production the place is logged, the run is left as its log has it, and an
//! alert with the code `ENGINE_INVARIANT` is written, so that the bug is seen. Lawful situations are never
//! reported here: they are branches with a comment.

use std::collections::{BTreeSet, VecDeque};

use stepwell_kernel::effect::Priority;
use stepwell_kernel::time::Time;

use super::Notices;
use super::notices::Notice;
use crate::error::Error;
use crate::store::{NewAlert, RunNo, Store, StoreError};

/// The alert for a state that cannot be.
pub const ENGINE_INVARIANT: &str = "ENGINE_INVARIANT";

/// The alert for a run whose log has an event that cannot follow those before it.
pub(super) const LOG_INVALID: &str = "LOG_INVALID";

/// Alerts that wait for the store, at most; a bug that repeats must not fill the memory.
const MAX_WAITING: usize = 64;

/// Invariants that were found broken and are not written as alerts yet.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    waiting: VecDeque<(RunNo, NewAlert)>,
    /// Runs whose log is invalid and was reported: a run that is not served is looked at again and again.
    invalid: BTreeSet<RunNo>,
}

impl Invariants {
    /// Reports a state that cannot be. `what` says which invariant of which run does not hold.
    pub(super) fn broken(&mut self, run: RunNo, what: &str) {
        tracing::error!(run = run.0, code = ENGINE_INVARIANT, "{what}");
        debug_assert!(false, "{ENGINE_INVARIANT}: run {}: {what}", run.0);
        if self.waiting.len() < MAX_WAITING {
            let alert = NewAlert {
                code: ENGINE_INVARIANT.to_owned(),
                priority: Priority::P1,
                message: format!("{what}; the run's log is unharmed; this is a bug to report"),
            };
            self.waiting.push_back((run, alert));
        }
    }

    /// Reports a run whose log cannot be folded, once. The run is not served.
    pub(super) fn log_invalid(&mut self, run: RunNo, error: &Error) {
        if self.waiting.len() >= MAX_WAITING || !self.invalid.insert(run) {
            return;
        }
        tracing::error!(run = run.0, code = LOG_INVALID, "{error}");
        let alert = NewAlert {
            code: LOG_INVALID.to_owned(),
            priority: Priority::P1,
            message: format!("{error}; the run is not served until its log is repaired"),
        };
        self.waiting.push_back((run, alert));
    }

    /// Whether an alert waits for the store.
    pub(super) fn are_broken(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Writes the alerts. An alert that the store does not take stays for the next time.
    pub(super) fn write(
        &mut self,
        store: &dyn Store,
        notices: &mut Notices,
        now: Time,
    ) -> Result<(), StoreError> {
        while let Some((run, alert)) = self.waiting.front() {
            store.alert(Some(*run), alert, now)?;
            if let Some((run, alert)) = self.waiting.pop_front() {
                notices.push(Notice::Alert(run, alert));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(
        debug_assertions,
        should_panic(expected = "ENGINE_INVARIANT: run 3: it has two")
    )]
    fn a_broken_invariant_stops_tests_and_alerts_in_production() {
        let store = crate::store::MemoryStore::default();
        let (mut invariants, mut notices) = (Invariants::default(), Notices::default());
        invariants.broken(RunNo(3), "it has two");
        assert!(invariants.are_broken());
        invariants.write(&store, &mut notices, Time(5)).unwrap();
        assert!(!invariants.are_broken());
        assert_eq!(notices.drain().count(), 1);
    }
}
