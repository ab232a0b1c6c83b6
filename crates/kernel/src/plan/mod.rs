//! The plan: an immutable Petri net with a content hash, pinned to a run when the run is created.
//!
//! `Net` is what a dialect compiles to and what is stored; `Plan` is a net that was checked and
//! indexed. A plan never changes and knows nothing of any run.

mod backoff;
mod event_key;
mod named;
mod net;
mod policy;
mod reads;

use crate::canonical::{MemberStack, TwinSerializer};
use crate::codes;
use crate::hidden::Hidden;
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use backoff::{Backoff, BackoffKind};
pub use event_key::UniqueKey;
pub use net::{
    Admission, AdmitRule, ChildSpec, Dialect, Edge, EdgeNo, Gate, Join, Loop, LoopMode,
    MaxInFlight, Net, OnDenied, Route, SourceRef, Step, StepNo, Undo, WaitOn, WaitSpec, Work,
};
pub use reads::{CtxReads, Reads};

pub use policy::{
    Completion, Duty, EntryPoint, ErrorClass, FinalFailure, OnFailure, OnLoopFailure, RetryPolicy,
    RunPolicy, SideEffect, UndoMode, Unhandled, WaitTimeout,
};

/// One firing of a step: which step, which visit (1 is the first), and which item of a loop.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
pub struct StepRef {
    /// The step's number in the plan.
    pub step: StepNo,
    /// Which visit of the step, counted from 1.
    pub visit: u32,
    /// The item of the loop that this is, counted from 0; absent for the step itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
}

impl StepRef {
    /// The first visit of a step.
    #[must_use]
    pub fn first(step: StepNo) -> StepRef {
        StepRef {
            step,
            visit: 1,
            item: None,
        }
    }

    /// The visit that a loop item belongs to.
    #[must_use]
    pub fn visit_ref(self) -> StepRef {
        StepRef { item: None, ..self }
    }

    /// Item `item` of this visit's loop.
    #[must_use]
    pub fn with_item(self, item: u32) -> StepRef {
        StepRef {
            item: Some(item),
            ..self
        }
    }
}

/// Why a net is no plan. Dialects report the same things earlier and with a place in the file; this
/// is the last line of defence, for nets that come from a store or over a wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct PlanFault {
    /// Stable code, listed in `docs/errors`.
    pub code: &'static str,
    /// What is wrong, naming the step.
    pub message: String,
}

/// A checked and indexed net.
pub struct Plan {
    net: Net,
    hash: String,
    reference: String,
    incoming: Vec<Vec<EdgeNo>>,
    outgoing: Vec<Vec<EdgeNo>>,
    by_name: HashMap<String, StepNo>,
    /// Names that no expression can say as they are, as expressions say them.
    spoken: HashMap<String, StepNo>,
    reads: Vec<Reads>,
    hidden: Hidden,
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plan")
            .field("plan_id", &self.net.plan_id)
            .field("hash", &self.hash)
            .finish_non_exhaustive()
    }
}

/// Characters that identity needs for itself: `|` separates the parts of an idempotency key, `#`
/// marks a later visit, `[` and `]` an item of a loop.
pub const RESERVED_IN_NAMES: [char; 4] = ['|', '#', '[', ']'];

/// Most steps a plan may have.
pub const MAX_STEPS: usize = 20_000;
/// Most edges a plan may have.
pub const MAX_EDGES: usize = 100_000;

impl Plan {
    /// Checks a net and indexes it.
    pub fn new(net: Net) -> Result<Plan, PlanFault> {
        let fault = |code, message: String| Err(PlanFault { code, message });
        if net.steps.is_empty() {
            return fault(codes::PLAN_EMPTY, "a plan needs at least one step".into());
        }
        if net.steps.len() > MAX_STEPS || net.edges.len() > MAX_EDGES {
            return fault(
                codes::PLAN_TOO_LARGE,
                format!("a plan may have {MAX_STEPS} steps and {MAX_EDGES} edges"),
            );
        }
        let mut by_name = HashMap::with_capacity(net.steps.len());
        for (no, step) in net.steps.iter().enumerate() {
            if step.name.is_empty() || step.name.contains(RESERVED_IN_NAMES) {
                return fault(
                    codes::NAME_INVALID,
                    format!("step name {:?} is empty or has one of | # [ ]", step.name),
                );
            }
            if by_name
                .insert(step.name.clone(), StepNo(no as u32))
                .is_some()
            {
                return fault(
                    codes::NAME_DUPLICATE,
                    format!("two steps are named {:?}", step.name),
                );
            }
        }
        if net.plan_id.contains('|') || net.plan_version.contains('|') {
            return fault(
                codes::NAME_INVALID,
                "planId and planVersion must not contain |".into(),
            );
        }
        let known = |no: StepNo| (no.0 as usize) < net.steps.len();
        let mut incoming = vec![Vec::new(); net.steps.len()];
        let mut outgoing = vec![Vec::new(); net.steps.len()];
        for (no, edge) in net.edges.iter().enumerate() {
            if !known(edge.from) || !known(edge.to) {
                return fault(
                    codes::PLAN_BROKEN_EDGE,
                    format!("edge {no} names a step that does not exist"),
                );
            }
            outgoing[edge.from.0 as usize].push(EdgeNo(no as u32));
            incoming[edge.to.0 as usize].push(EdgeNo(no as u32));
        }
        let entry = match net.policy.entry {
            EntryPoint::Step(no) => Some(no),
            EntryPoint::Roots => None,
        };
        if entry
            .into_iter()
            .chain(net.policy.final_step)
            .any(|no| !known(no))
        {
            return fault(
                codes::PLAN_BROKEN_EDGE,
                "the entry or final step does not exist".into(),
            );
        }
        let hash = content_hash(&net)?;
        let mut spoken = HashMap::new();
        for (no, step) in net.steps.iter().enumerate() {
            let name = in_expressions(&step.name);
            if name != step.name && !by_name.contains_key(&*name) {
                spoken.entry(name.into_owned()).or_insert(StepNo(no as u32));
            }
        }
        let find = |name: &str| by_name.get(name).or_else(|| spoken.get(name)).copied();
        let reads = reads::of_all(&net, find);
        Ok(Plan {
            reference: crate::contract::plan_ref(&net, &hash),
            hidden: Hidden::of(&net),
            net,
            hash,
            incoming,
            outgoing,
            by_name,
            spoken,
            reads,
        })
    }

    /// The net that was validated; it never changes.
    #[must_use]
    pub fn net(&self) -> &Net {
        &self.net
    }

    /// The policies that hold for the whole run, not for one step.
    #[must_use]
    pub fn policy(&self) -> &RunPolicy {
        &self.net.policy
    }

    /// SHA-256 of the net's canonical JSON, lower-case hex.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.hash
    }

    /// What the definition has written out and no event may show.
    pub(crate) fn hidden(&self) -> &Hidden {
        &self.hidden
    }

    /// How the contract refers to it: canonical JSON.
    pub(crate) fn reference(&self) -> &str {
        &self.reference
    }

    /// How many steps there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.net.steps.len()
    }

    /// Never: a plan has at least one step.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.net.steps.is_empty()
    }

    /// The step with this number. Numbers come from this plan, so they exist.
    #[must_use]
    pub fn step(&self, no: StepNo) -> &Step {
        &self.net.steps[no.0 as usize]
    }

    /// The edge with this number.
    #[must_use]
    pub fn edge(&self, no: EdgeNo) -> &Edge {
        &self.net.edges[no.0 as usize]
    }

    /// Edges that end at a step, in plan order.
    #[must_use]
    pub fn incoming(&self, no: StepNo) -> &[EdgeNo] {
        &self.incoming[no.0 as usize]
    }

    /// Edges that leave a step, in plan order.
    #[must_use]
    pub fn outgoing(&self, no: StepNo) -> &[EdgeNo] {
        &self.outgoing[no.0 as usize]
    }

    /// What a step's work looks at.
    #[must_use]
    pub fn reads(&self, no: StepNo) -> &Reads {
        &self.reads[no.0 as usize]
    }

    /// All step numbers in plan order.
    pub fn numbers(&self) -> impl Iterator<Item = StepNo> + use<> {
        (0..self.net.steps.len() as u32).map(StepNo)
    }

    /// The step of this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<StepNo> {
        self.by_name.get(name).copied()
    }

    /// The step that an expression means by this name: `charge_card` is `charge-card`, which would be a
    /// subtraction, unless a step is really called so.
    #[must_use]
    pub fn find_in_expression(&self, name: &str) -> Option<StepNo> {
        self.find(name).or_else(|| self.spoken.get(name).copied())
    }

    /// A step-run's id: `name`, `name#2` for the second visit, `name[3]` for item 3 of a loop.
    #[must_use]
    pub fn step_id(&self, at: StepRef) -> String {
        self.step_id_text(at).into_owned()
    }

    /// The same without a copy where the id is the step's name. A damaged log can be read with the plan of another run:
    /// a step that the plan does not have has no name, and the hashes of its events then differ.
    #[must_use]
    pub fn step_id_text(&self, at: StepRef) -> Cow<'_, str> {
        let step = self.net.steps.get(at.step.0 as usize);
        let name = step.map_or("", |it| it.name.as_str());
        match (at.visit, at.item) {
            (1, None) => Cow::Borrowed(name),
            (visit, None) => Cow::Owned(format!("{name}#{visit}")),
            (1, Some(item)) => Cow::Owned(format!("{name}[{item}]")),
            (visit, Some(item)) => Cow::Owned(format!("{name}#{visit}[{item}]")),
        }
    }

    /// Reads a step-run's id back.
    #[must_use]
    pub fn parse_step_id(&self, id: &str) -> Option<StepRef> {
        let (rest, item) = match id.strip_suffix(']').and_then(|body| body.split_once('[')) {
            Some((rest, item)) => (rest, Some(item.parse().ok()?)),
            None => (id, None),
        };
        let (name, visit) = match rest.split_once('#') {
            Some((name, visit)) => (name, visit.parse().ok().filter(|v| *v >= 2)?),
            None => (rest, 1),
        };
        let at = StepRef {
            step: self.find(name)?,
            visit,
            item,
        };
        // A step-run has one id: `a[03]` is not `a[3]`.
        (self.step_id_text(at) == id).then_some(at)
    }
}

/// A step's name as expressions can say it.
fn in_expressions(name: &str) -> Cow<'_, str> {
    match name.contains(['-', '.', ' ', ':', '/']) {
        true => Cow::Owned(name.replace(['-', '.', ' ', ':', '/'], "_")),
        false => Cow::Borrowed(name),
    }
}

fn content_hash(net: &Net) -> Result<String, PlanFault> {
    fn fault(error: impl fmt::Display) -> PlanFault {
        PlanFault {
            code: codes::PLAN_NOT_CANONICAL,
            message: format!("the plan has no canonical JSON form: {error}"),
        }
    }
    let mut canonical = Vec::with_capacity(4096);
    let (mut plain, mut members) = (Vec::new(), MemberStack::default());
    let mut twin = TwinSerializer::new(&mut plain, &mut canonical, &mut members);
    net.serialize(&mut twin).map_err(fault)?;
    if !twin.is_exact() {
        // Through a tree, which takes many times the memory of the plan.
        let value = serde_json::to_value(net).map_err(fault)?;
        canonical.clear();
        crate::canonical::write(&value, &mut canonical);
    }
    Ok(crate::keys::hex(&Sha256::digest(canonical)))
}
