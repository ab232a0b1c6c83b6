//! The environment of a program: little of the worker's, what the task adds, and who is calling.

use std::collections::BTreeMap;

use serde_json::Value as Json;

use super::ProcessOptions;
use crate::outcome::ToolError;
use crate::tool::{TaskContext, ToolCall, kind_of};
use stepwell_kernel::codes;

/// What is handed on of the worker's environment. Its secrets are in none of these.
const PASSED: &[&str] = &[
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "TMPDIR",
    "TZ",
    "USER",
    "LOGNAME",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
];

/// Linux takes no more than this for one variable, its name and end included.
const LONGEST: usize = 128 * 1024 - 256;

/// The variables that tell a program which execution started it.
pub(crate) fn who_calls(cx: &TaskContext) -> impl Iterator<Item = (String, String)> {
    let facts = cx.facts();
    let facts = facts.map(|(fact, value)| (fact.variable.to_owned(), value));
    let trace = cx.trace_headers();
    facts.chain(trace.map(|(name, value)| (name.to_uppercase(), value.to_owned())))
}

/// Every variable that a call's program sees.
pub(crate) fn environment(
    options: &ProcessOptions,
    call: &ToolCall,
    cx: &TaskContext,
) -> Result<BTreeMap<String, String>, ToolError> {
    let mut env = options.inherited();
    env.extend(who_calls(cx));
    let added = match call.fields.get("env") {
        None | Some(Json::Null) => return Ok(env),
        Some(Json::Object(added)) => added,
        Some(other) => {
            return Err(ToolError::invalid(
                codes::TOOL_FIELD,
                format!("`env` must be a mapping, it is {}", kind_of(other)),
            ));
        }
    };
    for (name, value) in added {
        match value {
            Json::Null => {
                env.remove(name);
            }
            Json::String(text) => {
                env.insert(name.clone(), text.clone());
            }
            other @ (Json::Bool(_) | Json::Number(_) | Json::Array(_) | Json::Object(_)) => {
                env.insert(name.clone(), other.to_string());
            }
        }
    }
    check(&env)?;
    Ok(env)
}

impl ProcessOptions {
    /// What is handed on of the worker's environment.
    pub(crate) fn inherited(&self) -> BTreeMap<String, String> {
        std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .filter(|(name, _)| {
                name.starts_with("LC_")
                    || PASSED.contains(&name.as_str())
                    || self.pass.iter().any(|passed| passed == name)
            })
            .collect()
    }
}

fn check(env: &BTreeMap<String, String>) -> Result<(), ToolError> {
    for (name, value) in env {
        let wrong = if name.is_empty() || name.contains(['=', '\0']) {
            "is no name of a variable"
        } else if value.contains('\0') {
            "holds a zero byte"
        } else if name.len() + value.len() > LONGEST {
            "is too long; hand it on in a file"
        } else {
            continue;
        };
        return Err(ToolError::invalid(
            codes::TOOL_FIELD,
            format!("`env`: `{name}` {wrong}"),
        ));
    }
    Ok(())
}
