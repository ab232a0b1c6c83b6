//! Policies: what a plan says about retries, failure, compensation and the run as a whole.
//!
//! Where the five languages disagree they differ only in these values; the rules that read them
//! are written once, in `decide`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::net::StepNo;

/// What kind of failure it was. Retry rules speak of classes, never of messages.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// It took too long.
    Timeout,
    /// The other side asked to slow down.
    RateLimit,
    /// The other side has a passing problem (5xx).
    Transient,
    /// The other side was not reached.
    Transport,
    /// The input or output is wrong.
    Validation,
    /// A rule forbids it.
    Policy,
    /// The caller may not do it.
    Auth,
    /// The state of the business forbids it.
    Conflict,
    /// The agent returned rubbish or crashed.
    Agent,
    /// A third party failed.
    External,
    /// Governance blocked it; someone must be told.
    Governance,
    /// The worker's lease ran out.
    LeaseLost,
    /// An expression could not be evaluated.
    Expression,
    /// A person said no.
    Rejected,
    /// It was cancelled.
    Cancelled,
    /// Nobody said.
    Unknown,
}

impl ErrorClass {
    /// Every class.
    pub const ALL: [ErrorClass; 16] = [
        ErrorClass::Timeout,
        ErrorClass::RateLimit,
        ErrorClass::Transient,
        ErrorClass::Transport,
        ErrorClass::Validation,
        ErrorClass::Policy,
        ErrorClass::Auth,
        ErrorClass::Conflict,
        ErrorClass::Agent,
        ErrorClass::External,
        ErrorClass::Governance,
        ErrorClass::LeaseLost,
        ErrorClass::Expression,
        ErrorClass::Rejected,
        ErrorClass::Cancelled,
        ErrorClass::Unknown,
    ];

    /// The class's name in files and events.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            ErrorClass::Timeout => "timeout",
            ErrorClass::RateLimit => "rate_limit",
            ErrorClass::Transient => "transient",
            ErrorClass::Transport => "transport",
            ErrorClass::Validation => "validation",
            ErrorClass::Policy => "policy",
            ErrorClass::Auth => "auth",
            ErrorClass::Conflict => "conflict",
            ErrorClass::Agent => "agent",
            ErrorClass::External => "external",
            ErrorClass::Governance => "governance",
            ErrorClass::LeaseLost => "lease_lost",
            ErrorClass::Expression => "expression",
            ErrorClass::Rejected => "rejected",
            ErrorClass::Cancelled => "cancelled",
            ErrorClass::Unknown => "unknown",
        }
    }

    /// The class of that name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<ErrorClass> {
        ErrorClass::ALL
            .into_iter()
            .find(|class| class.name() == name)
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

/// The wait before a retry. There is no jitter: the kernel is deterministic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Backoff {
    /// The shape.
    pub kind: BackoffKind,
    /// Before the first retry, in milliseconds.
    pub initial_ms: u64,
    /// The factor of `exponential`.
    pub multiplier: f64,
    /// No wait is longer, in milliseconds.
    pub max_ms: u64,
}

/// The shape of a backoff.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackoffKind {
    /// At once.
    None,
    /// d, d, d.
    Constant,
    /// d, 2d, 3d.
    Linear,
    /// d, d·m, d·m².
    Exponential,
}

impl Backoff {
    /// No wait.
    #[must_use]
    pub fn none() -> Backoff {
        Backoff {
            kind: BackoffKind::None,
            initial_ms: 0,
            multiplier: 1.0,
            max_ms: 0,
        }
    }

    /// The wait before retry `n` (the first is 1), in milliseconds. Never overflows: the cap wins.
    #[must_use]
    pub fn delay_ms(&self, n: u32) -> u64 {
        let n = n.max(1);
        let wanted = match self.kind {
            BackoffKind::None => return 0,
            BackoffKind::Constant => self.initial_ms,
            BackoffKind::Linear => self.initial_ms.saturating_mul(u64::from(n)),
            BackoffKind::Exponential => {
                let factor = self.multiplier.max(1.0).powf(f64::from(n - 1));
                // `as` saturates, which is what the cap below wants.
                (self.initial_ms as f64 * factor) as u64
            }
        };
        wanted.min(self.max_ms)
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
