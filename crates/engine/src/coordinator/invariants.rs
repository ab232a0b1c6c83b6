//! Broken invariants: states that the code of the coordinator rules out. A test or the simulator stops at
//! once (`debug_assert`); in production the place is logged, the run is left as its log has it, and an
//! alert with the code `ENGINE_INVARIANT` is written, so that the bug is seen. Lawful situations are never
//! reported here: they are branches with a comment.

use std::collections::{BTreeSet, VecDeque};

use stepwell_kernel::codes::ENGINE_INVARIANT;
use stepwell_kernel::effect::Priority;
use stepwell_kernel::rejection::Code;
use stepwell_kernel::time::Time;

use super::Notices;
use super::notices::Notice;
use crate::error::Error;
use crate::store::{NewAlert, RunNo, Store, StoreError};

/// Alerts that wait for the store, at most; a bug that repeats must not fill the memory.
const MAX_WAITING: usize = 64;

/// Invariants that were found broken and are not written as alerts yet.
#[derive(Debug, Default)]
pub(super) struct Invariants {
    waiting: VecDeque<(RunNo, NewAlert)>,
    /// Runs that were reported because they cannot be served: such a run is looked at again and again.
    invalid: BTreeSet<RunNo>,
}

impl Invariants {
    /// Reports a state that cannot be. `what` says which invariant of which run does not hold.
    pub(super) fn broken(&mut self, run: RunNo, what: &str) {
        debug_assert!(false, "{ENGINE_INVARIANT}: run {}: {what}", run.0);
        let message = format!("{what}; the run's log is unharmed; this is a bug to report");
        self.report(run, ENGINE_INVARIANT, message);
    }

    /// Reports a run whose log cannot be folded, once. The run is not served.
    pub(super) fn log_invalid(&mut self, run: RunNo, error: &Error) {
        if self.is_first(run) {
            let message = match matches!(error, Error::Newer { .. }) {
                true => error.to_string(),
                false => format!("{error}; the run is not served until its log is repaired"),
            };
            let code = error.code().unwrap_or(Code::LogInvalid.name());
            self.report(run, code, message);
        }
    }

    /// Reports a decision that cannot be written, once for a run. The sender of the command is refused.
    pub(super) fn dropped(&mut self, run: RunNo, error: &Error) {
        if self.is_first(run) {
            let message = format!(
                "a decision could not be written and was dropped: {error}; the run's log is unharmed; this is a \
                 bug to report"
            );
            self.report(run, ENGINE_INVARIANT, message);
        }
    }

    /// Whether nothing was reported yet of a run that cannot be served.
    fn is_first(&mut self, run: RunNo) -> bool {
        self.waiting.len() < MAX_WAITING && self.invalid.insert(run)
    }

    fn report(&mut self, run: RunNo, code: &str, message: String) {
        tracing::error!(run = run.0, code, "{message}");
        if self.waiting.len() < MAX_WAITING {
            let alert = NewAlert {
                code: code.to_owned(),
                priority: Priority::P1,
                message,
            };
            self.waiting.push_back((run, alert));
        }
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
