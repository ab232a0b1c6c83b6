//! The net as a value: steps, edges, and what a step does. Only data; the rules are in `decide`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::policy::{
    Completion, Duty, OnFailure, OnLoopFailure, RetryPolicy, RunPolicy, SideEffect,
};
use crate::expr::{Template, TemplateValue};

/// A step's number: its place in `Net::steps`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct StepNo(pub u32);

/// An edge's number: its place in `Net::edges`.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct EdgeNo(pub u32);

/// The language a definition was written in.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// Ordered action lists with saga compensation.
    Actions,
    /// Workflow resources: a graph of steps.
    Dag,
    /// The execution contract's plans.
    Plan,
    /// Petri-net playbooks.
    Playbook,
    /// Persisted linear chains.
    Linear,
}

impl Dialect {
    /// All five, in the order the documentation lists them.
    pub const ALL: [Dialect; 5] = [
        Dialect::Actions,
        Dialect::Dag,
        Dialect::Plan,
        Dialect::Playbook,
        Dialect::Linear,
    ];

    /// The language's name in commands and files.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Actions => "actions",
            Dialect::Dag => "dag",
            Dialect::Plan => "plan",
            Dialect::Playbook => "playbook",
            Dialect::Linear => "linear",
        }
    }
}

/// Where a definition came from: the hash is over the raw bytes of the file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SourceRef {
    /// Where it was read.
    pub uri: String,
    /// SHA-256 of its bytes, lower-case hex.
    pub sha256: String,
}

/// Everything a dialect says about a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Net {
    /// The language.
    pub dialect: Dialect,
    /// The workflow's own name or id.
    pub plan_id: String,
    /// Its version; a part of every idempotency key.
    pub plan_version: String,
    /// The version of the file format, as `v1.2`.
    pub schema_version: String,
    /// Where it came from.
    pub source: SourceRef,
    /// Defaults for the run's parameters; the start request is merged over them.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub workload: Json,
    /// The steps, in the order of the file.
    pub steps: Vec<Step>,
    /// How tokens move, in the order of the file.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// What holds for the whole run.
    pub policy: RunPolicy,
    /// Named tasks that steps may call (a playbook's workbook); opaque to the kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub library: BTreeMap<String, Json>,
    /// Anything else the worker needs (keychain, executor); opaque to the kernel.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub extra: Json,
}

/// When a step fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Join {
    /// Once every incoming edge holds a token.
    All,
    /// Once for every token that arrives.
    Each,
}

/// Where a finished step's tokens go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Route {
    /// A token on every outgoing edge, on success.
    Edges,
    /// The first edge whose guard holds, at every boundary.
    Exclusive,
    /// Every edge whose guard holds, at every boundary.
    Inclusive,
}

/// A way for tokens from one step to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Edge {
    /// Where the token comes from.
    pub from: StepNo,
    /// The step it enables.
    pub to: StepNo,
    /// The guard; absent is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Template>,
    /// Arguments bound to the token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<TemplateValue>,
    /// Patches of the run's ctx that taking this edge makes, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_ctx: Vec<(String, TemplateValue)>,
}

impl Edge {
    /// A plain edge.
    #[must_use]
    pub fn plain(from: StepNo, to: StepNo) -> Edge {
        Edge {
            from,
            to,
            when: None,
            args: None,
            set_ctx: Vec::new(),
        }
    }

    /// Whether taking this edge after a failure counts as handling the failure: only a guard that
    /// looks at what happened can mean that.
    #[must_use]
    pub fn handles_failure(&self) -> bool {
        self.when
            .as_ref()
            .is_some_and(|when| when.reads_any_root(&["event", "outcome", "output", "error"]))
    }
}

/// One step of the workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Step {
    /// Unique in the plan; the stepId of its first visit.
    pub name: String,
    /// What it is for, in the author's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Steps that are ready together are dispatched by this, then by name.
    pub order: u32,
    /// When it fires.
    pub join: Join,
    /// Where its tokens go.
    pub route: Route,
    /// Who may enter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admit: Option<Admission>,
    /// What it does.
    pub work: Work,
    /// Input for the work, rendered by the worker.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub input: Json,
    /// Patches of the run's ctx at the step's boundary, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_ctx: Vec<(String, TemplateValue)>,
    /// A person's approval that is needed before the work starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gate: Option<Gate>,
    /// Runs the work once for each item of a list.
    #[serde(default, rename = "loop", skip_serializing_if = "Option::is_none")]
    pub each: Option<Loop>,
    /// How often and how fast failures are retried.
    pub retry: RetryPolicy,
    /// Longest time one execution may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What a failure for good leads to.
    pub on_failure: OnFailure,
    /// Who ends the step.
    #[serde(default)]
    pub completion: Completion,
    /// Checks on the person who completes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duties: Vec<Duty>,
    /// How it is undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undo>,
    /// What kind of mark it leaves on the world.
    #[serde(default)]
    pub side_effect: SideEffect,
}

impl Step {
    /// A step with every default; dialects set what differs.
    #[must_use]
    pub fn new(name: impl Into<String>, work: Work) -> Step {
        Step {
            name: name.into(),
            description: None,
            order: 0,
            join: Join::All,
            route: Route::Edges,
            admit: None,
            work,
            input: Json::Null,
            set_ctx: Vec::new(),
            gate: None,
            each: None,
            retry: RetryPolicy::once(),
            timeout_ms: None,
            on_failure: OnFailure::Stop { compensate: false },
            completion: Completion::Automatic,
            duties: Vec::new(),
            undo: None,
            side_effect: SideEffect::Unknown,
        }
    }
}

/// What a step does when it fires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Work {
    /// A worker that serves this queue and operation does it.
    Task {
        /// Which workers.
        queue: String,
        /// What they do.
        operation: String,
        /// The file's own words for it; opaque to the kernel.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        config: Json,
    },
    /// The built-in worker runs these tools in order, under their own policy rules.
    Pipeline {
        /// A list of `{name, kind, …}`; opaque to the kernel.
        tasks: Json,
    },
    /// Nobody works: the step waits.
    Wait(WaitSpec),
    /// Another run does it.
    Child(ChildSpec),
}

/// What a wait waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitSpec {
    /// The thing that ends it.
    pub on: WaitOn,
    /// After this long without it the step fails with class `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// The thing that ends a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum WaitOn {
    /// A person's decision. `Step::duties` says who may give it.
    Approval,
    /// A person's completion.
    Manual,
    /// An event from outside.
    Event {
        /// Its type.
        event_type: String,
    },
    /// The passing of time.
    Timer {
        /// How much of it.
        millis: u64,
    },
}

/// A run started by a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildSpec {
    /// The definition: a path relative to the parent's, or a plan id.
    pub path: String,
    /// The child's step whose output is the result; absent means the run's own output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_step: Option<String>,
    /// What the child gets as parameters.
    pub input: TemplateValue,
}

/// A person must approve before the work starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// Checks on that person.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duties: Vec<Duty>,
    /// After this long without an answer the step fails with class `timeout`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Ordered rules; the first that matches decides; none matching allows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Admission {
    /// The rules in order.
    pub rules: Vec<AdmitRule>,
    /// How a denied token is treated.
    pub denied: OnDenied,
}

/// One admission rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdmitRule {
    /// The condition; absent (`else`) always matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Template>,
    /// The decision.
    pub allow: bool,
}

/// How a denied token is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDenied {
    /// It stays, and is looked at again when ctx changes.
    Pending,
    /// It is dropped.
    Discard,
}

/// Runs a step once for each item of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Loop {
    /// The list.
    #[serde(rename = "in")]
    pub items: TemplateValue,
    /// The name of an item in the worker's scope.
    pub iterator: String,
    /// One after the other, or several at a time.
    pub mode: LoopMode,
    /// The most that run at a time.
    pub max_in_flight: MaxInFlight,
    /// What a failed iteration means.
    pub on_failure: OnLoopFailure,
}

/// One after the other, or several at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoopMode {
    /// The next starts when the one before has ended.
    Sequential,
    /// Up to `max_in_flight` at a time.
    Parallel,
}

/// The most iterations that run at a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum MaxInFlight {
    /// A number from the file.
    Fixed(u32),
    /// Computed when the loop starts.
    Computed(Template),
}

/// How a step is undone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Undo {
    /// Which workers.
    pub queue: String,
    /// What they do.
    pub operation: String,
    /// What they get.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub input: Json,
    /// Tools that the built-in worker runs instead; as in `Work::Pipeline`.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub tasks: Json,
    /// How often and how fast failures are retried.
    pub retry: RetryPolicy,
    /// Longest time one execution may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}
