//! The net as a value: steps, edges, and what a step does. Only data; the rules are in `decide`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::policy::{
    Completion, Duty, OnFailure, OnLoopFailure, RetryPolicy, RunPolicy, SideEffect, is_false,
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
    /// Playbooks: Petri nets whose arcs route tokens between steps.
    Playbook,
    /// Linear chains: each step starts when the step before has ended.
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
    /// The place that the definition was read from.
    pub uri: String,
    /// SHA-256 of the bytes of the definition, lower-case hex.
    pub sha256: String,
}

/// Everything a dialect says about a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Net {
    /// The language that the definition is written in.
    pub dialect: Dialect,
    /// The workflow's own name or id.
    pub plan_id: String,
    /// The version of the workflow; a part of every idempotency key.
    pub plan_version: String,
    /// The version of the file format, as `v1.2`.
    pub schema_version: String,
    /// The file that the net was compiled from.
    pub source: SourceRef,
    /// Defaults for the run's parameters; the start request is merged over them.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub workload: Json,
    /// The steps, in the order of the file.
    pub steps: Vec<Step>,
    /// How tokens move, in the order of the file.
    #[serde(default)]
    pub edges: Vec<Edge>,
    /// The policies of the whole run.
    pub policy: RunPolicy,
    /// Named tasks that steps may call (a playbook's workbook); opaque to the kernel.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub library: BTreeMap<String, Json>,
    /// Other data that the worker needs (keychain, executor); opaque to the kernel.
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

/// A connection for tokens between two steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Edge {
    /// The step whose end puts a token on the edge.
    pub from: StepNo,
    /// The step that the token goes to.
    pub to: StepNo,
    /// The guard: the token takes the edge only if the guard is true. Absent is true.
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
    /// An edge without guard, arguments or patches: every token takes the edge.
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
    /// The purpose of the step, in the words of its author.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Of the steps that become ready together, the lowest number is dispatched first; equal numbers go by name.
    pub order: u32,
    /// Whether the step fires for all its tokens together or for each token.
    pub join: Join,
    /// Which edges get a token when the step ends.
    pub route: Route,
    /// The rules that decide whether a token may enter the step; absent admits every token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admit: Option<Admission>,
    pub work: Work,
    /// Input for the work, rendered by the worker.
    #[serde(default, skip_serializing_if = "Json::is_null")]
    pub input: Json,
    /// Patches of the run's ctx at the step's boundary, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set_ctx: Vec<(String, TemplateValue)>,
    /// Events that a step without a worker publishes when its wait begins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outbound: Vec<TemplateValue>,
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
    /// The step is never executed a second time by itself: a loss is a failure of class `lease_lost`, and no failure is
    /// retried. Only an operator can ask for another execution.
    #[serde(default, skip_serializing_if = "is_false")]
    pub at_most_once: bool,
    /// How often a step-run may be lost with its worker before it fails; absent: [`RunPolicy::MAX_LOSSES`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_losses: Option<u32>,
    /// What happens when the step has failed and is not retried again.
    pub on_failure: OnFailure,
    /// Whether the worker or a person ends the step.
    #[serde(default)]
    pub completion: Completion,
    /// Checks on the person who completes or approves the step.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duties: Vec<Duty>,
    /// The work that undoes the step; absent if the step cannot be undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undo>,
    /// The effect of the step outside the engine.
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
            outbound: Vec::new(),
            gate: None,
            each: None,
            retry: RetryPolicy::once(),
            timeout_ms: None,
            at_most_once: false,
            max_losses: None,
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
        /// Only workers that serve this queue can claim the step.
        queue: String,
        /// The name of the function that the worker runs.
        operation: String,
        /// The settings of the operation as the file gives them; opaque to the kernel.
        #[serde(default, skip_serializing_if = "Json::is_null")]
        config: Json,
    },
    /// The built-in worker runs these tools in order, under their own policy rules.
    Pipeline {
        /// A list of `{name, kind, …}`; opaque to the kernel.
        tasks: Json,
    },
    /// No worker is needed: the step waits.
    Wait(WaitSpec),
    /// Another run does the work; the step waits until that run ends.
    Child(ChildSpec),
}

/// What a step waits for, and how long.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitSpec {
    /// What ends the wait.
    pub on: WaitOn,
    /// The longest wait, in milliseconds; after that the step fails with class `timeout`. Absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// What ends a wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum WaitOn {
    /// A person's decision. `Step::duties` says who may give it.
    Approval,
    /// A person reports that the work is done or has failed.
    Manual,
    /// An external event comes for the run.
    Event {
        /// The type of the external event; events of other types do not end the wait.
        event_type: String,
    },
    /// The passing of time.
    Timer {
        /// The length of the wait, in milliseconds.
        millis: u64,
    },
}

/// A run started by a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ChildSpec {
    /// The definition of the child: a path relative to the definition of the parent, or a plan id.
    pub path: String,
    /// The child's step whose output is the result; absent means the run's own output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_step: Option<String>,
    /// The parameters of the child.
    pub input: TemplateValue,
}

/// A person must approve before the work starts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gate {
    /// Checks on the person who approves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duties: Vec<Duty>,
    /// The longest wait for an answer, in milliseconds; after that the step fails with class `timeout`. Absent: no
    /// limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u64>,
}

/// Rules that decide whether a token may enter a step. The first rule that matches decides; if no rule matches, the
/// token may enter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Admission {
    /// The rules in order.
    pub rules: Vec<AdmitRule>,
    /// How a denied token is treated.
    pub denied: OnDenied,
}

/// A condition, and the decision if the condition is true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AdmitRule {
    /// The condition; absent (`else`) always matches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub when: Option<Template>,
    /// Whether the token may enter the step.
    pub allow: bool,
}

/// How a denied token is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDenied {
    /// The token stays before the step; the rules are evaluated again when ctx changes.
    Pending,
    /// The token is removed; it never enters the step.
    Discard,
}

/// Runs a step once for each item of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Loop {
    /// A template that evaluates to the list of items when the loop starts.
    #[serde(rename = "in")]
    pub items: TemplateValue,
    /// The name of an item in the worker's scope.
    pub iterator: String,
    /// One after the other, or several at a time.
    pub mode: LoopMode,
    /// The most iterations that run at a time.
    pub max_in_flight: MaxInFlight,
    /// Whether the loop goes on after a failed iteration.
    pub on_failure: OnLoopFailure,
}

/// One after the other, or several at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoopMode {
    /// An iteration starts when the iteration before has ended.
    Sequential,
    /// Up to `max_in_flight` iterations run at a time.
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

/// The work that undoes a step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Undo {
    /// Only workers that serve this queue can claim the undo.
    pub queue: String,
    /// The name of the function that the worker runs.
    pub operation: String,
    /// The input of the undo; the worker renders its templates.
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
