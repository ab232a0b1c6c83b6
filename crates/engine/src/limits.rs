//! How many runs may run at a time, for whom, and what happens to one too many.

use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

/// How many runs may run at a time. Children run in their parent's slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// All together.
    pub total: Option<u32>,
    /// Of each tenant.
    pub per_tenant: Option<u32>,
    /// Of each plan.
    pub per_plan: Option<u32>,
    /// With the same value of a parameter: a JSON pointer into the parameters, and how many.
    pub per_key: Option<(String, u32)>,
    /// What happens to one too many.
    pub when_full: WhenFull,
}

/// What happens to a run that finds no slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// It waits, first come first served.
    #[default]
    Queue,
    /// It is refused; the sender is told when to try again.
    Reject {
        /// When.
        retry_after_ms: u64,
    },
    /// It is accepted, to be started later.
    Delay {
        /// How much later.
        by_ms: u64,
    },
}

impl Limits {
    /// Whether there are none.
    #[must_use]
    pub fn are_none(&self) -> bool {
        self.total.is_none()
            && self.per_tenant.is_none()
            && self.per_plan.is_none()
            && self.per_key.is_none()
    }

    /// The slots that a run needs, with how many there are of each.
    #[must_use]
    pub fn slots(&self, plan: &Plan, state: &State) -> Vec<(String, u32)> {
        if state.parent().is_some() {
            return Vec::new();
        }
        let value = |pointer: &str| {
            let params = state.params().first()?;
            params.pointer(pointer).map(ToString::to_string)
        };
        let tenant = &state.context().tenant_id;
        let plan_id = &plan.net().plan_id;
        let mut slots = Vec::new();
        slots.extend(self.total.map(|limit| ("all".to_owned(), limit)));
        slots.extend(
            self.per_tenant
                .map(|limit| (format!("tenant/{tenant}"), limit)),
        );
        slots.extend(
            self.per_plan
                .map(|limit| (format!("plan/{plan_id}"), limit)),
        );
        slots.extend(self.per_key.as_ref().and_then(|(pointer, limit)| {
            Some((format!("key/{plan_id}/{}", value(pointer)?), *limit))
        }));
        slots
    }
}
