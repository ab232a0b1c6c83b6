//! Ports: what the engine needs from the world beside its store, each a handful of methods.

use std::fmt;
use std::sync::Arc;

use stepwell_kernel::event::RunContext;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

/// Where the time comes from.
pub trait Clock: fmt::Debug + Send + Sync {
    fn now(&self) -> Time;

    /// Milliseconds by a clock that never jumps and goes on while the machine is suspended; where it starts means
    /// nothing. A virtual clock is one.
    fn steady(&self) -> Time {
        self.now()
    }

    /// A clock like this one that follows the clock of a store, which shows `reference` now; none if the time of this
    /// clock is not the store's concern.
    fn following(&self, reference: Time) -> Option<Arc<dyn Clock>> {
        let _ = reference;
        None
    }

    /// The store that this clock follows shows `reference` now.
    fn follow(&self, reference: Time) {
        let _ = reference;
    }

    /// Whether time passes only by `advance_to`. An engine with such a clock never sleeps.
    fn is_virtual(&self) -> bool {
        false
    }

    /// Moves a virtual clock forward to `time`; a clock is never moved back. The machine's clock cannot
    /// be moved.
    fn advance_to(&self, time: Time) {
        let _ = time;
    }
}

/// Finds definitions for child runs.
pub trait Catalog {
    /// The plan that `path` names, as seen from the plan `from`.
    fn find(&self, from: &Plan, path: &str) -> Option<Arc<Plan>>;

    /// The same for a run of a tenant and a project: a catalog may have definitions that belong to one of them.
    fn find_for(
        &self,
        run: &RunContext,
        from: &Plan,
        path: &str,
    ) -> Result<Option<Arc<Plan>>, NoChild> {
        let _ = run;
        Ok(self.find(from, path))
    }
}

/// Why a definition that is there starts no child run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoChild {
    /// It does not now: the child is tried again.
    Later(String),
    /// It does not: the step that wants the child fails.
    Refused {
        /// The stable code of the error.
        code: String,
        why: String,
    },
}

/// A catalog that has nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCatalog;

impl Catalog for NoCatalog {
    fn find(&self, _: &Plan, _: &str) -> Option<Arc<Plan>> {
        None
    }
}
