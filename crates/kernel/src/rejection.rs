//! Rejections: lawful refusals, each with a stable code. A rejected command has changed nothing.
//!
//! Every code has a page under `docs/errors` with the cause and what to do.

use std::fmt;

/// The refusal of a command. The command has changed nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// The reason for programs: its name never changes.
    pub code: Code,
    /// The reason for people, and what to do instead.
    pub message: String,
}

impl Rejection {
    /// A refusal with its reason.
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Rejection {
        Rejection {
            code,
            message: message.into(),
        }
    }

    /// A run that cannot be created: an open run of the same tenant has its key.
    #[must_use]
    pub fn key_taken(key: &str, holder: &str) -> Rejection {
        let message = format!(
            "run {holder} is open and has the business key {key:?}; wait until the run ends, or cancel it"
        );
        Rejection::new(Code::KeyTaken, message)
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.name(), self.message)
    }
}

impl std::error::Error for Rejection {}

macro_rules! codes {
    ($($(#[doc = $doc:literal])* $variant:ident = $name:literal,)*) => {
        /// Why a command was refused.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Code { $($(#[doc = $doc])* $variant,)* }

        impl Code {
            /// Every code, in the order of the table.
            pub const ALL: &'static [Code] = &[$(Code::$variant,)*];

            /// The code as programs see it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Code::$variant => $name,)* }
            }
        }
    };
}

codes! {
    /// The run has ended; nothing can happen to it any more.
    RunTerminal = "RUN_TERMINAL",
    /// The run is stopping or compensating.
    RunStopping = "RUN_STOPPING",
    /// The run is paused.
    RunPaused = "RUN_PAUSED",
    /// The run is undoing its steps, and that is to be kept.
    RunUndoing = "RUN_UNDOING",
    /// The run is not paused.
    RunNotPaused = "RUN_NOT_PAUSED",
    /// The run already exists.
    RunExists = "RUN_EXISTS",
    /// The id of the start request was used for a request with other content.
    RequestContradicted = "REQUEST_CONTRADICTED",
    /// An open run of the plan has the same key.
    KeyTaken = "BIZ_KEY_TAKEN",
    /// The parameters of the run give no key, and the plan says that the run has one.
    KeyMissing = "BIZ_KEY_MISSING",
    /// Labels are too many or too long, or have a forbidden character.
    LabelsInvalid = "LABELS_INVALID",
    /// There is no such run yet.
    RunUnknown = "RUN_UNKNOWN",
    /// The run has not ended.
    RunNotTerminal = "RUN_NOT_TERMINAL",
    /// The run is not approved.
    RunNotApproved = "RUN_NOT_APPROVED",
    /// The run is not running.
    RunNotRunning = "RUN_NOT_RUNNING",
    /// The state table has no such transition.
    InvalidTransition = "INVALID_TRANSITION",
    /// An id is empty, too long or has a forbidden character.
    InvalidId = "INVALID_ID",
    /// There is no such step, visit or item.
    StepUnknown = "STEP_UNKNOWN",
    /// The step may not start: something it needs is missing.
    StepNotEligible = "STEP_NOT_ELIGIBLE",
    /// The step is not running.
    StepNotRunning = "STEP_NOT_RUNNING",
    /// The step is not waiting.
    StepNotWaiting = "STEP_NOT_WAITING",
    /// The step has not ended.
    StepNotTerminal = "STEP_NOT_TERMINAL",
    /// The step has ended.
    StepTerminal = "STEP_TERMINAL",
    /// The result is of an execution that is no longer current.
    StaleExecution = "STALE_EXECUTION",
    /// The lease belongs to someone else or has run out.
    LeaseLost = "LEASE_LOST",
    /// The lease has not run out.
    LeaseAlive = "LEASE_ALIVE",
    /// The timer was disarmed or armed anew.
    TimerStale = "TIMER_STALE",
    /// The timer is not due.
    TimerNotDue = "TIMER_NOT_DUE",
    /// The step's completion mode is not manual.
    NotManual = "NOT_MANUAL",
    /// The completion token is not the one of the open wait.
    TokenMismatch = "TOKEN_MISMATCH",
    /// Separation of duties forbids this person.
    SodDenied = "SOD_DENIED",
    /// The sender may not do this.
    AuthzDenied = "AUTHZ_DENIED",
    /// This signal needs a reason.
    AuthzReasonRequired = "AUTHZ_REASON_REQUIRED",
    /// The sender belongs to another tenant.
    AuthzTenantForbidden = "AUTHZ_TENANT_FORBIDDEN",
    /// A signal with this id was already decided.
    SignalDuplicate = "SIGNAL_DUPLICATE",
    /// There is no such signal.
    SignalNotFound = "SIGNAL_NOT_FOUND",
    /// The signal's payload does not fit its schema.
    SignalInvalidPayload = "SIGNAL_INVALID_PAYLOAD",
    /// Too many signals in a minute.
    SignalRateLimited = "SIGNAL_RATE_LIMITED",
    /// Too many events are kept for this run.
    InboxFull = "INBOX_FULL",
    /// The log and the rules do not fit: an event that must follow cannot. The run is not served.
    LogInvalid = "LOG_INVALID",
    /// The plan is written for another engine than the one that runs it.
    PlanAdapterUnsupported = "PLAN_ADAPTER_UNSUPPORTED",
    /// The plan requires what the engine that runs it does not have.
    PlanCapabilityUnsupported = "PLAN_CAPABILITY_UNSUPPORTED",
    /// There is nothing left to do.
    NothingToDo = "NOTHING_TO_DO",
}
