//! Policies: what a plan says about retries, failure, compensation and the run as a whole.
//!
//! Where the five languages disagree they differ only in these values; the rules that read them
//! are written once, in `decide`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backoff::Backoff;
use super::named::named;
use super::net::StepNo;

named! {
    /// The kind of a failure. Retry rules name classes, never messages.
    ErrorClass {
        /// The work took too long.
        Timeout = "timeout",
        /// The other side asked to slow down.
        RateLimit = "rate_limit",
        /// The other side has a passing problem (5xx).
        Transient = "transient",
        /// The other side was not reached.
        Transport = "transport",
        /// The input or output is wrong.
        Validation = "validation",
        /// A rule forbids the work.
        Policy = "policy",
        /// The caller may not do the work.
        Auth = "auth",
        /// The state of the business forbids the work.
        Conflict = "conflict",
        /// The agent returned something unusable or crashed.
        Agent = "agent",
        /// A third party failed.
        External = "external",
        /// Governance blocked the work; someone must be told.
        Governance = "governance",
        /// The execution was lost with its worker: whether the work was done is not known.
        LeaseLost = "lease_lost",
        /// An expression could not be evaluated.
        Expression = "expression",
        /// A person said no.
        Rejected = "rejected",
        /// The work was cancelled.
        Cancelled = "cancelled",
        /// The class of the failure is not known.
        Unknown = "unknown",
    }
}

/// How often, how fast and for which errors a failure is retried.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RetryPolicy {
    /// The most executions, the first included.
    pub max_executions: u32,
    /// The wait before each retry.
    pub backoff: Backoff,
    /// The classes that are retried. `lease_lost` is always retried: perhaps the work has never run. An execution that
    /// was lost does not count as one of `max_executions`, but where [`RunPolicy::losses_are_attempts`].
    pub classes: Vec<ErrorClass>,
}

impl RetryPolicy {
    /// One execution, no retry.
    #[must_use]
    pub fn once() -> RetryPolicy {
        RetryPolicy {
            max_executions: 1,
            backoff: Backoff::none(),
            classes: Vec::new(),
        }
    }

    /// Whether a failure of this class may be retried at all.
    #[must_use]
    pub fn covers(&self, class: ErrorClass) -> bool {
        class == ErrorClass::LeaseLost || self.classes.contains(&class)
    }
}

/// What happens when a step has failed and is not retried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum OnFailure {
    /// The run stops and fails.
    Stop {
        /// Whether the completed steps are undone before the run ends.
        compensate: bool,
    },
    /// The step is skipped and the steps after it run.
    Skip,
    /// The guards of the edges are evaluated; the boundary event is the failure.
    Route,
    /// The run stays open until an operator retries or skips the step, or the time is up.
    Hold {
        /// The longest wait for an operator, in milliseconds; after that the run fails.
        timeout_ms: u64,
    },
}

/// What happens when an iteration of a loop fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLoopFailure {
    /// No further iteration starts; the running iterations end; then the step fails.
    Fail,
    /// The other iterations run; the output of the loop lists the errors.
    Continue,
}

/// Whether a worker or a person ends a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// The worker: the step ends with the result of the work.
    #[default]
    Automatic,
    /// A person: the worker only starts the step.
    Manual,
}

/// A check on the person who approves or completes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub enum Duty {
    /// The person must not be the person who started the run.
    MakerChecker,
    /// Several different people must approve.
    DistinctApprovers {
        /// The number of different people that are needed.
        count: u32,
    },
    /// The person must not have completed or approved any of these steps.
    IncompatibleDuties {
        /// The names of the other steps.
        keys: Vec<String>,
    },
}

/// The effect of a step outside the engine. The compensation of a run reads this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    /// The definition does not say. The compensation ignores the step unless the step has an undo.
    #[default]
    Unknown,
    /// The step changes nothing outside the engine, so there is nothing to undo.
    Pure,
    /// A second execution changes nothing more.
    Idempotent,
    /// The step can be undone.
    Compensable,
    /// The step cannot be undone: the result of its undo is recorded as not compensable.
    Irreversible,
}

/// Where a run begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EntryPoint {
    /// Every step without an incoming edge.
    Roots,
    /// This step gets the one token.
    Step(StepNo),
}

/// What happens to the remaining undos when an undo fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UndoMode {
    /// The remaining undos run.
    Continue,
    /// The remaining undos do not run.
    Stop,
}

/// What happens when a step fails and no edge handles the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Unhandled {
    /// The other branches finish, then the run is failed.
    Fail,
    /// The other branches finish, then the run is partial.
    Partial,
    /// The run stops at once.
    Stop,
}

/// How a handler's wait for an event ends when its deadline passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WaitTimeout {
    /// The execution fails with class `timeout`.
    Fail,
    /// The step is claimed again, and told that the wait ran out (linear).
    Claim,
    /// Nothing: the step waits on (linear, if timeout claiming is off).
    Ignore,
}

/// How a run ends whose final step failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinalFailure {
    /// The run is failed.
    Fail,
    /// The run is partial.
    Partial,
}

/// The policies of the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPolicy {
    /// The run must pass through Queued (dag).
    pub must_queue: bool,
    /// A person must approve the run before it starts.
    pub needs_approval: bool,
    /// The steps that get a token when the run starts.
    pub entry: EntryPoint,
    /// A step that runs once, after all other steps have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_step: Option<StepNo>,
    /// How the run ends if the final step fails.
    pub final_failure: FinalFailure,
    /// Whether the run fails if a step chooses its edges by guards and no guard is true.
    pub no_next_is_error: bool,
    /// What happens when a step fails and no edge handles the failure.
    pub unhandled: Unhandled,
    /// The longest time from the start of the run until it must stop, in milliseconds; absent: no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether the completed steps are undone after a timeout of the run.
    pub timeout_compensates: bool,
    /// How long a stalled run waits for a change of ctx before it fails, in milliseconds.
    pub stall_timeout_ms: u64,
    /// How long a pause waits for work in flight before it raises an alert, in milliseconds.
    pub drain_timeout_ms: u64,
    /// What happens to the remaining undos when an undo fails.
    pub undo_mode: UndoMode,
    /// Whether the log gets a StepSkipped for each step that was never reached, just before a stopped run ends.
    pub skip_unreached: bool,
    /// How a handler's wait for an event ends when its deadline passes.
    pub wait_timeout: WaitTimeout,
    /// A handler's word that an error may be retried counts for every class (linear). Elsewhere a
    /// handler can only say no: some classes must never be retried.
    #[serde(default, skip_serializing_if = "is_false")]
    pub handler_may_retry: bool,
    /// Templates in the plan's workload are evaluated when a run is created (playbook). Templates in the parameters
    /// of a start request are never evaluated.
    #[serde(default, skip_serializing_if = "is_false")]
    pub renders_workload: bool,
    /// A template that makes a value from something that has no value fails, unless the template says what holds then.
    /// Absent, and in plans that were compiled earlier: such a value is null, or nothing in a text.
    #[serde(default, skip_serializing_if = "is_false")]
    pub strict_templates: bool,
    /// A template over the parameters (linear). Its value selects the run that an external event is for, and no two
    /// open runs of the plan may have the same value. Absent: the id of the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_key: Option<String>,
    /// The length of a lease, in milliseconds; absent: [`RunPolicy::LEASE_MS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// An execution that was lost counts as an attempt (linear). Elsewhere losses are counted apart from attempts.
    #[serde(default, skip_serializing_if = "is_false")]
    pub losses_are_attempts: bool,
    /// Checks on the person who approves the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duties: Vec<super::Duty>,
    /// Secrets that the definition has written out. Events have a token in their place.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden: Vec<String>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
pub(super) fn is_false(value: &bool) -> bool {
    !*value
}

impl RunPolicy {
    /// One day: a stalled run must end sometime.
    pub const STALL_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;
    /// Half a minute: how long a silent worker keeps a step.
    pub const LEASE_MS: u64 = 30_000;
    /// How often a step-run may be lost with its worker before it fails.
    pub const MAX_LOSSES: u32 = 10;
    /// An operator learns about a step-run when it has been lost this often.
    pub const ALERT_LOSSES: u32 = 3;
    /// Five minutes, the contract's default.
    pub const DRAIN_TIMEOUT_MS: u64 = 5 * 60 * 1000;
}

impl Default for RunPolicy {
    fn default() -> RunPolicy {
        RunPolicy {
            must_queue: false,
            needs_approval: false,
            entry: EntryPoint::Roots,
            final_step: None,
            final_failure: FinalFailure::Fail,
            no_next_is_error: false,
            unhandled: Unhandled::Fail,
            timeout_ms: None,
            timeout_compensates: false,
            stall_timeout_ms: RunPolicy::STALL_TIMEOUT_MS,
            drain_timeout_ms: RunPolicy::DRAIN_TIMEOUT_MS,
            undo_mode: UndoMode::Continue,
            skip_unreached: false,
            wait_timeout: WaitTimeout::Fail,
            handler_may_retry: false,
            renders_workload: false,
            strict_templates: false,
            event_key: None,
            lease_ms: None,
            losses_are_attempts: false,
            duties: Vec::new(),
            hidden: Vec::new(),
        }
    }
}
