//! The codes of errors that a run or an operator meets while plans run: one table for the kernel, the engine and the
//! worker. `docs/errors` has a page for each code, and tidy keeps the table and the pages together. The codes of refused
//! commands are in `rejection`, those of stores with the port, those of one tool with the tool.

// Steps: why an execution or a step failed.

pub const CANCELLED: &str = "CANCELLED";
pub const CHILD_CANCELLED: &str = "CHILD_CANCELLED";
pub const CHILD_FAILED: &str = "CHILD_FAILED";
pub const EXPRESSION_FAILED: &str = "EXPRESSION_FAILED";
pub const KILLED: &str = "KILLED";
pub const LEASE_EXPIRED: &str = "LEASE_EXPIRED";
pub const LOOP_BAD_LIMIT: &str = "LOOP_BAD_LIMIT";
pub const LOOP_NOT_A_LIST: &str = "LOOP_NOT_A_LIST";
pub const LOOP_TOO_LARGE: &str = "LOOP_TOO_LARGE";
pub const LOST_TOO_OFTEN: &str = "LOST_TOO_OFTEN";
pub const MANUAL_CANCELLED: &str = "MANUAL_CANCELLED";
pub const MANUAL_FAILED: &str = "MANUAL_FAILED";
pub const NO_NEXT_MATCHED: &str = "NO_NEXT_MATCHED";
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";
pub const PLAN_INTEGRITY_VALIDATION_FAILED: &str = "PLAN_INTEGRITY_VALIDATION_FAILED";
pub const RUN_TIMEOUT: &str = "RUN_TIMEOUT";
pub const SIMULATED_FAILURE: &str = "SIMULATED_FAILURE";
pub const SKIPPED_BY_OPERATOR: &str = "SKIPPED_BY_OPERATOR";
pub const STALL_TIMEOUT: &str = "STALL_TIMEOUT";
pub const STEP_FAILED: &str = "STEP_FAILED";
pub const TIMEOUT: &str = "TIMEOUT";
pub const TOO_MANY_VISITS: &str = "TOO_MANY_VISITS";

// Plans: why a net is not a plan.

pub const NAME_DUPLICATE: &str = "NAME_DUPLICATE";
pub const NAME_INVALID: &str = "NAME_INVALID";
pub const PLAN_BROKEN_EDGE: &str = "PLAN_BROKEN_EDGE";
pub const PLAN_EMPTY: &str = "PLAN_EMPTY";
pub const PLAN_NOT_CANONICAL: &str = "PLAN_NOT_CANONICAL";
pub const PLAN_TOO_LARGE: &str = "PLAN_TOO_LARGE";

// Alerts of the kernel.

pub const DESTRUCTIVE_SIGNAL: &str = "DESTRUCTIVE_SIGNAL";
pub const ESCALATED: &str = "ESCALATED";
pub const GOVERNANCE_BLOCKED: &str = "GOVERNANCE_BLOCKED";
pub const PAUSE_DRAIN_TIMEOUT: &str = "PAUSE_DRAIN_TIMEOUT";
pub const PROJECTOR_CAUSAL_VIOLATION: &str = "PROJECTOR_CAUSAL_VIOLATION";
pub const PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED: &str = "PROJECTOR_NON_CONTIGUOUS_FETCH_DETECTED";
pub const STEP_LOST_REPEATEDLY: &str = "STEP_LOST_REPEATEDLY";

// Errors and alerts of the engine.

pub const CHILD_TOO_DEEP: &str = "CHILD_TOO_DEEP";
pub const CHILD_UNKNOWN: &str = "CHILD_UNKNOWN";
pub const CLOCK_SKEW: &str = "CLOCK_SKEW";
pub const CONCURRENCY_LIMIT: &str = "CONCURRENCY_LIMIT";
pub const ENGINE_DIFFERS: &str = "ENGINE_DIFFERS";
pub const ENGINE_INVARIANT: &str = "ENGINE_INVARIANT";
pub const ENGINE_NOT_SERVED: &str = "ENGINE_NOT_SERVED";
pub const ENGINE_STOPS: &str = "ENGINE_STOPS";
pub const EVENT_BUS_DELIVERY_FAILED: &str = "EVENT_BUS_DELIVERY_FAILED";
pub const PROJECTOR_LAG_HIGH: &str = "PROJECTOR_LAG_HIGH";
pub const REPEAT_REFUSED: &str = "REPEAT_REFUSED";
pub const RUN_CONTENDED: &str = "RUN_CONTENDED";
pub const VALUE_REFUSED: &str = "VALUE_REFUSED";
pub const WRITE_LATENCY_EXCEEDED: &str = "WRITE_LATENCY_EXCEEDED";

// Errors of the worker, whatever the tool.

pub const ASSERT_EXPECTS: &str = "ASSERT_EXPECTS";
pub const ASSERT_RETURNS: &str = "ASSERT_RETURNS";
pub const HANDLER_FAILED: &str = "HANDLER_FAILED";
pub const HANDLER_INPUT: &str = "HANDLER_INPUT";
pub const HANDLER_MISSING: &str = "HANDLER_MISSING";
pub const HANDLER_OUTPUT: &str = "HANDLER_OUTPUT";
pub const HOST_DENIED: &str = "HOST_DENIED";
pub const PATH_DENIED: &str = "PATH_DENIED";
pub const PIPELINE_BROKEN: &str = "PIPELINE_BROKEN";
pub const PIPELINE_ENDLESS: &str = "PIPELINE_ENDLESS";
pub const RETRIES_EXHAUSTED: &str = "RETRIES_EXHAUSTED";
pub const SECRET_IN_CALL: &str = "SECRET_IN_CALL";
pub const VALUE_UNGUARDED: &str = "VALUE_UNGUARDED";
pub const TASK_CANCELLED: &str = "TASK_CANCELLED";
pub const TASK_FAILED: &str = "TASK_FAILED";
pub const TASK_TIMEOUT: &str = "TASK_TIMEOUT";
pub const TOOL_FIELD: &str = "TOOL_FIELD";
pub const TOOL_FORBIDDEN: &str = "TOOL_FORBIDDEN";
pub const TOOL_MISSING: &str = "TOOL_MISSING";
pub const UNDO_CANNOT_WAIT: &str = "UNDO_CANNOT_WAIT";
pub const WORKBOOK_UNKNOWN: &str = "WORKBOOK_UNKNOWN";
pub const WORKER_PANIC: &str = "WORKER_PANIC";
pub const WORKER_UNPREPARED: &str = "WORKER_UNPREPARED";
