//! How many runs may be active at a time, and what happens to a run that finds no free slot.

use serde_json::Value as Json;
use stepwell_kernel::plan::Plan;
use stepwell_kernel::state::State;

/// How many runs may be active at a time; an absent limit allows any number. A child run uses the slot of its parent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Limit for all runs of the store together.
    pub total: Option<u32>,
    /// Limit for the runs of one tenant.
    pub per_tenant: Option<u32>,
    /// Limit for the runs of one plan, in all versions.
    pub per_plan: Option<u32>,
    /// Limit for the runs of a plan with the same value of a parameter: a JSON pointer into the parameters, and the
    /// limit.
    pub per_key: Option<(String, u32)>,
    /// What happens when a limit is reached.
    pub when_full: WhenFull,
}

/// What happens to a run that finds no slot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenFull {
    /// The run is created and waits for a slot. The first run in the queue gets the first free slot.
    #[default]
    Queue,
    /// The run is not created; the error says when to try again.
    Reject {
        /// Milliseconds until the sender may try again.
        retry_after_ms: u64,
    },
    /// The run is created and starts later.
    Delay {
        /// Delay of the start in milliseconds.
        by_ms: u64,
    },
}

impl Limits {
    /// Whether no limit is set.
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
        let params = state.params().first();
        let key = params.and_then(|params| self.key_slot(plan, params));
        slots.extend(key.zip(self.per_key.as_ref().map(|(_, limit)| *limit)));
        slots
    }

    /// The slot that only runs of the plan with the same value of the limited parameter need; none if the parameter is
    /// absent or not limited.
    #[must_use]
    pub fn key_slot(&self, plan: &Plan, params: &Json) -> Option<String> {
        let (pointer, _) = self.per_key.as_ref()?;
        let value = params.pointer(pointer)?;
        Some(format!("key/{}/{value}", plan.net().plan_id))
    }
}
