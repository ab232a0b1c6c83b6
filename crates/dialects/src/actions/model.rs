//! The file as typed data, with places where validation needs them. Defaults are filled in.

use serde_json::Value as Json;
use stepwell_kernel::plan::{Duty, RetryPolicy, Work};

use crate::losses::Losses;
use crate::source::Span;

/// How much a person has to do with an action; a later one is stricter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Tier {
    Auto,
    Assisted,
    HumanApprove,
    ManualOnly,
}

impl Tier {
    pub(super) const NAMES: [&str; 4] = ["Auto", "Assisted", "HumanApprove", "ManualOnly"];

    pub(super) fn name(self) -> &'static str {
        Tier::NAMES[self as usize]
    }

    pub(super) fn from_name(name: &str) -> Option<Tier> {
        use Tier::{Assisted, Auto, HumanApprove, ManualOnly};
        [Auto, Assisted, HumanApprove, ManualOnly]
            .into_iter()
            .find(|tier| tier.name() == name)
    }
}

/// A value and where it stood.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

#[derive(Debug)]
pub(super) struct ActionsWorkflow {
    pub(super) id: String,
    pub(super) workspace: String,
    pub(super) name: String,
    pub(super) description: Option<String>,
    pub(super) version: i64,
    pub(super) active: Located<bool>,
    pub(super) tier: Tier,
    pub(super) actions: Vec<Action>,
}

#[derive(Debug)]
pub(super) struct Action {
    /// Absent if it could not be read; that is reported already.
    pub(super) id: Option<Located<String>>,
    pub(super) order: Option<Located<i64>>,
    pub(super) port_family: String,
    pub(super) operation: String,
    pub(super) tier: Option<Located<Tier>>,
    /// What travels to the worker unread: capability and schema references.
    pub(super) notes: Vec<(&'static str, String)>,
    /// Absent if the file has no `dependsOn` here.
    pub(super) depends_on: Option<Vec<Located<String>>>,
    pub(super) retry: RetryPolicy,
    /// Whether the file has a `retryPolicy` here.
    pub(super) retry_given: bool,
    pub(super) losses: Losses,
    pub(super) timeout_ms: u64,
    /// Whether the file has a `timeoutMs` here.
    pub(super) timeout_given: bool,
    /// Whether a person completes it; absent if the file does not say.
    pub(super) manual: Option<Located<bool>>,
    pub(super) input: Json,
    pub(super) side_effecting: Option<Located<bool>>,
    pub(super) compensation: Option<ActionCompensation>,
    pub(super) tool: Option<Work>,
    pub(super) duties: Vec<Located<Duty>>,
}

impl Action {
    /// Its id, empty if it could not be read.
    pub(super) fn id(&self) -> &str {
        self.id.as_ref().map_or("", |id| id.value.as_str())
    }

    /// The tier that holds for it.
    pub(super) fn effective_tier(&self, workflow: Tier) -> Tier {
        self.tier.as_ref().map_or(workflow, |tier| tier.value)
    }
}

#[derive(Debug)]
pub(super) struct ActionCompensation {
    pub(super) operation: String,
    pub(super) input: Json,
    /// What the built-in worker runs, if nobody else does the operation.
    pub(super) tool: Option<Json>,
    pub(super) timeout_ms: u64,
    pub(super) retry: RetryPolicy,
}
