//! Ports: what the engine needs from the world, each a handful of methods.

use std::sync::Arc;

use stepwell_kernel::event::Event;
use stepwell_kernel::keys::EventKey;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

/// Where the time comes from.
pub trait Clock {
    /// The time.
    fn now(&self) -> Time;

    /// Returns once it is `until`; a virtual clock jumps there.
    fn wait_until(&mut self, until: Time);
}

/// Why an append did not happen. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// The run has moved on: read what is new and decide again.
    #[error("the run is at {actual}, not at {expected}")]
    Moved {
        /// Where the writer thought it was.
        expected: u64,
        /// Where it is.
        actual: u64,
    },
    /// An event is recorded under this key already. Inside the engine that is a bug or a race.
    #[error("an event is recorded under the key {key:?} already, at {seq}")]
    KeyExists {
        /// The key.
        key: EventKey,
        /// Where.
        seq: u64,
    },
    /// The events are not the next ones, in order.
    #[error("event {found} does not follow {after}")]
    OutOfOrder {
        /// The last one before it.
        after: u64,
        /// What came.
        found: u64,
    },
}

/// The log of every run. What `append` has returned `Ok` for survives.
pub trait Store {
    /// Appends events after `expected`, all or none. The sequence, and one event per key, are the
    /// store's own constraints.
    fn append(
        &mut self,
        plan: &Plan,
        run_id: &str,
        expected: u64,
        events: &[Event],
    ) -> Result<(), AppendError>;

    /// The events of a run after `after`, in order.
    fn events(&self, run_id: &str, after: u64) -> Vec<Event>;

    /// Takes a start request's key for a run; returns the run that has it already, if one does.
    fn claim_request(&mut self, key: &str, run_id: &str) -> Option<String>;
}

/// Finds definitions for child runs.
pub trait Catalog {
    /// The plan that `path` names, as seen from the plan `from`.
    fn find(&self, from: &Plan, path: &str) -> Option<Arc<Plan>>;
}

/// A catalog that has nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoCatalog;

impl Catalog for NoCatalog {
    fn find(&self, _: &Plan, _: &str) -> Option<Arc<Plan>> {
        None
    }
}
