//! Ports: what the engine needs from the world beside its store, each a handful of methods.

use std::sync::Arc;

use stepwell_kernel::plan::Plan;
use stepwell_kernel::time::Time;

/// Where the time comes from.
pub trait Clock {
    /// The time.
    fn now(&self) -> Time;

    /// Returns once it is `until`; a virtual clock jumps there.
    fn wait_until(&mut self, until: Time);
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
