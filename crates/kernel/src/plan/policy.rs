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
    /// What kind of failure it was. Retry rules speak of classes, never of messages.
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
        /// The worker's lease ran out.
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
    /// Total executions, the first included.
    pub max_executions: u32,
    /// The wait between them.
    pub backoff: Backoff,
    /// Classes that are retried. `lease_lost` always is: the work may never have run.
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

/// What a step's failure for good leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum OnFailure {
    /// The run stops and fails; with `compensate` what was done is undone first.
    Stop {
        /// Whether to undo.
        compensate: bool,
    },
    /// The step is skipped and its dependents go on.
    Skip,
    /// The step's edges are looked at with the failure as the boundary event.
    Route,
    /// The run stays open until someone retries or skips the step, or the time is up.
    Hold {
        /// How long, in milliseconds.
        timeout_ms: u64,
    },
}

/// What a failed iteration of a loop means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnLoopFailure {
    /// No more start, the rest drain, the step fails.
    Fail,
    /// The others go on; the loop ends with its errors listed.
    Continue,
}

/// Who ends a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Completion {
    /// Its worker.
    #[default]
    Automatic,
    /// A person, after its worker has started it.
    Manual,
}

/// A check on the person who approves or completes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "rule", rename_all = "snake_case")]
pub enum Duty {
    /// Not the one who started the run.
    MakerChecker,
    /// So many different people.
    DistinctApprovers {
        /// How many.
        count: u32,
    },
    /// Not one who completed or approved any of these steps.
    IncompatibleDuties {
        /// Step names.
        keys: Vec<String>,
    },
}

/// What kind of mark a step leaves on the world.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SideEffect {
    /// The file does not say: passed over by compensation unless it has an undo.
    #[default]
    Unknown,
    /// None.
    Pure,
    /// Repeating it changes nothing more.
    Idempotent,
    /// It can be undone.
    Compensable,
    /// It cannot be undone: recorded as not compensable.
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

/// What a failing compensation means for the ones after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UndoMode {
    /// They still run.
    Continue,
    /// They do not.
    Stop,
}

/// What a failure that no edge handles means.
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
    /// Nothing: it goes on waiting (linear with timeout claiming off).
    Ignore,
}

/// What a failing final step means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FinalFailure {
    /// The run is failed.
    Fail,
    /// The run is partial.
    Partial,
}

/// What holds for the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunPolicy {
    /// The run must pass through Queued (dag).
    pub must_queue: bool,
    /// Someone must approve before it starts.
    pub needs_approval: bool,
    /// Where it begins.
    pub entry: EntryPoint,
    /// Runs once, after everything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub final_step: Option<StepNo>,
    /// What its failure means.
    pub final_failure: FinalFailure,
    /// A routed step whose guards all say no fails the run.
    pub no_next_is_error: bool,
    /// What a failure that no edge handles means.
    pub unhandled: Unhandled,
    /// Longest time from start to Stopping, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Whether a run timeout undoes what was done.
    pub timeout_compensates: bool,
    /// How long a stalled run waits to be revived, in milliseconds.
    pub stall_timeout_ms: u64,
    /// How long a pause waits for work in flight before it says so, in milliseconds.
    pub drain_timeout_ms: u64,
    /// What a failing compensation means for the others.
    pub undo_mode: UndoMode,
    /// Steps that were never reached are skipped in the log just before the run fails.
    pub skip_unreached: bool,
    /// How a handler's wait for an event ends when its deadline passes.
    pub wait_timeout: WaitTimeout,
    /// A handler's word that an error may be retried counts for every class (linear). Elsewhere a
    /// handler can only say no: some classes must never be retried.
    #[serde(default, skip_serializing_if = "is_false")]
    pub handler_may_retry: bool,
    /// Templates in the plan's workload are evaluated when a run is created (playbook). What a start
    /// request brings never is.
    #[serde(default, skip_serializing_if = "is_false")]
    pub renders_workload: bool,
    /// A template over the parameters: what events from outside are matched by, and what no two running
    /// runs of the plan may share (linear). Absent: the run's own id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_key: Option<String>,
    /// How long a claim is leased for, in milliseconds; absent: [`RunPolicy::LEASE_MS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u64>,
    /// Checks on anyone who approves the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub duties: Vec<super::Duty>,
}

#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde's skip_serializing_if passes a reference"
)]
fn is_false(value: &bool) -> bool {
    !*value
}

impl RunPolicy {
    /// One day: a stalled run must end sometime.
    pub const STALL_TIMEOUT_MS: u64 = 24 * 60 * 60 * 1000;
    /// Half a minute: how long a silent worker keeps a step.
    pub const LEASE_MS: u64 = 30_000;
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
            event_key: None,
            lease_ms: None,
            duties: Vec::new(),
        }
    }
}
