//! The codes that only the server has. `docs/errors` has a page for each.

pub(crate) const ARTIFACT_UNKNOWN: &str = "ARTIFACT_UNKNOWN";
pub(crate) const BODY_TOO_LARGE: &str = "BODY_TOO_LARGE";
pub(crate) const CODE_UNKNOWN: &str = "CODE_UNKNOWN";
pub(crate) const DEFINITION_DEPRECATED: &str = "DEFINITION_DEPRECATED";
pub(crate) const DEAD_LETTER_UNKNOWN: &str = "DEAD_LETTER_UNKNOWN";
pub(crate) const CSRF_DENIED: &str = "CSRF_DENIED";
pub(crate) const DEFINITION_INVALID: &str = "DEFINITION_INVALID";
pub(crate) const DEFINITION_UNKNOWN: &str = "DEFINITION_UNKNOWN";
pub(crate) const DOCUMENT_CONTENDED: &str = "DOCUMENT_CONTENDED";
pub(crate) const ENDPOINT_UNKNOWN: &str = "ENDPOINT_UNKNOWN";
pub(crate) const EVENT_UNKNOWN: &str = "EVENT_UNKNOWN";
pub(crate) const METHOD_NOT_ALLOWED: &str = "METHOD_NOT_ALLOWED";
pub(crate) const OIDC_UNAVAILABLE: &str = "OIDC_UNAVAILABLE";
pub(crate) const ORIGIN_DENIED: &str = "ORIGIN_DENIED";
pub(crate) const RATE_LIMITED: &str = "RATE_LIMITED";
pub(crate) const PLAN_UNKNOWN: &str = "PLAN_UNKNOWN";
pub(crate) const PROTOCOL_UNKNOWN: &str = "PROTOCOL_UNKNOWN";
pub(crate) const REQUEST_INVALID: &str = "REQUEST_INVALID";
pub(crate) const REQUEST_TIMEOUT: &str = "REQUEST_TIMEOUT";
pub(crate) const RUN_UNANSWERED: &str = "RUN_UNANSWERED";
pub(crate) const SCHEDULE_INVALID: &str = "SCHEDULE_INVALID";
pub(crate) const SCHEDULE_UNKNOWN: &str = "SCHEDULE_UNKNOWN";
pub(crate) const SERVER_FAULT: &str = "SERVER_FAULT";
pub(crate) const SINK_UNKNOWN: &str = "SINK_UNKNOWN";
pub(crate) const TOKEN_ENDED: &str = "TOKEN_ENDED";
pub(crate) const TOKEN_INVALID: &str = "TOKEN_INVALID";
pub(crate) const TOKEN_UNKNOWN: &str = "TOKEN_UNKNOWN";
pub(crate) const WEBHOOK_DENIED: &str = "WEBHOOK_DENIED";
pub(crate) const WEBHOOK_INVALID: &str = "WEBHOOK_INVALID";
pub(crate) const WEBHOOK_LATE: &str = "WEBHOOK_LATE";
pub(crate) const WEBHOOK_UNKNOWN: &str = "WEBHOOK_UNKNOWN";
pub(crate) const TASK_TOKEN_UNKNOWN: &str = "TASK_TOKEN_UNKNOWN";

/// Also said by the command: a person has answered otherwise before.
pub(crate) const ANSWER_CONTRADICTED: &str = "ANSWER_CONTRADICTED";
