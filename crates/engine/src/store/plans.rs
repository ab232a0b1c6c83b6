//! Plans: what runs are made of. A plan is kept before the first run of it begins and is never deleted.

use stepwell_kernel::plan::Plan;

use super::{PlanNo, Result};

/// Stores each plan once and finds plans by number.
pub trait Plans {
    /// Keeps a plan. Plans are identified by their hash.
    ///
    /// Durable on return: the plan.
    ///
    /// Crash before the return: the plan is kept or not; no run refers to the plan yet.
    ///
    /// Twice: the same number.
    fn put_plan(&self, plan: &Plan) -> Result<PlanNo>;

    /// Reads a plan.
    ///
    /// Durable on return: reads only. Crash: nothing to recover. Twice: the same, because plans never
    /// change.
    fn plan(&self, no: PlanNo) -> Result<Option<PlanRow>>;
}

/// A plan that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRow {
    /// Number in this store.
    pub no: PlanNo,
    /// The plan's own id.
    pub plan_id: String,
    /// The plan's own version.
    pub version: String,
    /// Hash of the compiled plan.
    pub hash: String,
    /// The net, as JSON text.
    pub net: String,
}
