//! The codes of the problems that a definition can have: one table, in the order of the languages. A problem names its
//! code by a constant of this table; `docs/errors` has a page for each, and tidy keeps the table and the pages together.

// Files and fields of every language.

pub(crate) const BACKOFF_CAPPED: &str = "BACKOFF_CAPPED";
pub(crate) const CONDITION_CONSTANT: &str = "CONDITION_CONSTANT";
pub(crate) const FIELD_CONFLICT: &str = "FIELD_CONFLICT";
pub(crate) const FIELD_DURATION: &str = "FIELD_DURATION";
pub(crate) const FIELD_MISSING: &str = "FIELD_MISSING";
pub(crate) const FIELD_TYPE: &str = "FIELD_TYPE";
pub(crate) const FIELD_UNKNOWN: &str = "FIELD_UNKNOWN";
pub(crate) const FIELD_UNUSED: &str = "FIELD_UNUSED";
pub(crate) const FIELD_VALUE: &str = "FIELD_VALUE";
pub(crate) const INPUT_UNUSED: &str = "INPUT_UNUSED";
pub(crate) const LANGUAGE_AMBIGUOUS: &str = "LANGUAGE_AMBIGUOUS";
pub(crate) const LANGUAGE_UNKNOWN: &str = "LANGUAGE_UNKNOWN";
pub(crate) const NAME_DUPLICATE: &str = "NAME_DUPLICATE";
pub(crate) const NAME_INVALID: &str = "NAME_INVALID";
pub(crate) const NAME_UNKNOWN: &str = "NAME_UNKNOWN";
pub(crate) const PLAN_TOO_LARGE: &str = "PLAN_TOO_LARGE";
pub(crate) const RULE_SHAPE: &str = "RULE_SHAPE";
pub(crate) const RULE_UNREACHABLE: &str = "RULE_UNREACHABLE";
pub(crate) const SECRET_ON_COMMAND_LINE: &str = "SECRET_ON_COMMAND_LINE";
pub(crate) const SECRET_VALUE: &str = "SECRET_VALUE";
pub(crate) const SOURCE_BAD_ALIAS: &str = "SOURCE_BAD_ALIAS";
pub(crate) const SOURCE_BAD_CHARACTER: &str = "SOURCE_BAD_CHARACTER";
pub(crate) const SOURCE_BAD_KEY: &str = "SOURCE_BAD_KEY";
pub(crate) const SOURCE_BAD_MERGE: &str = "SOURCE_BAD_MERGE";
pub(crate) const SOURCE_BAD_NUMBER: &str = "SOURCE_BAD_NUMBER";
pub(crate) const SOURCE_BAD_TAG: &str = "SOURCE_BAD_TAG";
pub(crate) const SOURCE_DUPLICATE_KEY: &str = "SOURCE_DUPLICATE_KEY";
pub(crate) const SOURCE_EMPTY: &str = "SOURCE_EMPTY";
pub(crate) const SOURCE_MANY_DOCUMENTS: &str = "SOURCE_MANY_DOCUMENTS";
pub(crate) const SOURCE_NOT_UTF8: &str = "SOURCE_NOT_UTF8";
pub(crate) const SOURCE_SCALAR_TOO_LONG: &str = "SOURCE_SCALAR_TOO_LONG";
pub(crate) const SOURCE_SYNTAX: &str = "SOURCE_SYNTAX";
pub(crate) const SOURCE_TOO_DEEP: &str = "SOURCE_TOO_DEEP";
pub(crate) const SOURCE_TOO_LARGE: &str = "SOURCE_TOO_LARGE";
pub(crate) const SOURCE_TOO_MANY_NODES: &str = "SOURCE_TOO_MANY_NODES";
pub(crate) const TEMPLATE_EXECUTION: &str = "TEMPLATE_EXECUTION";
pub(crate) const TEMPLATE_IGNORED: &str = "TEMPLATE_IGNORED";
pub(crate) const TEMPLATE_SYNTAX: &str = "TEMPLATE_SYNTAX";
pub(crate) const TOOL_NOT_ALONE: &str = "TOOL_NOT_ALONE";
pub(crate) const TOOL_UNKNOWN: &str = "TOOL_UNKNOWN";
pub(crate) const TOO_MANY_PROBLEMS: &str = "TOO_MANY_PROBLEMS";
pub(crate) const VALUE_UNGUARDED: &str = "VALUE_UNGUARDED";
pub(crate) const WORKBOOK_UNKNOWN: &str = "WORKBOOK_UNKNOWN";

/// Problems whose place in the source is a secret.
pub(crate) const ABOUT_SECRETS: [&str; 3] = [PLAN_SECRET_VALUE, SECRET_VALUE, KEYCHAIN_PLAINTEXT];

// Action lists.

pub(crate) const COMPENSATION_INCOMPLETE: &str = "COMPENSATION_INCOMPLETE";
pub(crate) const COMPLETION_CONTRADICTED: &str = "COMPLETION_CONTRADICTED";
pub(crate) const DEPENDENCY_CYCLE: &str = "DEPENDENCY_CYCLE";
pub(crate) const DEPENDENCY_DUPLICATE: &str = "DEPENDENCY_DUPLICATE";
pub(crate) const DEPENDENCY_SELF: &str = "DEPENDENCY_SELF";
pub(crate) const DEPENDENCY_UNKNOWN: &str = "DEPENDENCY_UNKNOWN";
pub(crate) const DUTY_SELF: &str = "DUTY_SELF";
pub(crate) const DUTY_UNKNOWN: &str = "DUTY_UNKNOWN";
pub(crate) const DUTY_UNUSED: &str = "DUTY_UNUSED";
pub(crate) const ERROR_CLASS_FINAL: &str = "ERROR_CLASS_FINAL";
pub(crate) const ERROR_CLASS_UNKNOWN: &str = "ERROR_CLASS_UNKNOWN";
pub(crate) const OPERATION_INVALID: &str = "OPERATION_INVALID";
pub(crate) const ORDER_INVALID: &str = "ORDER_INVALID";
pub(crate) const SCHEMA_VERSION_UNSUPPORTED: &str = "SCHEMA_VERSION_UNSUPPORTED";
pub(crate) const SIDE_EFFECT_CONTRADICTED: &str = "SIDE_EFFECT_CONTRADICTED";
pub(crate) const TIER_LOOSENED: &str = "TIER_LOOSENED";
pub(crate) const WORKFLOW_INACTIVE: &str = "WORKFLOW_INACTIVE";

// DAG workflows.

pub(crate) const DAG_COMPENSATION_DUPLICATE: &str = "DAG_COMPENSATION_DUPLICATE";
pub(crate) const DAG_COMPENSATION_MISSING: &str = "DAG_COMPENSATION_MISSING";
pub(crate) const DAG_COMPENSATION_UNKNOWN: &str = "DAG_COMPENSATION_UNKNOWN";
pub(crate) const DAG_CYCLE: &str = "DAG_CYCLE";
pub(crate) const DAG_EMPTY: &str = "DAG_EMPTY";
pub(crate) const DAG_NO_ROOT: &str = "DAG_NO_ROOT";
pub(crate) const DAG_NO_TIMEOUT: &str = "DAG_NO_TIMEOUT";
pub(crate) const DAG_POLICY_UNUSED: &str = "DAG_POLICY_UNUSED";
pub(crate) const DAG_STEP_DUPLICATE: &str = "DAG_STEP_DUPLICATE";
pub(crate) const DAG_STEP_UNKNOWN: &str = "DAG_STEP_UNKNOWN";
pub(crate) const DAG_TRIGGER_NEVER: &str = "DAG_TRIGGER_NEVER";
pub(crate) const DAG_UNREACHABLE: &str = "DAG_UNREACHABLE";
pub(crate) const DAG_VERSION_UNKNOWN: &str = "DAG_VERSION_UNKNOWN";

// Linear chains.

pub(crate) const WAIT_FIELD: &str = "WAIT_FIELD";
pub(crate) const WAIT_TIMEOUT_UNUSED: &str = "WAIT_TIMEOUT_UNUSED";
pub(crate) const WAIT_WITHOUT_TIMEOUT: &str = "WAIT_WITHOUT_TIMEOUT";
pub(crate) const WORK_CONFLICT: &str = "WORK_CONFLICT";

// Plans.

pub(crate) const INVALID_PLAN_SCHEMA: &str = "INVALID_PLAN_SCHEMA";
pub(crate) const INVALID_STEP_SCHEMA: &str = "INVALID_STEP_SCHEMA";
pub(crate) const PLAN_ADAPTER_UNSUPPORTED: &str = "PLAN_ADAPTER_UNSUPPORTED";
pub(crate) const PLAN_CAPABILITY_UNSUPPORTED: &str = "PLAN_CAPABILITY_UNSUPPORTED";
pub(crate) const PLAN_HOLD_UNUSED: &str = "PLAN_HOLD_UNUSED";
pub(crate) const PLAN_REF_MISMATCH: &str = "PLAN_REF_MISMATCH";
pub(crate) const PLAN_SCHEMA_VERSION_UNKNOWN: &str = "PLAN_SCHEMA_VERSION_UNKNOWN";
pub(crate) const PLAN_SECRET_VALUE: &str = "PLAN_SECRET_VALUE";
pub(crate) const PLAN_SEQUENTIAL: &str = "PLAN_SEQUENTIAL";
pub(crate) const PLAN_URI_NOT_ALLOWED: &str = "PLAN_URI_NOT_ALLOWED";

// Playbooks.

pub(crate) const API_VERSION: &str = "API_VERSION";
pub(crate) const ARC_AFTER_FAILURE: &str = "ARC_AFTER_FAILURE";
pub(crate) const ARC_ENDLESS: &str = "ARC_ENDLESS";
pub(crate) const ARC_UNREACHABLE: &str = "ARC_UNREACHABLE";
pub(crate) const FINAL_STEP_ARC: &str = "FINAL_STEP_ARC";
pub(crate) const JOIN_POINTLESS: &str = "JOIN_POINTLESS";
pub(crate) const KEYCHAIN_PLAINTEXT: &str = "KEYCHAIN_PLAINTEXT";
pub(crate) const KEYCHAIN_UNKNOWN: &str = "KEYCHAIN_UNKNOWN";
pub(crate) const LOOP_UNSUPPORTED: &str = "LOOP_UNSUPPORTED";
pub(crate) const NEXT_EMPTY: &str = "NEXT_EMPTY";
pub(crate) const STEP_RUNS_TWICE: &str = "STEP_RUNS_TWICE";
pub(crate) const STEP_UNDEFINED: &str = "STEP_UNDEFINED";
pub(crate) const STEP_UNREACHABLE: &str = "STEP_UNREACHABLE";

// Tasks and their rules.

pub(crate) const SET_SCOPE: &str = "SET_SCOPE";
pub(crate) const TASK_UNKNOWN: &str = "TASK_UNKNOWN";
